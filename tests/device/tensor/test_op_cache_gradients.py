# mypy: disable-error-code="union-attr, no-untyped-call"
"""Replayed gradient rules: the same gradients as without the op cache, and the same errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.autograd import detect_anomaly
from vkjit.errors import VkjitError
from vkjit.nn import functional as F
from vkjit.runtime.device import Device
from vkjit.runtime.dispatch_cache import set_repeating
from vkjit.tensor.op_cache.nodes import ReplayedNode, VjpReplay

CALLS = 9
"""Three calls until operations are replayed, two more until their gradient rules are."""

Shapes = list[tuple[int, ...]]


@pytest.fixture(autouse=True)
def fresh(device: Device) -> Iterator[None]:
    set_repeating(True)
    device.dispatch_cache.clear()
    with vk.use_device(device):
        yield
    set_repeating(None)


def floats(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaves(seed: int, shapes: Shapes) -> list[Any]:
    return [vk.tensor(floats(10 * seed + i, shape), requires_grad=True) for i, shape in enumerate(shapes)]


def replay_count(device: Device) -> int:
    return sum(isinstance(entry, VjpReplay) for entry in device.dispatch_cache.values())


def both(call: Callable[[int], Any], calls: int = CALLS) -> None:
    """Check that `call` returns the same without the op cache and with it."""
    set_repeating(False)
    expected = [call(seed) for seed in range(calls)]
    set_repeating(True)
    for seed in range(calls):
        for number, (found, wanted) in enumerate(zip(call(seed), expected[seed], strict=True)):
            if isinstance(wanted, np.ndarray):
                np.testing.assert_array_equal(found, wanted, err_msg=f"call {seed}, value {number}")
            else:
                assert found == wanted, f"call {seed}, value {number}"


def target(n: int, classes: int) -> Any:
    return vk.tensor(np.arange(n) * 7 % classes)


def index(*values: int) -> Any:
    return vk.tensor(np.array(values))


def island(x: Any, y: Any) -> Any:
    with vk.no_grad():
        scale = (x * y).sum()
    return x * scale + y


def mlp(x: Any, w: Any, b: Any, v: Any) -> Any:
    return F.cross_entropy(F.linear(F.relu(F.linear(x, w, b)), v), target(6, 3))


A, B, ROW, COLUMN, SCALAR = (4, 6), (4, 6), (6,), (4, 1), ()
# shapes of the operands, function of the operands
CASES: dict[str, tuple[Shapes, Callable[..., Any]]] = {
    "add": ([A, B], lambda x, y: x + y),
    "add_row": ([A, ROW], lambda x, y: x + y),
    "sub_column": ([A, COLUMN], lambda x, y: x - y),
    "rsub": ([A], lambda x: 3.0 - x),
    "mul": ([A, B], lambda x, y: x * y),
    "mul_scalar": ([A, SCALAR], lambda x, y: x * y),
    "mul_constant": ([A], lambda x: x * 2.5 * 3),
    "square_of_itself": ([A], lambda x: x * x),
    "product_with_itself": ([(5, 5)], lambda x: x @ x),
    "product_with_transpose": ([A], lambda x: x @ x.T),
    "div": ([A, ROW], lambda x, y: x / (y * y + 1)),
    "pow": ([A], lambda x: x**3 + (x * x + 1) ** -0.5),
    "pow_tensor": ([A, B], lambda x, y: (x.abs() + 1) ** y),
    "minimum": ([A, B], lambda x, y: vk.minimum(x, y) + vk.maximum(x, 0.5 * y)),
    "where": ([A, B], lambda x, y: vk.where(x > y, x, 2 * y)),
    "clamp": ([A], lambda x: x.clamp(-0.5, 0.5)),
    "matmul": ([(3, 4), (4, 5)], lambda x, y: x @ y),
    "matmul_batch": ([(2, 3, 4), (4, 5)], lambda x, y: x @ y),
    "matmul_vector": ([(3, 4), (4,)], lambda x, y: x @ y),
    "elementwise": ([A], lambda x: x.exp() + x.sin() * x.tanh() + x.sigmoid()),
    "activations": ([A], lambda x: F.gelu(x) + F.silu(x) + F.relu(x) + F.softplus(x)),
    "sum": ([A], lambda x: x.sum(0) * x.sum()),
    "mean": ([A], lambda x: x.mean(1, True) - x),
    "var": ([A], lambda x: x.var(0) + x.std(0)),
    "amax": ([A], lambda x: x.amax(1) + x.max(1)[0]),
    "prod": ([(3, 4)], lambda x: x.prod(1)),
    "logsumexp": ([A], lambda x: x.logsumexp(1)),
    "softmax": ([A], lambda x: x.softmax(-1) + x.log_softmax(0)),
    "cumsum": ([A], lambda x: x.cumsum(1) * x.cumsum(0)),
    "views": ([A], lambda x: x.reshape(2, 2, 6).permute(2, 0, 1)[1:4, :, 0].expand(2, 3, 2)),
    "slice": ([A], lambda x: x[1:3, ::2] * x[0, 1]),
    "diagonal": ([(5, 5)], lambda x: x.diagonal() + x[0]),
    "cat": ([(2, 3), (2, 4)], lambda x, y: vk.cat([x, y, x], 1)),
    "stack": ([A, B], lambda x, y: vk.stack([x, y], 1)),
    "gather": ([A], lambda x: x[index(2, 0, 2)]),
    "embedding": ([(5, 3)], lambda x: F.embedding(index(2, 0, 1, 2), x, padding_idx=1)),
    "layer_norm": ([A, ROW, ROW], lambda x, w, b: F.layer_norm(x, (6,), w, b)),
    "batch_norm": ([A, ROW, ROW], lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)),
    "group_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b)),
    "conv2d": ([(1, 2, 6, 6), (3, 2, 3, 3), (3,)], lambda x, w, b: F.conv2d(x, w, b, padding=1)),
    "pools": ([(1, 2, 6, 6)], lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2)),
    "attention": ([(1, 2, 4, 8)] * 3, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "linear": ([(4, 6), (5, 6), (5,)], lambda x, w, b: F.linear(x, w, b)),
    "mse": ([A, B], F.mse_loss),
    "losses": ([A, B], lambda x, y: F.smooth_l1_loss(x, y) + F.l1_loss(x, y)),
    "cross_entropy_of_weights": ([(6, 5), (5,)], lambda x, w: F.cross_entropy(x, target(6, 5), w.detach().abs())),
    "cross_entropy_smoothed": ([(6, 5)], lambda x: F.cross_entropy(x, target(6, 5), label_smoothing=0.1)),
    "nll": ([(6, 5)], lambda x: F.nll_loss(x.log_softmax(1), target(6, 5), reduction="sum")),
    "mixed_types": ([A, ROW], lambda x, y: x.to(vk.f16) * y.to(vk.f16) + x),
    "half_product": ([(3, 4), (4, 5)], lambda x, y: x.to(vk.f16) @ y.to(vk.f16)),
    "no_grad_island": ([A, B], island),
    "detached": ([A, B], lambda x, y: x.detach() * y + x),
    "mlp": ([(6, 4), (5, 4), (5,), (3, 5)], mlp),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_same(device: Device, name: str) -> None:
    shapes, function = CASES[name]

    def call(seed: int) -> list[Any]:
        operands = leaves(seed, shapes)
        value = function(*operands)
        value.backward(vk.tensor(floats(99 + seed, value.shape)).to(value.dtype))
        return [value.detach().numpy(), *(None if x.grad is None else x.grad.numpy() for x in operands)]

    both(call)
    if device.caps.kind != "interpreter" and name not in ("views", "slice"):  # views come from the view cache
        assert replay_count(device), "no gradient rule was replayed"


@pytest.mark.parametrize("name", ["add", "mul", "matmul", "linear", "cat", "layer_norm", "where"])
def test_operands_that_need_no_gradient(name: str) -> None:
    shapes, function = CASES[name]

    def call(seed: int) -> list[Any]:
        gradients = []
        for needed in range(len(shapes)):  # in turn, so that calls with other needs come in between
            operands = [x if i == needed else x.detach() for i, x in enumerate(leaves(seed, shapes))]
            function(*operands).sum().backward()
            gradients += [None if x.grad is None else x.grad.numpy() for x in operands]
        return gradients

    both(call)


@pytest.mark.parametrize("name", ["mul", "matmul", "softmax", "linear", "mlp", "views"])
def test_several_passes_accumulate(name: str) -> None:
    shapes, function = CASES[name]

    def call(seed: int) -> list[Any]:
        operands = leaves(seed, shapes)
        value = function(*operands)
        value.sum().backward(retain_graph=True)
        value.sum().backward(retain_graph=True)
        (value * 2.0).sum().backward()
        with pytest.raises(VkjitError, match="a second time"):
            value.sum().backward()
        return [x.grad.numpy() for x in operands if x.grad is not None]

    both(call)


@pytest.mark.parametrize("name", ["mul", "matmul", "pow", "softmax", "linear", "views"])
def test_gradients_of_gradients(name: str) -> None:
    shapes, function = CASES[name]

    def call(seed: int) -> list[Any]:
        operands = leaves(seed, shapes)
        total = (function(*operands) ** 3).sum()
        for _ in range(3):  # rules are replayed before the first pass that records them
            first = vk.autograd.grad(total, operands, retain_graph=True)
        slopes = vk.autograd.grad(total, operands, create_graph=True)
        sum((slope * slope).sum() for slope in slopes).backward()
        return [x.numpy() for x in first] + [x.detach().numpy() for x in slopes] + [x.grad.numpy() for x in operands]

    both(call)


def test_gradients_that_share_memory_with_operands_or_each_other() -> None:
    def call(seed: int) -> list[Any]:
        (x,) = leaves(seed, [(4, 4)])
        given = vk.tensor(floats(seed + 50, (4, 4)))
        y = x * given
        y.backward(given if seed % 2 else vk.tensor(floats(seed + 70, (4, 4))))
        z = x @ given
        z.backward(given.T if seed % 3 == 1 else given)
        a, b = vk.tensor(floats(seed, (2, 4)), requires_grad=True), x.detach()
        (a * b[2:]).backward(b[:2] if seed % 2 else b[1:3])  # other distances in one buffer
        return [x.grad.numpy(), a.grad.numpy(), given.numpy()]

    both(call, 12)


@pytest.mark.parametrize("part", [0, 1])
def test_gradients_in_the_buffer_of_an_operand_in_first_calls(device: Device, part: int) -> None:
    """A rule recorded with two operands in one buffer would read both from the first one's buffer in replays."""

    def call(seed: int) -> list[Any]:
        (x,) = leaves(seed, [(4, 16)])
        memory = vk.tensor(floats(seed + 50, (2, 4, 16)))
        other = vk.tensor(floats(seed + 70, (4, 16)))
        (x * memory[0]).backward(memory[part] if seed < CALLS else other)
        return [x.grad.numpy()]

    both(call, 2 * CALLS)
    assert device.caps.kind == "interpreter" or replay_count(device)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[1:3],
    "slices of one layout": lambda x: x[0:2] * x[2:4],
    "row": lambda x: x[1],
    "steps": lambda x: x[::2, 1::3],
    "expanded": lambda x: x[:1].expand(5, 6),
    "expanded to itself": lambda x: x[1:3].expand(2, 6),
    "diagonal": lambda x: x.diagonal(1),
    "chunks": lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1],
    "windows": lambda x: x.unfold(1, 2, 2),
    "several": lambda x: x.T[1:5].reshape(2, 2, 4).permute(2, 0, 1)[:, 0],
}


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_of_views(device: Device, name: str) -> None:
    def call(seed: int) -> list[Any]:
        (x,) = leaves(seed, [(4, 6)])
        y = VIEWS[name](x)
        y.backward(vk.tensor(floats(seed + 50, y.shape)), retain_graph=True)
        first = x.grad.numpy()
        (y * y).sum().backward(retain_graph=True)
        (slope,) = vk.autograd.grad((y**3).sum(), x, create_graph=True)
        return [first, x.grad.numpy(), vk.autograd.grad(slope.sum(), x)[0].numpy()]

    both(call)
    node = VIEWS[name](leaves(0, [(4, 6)])[0]).meta.node
    if device.caps.kind != "interpreter" and node.name in ("slice", "expand", "diagonal"):
        assert isinstance(node, ReplayedNode)
        assert any(
            key[0] is node.plan.token and isinstance(entry, VjpReplay) for key, entry in device.dispatch_cache.items()
        )


def test_gradients_of_other_layouts() -> None:
    def call(seed: int) -> list[Any]:
        x, y = leaves(seed, [(4, 4), (4, 4)])
        gradient = vk.tensor(floats(seed + 50, (4, 4)))
        gradient = [gradient, gradient.T, gradient[0].expand(4, 4), vk.tensor(floats(seed, (17,)))[1:].reshape(4, 4)][
            seed % 4
        ]
        (x @ y).backward(gradient)
        return [x.grad.numpy(), y.grad.numpy()]

    both(call, 28)


def test_results_without_a_gradient() -> None:
    def call(seed: int) -> list[Any]:
        x, w, b = leaves(seed, [(4, 6), (3, 6), (3,)])
        values, indices = x.max(1)
        deviation, mean = vk.std_mean(x, 1)
        ((mean if seed % 2 else deviation) * values).sum().backward()
        left, right = F.linear(x, w, b).chunk(3, 1)[:2]
        (left if seed % 3 else right).sum().backward()
        return [x.grad.numpy(), w.grad.numpy(), b.grad.numpy(), indices.numpy()]

    both(call, 20)


def test_writes_between_forward_and_backward_raise() -> None:
    for seed in range(CALLS):
        x, y = leaves(seed, [(4, 4), (4, 4)])
        for function in (lambda a, b: a * b, lambda a, b: a @ b, lambda a, b: (a * b).exp()):
            product = function(x, y)
            with vk.no_grad():
                y.mul_(2.0)
            with pytest.raises(VkjitError, match=r"operand 1 of (mul|matmul) .* was changed in place"):
                product.sum().backward()
        result = x.exp()
        with vk.no_grad():
            result.add_(1.0)
        with pytest.raises(VkjitError, match="result 0 of exp"):
            result.sum().backward()
        rows = index(1, 0)
        picked = x[rows]
        rows.fill_(2)
        with pytest.raises(VkjitError, match="an index of take"):
            picked.sum().backward()
        x.grad = None
        constant = vk.tensor(floats(seed, (4, 4)))
        scaled = constant * x  # the rule doesn't read x, since the constant needs no gradient
        with vk.no_grad():
            x.zero_()
        scaled.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), constant.numpy())


def test_recorded_writes() -> None:
    def call(seed: int) -> list[Any]:
        x, y = leaves(seed, [(4, 6), (4, 6)])
        z = x * y
        z[1:3] *= 2.0
        z.add_(y)
        view = z[0]
        view.mul_(3.0)
        (z * x).sum().backward()
        return [x.grad.numpy(), y.grad.numpy()]

    both(call)


def test_hooks_and_retained_gradients(device: Device) -> None:
    def call(seed: int) -> list[Any]:
        x, y = leaves(seed, [(4, 6), (4, 6)])
        seen: list[Any] = []
        product = x * y
        product.retain_grad()
        product.register_hook(lambda g: g * 2.0)
        x.register_hook(lambda g: seen.append(g.numpy()))
        total = (product.exp() + product).sum()
        total.register_hook(lambda g: g.mul_(0.5))  # in place
        total.backward()
        product.grad.add_(1.0)
        x.grad.zero_()
        return [*seen, x.grad.numpy(), y.grad.numpy(), product.grad.numpy()]

    both(call)
    if device.caps.kind != "interpreter":
        assert replay_count(device)


def test_gradients_are_tensors_of_their_own() -> None:
    for seed in range(CALLS):
        x, y = leaves(seed, [(4, 6), (4, 6)])
        given = vk.ones((4, 6))
        (x + y).backward(given)
        x.grad.add_(1.0)
        np.testing.assert_array_equal(y.grad.numpy(), np.ones((4, 6), np.float32))
        np.testing.assert_array_equal(given.numpy(), np.ones((4, 6), np.float32))
        x.grad = y.grad = None
        (x - y).reshape(24).sum().backward()
        x.grad.zero_()
        assert not x.grad.requires_grad
        assert not x.grad.is_view
        np.testing.assert_array_equal(y.grad.numpy(), -np.ones((4, 6), np.float32))


def test_gradients_become_grad_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_clone(_: Any) -> Any:
        raise AssertionError("a gradient that nothing else refers to was copied")

    x, y = leaves(0, [(4, 6), (4, 6)])
    for _ in range(CALLS):
        x.grad = y.grad = None
        total = (x * y).sum()
        with monkeypatch.context() as patch:
            patch.setattr(vk.Tensor, "clone", no_clone)
            total.backward()


def test_requirements_that_change_after_recording() -> None:
    def call(seed: int) -> list[Any]:
        x, y = leaves(seed, [(2, 3), (2, 3)])
        both_parts = vk.cat([x, y])
        x.requires_grad_(seed % 2 == 0)
        both_parts.sum().backward()
        return [None if t.grad is None else t.grad.numpy() for t in (x, y)]

    both(call, 2 * CALLS)


def test_anomaly_mode_and_autocast_take_the_general_path() -> None:
    for seed in range(CALLS):
        (x,) = leaves(seed, [(4,)])
        x.exp().sum().backward()
        expected = x.grad.numpy()
        x.grad = None
        total = x.exp().sum()
        with detect_anomaly():
            total.backward()
        np.testing.assert_array_equal(x.grad.numpy(), expected)
        negative = vk.tensor(-np.ones(4, np.float32), requires_grad=True)
        root = negative.sqrt().sum()
        with detect_anomaly(), pytest.raises(VkjitError, match="of sqrt holds NaN"):
            root.backward()
        x.grad = None
        total = x.exp().sum()
        with vk.autocast(vk.f16):
            total.backward()
        np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_settings_that_change_between_forward_and_backward() -> None:
    def call(seed: int) -> list[Any]:
        (x,) = leaves(seed, [(5, 3)])
        picked = x[index(2, 0, 2, 2)]
        vk.use_deterministic_algorithms(seed % 2 == 1)
        try:
            picked.sum().backward()
        finally:
            vk.use_deterministic_algorithms(False)
        return [x.grad.numpy()]

    both(call)


def test_captured_graphs(device: Device) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("nothing is replayed there")
    x, y = leaves(0, [(4, 4), (4, 4)])
    for _ in range(CALLS):
        x.grad = y.grad = None
        (x @ y).sum().backward()
    expected = x.grad.numpy()
    x.grad = y.grad = None
    with vk.capture(device) as graph:
        (x @ y).sum().backward()
    with vk.no_grad():
        y.mul_(2.0)
    graph.replay()
    np.testing.assert_allclose(x.grad.numpy(), 2 * expected, rtol=1e-6)


def test_threads(device: Device) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with vk.use_device(device):
                for step in range(20):
                    x, y = leaves(seed + step, [(4, 6), (4, 6)])
                    (x * y).sum().backward()
                    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
        except BaseException as error:  # noqa: BLE001  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_memory_is_freed(device: Device) -> None:
    for _ in range(CALLS):
        x, y = leaves(0, [(64, 64), (64, 64)])
        product = (x * y).exp()
        product.sum().backward()
        node = product.meta.node
        del product
        if device.caps.kind != "interpreter" and isinstance(node, ReplayedNode):
            assert node._outputs is None
            assert node._inputs is None
            assert all(meta is None for meta in node.results)
