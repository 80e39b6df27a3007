"""Reductions against PyTorch: every axis, keepdim, empty shapes, long rows, gradients."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import EPS, LAYOUTS, SHAPES, assert_close, normal, torch


def axes_for(shape: tuple[int, ...]) -> list[Any]:
    """Return None, each axis, and each pair of axes."""
    rank = len(shape)
    return [None, *range(rank), *([list(p) for p in itertools.combinations(range(rank), 2)] if rank > 2 else [])]


FLOATS: list[tuple[str, Any, Any, bool]] = [
    ("sum", vk.sum, torch.sum, True),
    ("mean", vk.mean, torch.mean, True),
    ("amax", vk.amax, torch.amax, False),
    ("amin", vk.amin, torch.amin, False),
    ("var", vk.var, torch.var, True),
    ("std", vk.std, torch.std, False),
    ("logsumexp", vk.logsumexp, torch.logsumexp, False),
    ("norm", lambda x, d, k: vk.norm(x, 2, d, k), lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k), True),
    ("norm 1", lambda x, d, k: vk.norm(x, 1, d, k), lambda x, d, k: torch.linalg.vector_norm(x, 1, d, k), True),
]


@pytest.mark.parametrize(("name", "ours", "theirs", "empty"), FLOATS, ids=[row[0] for row in FLOATS])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*")
def test_float_reductions_and_gradients(device: Any, name: str, ours: Any, theirs: Any, empty: bool) -> None:
    for number, shape in enumerate(SHAPES):
        if 0 in shape and not empty:
            continue
        for axes in axes_for(shape)[:: 1 if len(shape) < 4 else 3]:
            if axes is None and name in ("logsumexp", "amax", "amin", "std", "var", "mean", "sum", "norm", "norm 1"):
                given: Any = list(range(len(shape)))
            else:
                given = axes
            if (
                name in ("var", "std")
                and math.prod(shape[a] for a in ([given] if isinstance(given, int) else given)) < 2
            ):
                continue
            compare(ours, theirs, normal(np.random.default_rng(number), shape), given, bool(number % 2), name)


def compare(ours: Any, theirs: Any, values: Any, axes: Any, keepdim: bool, name: str, view: Any = lambda x: x) -> None:
    x = vk.tensor(values, requires_grad=True)
    y = torch.tensor(values.astype(np.float64), requires_grad=True)
    found, expected = ours(view(x), axes, keepdim=keepdim) if "norm" not in name else ours(view(x), axes, keepdim), None
    expected = theirs(view(y), axes, keepdim=keepdim) if "norm" not in name else theirs(view(y), axes, keepdim)
    length = max(1, view(y).numel() // max(1, expected.numel()))
    what = f"{name} of {values.shape} over {axes}"
    size = float(np.max(np.abs(values), initial=0.0)) + 1
    allowed = EPS["f32"] * (length + 8) * (size * length if name in ("sum", "norm 1") else size * 4)
    assert_close(found, expected, allowed, what)
    weights = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float32)
    expected.backward(torch.tensor(weights.astype(np.float64)))
    found.backward(vk.tensor(weights))
    limit = EPS["f32"] * (length + 32) * 4 * (1 + float(np.max(np.abs(y.grad.numpy()), initial=0.0)))
    assert_close(x.grad, y.grad, limit, f"gradient of {what}")


@pytest.mark.parametrize(("name", "ours", "theirs", "empty"), FLOATS[:5], ids=[row[0] for row in FLOATS[:5]])
def test_reductions_of_views(device: Any, name: str, ours: Any, theirs: Any, empty: bool) -> None:
    for _tag, shape, view in LAYOUTS:
        for axes in (0, 1, [0, 1]):
            compare(ours, theirs, normal(np.random.default_rng(2), shape), axes, False, name, view)


LONG = [(1000,), (4099,), (70_001,), (3, 5000), (5000, 3), (200_000,), (2, 33_000, 2), (7, 1, 9001), (40, 40, 40)]


@pytest.mark.parametrize("shape", LONG, ids=str)
def test_long_lines_are_summed_in_stages(device: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    x = vk.tensor(values)
    for axes in [None, *range(len(shape))]:
        exact = values.astype(np.float64)
        expected = exact.sum(axes)
        magnitude = np.abs(exact).sum(axes)
        # stages of at most a few hundred additions each: much less than one rounding per element
        length = values.size if axes is None else shape[axes]
        assert_close(
            x.sum(axes),
            expected,
            EPS["f32"] * (math.sqrt(length) + 32) * (magnitude / math.sqrt(max(length, 1)) + 1) * 4,
            f"sum {axes}",
        )
        assert np.array_equal(x.amax(axes).numpy() if axes is not None else x.amax().numpy(), values.max(axes))
        assert np.array_equal(x.argmax(axes).numpy(), values.argmax(axes))
        assert np.array_equal(x.argmin(axes).numpy(), values.argmin(axes))


def test_sums_are_the_same_every_time(device: Any) -> None:
    x = vk.randn(50_000, seed=1)
    assert len({x.sum().item() for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(vk.boolean, torch.bool), (vk.u8, torch.uint8), (vk.i8, torch.int8), (vk.i32, torch.int32), (vk.i64, torch.int64)],
    ids=str,
)
def test_integer_reductions(device: Any, ours: Any, theirs: Any) -> None:
    rng = np.random.default_rng(6)
    for shape in SHAPES:
        values = rng.integers(0, 2 if ours is vk.boolean else 4, shape)
        x, y = vk.tensor(values, dtype=ours), torch.tensor(values).to(theirs)
        for axes in [None, *range(len(shape))]:
            options: Any = {} if axes is None else {"dim": axes}
            for name in ("sum", "prod", "any", "all"):
                found, expected = getattr(vk, name)(x, axes), getattr(torch, name)(y, **options)
                wanted = vk.i64 if name in ("sum", "prod") else vk.boolean
                assert found.dtype is wanted, name
                assert np.array_equal(found.numpy(), expected.numpy().astype(found.numpy().dtype)), (name, shape, axes)
            if 0 in shape or ours is vk.boolean:
                continue
            assert np.array_equal(
                vk.amax(x, axes).numpy(), torch.amax(y, **options, **({} if axes is not None else {"dim": ()})).numpy()
            )


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_with_their_places(device: Any, name: str) -> None:
    for number, shape in enumerate(SHAPES):
        if 0 in shape or not shape:
            continue
        for axis in range(len(shape)):
            values = normal(np.random.default_rng(number), shape)
            x: Any = vk.tensor(values, requires_grad=True)
            y = torch.tensor(values, requires_grad=True)
            found, expected = getattr(vk, name)(x, axis), getattr(torch, name)(y, axis)
            assert np.array_equal(found.values.detach().numpy(), expected.values.detach().numpy())
            assert np.array_equal(found.indices.numpy(), expected.indices.numpy())
            found.values.sum().backward()
            expected.values.sum().backward()
            assert np.array_equal(x.grad.numpy(), y.grad.numpy())


def test_prod_and_its_gradient_with_zeros(device: Any) -> None:
    for values in ([2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0], [[1.0, 0.0], [2.0, 3.0]]):
        for axes in (None, 0):
            x: Any = vk.tensor(values, requires_grad=True)
            y = torch.tensor(values, requires_grad=True)
            found, expected = vk.prod(x, axes), torch.prod(y) if axes is None else torch.prod(y, axes)
            assert np.array_equal(found.detach().numpy(), expected.detach().numpy())
            found.sum().backward()
            expected.sum().backward()
            assert np.array_equal(x.grad.numpy(), y.grad.numpy()), (values, axes)


@pytest.mark.parametrize(("ours", "theirs"), [(vk.f16, torch.float16), (vk.bf16, torch.bfloat16)], ids=["f16", "bf16"])
def test_half_sums_accumulate_in_single(device: Any, ours: Any, theirs: Any) -> None:
    values = np.random.default_rng(7).random((3, 3000)).astype(np.float32)
    x, y = vk.tensor(values, dtype=ours), torch.tensor(values).to(theirs)
    expected = y.double().sum(1)
    assert_close(x.sum(1), expected, EPS[ours.name] * 1.01 * expected.numpy(), "half sum")
    assert_close(x.mean(1), expected / 3000, EPS[ours.name] * 1.01 * expected.numpy() / 3000, "half mean")


def test_nan_passes_through_extremes(device: Any) -> None:
    x = vk.tensor([1.0, float("nan"), 3.0])
    assert math.isnan(x.amax().item()) and math.isnan(x.amin().item())
    assert x.argmax().item() == 1 and x.argmin().item() == 1
    assert math.isnan(x.sum().item())


def test_reductions_over_nothing(device: Any) -> None:
    x = vk.zeros(0, 3)
    assert x.sum().item() == 0 and x.sum(0).tolist() == [0, 0, 0] and x.sum(1).shape == (0,)
    assert x.prod().item() == 1 and math.isnan(x.mean().item())
    assert x.any().item() is False and x.all().item() is True
    with pytest.raises(vk.ShapeError, match="no elements"):
        x.amax()
    with pytest.raises(vk.ShapeError, match="no elements"):
        x.argmax(0)
    assert x.argmax(1).shape == (0,)
