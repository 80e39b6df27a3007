"""Radix sort, compaction, counts, scans and moments, in the variants of both device classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.array import DeviceArray
from vkjit.stdlib.elementwise import transpose, vec4
from vkjit.stdlib.index import bincount, compaction, compaction_tiles, gather_scatter
from vkjit.stdlib.registry import device_class, forcing_class
from vkjit.stdlib.scan_sort import radix_sort, radix_sort_ballot
from vkjit.tensor.ops import axis, sorting
from vkjit.tensor.tensor import Tensor


@pytest.fixture(params=["own", "gpu"], autouse=True)
def _class(request: pytest.FixtureRequest, device: Any) -> Iterator[None]:
    """The device's own variants and those for GPUs."""
    if request.param == "own":
        yield
        return
    if device.caps.max_invocations < 256 or device.caps.shared_bytes < 32 << 10:
        pytest.skip("the variants for GPUs need workgroups of 256 and 32 KiB of shared memory")
    with forcing_class("gpu"):
        yield


def _in_order(x: np.ndarray[Any, Any], descending: bool) -> np.ndarray[Any, Any]:
    """Return the indices of a stable sort; NaN sorts as the greatest."""
    keys = np.unique(x, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    return np.argsort(-keys if descending else keys, axis=1, kind="stable")


def test_the_class_cpu_sorts_on_every_device(device: Any) -> None:
    x = np.random.default_rng(3).standard_normal((2, 300)).astype(np.float32)
    with forcing_class("cpu"):
        values, indices = vk.sort(vk.tensor(x, device=device))
    np.testing.assert_array_equal(values.numpy(), np.sort(x))
    np.testing.assert_array_equal(indices.numpy(), np.argsort(x))


SORTED: list[tuple[tuple[int, int], Any, bool]] = [
    ((1, 1), np.float32, False),
    ((3, 70), np.float32, True),
    ((2, 4500), np.float32, False),  # more than one GPU tile
    ((2, 300), np.int16, True),
    ((2, 300), np.uint8, False),
    ((1, 200), np.int64, True),
    ((1, 200), np.float64, False),
    ((2, 90), np.float16, False),
]


@pytest.mark.parametrize(("shape", "dtype", "descending"), SORTED, ids=str)
def test_sorting_by_digits(device: Any, shape: tuple[int, int], dtype: Any, descending: bool) -> None:
    if np.dtype(dtype) == np.float64 and "f64" not in device.caps.dtypes:
        pytest.skip("the device has no f64")
    if device.caps.kind != "llvm-cpu" and device_class(device) == "cpu":
        pytest.skip("such devices sort by merging")
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(shape) * 40).astype(dtype)
    if np.dtype(dtype).kind == "f" and x.size > 8:
        x[0, :4] = [np.nan, -0.0, 0.0, np.inf]
    lines = vk.tensor(x, device=device)
    bits = sorting._key_bits(lines.dtype)
    values, places = radix_sort.radix_sort(lines._array, sorting._key(lines.dtype), bits, descending)
    expected = _in_order(x, descending)
    np.testing.assert_array_equal(Tensor(places).numpy(), expected)
    np.testing.assert_array_equal(Tensor(values).numpy(), np.take_along_axis(x, expected, 1))


RANKED: list[tuple[tuple[int, int], Any, bool, bool]] = [
    ((3, 70), np.float32, True, True),
    ((2, 60), np.int64, False, True),
    ((1, 4200), np.float32, False, False),  # more tiles than are added up sequentially
    ((2, 60), np.float16, True, True),
]


@pytest.mark.parametrize(("shape", "dtype", "descending", "together"), RANKED, ids=str)
def test_sorting_by_ranks(device: Any, shape: tuple[int, int], dtype: Any, descending: bool, together: bool) -> None:
    if device_class(device) == "gpu" and device.caps.kind in ("cpu", "llvm-cpu", "interpreter"):
        pytest.skip("the kernels are the same")
    if not radix_sort_ballot.supports_ballot_ranking(device):
        pytest.skip("the device has no ballots, or subgroups of other sizes")
    rng = np.random.default_rng(4)
    x = (rng.standard_normal(shape) * 40).astype(dtype)
    if np.dtype(dtype).kind == "f" and x.size > 8:
        x[0, :7] = [np.nan, -0.0, 0.0, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal, -np.nan]
    lines = vk.tensor(x, device=device)._array
    if together and shape[1] > radix_sort_ballot.max_row_length(lines):
        pytest.skip("a workgroup of the device sorts fewer elements")
    options = {"groups": 4} if together else {"groups": 2, "each": 2}
    sort = radix_sort_ballot.sort_short_rows if together else radix_sort_ballot.radix_sort
    values, places = sort(lines, vk.i64, descending, **options)
    expected = _in_order(x, descending)
    np.testing.assert_array_equal(Tensor(places).numpy(), expected)
    assert Tensor(values).numpy().tobytes() == np.take_along_axis(x, expected, 1).tobytes()


@pytest.mark.parametrize("count", [1, 5, 9000])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_places_of_elements_that_are_not_zero(device: Any, count: int, dtype: Any) -> None:
    rng = np.random.default_rng(count)
    x = (rng.standard_normal(count) > 0.3).astype(dtype)
    if dtype is np.float32:
        x[0], x[-1] = np.nan, -0.0 if count > 1 else np.nan
    flags, expected = vk.tensor(x, device=device)._array, np.flatnonzero(x)
    starts = compaction.segment_offsets(flags)
    assert Tensor(starts).numpy()[-1] == expected.size
    if not expected.size:
        return
    places = vk.empty(expected.size, dtype=vk.i64, device=device)
    compaction.write_indices(flags, starts, places._array)
    np.testing.assert_array_equal(places.numpy(), expected)
    values, kept = vk.arange(count, device=device), vk.empty(expected.size, dtype=vk.i64, device=device)
    compaction.write_values(flags, values._array, starts, kept._array)
    np.testing.assert_array_equal(kept.numpy(), expected)


def test_more_flags_than_an_index_of_their_words_counts(device: Any) -> None:
    """Words of four bools have a quarter of the indices; only the first tile is read."""
    if device_class(device) == "cpu":
        pytest.skip("such devices look at bools one by one")
    total = 2**31 + 4096
    word = vk.tensor(np.full(1, 0x01000001, np.uint32), device=device)._array
    flags = DeviceArray(word.buffer, word.offset, vk.u32, (total // 4,), (0,))
    counts, starts = (vk.zeros(1, dtype=dtype, device=device) for dtype in (vk.i32, vk.i64))
    found = vk.zeros(compaction_tiles.TILE // 2, dtype=vk.i64, device=device)
    options = (1, total, vec4.load_bool, vk.i32)
    compaction_tiles.count_tiles(flags, counts._array, *options)
    assert counts.item() == compaction_tiles.TILE // 2
    both = vk.cat([starts, starts])
    compaction_tiles.write_tile_indices(flags, both._array, found._array, *options)
    places = np.arange(compaction_tiles.TILE)
    np.testing.assert_array_equal(found.numpy(), places[places % 4 % 3 == 0])


def test_positions_beyond_an_index_go_by_axes(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broadcast indices have more elements than kernels with flat indices can count."""
    launched: list[str] = []
    for name in (
        "scatter_atomic",
        "scatter_last_writer",
        "assign_last_writer",
        "scatter_combine",
        "scatter_assign",
        "scatter_combine_serial",
        "check_indices",
    ):
        monkeypatch.setattr(gather_scatter, name, lambda *_, name=name: launched.append(name))
    zero, one = (vk.zeros(1, dtype=dtype, device=device)._array for dtype in (vk.i64, vk.f32))
    y = vk.zeros((3, 4096), device=device)._array
    lines = DeviceArray(y.buffer, y.offset, vk.f32, (1, 3, 4096), (0, 4096, 1))
    for count in (1 << 18, 1 << 20):
        launched.clear()
        positions = DeviceArray(zero.buffer, zero.offset, vk.i64, (1, count, 4096), (0, 0, 0))
        values = DeviceArray(one.buffer, one.offset, vk.f32, (1, count, 4096), (0, 0, 0))
        axis.scatter_combine_along(lines, positions, values, False, gather_scatter.add, vk.f32)
        axis.scatter_assign_along(lines, positions, values, from_end=False)
        numbered = {"scatter_atomic", "scatter_last_writer", "assign_last_writer"} & set(launched)
        assert bool(numbered) == (device_class(device) == "gpu" and count * 4096 < 2**31)


def test_nonzero_of_more_axes(device: Any) -> None:
    x = np.random.default_rng(0).integers(0, 2, (3, 5, 7))
    made = vk.tensor(x, device=device)
    np.testing.assert_array_equal(vk.nonzero(made).numpy(), np.argwhere(x))
    for found, expected in zip(vk.nonzero(made, as_tuple=True), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(("count", "bins", "dtype"), [(1, 1, np.int32), (5000, 900, np.int64), (300, 7, np.int8)])
def test_counts(device: Any, count: int, bins: int, dtype: Any) -> None:
    x = np.random.default_rng(bins).integers(-3, bins + 40, count).astype(dtype)
    numbers = vk.tensor(x, device=device)._array
    assert Tensor(bincount.min_max(numbers)).tolist() == [x.min(), x.max()]
    assert bincount.supports_bincount(numbers, bins)
    expected = np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)
    np.testing.assert_array_equal(Tensor(bincount.bincount(numbers, bins)).numpy(), expected)


@pytest.mark.parametrize("shape", [(3, 40), (5, 1000), (3, 2510), (70, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_running_sums(device: Any, shape: tuple[int, int], dtype: Any) -> None:
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(dtype)  # sums of these are exact
    found = vk.cumsum(vk.tensor(x, device=device), 1)
    np.testing.assert_array_equal(found.numpy(), np.cumsum(x, 1))
    np.testing.assert_array_equal(vk.cumsum(vk.tensor(x, device=device), 0).numpy(), np.cumsum(x, 0))


@pytest.mark.parametrize("shape", [(3, 40), (5, 1100), (2, 1)])
def test_moments(device: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32) + 30
    made, wide = vk.tensor(x, device=device), x.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = wide.var(1, ddof=1) if shape[1] > 1 else np.full(shape[0], np.nan)
    # deviations from a mean that is off by a few ULP of 30
    np.testing.assert_allclose(vk.var(made, 1).numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(vk.std(made, 1).numpy(), np.sqrt(expected), rtol=1e-5)
    np.testing.assert_allclose(vk.var(made, 1, correction=0).numpy(), wide.var(1), rtol=1e-5, atol=1e-10)
    expected = np.log(np.exp(wide - 30).sum(1)) + 30
    np.testing.assert_allclose(vk.logsumexp(made, 1).numpy(), expected, rtol=1e-6)


def test_logsumexp_of_infinities(device: Any) -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1], [-np.inf, 2]], np.float32)
    np.testing.assert_array_equal(vk.logsumexp(vk.tensor(x, device=device), 1).numpy(), [-np.inf, np.inf, np.nan, 2])


@pytest.mark.parametrize("shape", [(1, 33, 70), (3, 64, 16), (2, 17, 40)])
def test_copies_across_axes(device: Any, shape: tuple[int, int, int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    source = vk.tensor(np.ascontiguousarray(x.transpose(0, 2, 1)), device=device).transpose(1, 2)
    for dtype in (vk.f32, vk.i32):
        target = vk.zeros(shape, dtype=dtype, device=device)
        if transpose.try_transposing_copy(source._array, target._array):
            np.testing.assert_array_equal(target.numpy(), x)
    np.testing.assert_array_equal(source.contiguous().numpy(), x)
    big = vk.tensor(np.arange(80 * 70, dtype=np.int64).reshape(80, 70), device=device)
    np.testing.assert_array_equal(big.t().contiguous().numpy(), big.numpy().T)
    np.testing.assert_array_equal(big[::2].t().to(vk.f32).numpy(), big.numpy()[::2].T)


@pytest.mark.parametrize("k", [1, 8, 20])
@pytest.mark.parametrize("largest", [True, False])
def test_first_of_lines(device: Any, k: int, largest: bool) -> None:
    x = np.random.default_rng(k).integers(0, 40, (2, 700)).astype(np.float32)
    x[1, 5] = np.nan
    values, places = vk.topk(vk.tensor(x, device=device), k, 1, largest)
    expected = _in_order(x, largest)[:, :k]
    np.testing.assert_array_equal(places.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1))
