"""Captured programs: constants, random numbers, views of arguments, and the work of other asyncio tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.runtime import capture_fuzz
from vkjit import nn, optim
from vkjit.nn import functional as F
from vkjit.optim.multi_tensor import BatchCache


@pytest.fixture(autouse=True)
def on(device: Any) -> Iterator[None]:
    with vk.use_device(device):
        yield


def numbers(seed: int, *shape: int) -> Any:
    return vk.tensor(np.random.default_rng(seed).standard_normal(shape or (4, 6)).astype(np.float32))


# -- constants

_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: x + vk.arange(6),
    "linspace": lambda x: x * vk.linspace(0, 1, 6),
    "logspace": lambda x: x * vk.logspace(0, 1, 6),
    "eye": lambda x: x @ vk.eye(6),
    "triu_indices": lambda x: x[tuple(vk.triu_indices(4, 6))],
    "tril_indices": lambda x: x[tuple(vk.tril_indices(4, 6))],
    "list": lambda x: x[:, [0, 2]],
    "lists": lambda x: x[[0, 1], [2, -1]],
    "written list": lambda x: x.clone().index_fill(1, vk.tensor([0, 2]), 5.0),
    "tensor": lambda x: x + vk.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    "numpy": lambda x: x + vk.tensor(np.arange(6, dtype=np.float32)),
    "bf16": lambda x: x.to(vk.bf16) + vk.tensor([1.5] * 6, dtype=vk.bf16),
    "one_hot": lambda x: F.one_hot(vk.tensor([1, 2]), 4),
    "meshgrid": lambda x: vk.meshgrid(vk.arange(3), vk.arange(2)),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
    "nearest": lambda x: F.interpolate(x[None], size=11),
    "bilinear": lambda x: F.interpolate(x[None, None], size=(7, 5), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic"),
    "reflect": lambda x: F.pad(x[None], (1, 2), mode="reflect"),
    "roll": lambda x: x.roll(1, 0),
    "combinations": lambda x: vk.combinations(x[0], 2),
    "quantile": lambda x: x.quantile(vk.tensor([0.2, 0.5]), dim=1),
    "causal": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "mask": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=vk.ones(4, 4).tril().bool()),
    "cross_entropy": lambda x: F.cross_entropy(x, vk.tensor([0, 1, 2, 3])),
}


def _values(result: Any) -> list[Any]:
    return [t.to(vk.f32).numpy().copy() for t in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("name", _CONSTANTS)
def test_constants_are_captured(name: str) -> None:
    call = _CONSTANTS[name]
    expected = [_values(call(numbers(seed))) for seed in (1, 2)]
    x, used = numbers(0), vk.zeros(1)
    with vk.capture(x=x) as graph:
        y = call(x)
        used.copy_(x[0, :1])
    for seed, values in zip((1, 2), expected, strict=True):
        graph.replay(x=numbers(seed))
        for found, value in zip(_values(y), values, strict=True):
            np.testing.assert_array_equal(found, value)


def test_constants_are_captured_by_value_and_restored_by_replays() -> None:
    x, source = vk.zeros(3), np.ones(3, np.float32)
    with vk.capture(x=x) as outer:
        with vk.capture(x=x) as inner:
            a = vk.tensor(source)
            a.add_(x)
            y = a * 1.0
        inner.replay()
    source[:] = 9
    inner.replay()
    assert y.tolist() == [1, 1, 1]
    for _ in range(2):
        outer.replay(x=vk.ones(3))
        assert y.tolist() == [2, 2, 2]
    large = np.arange(3_000_000, dtype=np.float32)  # several pieces of staging memory
    with vk.capture() as graph:
        z = vk.tensor(large) * 2
    graph.replay()
    np.testing.assert_array_equal(z.numpy(), large * 2)


def test_what_needs_results_names_the_operation_and_its_line() -> None:
    x = numbers(0)
    calls: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("item", lambda: x.sum().item()),
        ("tolist", lambda: x.tolist()),
        ("numpy", lambda: x.numpy()),
        ("nonzero", lambda: x.nonzero()),
        ("unique", lambda: x.unique()),
        ("x[...]", lambda: x[x > 0]),
        ("allclose", lambda: vk.allclose(x, x)),
        ("Linear", lambda: nn.Linear(2, 3)),
        ("mixed", lambda: capture_fuzz.mixed(np.ones(2, np.float32), np.ones(2, np.float32), 1.0)),
        ("mixed", lambda: capture_fuzz.mixed(x[0], np.ones(6, np.float32), 1.0)),
    )
    for name, call in calls:
        with pytest.raises(vk.ArgumentError) as caught, vk.capture():
            call()
        line = call.__code__.co_firstlineno
        shown = name if name.endswith("]") else f"{name}()"
        assert f"{shown} in {__file__}, line {line}, " in str(caught.value)


def test_tables_that_optimizers_keep_are_uploaded_at_once() -> None:
    models, batches = [], vk.ones(3, 4)

    def step(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        model(batches).sum().backward()
        optimizer.step()

    for _ in range(2):
        vk.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        models.append((model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9)))
        step(*models[-1])
    model, optimizer = models[0]
    for name, value in vars(optimizer).items():
        if isinstance(value, BatchCache):
            setattr(optimizer, name, BatchCache())
    optimizer.capturable = True
    with vk.capture():  # never replayed
        step(model, optimizer)
    optimizer.capturable = False
    for pair in models:
        step(*pair)
    for ours, theirs in zip(models[0][0].parameters(), models[1][0].parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


# -- random numbers

_DRAWS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: nn.Dropout(0.5)(x),
    "dropout1d": lambda x: F.dropout1d(x[None], 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, True),
    "randn": lambda x: x + vk.randn(6),
    "rand": lambda x: vk.rand_like(x),
    "bf16": lambda x: vk.rand(5, dtype=vk.bf16),
    "randint": lambda x: vk.randint(0, 9, (5,)),
    "randperm": lambda x: vk.randperm(7),
    "bernoulli": lambda x: vk.bernoulli(x.sigmoid()),
    "normal": lambda x: vk.normal(0.0, 1.0, (3,)),
    "uniform_": lambda x: vk.empty(5).uniform_(),
    "normal_": lambda x: vk.empty(5).normal_(),
    "bernoulli_": lambda x: vk.empty(5).bernoulli_(0.4),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
    "two": lambda x: F.dropout(x, 0.5) + vk.rand(6) + F.dropout(x, 0.2),
}


@pytest.mark.parametrize("name", _DRAWS)
def test_replays_draw_what_eager_calls_draw(name: str) -> None:
    call, x = _DRAWS[name], numbers(0)
    vk.manual_seed(5)
    expected = [_values(call(x)) for _ in range(3)]
    ended = vk.get_rng_state()
    vk.manual_seed(5)
    used = vk.zeros(1)
    with vk.capture(x=x) as graph:
        y = call(x)
        used.copy_(x[0, :1])
    assert vk.get_rng_state() == (5, 0)  # captures draw nothing
    for values in expected:
        graph.replay()
        np.testing.assert_array_equal(_values(y), values)
    assert vk.get_rng_state() == ended
    vk.manual_seed(5)  # restarts the sequence
    graph.replay()
    np.testing.assert_array_equal(_values(y), expected[0])
    assert not any("seed" in argument or "counter" in argument for argument in graph.arguments)


def test_generators_of_captured_work() -> None:
    mine = vk.Generator(3)
    expected = [vk.rand(4, generator=mine).tolist() for _ in range(5)]
    mine.manual_seed(3)
    with vk.capture() as graph:
        a, state = vk.rand(4, generator=mine), mine.get_state()
        b = vk.rand(4, generator=mine)
        mine.set_state(state)
        c = vk.rand(4, generator=mine)
        fresh, seeded = vk.rand(4, generator=vk.Generator(8)), vk.rand(4, seed=8)
    for first in (0, 2):
        graph.replay()
        assert [a.tolist(), b.tolist(), c.tolist()] == [expected[first], *[expected[first + 1]] * 2]
        assert fresh.tolist() == seeded.tolist() == vk.rand(4, seed=8).tolist()
    assert vk.rand(4, generator=mine).tolist() == expected[4]
    calls: tuple[Callable[[], Any], ...] = (lambda: vk.manual_seed(1), lambda: mine.set_state((7, 9)))
    for call in calls:
        with pytest.raises(vk.ArgumentError, match="is seeded while it is captured"), vk.capture():
            call()


def test_a_graph_that_draws_may_be_replayed_in_a_capture() -> None:
    vk.manual_seed(5)
    expected = [vk.rand(4).tolist() for _ in range(8)]
    vk.manual_seed(5)
    drawn, first, second = vk.zeros(4), vk.zeros(4), vk.zeros(4)
    with vk.capture() as inner:
        drawn.copy_(vk.rand(4))
    with vk.capture() as outer:
        inner.replay()
        first.copy_(drawn)
        between = vk.rand(4)
        inner.replay()
        second.copy_(drawn)
    outer.replay()
    assert [first.tolist(), between.tolist(), second.tolist()] == expected[:3]
    inner.replay()
    assert drawn.tolist() == expected[3]
    outer.replay()
    assert [first.tolist(), between.tolist(), second.tolist()] == expected[4:7]
    assert vk.rand(4).tolist() == expected[7]


def test_checkpoints_in_captures(device: Any) -> None:
    def call(p: Any) -> Any:
        return vk.autograd.checkpoint(lambda t: F.dropout(t, 0.5), p)

    p = vk.ones(64, requires_grad=True)
    with vk.capture() as graph:
        y = call(p)
        y.sum().backward()
    for _ in range(2):
        graph.replay()
        assert p.grad.tolist() == y.tolist()
    with vk.capture() as graph:
        y = call(p)
    graph.replay()
    with pytest.raises(vk.ArgumentError, match="capture the forward and the backward pass together"):
        y.sum().backward()
    y = call(p)
    with pytest.raises(vk.ArgumentError, match="capture the forward and the backward pass together"), vk.capture():
        y.sum().backward()
    assert vk.rand(3, device=device).shape == (3,)  # permitted again


def test_other_threads_draw_while_one_captures(device: Any) -> None:
    vk.manual_seed(1)
    expected = [vk.rand(4).tolist() for _ in range(3)]
    vk.manual_seed(1)
    others: list[Any] = []
    with vk.capture() as graph:
        a = vk.rand(4)
        thread = threading.Thread(target=lambda: others.append(vk.rand(4, device=device).tolist()))
        thread.start()
        thread.join()
        b = vk.rand(4)
    graph.replay()
    assert [*others, a.tolist(), b.tolist()] == expected


# -- views of arguments

_VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[1:],
    "row": lambda x: x[0],
    "reshape": lambda x: x.reshape(-1),
    "same shape": lambda x: x.reshape(2, 4),
    "flatten": lambda x: nn.Flatten()(x),
    "dropout in inference": lambda x: nn.Dropout(0.5).eval()(x),
    "F.dropout": lambda x: F.dropout(x, 0.5, False),
    "Identity": lambda x: nn.Identity()(x),
    "Sequential": lambda x: nn.Sequential()(x),
    "to": lambda x: x.to(vk.f32),
    "float": lambda x: x.float(),
    "contiguous": lambda x: x.contiguous(),
    "T": lambda x: x.T,
    "split": lambda x: x.split(2, 1)[1],
    "unbind": lambda x: x.unbind(0)[1],
    "detach": lambda x: x.detach(),
    "expand": lambda x: x[None].expand(3, 2, 4),
    "chain": lambda x: x[1:].T[2:],
    "diagonal": lambda x: x.diagonal(),
    "as_tensor": lambda x: vk.as_tensor(x),
    "beside a launch": lambda x: (x * 2, x[:, 1:])[1],
}


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("name", _VIEWS)
def test_views_follow_the_argument(name: str, tracked: bool) -> None:
    def values(scale: float) -> Any:
        return vk.tensor((np.arange(8, dtype=np.float32).reshape(2, 4) + 1) * np.float32(scale))

    call, x = _VIEWS[name], values(1)
    x.requires_grad_(tracked)
    with vk.capture(x=x) as graph:
        y = call(x)
    np.testing.assert_array_equal(y.detach().numpy(), call(values(1)).numpy())
    for scale in (10, 7):
        other = values(scale)
        graph.replay(x=other)
        np.testing.assert_array_equal(y.detach().numpy(), call(other).numpy())
        np.testing.assert_array_equal(y.detach()[0].numpy(), call(other)[0].numpy())
        other.add_(1)
        np.testing.assert_array_equal(y.detach().numpy(), call(other).numpy())
    np.testing.assert_array_equal(x.detach().numpy(), values(1).numpy())


def test_writes_through_views_of_arguments() -> None:
    x, other = vk.zeros(4), vk.full((4,), 5.0)
    with vk.capture(x=x) as graph:
        y = x[1:].add_(1.0)
        z = x.mul_(2.0)
    graph.replay(x=other)
    assert other.tolist() == z.tolist() == [10, 12, 12, 12] and y.tolist() == [12, 12, 12] and x.tolist() == [0] * 4
    y.zero_()
    assert other.tolist() == [10, 0, 0, 0]


def test_gradients_of_captured_work_use_the_argument() -> None:
    x, w = vk.tensor([1.0, 2.0, 3.0]), vk.ones(3, requires_grad=True)
    with vk.capture(x=x) as graph:
        y = (x * w).sum() + (x[1:] * w[1:]).sum()
    graph.replay(x=vk.tensor([4.0, 5.0, 6.0]))
    y.backward()
    assert w.grad.tolist() == [4, 10, 12]


def test_views_of_memory_beside_an_argument_stay() -> None:
    base = vk.arange(64, dtype=vk.f32)
    x = base[16:32]
    with vk.capture(x=x) as graph:
        inside, beside = x[1:3], base[40:42]
        y = x * 1.0
    graph.replay(x=vk.zeros(16))
    assert (inside.tolist(), beside.tolist(), y.tolist()) == ([0, 0], [40, 41], [0] * 16)


def test_views_of_arguments_of_nested_captures() -> None:
    x = vk.zeros(4)
    with vk.capture(x=x) as outer:
        with vk.capture(x=x) as inner:
            y, z = x[1:], x * 1.0
        inner.replay()
    outer.replay(x=vk.ones(4))
    assert y.tolist() == [1, 1, 1] and z.tolist() == [1] * 4
    inner.replay(x=vk.full((4,), 2.0))
    assert y.tolist() == [2, 2, 2] and z.tolist() == [2] * 4


# -- asyncio tasks


def test_a_capture_is_of_its_own_task(device: Any) -> None:
    """Tasks that run meanwhile, also those that the block starts, and callbacks and threads, aren't captured."""

    async def captured(value: float) -> Any:
        x = vk.full((3,), value)
        with vk.capture(x=x) as graph:
            y = x * 2
            await asyncio.sleep(0.002)
            z = y + 1
            child = await asyncio.create_task(plain())
            await asyncio.sleep(0.002)
        assert child == [0, 2, 4]
        graph.replay(x=vk.full((3,), 10 * value))
        return z.tolist()

    async def plain() -> list[float]:
        found = []
        for number in range(3):
            found.append((vk.ones(2) * number).sum().item())
            vk.synchronize()
            await asyncio.sleep(0.001)
        return found

    async def others() -> Any:
        found: list[Any] = []
        with vk.capture() as graph:
            y = vk.ones(2) + 1
            asyncio.get_running_loop().call_soon(lambda: found.append((vk.ones(2) * 7).tolist()))
            found.append(await asyncio.to_thread(lambda: (vk.ones(2, device=device) * 4).tolist()))
            await asyncio.sleep(0.002)
        graph.replay()
        return sorted(found), y.tolist()

    async def main() -> Any:
        return await asyncio.gather(captured(1), plain(), captured(2), others())

    assert asyncio.run(main()) == [[21] * 3, [0, 2, 4], [41] * 3, ([[4, 4], [7, 7]], [2, 2])]


def test_a_capture_ends_with_its_task() -> None:
    async def main() -> Any:
        async def captured() -> None:
            with vk.capture():
                vk.ones(2) + 1
                await asyncio.sleep(60)

        task = asyncio.create_task(captured())
        await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (vk.ones(2) + 1).tolist()

    assert asyncio.run(main()) == [2, 2]


# -- random programs


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    """A sample of `python -m tests.device.runtime.capture_fuzz`."""
    found = capture_fuzz.search(100 + seed, {})
    assert found is None, found
