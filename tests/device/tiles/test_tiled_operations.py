"""Operations with tiled or multi-element GPU variants, run on the interpreter and compared with NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.stdlib.registry import forcing_class

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def as_a_gpu() -> Iterator[None]:
    with vk.use_device("interpreter"), forcing_class("gpu"):
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize(("shape", "axis"), [((4097,), 0), ((2, 5003), 1), ((2, 1100), -1)])
def test_running_sums_of_long_lines(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    x = RNG.integers(0, 2, shape).astype(dtype)
    assert np.array_equal(vk.cumsum(vk.tensor(x), axis).numpy(), x.cumsum(axis))


def test_running_products_of_a_long_line() -> None:
    x = RNG.choice([-1, 1], 9001).astype(np.int32)
    assert np.array_equal(vk.cumprod(vk.tensor(x), 0).numpy(), x.cumprod())


def test_running_sums_past_an_infinity() -> None:
    x = np.ones(9000, np.float32)
    x[5000] = np.inf
    expected = np.where(np.arange(9000) < 5000, np.arange(1, 9001), np.inf)
    assert np.array_equal(vk.cumsum(vk.tensor(x), 0).numpy(), expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.int64])
@pytest.mark.parametrize("count", [1, 17, 4096, 8195, 8196])
def test_places_of_what_is_not_zero(count: int, dtype: Any) -> None:
    x = (RNG.random(count) < 0.5).astype(dtype)
    assert np.array_equal(vk.nonzero(vk.tensor(x)).numpy()[:, 0], np.nonzero(x)[0])


def test_places_in_a_view_that_begins_between_words() -> None:
    x = RNG.random(4103) < 0.3
    assert np.array_equal(vk.nonzero(vk.tensor(x)[3:]).numpy()[:, 0], np.nonzero(x[3:])[0])


def test_values_where_a_mask_is_set() -> None:
    x, mask = RNG.standard_normal(8200).astype(np.float32), RNG.random(8200) < 0.5
    assert np.array_equal(vk.masked_select(vk.tensor(x), vk.tensor(mask)).numpy(), x[mask])


def test_the_first_extreme_of_rows_and_not_a_number() -> None:
    x = RNG.integers(-20, 20, (7, 1003)).astype(np.float32)
    x[3, [17, 29]] = np.nan
    assert np.array_equal(vk.argmax(vk.tensor(x), 1).numpy(), x.argmax(1))
    assert np.array_equal(vk.argmin(vk.tensor(x), 1).numpy(), x.argmin(1))


def test_positions_out_of_range_read_zero() -> None:
    x = RNG.standard_normal((5, 128)).astype(np.float32)
    where = np.tile([0, -1, 127, 128, -129, 2**40, 3, -128], 64)
    inside = (where >= -5) & (where < 5)
    rows = np.where(inside[:, None], x[np.where(inside, where, 0)], 0)
    assert np.array_equal(vk.tensor(x)[vk.tensor(where)].numpy(), rows)
    columns = np.where((where >= 0) & (where < 128), x[:, np.clip(where, 0, 127)], 0)
    assert np.array_equal(vk.index_select(vk.tensor(x), 1, vk.tensor(where)).numpy(), columns)
    assert np.array_equal(vk.gather(vk.tensor(x), 1, vk.tensor(np.tile(where, (5, 1)))).numpy(), columns)


def test_sums_scattered_along_the_first_of_two_axes() -> None:
    where, values = RNG.integers(0, 9, (700, 3)), RNG.integers(-9, 9, (700, 3)).astype(np.float32)
    expected = np.zeros((9, 3), np.float32)
    np.add.at(expected, (where, np.arange(3)), values)
    assert np.array_equal(vk.zeros((9, 3)).scatter_add(0, vk.tensor(where), vk.tensor(values)).numpy(), expected)


@pytest.mark.parametrize("width", [64, 516, 517])
def test_a_row_is_added_to_all(width: int) -> None:
    x = RNG.standard_normal((21, width)).astype(np.float32)
    assert np.array_equal((vk.tensor(x) + vk.tensor(x[0])).numpy(), x + x[0])
    assert np.array_equal((vk.tensor(x)[:, 1:] * vk.tensor(x[0, 1:])).numpy(), x[:, 1:] * x[0, 1:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, np.int16, np.int64, np.bool_])
@pytest.mark.parametrize("count", [2048, 3001])
def test_several_neighbours_at_a_time(count: int, dtype: Any) -> None:
    x, y = (RNG.integers(0, 2 if dtype is np.bool_ else 50, count).astype(dtype) for _ in range(2))
    a, b = vk.tensor(x), vk.tensor(y)
    assert np.array_equal((a < b).numpy(), x < y)
    assert np.array_equal(a.half().numpy(), x.astype(np.float16))
    assert np.array_equal(vk.where(a < b, a, b).numpy(), np.where(x < y, x, y))
    if dtype is not np.bool_:
        assert np.array_equal((a + b).numpy(), x + y)
        assert np.array_equal(vk.clamp(a, 5, 40).numpy(), np.clip(x, 5, 40))
        assert np.array_equal(a.add_(b).numpy(), x + y)
        assert np.array_equal(a.fill_(3).numpy(), np.full_like(x, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64])
@pytest.mark.parametrize("shape", [(37,), (2048,), (8, 64), (3, 5, 7)])
def test_two_arrays_side_by_side(shape: tuple[int, ...], dtype: Any) -> None:
    x, y = (RNG.integers(0, 2, shape).astype(dtype) for _ in range(2))
    for axis in range(len(shape)):
        assert np.array_equal(vk.cat([vk.tensor(x), vk.tensor(y)], axis).numpy(), np.concatenate([x, y], axis))
        assert np.array_equal(vk.roll(vk.tensor(x), 3, axis).numpy(), np.roll(x, 3, axis))
        assert np.array_equal(vk.stack([vk.tensor(x), vk.tensor(y)], axis).numpy(), np.stack([x, y], axis))
    assert np.array_equal(vk.cat([vk.tensor(x).transpose(0, -1), vk.tensor(y).transpose(0, -1)], 0).numpy(),
                          np.concatenate([x.swapaxes(0, -1), y.swapaxes(0, -1)], 0))  # fmt: skip


def test_slices_at_a_number_are_views() -> None:
    x = vk.zeros((3, 4))
    x[1].fill_(2.0)
    x[-1].fill_(3.0)
    assert x.tolist() == [[0.0] * 4, [2.0] * 4, [3.0] * 4]
    with pytest.raises(IndexError, match="out of range"):
        x[3]
    weights = vk.ones((3, 4), requires_grad=True)
    (weights[1] * 3).sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [[0.0] * 4, [3.0] * 4, [0.0] * 4]


@pytest.mark.parametrize("shape", [(16,), (3, 64), (2, 3, 1028)])
def test_any_of_bools(shape: tuple[int, ...]) -> None:
    x = RNG.random(shape) < 0.01
    for axes in (None, -1, 0):
        assert np.array_equal(vk.any(vk.tensor(x), axes).numpy(), x.any(axes))
    assert np.array_equal(vk.any(vk.tensor(x)[..., 1:], -1).numpy(), x[..., 1:].any(-1))


@pytest.mark.parametrize("shape", [(5000,), (3, 1000), (2, 70001), (1025, 64)])
def test_sums_and_extremes_of_long_and_short_lines(shape: tuple[int, ...]) -> None:
    x = RNG.integers(-9, 9, shape).astype(np.float32)
    for axis in (None, *range(len(shape))):
        assert np.array_equal(vk.sum(vk.tensor(x), axis).numpy(), x.sum(axis))
        assert np.array_equal(vk.amax(vk.tensor(x), axis).numpy(), x.max(axis))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.bool_])
@pytest.mark.parametrize("shape", [(64, 64), (9, 516), (3, 1028, 4), (9, 517)])
def test_copies_that_run_backwards(shape: tuple[int, ...], dtype: Any) -> None:
    x = RNG.integers(0, 2, shape).astype(dtype)
    for axis in range(len(shape)):
        assert np.array_equal(vk.flip(vk.tensor(x), [axis]).clone().numpy(), np.flip(x, axis))
    assert np.array_equal(vk.flip(vk.tensor(x)[1:], [-1]).clone().numpy(), np.flip(x[1:], -1))


@pytest.mark.parametrize("diagonal", [-5, 0, 2, 500, 600])
@pytest.mark.parametrize("shape", [(9, 516), (2, 30, 512), (8, 517)])
def test_triangles(shape: tuple[int, ...], diagonal: int) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    assert np.array_equal(vk.tril(vk.tensor(x), diagonal).numpy(), np.tril(x, diagonal))
    assert np.array_equal(vk.triu(vk.tensor(x), diagonal).numpy(), np.triu(x, diagonal))


@pytest.mark.parametrize("length", [128, 132, 1024, 4096])
def test_variances_of_lines_that_are_held(length: int) -> None:
    x = RNG.standard_normal((66, length)).astype(np.float32) * 3 + 5
    x[3, 5] = np.nan
    expected = x.astype(np.float64).var(1, ddof=1)
    np.testing.assert_allclose(vk.var(vk.tensor(x), 1).numpy(), expected, rtol=2e-5)
    np.testing.assert_allclose(vk.std(vk.tensor(x), 1).numpy(), np.sqrt(expected), rtol=2e-5)
