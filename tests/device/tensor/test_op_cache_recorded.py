"""Replayed calls that autograd records, that return views, or that write operands, equal calls that aren't replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.nn import functional as F
from vkjit.runtime.device import Device
from vkjit.runtime.dispatch_cache import set_repeating
from vkjit.tensor import view_cache
from vkjit.tensor.op_cache.replay import Replay

CALLS = 5

Shapes = list[tuple[int, ...]]


@pytest.fixture(autouse=True)
def fresh(device: Device) -> Iterator[None]:
    device.dispatch_cache.clear()
    view_cache._unrecorded.clear()
    view_cache._recorded.clear()
    with vk.use_device(device):
        yield
    set_repeating(None)


def floats(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def replays(device: Device, label: str) -> int:
    """Return how many keys of a function have a replay."""
    return sum(key[0] == label and isinstance(entry, Replay) for key, entry in device.dispatch_cache.items())


def target(n: int, classes: int) -> Any:
    return vk.tensor(np.arange(n) * 7 % classes)


INDEX = np.array([2, 0, 1, 2])
# label (empty for views, which `view_cache` repeats), shapes of the operands, function of the operands
CASES: list[tuple[str, Shapes, Callable[..., Any]]] = [
    ("add", [(4, 5), (5,)], lambda x, y: x + y),
    ("linear()", [(4, 6), (5, 6), (5,)], lambda x, w, b: F.linear(x, w, b)),
    ("layer_norm()", [(4, 6), (6,), (6,)], lambda x, w, b: F.layer_norm(x, (6,), w, b)),
    ("rms_norm()", [(4, 6), (6,)], lambda x, w: F.rms_norm(x, (6,), w)),
    ("group_norm()", [(2, 4, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b)),
    ("conv2d()", [(1, 2, 6, 6), (3, 2, 3, 3), (3,)], lambda x, w, b: F.conv2d(x, w, b, padding=1)),
    (
        "scaled_dot_product_attention()",
        [(1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    ("cross_entropy()", [(6, 5), (5,)], lambda x, w: F.cross_entropy(x, target(6, 5), w.detach().abs())),
    ("cross_entropy()", [(6, 5)], lambda x: F.cross_entropy(x, target(6, 5), label_smoothing=0.1)),
    ("nll_loss()", [(6, 5)], lambda x: F.nll_loss(x.log_softmax(1), target(6, 5), reduction="sum")),
    ("mse_loss()", [(6, 5), (6, 5)], lambda x, y: F.mse_loss(x, y)),
    ("embedding()", [(5, 3)], lambda table: F.embedding(vk.tensor(INDEX), table, padding_idx=1)),
    ("max_pool2d()", [(1, 2, 6, 6)], lambda x: F.max_pool2d(x, 2)),
    ("cat()", [(2, 3), (2, 4)], lambda x, y: vk.cat([x, y], 1)),
    ("get_item()", [(5, 3)], lambda x: x[vk.tensor(INDEX)]),
    ("", [(5, 6)], lambda x: x[1:4, ::2]),
    ("softmax()", [(4, 6)], lambda x: x.softmax(-1)),
    ("var()", [(4, 6)], lambda x: x.var(0)),
    ("max()", [(4, 6)], lambda x: x.max(1)[0]),
    ("", [(4, 6)], lambda x: x.reshape(2, 2, 6).permute(2, 0, 1)),
    ("", [(4, 1, 6)], lambda x: x.squeeze(1).unsqueeze(0).expand(3, 4, 6)),
    ("to()", [(4, 6)], lambda x: x.to(vk.f16)),
]


def outcome(function: Callable[..., Any], seed: int, shapes: Shapes, order: int = 1) -> list[Any]:
    """Return the function's value and the gradients of its operands; for order 2 also those of a gradient penalty."""
    operands = [vk.tensor(floats(10 * seed + i, shape), requires_grad=True) for i, shape in enumerate(shapes)]
    value = function(*operands)
    total = (value.to(vk.f32) * vk.tensor(floats(99, value.shape))).sum()
    if order == 1:
        total.backward()
    else:
        slopes = vk.autograd.grad(total, operands, create_graph=True, allow_unused=True)
        sum((slope * slope).sum() for slope in slopes if slope is not None and slope.requires_grad).backward()
    return [value.detach().numpy(), *(None if x.grad is None else x.grad.numpy() for x in operands)]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(("label", "shapes", "function"), CASES, ids=[f"{c[0]} {c[1][0]}" for c in CASES])
def test_replays_equal_other_calls(
    device: Device, label: str, shapes: Shapes, function: Callable[..., Any], recorded: bool
) -> None:
    def call(seed: int) -> list[Any]:
        if recorded:
            return outcome(function, seed, shapes)
        with vk.no_grad():
            return [function(*[vk.tensor(floats(10 * seed + i, s)) for i, s in enumerate(shapes)]).numpy()]

    set_repeating(False)
    expected = [call(seed) for seed in range(CALLS)]
    set_repeating(True)
    for seed in range(CALLS):
        for found, wanted in zip(call(seed), expected[seed], strict=True):
            if wanted is None:
                assert found is None
            else:
                np.testing.assert_array_equal(found, wanted)
    if label and device.caps.kind != "interpreter":
        assert replays(device, label), "the call was never replayed"


SMOOTH = [c for c in CASES if c[0] in ("linear()", "softmax()", "", "mse_loss()", "get_item()", "cat()")]


@pytest.mark.parametrize(("label", "shapes", "function"), SMOOTH, ids=[f"{c[0]} {c[1][0]}" for c in SMOOTH])
def test_second_gradients_of_replays(device: Device, label: str, shapes: Shapes, function: Callable[..., Any]) -> None:
    def cubed(*operands: Any) -> Any:
        return function(*operands) ** 3

    set_repeating(False)
    expected = [outcome(cubed, seed, shapes, order=2) for seed in range(CALLS)]
    set_repeating(True)
    for seed in range(CALLS):
        for found, wanted in zip(outcome(cubed, seed, shapes, order=2), expected[seed], strict=True):
            assert (found is None) == (wanted is None)
            if wanted is not None:
                np.testing.assert_array_equal(found, wanted)


def test_views_share_memory_and_versions() -> None:
    for seed in range(CALLS):
        values = floats(seed, (4, 6))
        x = vk.tensor(values)
        views = [x.reshape(2, 12), x.T, x[1:3], x.unsqueeze(0), x[2]]
        assert all(v.is_view and v.shares_memory_with(x) for v in views)
        before = x.version
        x.mul_(2.0)
        assert [v.version for v in views] == [before + 1] * len(views)
        np.testing.assert_array_equal(views[1].numpy(), (2 * values).T)
        views[2].zero_()
        assert not x.numpy()[1:3].any() and x.version == before + 2
        part = x[3:].reshape(3, 2)  # a view of a view at another offset
        np.testing.assert_array_equal(part.numpy(), (2 * values)[3:].reshape(3, 2))


def test_views_are_tracked_through_writes() -> None:
    for seed in range(CALLS):
        leaf = vk.tensor(floats(seed, (4, 6)), requires_grad=True)
        x = leaf * 1.0
        part = x.reshape(24)[6:12]
        part.mul_(3.0)
        (x * x).sum().backward()
        expected = 2 * leaf.detach().numpy()
        expected[1] *= 9
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-6)
        with vk.no_grad():
            untracked = x[1:3]
        with pytest.raises(vk.ArgumentError, match="made while nothing was recorded"):
            untracked.mul_(vk.ones(2, 6, requires_grad=True))
        with pytest.raises(vk.ArgumentError, match="leaf"):
            leaf[0].mul_(2.0)


def test_values_that_a_replayed_node_keeps_are_checked_for_writes() -> None:
    for seed in range(CALLS):
        x = vk.tensor(floats(seed, (4, 6)), requires_grad=True)
        weight = vk.tensor(floats(seed + 50, (5, 6)), requires_grad=True)
        y = F.linear(x, weight)
        with vk.no_grad():
            weight.add_(1.0)
        with pytest.raises(vk.VkjitError, match="changed in place"):
            y.sum().backward()


def test_results_that_only_a_node_keeps_need_no_tensors(device: Device) -> None:
    values = [floats(1, (4, 6)), floats(2, (6,)), floats(3, (6,))]
    gradients = []
    for _ in range(CALLS):
        x, w, b = operands = [vk.tensor(value, requires_grad=True) for value in values]
        y = F.layer_norm(x, (6,), w, b)
        (y * y).sum().backward()
        gradients.append(np.concatenate([t.grad.numpy().ravel() for t in operands if t.grad is not None]))
    assert all(np.array_equal(other, gradients[0]) for other in gradients[1:])
    norms = [e for k, e in device.dispatch_cache.items() if k[0] == "layer_norm()" and isinstance(e, Replay)]
    assert replays(device, "layer_norm()") == (device.caps.kind != "interpreter")
    for replay in norms:  # mean and standard deviation are results of the operation, but not of the function
        assert len(replay.plans) == 1 and len(replay.nodes[0].outputs) == 3


def test_running_statistics_are_written_by_replays() -> None:
    for training in (True, False):
        set_repeating(False)
        expected = _batch_norms(training)
        set_repeating(True)
        for found, wanted in zip(_batch_norms(training), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def _batch_norms(training: bool) -> list[Any]:
    """Normalize several batches; return the outputs, the gradients, the running statistics and their write counts."""
    layer: Any = vk.nn.BatchNorm1d(6)
    layer.train(training)
    outputs: list[Any] = []
    for seed in range(CALLS):
        x = vk.tensor(floats(seed, (4, 6)) + seed, requires_grad=True)
        y = layer(x)
        (y * y * y).sum().backward()
        assert x.grad is not None
        outputs += [y.detach().numpy(), x.grad.numpy(), layer.running_mean.numpy(), layer.running_var.numpy()]
        outputs.append(np.array([layer.running_mean.version, layer.running_var.version]))
    return outputs


def test_random_operations_are_not_replayed() -> None:
    x = vk.ones(200)
    results = [F.dropout(x, 0.5).numpy().tobytes() for _ in range(CALLS)]
    assert len(set(results)) == CALLS
    vk.manual_seed(3)
    first = [F.dropout(x, 0.5).numpy() for _ in range(CALLS)]
    vk.manual_seed(3)
    np.testing.assert_array_equal(first, [F.dropout(x, 0.5).numpy() for _ in range(CALLS)])


def test_autocast_is_part_of_the_key() -> None:
    x, w = vk.tensor(floats(1, (4, 6))), vk.tensor(floats(2, (5, 6)), requires_grad=True)
    for _ in range(CALLS):
        assert F.linear(x, w).dtype is vk.f32
        with vk.autocast(vk.f16):
            y = F.linear(x, w)
        assert y.dtype is vk.f16
        y.sum().backward()
        assert w.grad is not None and w.grad.dtype is vk.f32
        w.grad = None


def test_memory_of_a_replayed_graph_is_freed(device: Device) -> None:
    x, w = vk.tensor(floats(1, (40, 60))), vk.tensor(floats(2, (50, 60)), requires_grad=True)

    def step() -> None:
        loss = F.cross_entropy(F.layer_norm(F.linear(x, w), (50,)), target(40, 50))
        loss.backward()
        w.grad = None

    counts = []
    for _ in range(3 * CALLS):
        step()
        device.synchronize()
        counts.append(device.memory_stats()["count"])
    assert counts[-1] == counts[-CALLS]


def test_hooks_and_retained_gradients_of_replayed_results() -> None:
    for seed in range(CALLS):
        x = vk.tensor(floats(seed, (4, 6)), requires_grad=True)
        y = x.softmax(-1)
        y.retain_grad()
        seen: list[Any] = []
        y.register_hook(seen.append)
        (y * 2.0).sum().backward()
        assert y.grad is not None
        np.testing.assert_array_equal(y.grad.numpy(), np.full((4, 6), 2, np.float32))
        assert len(seen) == 1


def test_tensors_over_the_same_memory_get_their_own_gradients() -> None:
    """`a + a` and `a + b` have operands of the same layouts at the same place."""
    for _ in range(CALLS):
        a = vk.tensor(floats(1, (4, 6)), requires_grad=True)
        (a + a).sum().backward()
        assert a.grad is not None and (a.grad.numpy() == 2).all()
    for _ in range(CALLS):
        a = vk.tensor(floats(1, (4, 6)), requires_grad=True)
        b = a.detach().requires_grad_()
        (a + b).sum().backward()
        assert a.grad is not None and b.grad is not None
        assert (a.grad.numpy() == 1).all() and (b.grad.numpy() == 1).all()


def test_views_of_untracked_views_and_of_other_tensors() -> None:
    """A view that was recorded for an untracked operand is tracked for other operands, and the other way round."""
    x = vk.tensor(np.ones((4, 6), np.float32), requires_grad=True)
    with vk.no_grad():
        untracked = x.reshape(6, 4)
    for _ in range(CALLS):
        untracked.reshape(8, 3)
    for _ in range(CALLS):
        y = vk.tensor(np.ones((6, 4), np.float32))
        part = y.reshape(8, 3)
        factor = vk.ones(8, 3, requires_grad=True)
        part.mul_(factor)
        y.sum().backward()
        assert factor.grad is not None and factor.grad.numpy().sum() == 24
        with pytest.raises(vk.ArgumentError, match="made while nothing was recorded"):
            untracked.reshape(8, 3).mul_(factor)
