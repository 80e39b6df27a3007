"""Cumulative operations (scans) along an axis: sums, products, min/max, differences, and trapezoidal integrals.

Sums and products of 16-bit floats accumulate in f32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.registry import device_class
from vkjit.stdlib.scan_sort import scan as kernels, scan_tiles as tiles

from ..dispatch import operation
from ..memory import allocate
from ..op_cache import whole
from ..precision import computed_in_f32
from ..tensor import Tensor
from . import creation, elementwise_launch, reduction_launch, views
from .axis import three_axes
from .copies import cat, copy_values, fill_values
from .elementwise_launch import arithmetic_type
from .gather import gather
from .reduction_launch import _grid_order, reduce_axes, row_limit
from .reductions import MinMax
from .views import axis_of, narrow, reshaped_strides

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "diff", "logcumsumexp", "trapezoid", "trapz",
]  # fmt: skip

MAX_SEGMENT = 1024
"""Longest segment that one invocation scans; longer rows are split."""

ROW_INVOCATIONS = 128
"""Invocations of a GPU workgroup that scan a contiguous row together."""


@dataclass(frozen=True, slots=True)
class ScanOp:
    """A scan operator: combine function, identity, subgroup collective, and the reducer for segment totals."""

    combine: Any
    start: float
    collective: str = ""
    reducer: Any = None


SUM = ScanOp(kernels.add, 0, "add", reduction_launch.SUM)
PRODUCT = ScanOp(kernels.multiply, 1, "mul", reduction_launch.PRODUCT)
LOG_SUM = ScanOp(kernels.log_add, -math.inf)


def _axis_last(array: DeviceArray) -> DeviceArray:
    """View (before, along, after) as (before, after, along)."""
    (a, r, b), (p, q, s) = array.shape, array.strides
    return DeviceArray(array.buffer, array.offset, array.dtype, (a, b, r), (p, s, q))


def _launch(
    how: ScanOp, x: DeviceArray, ends: DeviceArray, y: DeviceArray, accumulate: DType, *, seeded: bool = False
) -> None:
    """Scan rows (a, b, r) and store each row's total in `ends`.

    If seeded, `ends` holds each row's initial value on entry.
    """
    start = how.start if accumulate.is_float else int(how.start)
    options = (how.combine, start, accumulate, seeded)
    is_contiguous = x.strides[2] == 1 and x.shape[2] >= 32
    if is_contiguous and x.device.caps.kind == "llvm-cpu":
        kernels.cumulative_rows_vec4(*_grid_order(x, ends, y), *options)
    elif is_contiguous and how.collective and device_class(x.device) == "gpu":
        run = kernels.cumulative_per_workgroup(how.collective, ROW_INVOCATIONS, x.device.caps.subgroup_size)
        run(x, ends, y, *options, min(row_limit(x), MAX_SEGMENT))
    else:
        kernels.cumulative(*_grid_order(x, ends, y), *options, min(row_limit(x), MAX_SEGMENT))


def _scan(how: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan the rows of (a, b, r); long rows are split into segments, each starting from the preceding total."""
    a, b, n = x.shape
    if n <= MAX_SEGMENT:
        _launch(how, x, allocate((a, b), accumulate, x.device), y, accumulate)
        return
    if how.collective and (lines := _as_tiled(x, y)) is not None:
        _scan_in_tiles(how, *lines, accumulate)
        return
    fewer = 0 if a <= b else 1
    for i in range(x.shape[fewer]):
        run = _scan_long if how.reducer is None else _scan_from_totals
        run(how, _slice_at(x, fewer, i), _slice_at(y, fewer, i), accumulate)


def _as_tiled(x: DeviceArray, y: DeviceArray) -> tuple[DeviceArray, DeviceArray] | None:
    """View (a, b, r) as contiguous rows (l, r) for the tiled GPU scan, or return None if it doesn't apply."""
    (a, b, n), caps = x.shape, x.device.caps
    if device_class(x.device) != "gpu" or x.strides[2] != 1 or y.strides[2] != 1 or caps.subgroup_size > 64:
        return None
    if "subgroup_arithmetic" not in caps.features or "subgroup_extended_types" not in caps.features:
        return None
    lines = [reshaped_strides((a, b), array.strides[:2], (a * b,)) for array in (x, y)]
    if lines[0] is None or lines[1] is None:
        return None
    first, second = (
        DeviceArray(array.buffer, array.offset, array.dtype, (a * b, n), (*line, 1))
        for array, line in zip((x, y), lines, strict=True)
        if line is not None
    )
    return first, second


def _scan_in_tiles(how: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan in three passes: reduce each tile, scan the tile totals, then scan each tile from its prefix."""
    lines, n = x.shape
    count, size = -(-n // tiles.TILE), x.device.caps.subgroup_size
    start = how.start if accumulate.is_float else int(how.start)
    before = allocate((lines, count), accumulate, x.device)
    totals = allocate((lines, count), accumulate, x.device)
    tiles.tile_totals(how.collective)(x, totals, how.combine, start)
    tiles.tile_prefixes(how.collective)(totals, before, how.combine, start)
    tiles.scan_tiles(how.collective, size)(x, before, y, how.combine, start)


def _scan_from_totals(how: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan in three passes: reduce the segments, scan their totals, then scan each segment from its prefix.

    The output is written only once.
    """
    lines, n = x.shape
    size, whole, rest = _cut(n)
    totals = reduce_axes(_segments(x, 0, whole, size), (2,), how.reducer or SUM.reducer, accumulate, accumulate)
    seeds = allocate((lines, whole + 1), accumulate, x.device)
    first, later = (
        DeviceArray(seeds.buffer, place * accumulate.itemsize, accumulate, (lines, count), (whole + 1, 1))
        for place, count in ((0, 1), (1, whole))
    )
    fill_values(Tensor(first), how.start)
    _scan(how, _as_lines(totals), _as_lines(later), accumulate)
    for begin, count, length in ((0, whole, size), (whole, 1, rest)):
        if length:
            offset = begin * accumulate.itemsize
            ends = DeviceArray(seeds.buffer, offset, accumulate, (lines, count), (whole + 1, 1))
            parts = [_segments(array, begin * size, count, length) for array in (x, y)]
            _launch(how, parts[0], ends, parts[1], accumulate, seeded=True)


def _as_lines(array: DeviceArray) -> DeviceArray:
    """View (rows, r) as (1, rows, r)."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (1, *array.shape), (0, *array.strides))


def _slice_at(array: DeviceArray, axis: int, i: int) -> DeviceArray:
    """Return the slice at index i of an axis of a 3-d array, without that axis."""
    offset = array.offset + i * array.strides[axis] * array.dtype.itemsize
    shape, strides = (tuple(v for n, v in enumerate(w) if n != axis) for w in (array.shape, array.strides))
    return DeviceArray(array.buffer, offset, array.dtype, shape, strides)


def _segments(array: DeviceArray, start: int, count: int, size: int) -> DeviceArray:
    """View `count` segments of each row of (b, r), from `start`, as (b, count, size)."""
    line, step = array.strides
    offset = array.offset + start * step * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, (array.shape[0], count, size), (line, size * step, step))


def _cut(n: int) -> tuple[int, int, int]:
    """Return the segment size, the number of full segments, and the remainder."""
    size = min(MAX_SEGMENT, max(32, math.isqrt(n)))
    return (size, *divmod(n, size))


def _scan_long(how: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    lines, n = x.shape
    size, whole, rest = _cut(n)
    ends = allocate((lines, whole), accumulate, x.device)
    wide = allocate((lines, n), accumulate, x.device)
    _launch(how, _segments(x, 0, whole, size), ends, _segments(wide, 0, whole, size), accumulate)
    if rest:
        last = allocate((lines, 1), accumulate, x.device)
        begin = whole * size
        _launch(how, _segments(x, begin, 1, rest), last, _segments(wide, begin, 1, rest), accumulate)
    before = allocate((lines, whole), accumulate, x.device)
    shape = (1, lines, whole)
    source, target = (DeviceArray(e.buffer, e.offset, e.dtype, shape, (0, whole, 1)) for e in (ends, before))
    _scan(how, source, target, accumulate)
    copy_values(_segments(wide, 0, 1, size), _segments(y, 0, 1, size))
    for start, count, length, first in ((size, whole - 1, size, 0), (whole * size, 1, rest, whole - 1)):
        if not count or not length:
            continue
        offset = before.offset + first * accumulate.itemsize
        added = DeviceArray(before.buffer, offset, accumulate, (lines, count, length), (whole, 1, 0))
        place = Tensor(_segments(y, start, count, length))
        elementwise_launch.write_map(
            how.combine, (Tensor(added), Tensor(_segments(wide, start, count, length))), place, accumulate
        )


def _run(how: ScanOp, x: Tensor, dim: int, dtype: DType) -> Tensor:
    out = allocate(x.shape, dtype, x.device)
    if 0 not in x.shape:
        _scan(how, _axis_last(three_axes(x._array, dim)), _axis_last(three_axes(out, dim)), arithmetic_type(dtype))
    return Tensor(out)


@operation("cumsum")
def _cumsum(x: Tensor, *, dim: int, dtype: DType) -> Tensor:
    return _run(SUM, x, dim, dtype)


@operation("cumprod")
def _cumprod(x: Tensor, *, dim: int, dtype: DType) -> Tensor:
    return _run(PRODUCT, x, dim, dtype)


@operation("logcumsumexp")
def _logcumsumexp(x: Tensor, *, dim: int, dtype: DType) -> Tensor:
    return _run(LOG_SUM, x, dim, dtype)


def _along(run: Any, name: str, x: Tensor, dim: int, dtype: Any) -> Tensor:
    result = creation.as_dtype(dtype) if dtype is not None else x.dtype if x.dtype.is_float else dtypes.i64
    if x.ndim == 0:
        axis_of(dim, 1, name)
        return views.reshape(run(views.reshape(x, 1), dim=0, dtype=result), ())
    return run(x, dim=axis_of(dim, x.ndim, name), dtype=result)  # type: ignore[no-any-return]


@whole("cumsum")
def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the cumulative sum along an axis; integers and bool are summed in i64 unless dtype is given."""
    return _along(_cumsum, "cumsum", x, dim, dtype)


@whole("cumprod")
def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the cumulative product along an axis; integers and bool are multiplied in i64 unless dtype is given."""
    return _along(_cumprod, "cumprod", x, dim, dtype)


@whole("logcumsumexp")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the cumulative sum of exp(x) along an axis, without overflow."""
    if not x.dtype.is_float:
        raise DTypeError(f"logcumsumexp() takes floats, found {x.dtype!r}: convert with .to(vk.f32)")
    return _along(_logcumsumexp, "logcumsumexp", x, dim, None)


# -- cumulative min/max


def _scan_min_max(takes: Any, x: DeviceArray, positions: DeviceArray, y: DeviceArray, where: DeviceArray) -> None:
    """Compute the cumulative min/max of (a, b, r) and their indices; `positions` holds the index of each element."""
    a, b, n = x.shape
    options = (takes, arithmetic_type(x.dtype))
    limit = min(row_limit(x), MAX_SEGMENT)
    if n <= MAX_SEGMENT:
        ends, end_indices = (allocate((a, b), d, x.device) for d in (x.dtype, dtypes.i64))
        kernels.cumulative_extremes(x, positions, ends, end_indices, y, where, *options, limit)
        return
    for i in range(a):
        parts = [_slice_at(array, 0, i) for array in (x, positions, y, where)]
        _scan_min_max_long(takes, *parts)


def _scan_min_max_long(takes: Any, x: DeviceArray, positions: DeviceArray, y: DeviceArray, where: DeviceArray) -> None:
    lines, n = x.shape
    size, whole, rest = _cut(n)
    options = (takes, arithmetic_type(x.dtype))
    limit = min(row_limit(x), MAX_SEGMENT)
    ends, before = (allocate((lines, whole), x.dtype, x.device) for _ in range(2))
    end_indices, earlier_indices = (allocate((lines, whole), dtypes.i64, x.device) for _ in range(2))
    spare, unused = (allocate((lines, 1), d, x.device) for d in (x.dtype, dtypes.i64))
    for begin, count, length, e, p in ((0, whole, size, ends, end_indices), (whole * size, 1, rest, spare, unused)):
        if length:
            parts = [_segments(array, begin, count, length) for array in (x, positions, y, where)]
            kernels.cumulative_extremes(*parts[:2], e, p, *parts[2:], *options, limit)
    rows = [
        DeviceArray(e.buffer, 0, e.dtype, (1, lines, whole), (0, whole, 1))
        for e in (ends, end_indices, before, earlier_indices)
    ]
    _scan_min_max(takes, *rows)
    for begin, count, length, first in ((size, whole - 1, size, 0), (whole * size, 1, rest, whole - 1)):
        if not count or not length:
            continue
        heads = [
            DeviceArray(e.buffer, first * e.dtype.itemsize, e.dtype, (lines, count), (whole, 1))
            for e in (before, earlier_indices)
        ]
        kernels.apply_prefix_extremes(
            *heads, *(_segments(array, begin, count, length) for array in (y, where)), *options
        )


def _cumulative_min_max(x: Tensor, dim: int, name: str, takes: Any) -> MinMax:
    if x.ndim == 0:
        axis_of(dim, 1, name)
        return MinMax(x.clone(), creation.zeros((), dtype=dtypes.i64, device=x.device))
    axis = axis_of(dim, x.ndim, name)
    index_array = allocate(x.shape, dtypes.i64, x.device)
    values = allocate(x.shape, x.dtype, x.device)
    if 0 not in x.shape:
        positions = creation.arange(x.shape[axis], device=x.device)._array
        shape = tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim))
        wide = views.expand(
            Tensor(DeviceArray(positions.buffer, 0, positions.dtype, shape, contiguous_strides(shape))), x.shape
        )
        parts = [_axis_last(three_axes(a, axis)) for a in (x._array, wide.contiguous()._array, values, index_array)]
        _scan_min_max(takes, *parts)
    indices = Tensor(index_array)
    return MinMax(gather(x, axis, indices) if x.requires_grad and x.numel() else Tensor(values), indices)


@whole("cummax")
def cummax(x: Tensor, dim: int) -> MinMax:
    """Return (values, indices) of the cumulative maximum along an axis.

    Of equal elements the last index is returned. NaN propagates.
    """
    return _cumulative_min_max(x, dim, "cummax", kernels.replaces_maximum)


@whole("cummin")
def cummin(x: Tensor, dim: int) -> MinMax:
    """Return (values, indices) of the cumulative minimum along an axis.

    Of equal elements the last index is returned. NaN propagates.
    """
    return _cumulative_min_max(x, dim, "cummin", kernels.replaces_minimum)


# -- differences and integrals


@whole("diff")
@computed_in_f32
def diff(x: Any, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Return the n-th differences of adjacent elements along an axis; for bool, True where they differ."""
    if x.ndim == 0:
        raise ShapeError("diff() takes a tensor with at least one axis")
    axis = axis_of(dim, x.ndim, "diff")
    if n == 0:
        return x.clone()  # type: ignore[no-any-return]
    x = (
        cat([p for p in (prepend, x, append) if p is not None], axis)
        if prepend is not None or append is not None
        else x
    )
    for _ in range(n):
        size = max(x.shape[axis] - 1, 0)
        high, low = narrow(x, axis, min(1, x.shape[axis]), size), narrow(x, axis, 0, size)
        x = high ^ low if x.dtype.kind == "bool" else high - low
    return x  # type: ignore[no-any-return]


def _areas(name: str, y: Any, x: Any, dx: Any, dim: int) -> Tensor:
    """Return the areas of the trapezoids between adjacent elements along an axis."""
    axis = axis_of(dim, y.ndim, name)
    size = max(y.shape[axis] - 1, 0)
    middle = narrow(y, axis, min(1, y.shape[axis]), size) + narrow(y, axis, 0, size)
    if x is None:
        return middle * (dx / 2 if not isinstance(dx, Tensor) else dx * 0.5)
    if x.ndim == 1 and y.ndim > 1 and x.shape[0] == y.shape[axis]:
        x = views.reshape(x, tuple(-1 if i == axis else 1 for i in range(y.ndim)))
    along = axis - y.ndim
    return middle * diff(x, dim=along) * 0.5


@computed_in_f32
def trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """Integrate y along an axis by the trapezoidal rule, sampled at x or at spacing `dx`."""
    if x is not None and dx != 1:
        raise ArgumentError("trapezoid() takes x or dx, not both")
    return _areas("trapezoid", y, x, dx, dim).sum(dim)


@computed_in_f32
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """Return the cumulative integral of y along an axis by the trapezoidal rule, sampled at x or at spacing `dx`."""
    if x is not None and dx != 1:
        raise ArgumentError("cumulative_trapezoid() takes x or dx, not both")
    return cumsum(_areas("cumulative_trapezoid", y, x, dx, dim), dim)


trapz = trapezoid
