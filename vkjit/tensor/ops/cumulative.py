"""Cumulative operations (scans) along an axis: sums, products, min/max, differences, and trapezoidal integrals.

Sums and products of 16-bit floats accumulate in f32.

A *row* is a slice along the scanned axis. Launch functions view arrays as (a, b, r): two outer axes, then the axis
within the row. Rows above `MAX_SEGMENT` elements are split into segments, which are scanned in parallel; the results of
each segment are then combined with its prefix, the total of all segments before it.
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
from ..memory import allocate, as_int
from ..op_cache import cached
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
"""Maximum length of a segment; longer rows are split."""

_MIN_CONTIGUOUS = 32
"""Minimum length of contiguous rows for the kernels that `_launch` has for such rows."""

ROW_INVOCATIONS = 128
"""Number of invocations of a GPU workgroup that scans one contiguous row."""


@dataclass(frozen=True, slots=True)
class ScanOp:
    """An associative operator to scan with.

    `combine` is a device function of two values and `start` its identity. `collective` is the name of the operator's
    subgroup collective, "" if there is none. `reducer` is the `reduction_launch.Reducer` that computes the total of a
    segment, None if there is none.
    """

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
    op: ScanOp, x: DeviceArray, ends: DeviceArray, y: DeviceArray, accumulate: DType, *, seeded: bool = False
) -> None:
    """Scan the rows of x (a, b, r) into y, without splitting them, and store each row's total in `ends` (a, b).

    If `seeded`, each row's scan starts from its value in `ends`, not from the operator's identity.
    """
    start = op.start if accumulate.is_float else int(op.start)
    options = (op.combine, start, accumulate, seeded)
    has_contiguous_rows = x.strides[2] == 1 and x.shape[2] >= _MIN_CONTIGUOUS
    if has_contiguous_rows and x.device.caps.kind == "llvm-cpu":
        kernels.cumulative_rows_vec4(*_grid_order(x, ends, y), *options)
    elif has_contiguous_rows and op.collective and device_class(x.device) == "gpu":
        run = kernels.cumulative_per_workgroup(op.collective, ROW_INVOCATIONS, x.device.caps.subgroup_size)
        run(x, ends, y, *options, min(row_limit(x), MAX_SEGMENT))
    else:
        kernels.cumulative(*_grid_order(x, ends, y), *options, min(row_limit(x), MAX_SEGMENT))


def _scan(op: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan the rows of x (a, b, r) into y; long rows are split into segments."""
    a, b, n = x.shape
    if n <= MAX_SEGMENT:
        _launch(op, x, allocate((a, b), accumulate, x.device), y, accumulate)
        return
    if op.collective and (tiled := _as_tiled(x, y)) is not None:
        _scan_in_tiles(op, *tiled, accumulate)
        return
    shorter_axis = 0 if a <= b else 1  # the outer axis that takes fewer launches to iterate over
    for i in range(x.shape[shorter_axis]):
        run = _scan_long if op.reducer is None else _scan_from_totals
        run(op, _slice_at(x, shorter_axis, i), _slice_at(y, shorter_axis, i), accumulate)


def _as_tiled(x: DeviceArray, y: DeviceArray) -> tuple[DeviceArray, DeviceArray] | None:
    """Return x and y (a, b, r) viewed as matrices of contiguous rows, for `_scan_in_tiles`.

    None if the layout doesn't allow the tiled scan, or the device isn't a GPU with subgroup arithmetic for all types
    and at most 64 lanes per subgroup.
    """
    (a, b, n), caps = x.shape, x.device.caps
    if device_class(x.device) != "gpu" or x.strides[2] != 1 or y.strides[2] != 1 or caps.subgroup_size > 64:
        return None
    if "subgroup_arithmetic" not in caps.features or "subgroup_extended_types" not in caps.features:
        return None
    row_strides = [reshaped_strides((a, b), array.strides[:2], (a * b,)) for array in (x, y)]
    if row_strides[0] is None or row_strides[1] is None:
        return None
    x_rows, y_rows = (
        DeviceArray(array.buffer, array.offset, array.dtype, (a * b, n), (*row_stride, 1))
        for array, row_stride in zip((x, y), row_strides, strict=True)
        if row_stride is not None  # always true here; for mypy
    )
    return x_rows, y_rows


def _scan_in_tiles(op: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan rows (rows, r) in three passes: reduce each tile, scan the tile totals, then scan each tile from its prefix.

    A tile is a segment of `scan_tiles.TILE` elements, which one workgroup processes.
    """
    rows, n = x.shape
    tile_count = -(-n // tiles.TILE)
    subgroup_size = x.device.caps.subgroup_size
    start = op.start if accumulate.is_float else int(op.start)
    prefixes = allocate((rows, tile_count), accumulate, x.device)
    totals = allocate((rows, tile_count), accumulate, x.device)
    tiles.tile_totals(op.collective)(x, totals, op.combine, start)
    tiles.tile_prefixes(op.collective)(totals, prefixes, op.combine, start)
    tiles.scan_tiles(op.collective, subgroup_size)(x, prefixes, y, op.combine, start)


def _scan_from_totals(op: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan rows (rows, r) in three passes: reduce the segments, scan their totals, scan each segment from its prefix.

    For operators with a reducer. Unlike `_scan_long`, this stores each scanned element only once, directly in y.
    """
    rows, n = x.shape
    size, full, remainder = _split_row(n)
    # the prefix of segment 0 is the identity, that of segment i + 1 the scanned total of segment i; `op` has a reducer
    # here, so `or` never takes SUM's
    totals = reduce_axes(_segments(x, 0, full, size), (2,), op.reducer or SUM.reducer, accumulate, accumulate)
    prefixes = allocate((rows, full + 1), accumulate, x.device)
    first_prefix, later_prefixes = (
        DeviceArray(prefixes.buffer, position * accumulate.itemsize, accumulate, (rows, count), (full + 1, 1))
        for position, count in ((0, 1), (1, full))
    )
    fill_values(Tensor(first_prefix), op.start)
    _scan(op, _with_outer_axis(totals), _with_outer_axis(later_prefixes), accumulate)
    for begin, count, length in ((0, full, size), (full, 1, remainder)):  # full segments, then the remainder
        if length:
            offset = begin * accumulate.itemsize
            ends = DeviceArray(prefixes.buffer, offset, accumulate, (rows, count), (full + 1, 1))
            parts = [_segments(array, begin * size, count, length) for array in (x, y)]
            # `ends` has the segments' prefixes, which the launch replaces by totals that nobody reads
            _launch(op, parts[0], ends, parts[1], accumulate, seeded=True)


def _with_outer_axis(array: DeviceArray) -> DeviceArray:
    """View (rows, r) as (1, rows, r)."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (1, *array.shape), (0, *array.strides))


def _slice_at(array: DeviceArray, axis: int, i: int) -> DeviceArray:
    """Return the slice at index i of an axis of a 3-d array, without that axis."""
    offset = array.offset + i * array.strides[axis] * array.dtype.itemsize
    shape, strides = (tuple(v for n, v in enumerate(w) if n != axis) for w in (array.shape, array.strides))
    return DeviceArray(array.buffer, offset, array.dtype, shape, strides)


def _segments(array: DeviceArray, start: int, count: int, size: int) -> DeviceArray:
    """View `count` segments of `size` elements of (rows, r), from element `start` on, as (rows, count, size)."""
    row_stride, step = array.strides
    offset = array.offset + start * step * array.dtype.itemsize
    return DeviceArray(
        array.buffer, offset, array.dtype, (array.shape[0], count, size), (row_stride, size * step, step)
    )


def _split_row(n: int) -> tuple[int, int, int]:
    """Return how a row of n elements is split: segment size, number of full segments, size of the remainder.

    The segment size is near the square root of n, so that there are about as many segments as elements per segment.
    """
    size = min(MAX_SEGMENT, max(32, math.isqrt(n)))
    return (size, *divmod(n, size))


def _scan_long(op: ScanOp, x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Scan rows (rows, r) in three passes: scan each segment, scan the totals, combine each segment with its prefix.

    For operators without a reducer. The scanned segments are kept in the type `accumulate` until the last pass.
    """
    rows, n = x.shape
    size, full, remainder = _split_row(n)
    # pass 1: scan each segment; the remainder's total isn't needed
    ends = allocate((rows, full), accumulate, x.device)
    scanned = allocate((rows, n), accumulate, x.device)
    _launch(op, _segments(x, 0, full, size), ends, _segments(scanned, 0, full, size), accumulate)
    if remainder:
        unused_end = allocate((rows, 1), accumulate, x.device)
        begin = full * size
        _launch(op, _segments(x, begin, 1, remainder), unused_end, _segments(scanned, begin, 1, remainder), accumulate)
    # pass 2: scan the totals; prefixes[i] becomes the prefix of segment i + 1
    prefixes = allocate((rows, full), accumulate, x.device)
    shape = (1, rows, full)
    source, target = (DeviceArray(e.buffer, e.offset, e.dtype, shape, (0, full, 1)) for e in (ends, prefixes))
    _scan(op, source, target, accumulate)
    # pass 3: segment 0 has no prefix; then the other full segments, and the remainder (`first`: index of the prefix)
    copy_values(_segments(scanned, 0, 1, size), _segments(y, 0, 1, size))
    for start, count, length, first in ((size, full - 1, size, 0), (full * size, 1, remainder, full - 1)):
        if not count or not length:
            continue
        offset = prefixes.offset + first * accumulate.itemsize
        added = DeviceArray(prefixes.buffer, offset, accumulate, (rows, count, length), (full, 1, 0))
        target_part = Tensor(_segments(y, start, count, length))
        elementwise_launch.write_map(
            op.combine, (Tensor(added), Tensor(_segments(scanned, start, count, length))), target_part, accumulate
        )


def _run(op: ScanOp, x: Tensor, dim: int, dtype: DType) -> Tensor:
    """Return the scan of x along an axis as a new tensor."""
    out = allocate(x.shape, dtype, x.device)
    if 0 not in x.shape:
        _scan(op, _axis_last(three_axes(x._array, dim)), _axis_last(three_axes(out, dim)), arithmetic_type(dtype))
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


def _run_along(run: Any, name: str, x: Tensor, dim: int, dtype: Any) -> Tensor:
    """Call the operation `run` with the axis and the result type resolved; a 0-d x is passed as a vector."""
    result = creation.as_dtype(dtype) if dtype is not None else x.dtype if x.dtype.is_float else dtypes.i64
    if x.ndim == 0:
        axis_of(dim, 1, name)
        return views.reshape(run(views.reshape(x, 1), dim=0, dtype=result), ())
    return run(x, dim=axis_of(dim, x.ndim, name), dtype=result)  # type: ignore[no-any-return]


@cached("cumsum()")
def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the cumulative sum along an axis; integers and bool are summed in i64 unless dtype is given."""
    return _run_along(_cumsum, "cumsum", x, dim, dtype)


@cached("cumprod()")
def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the cumulative product along an axis; integers and bool are multiplied in i64 unless dtype is given."""
    return _run_along(_cumprod, "cumprod", x, dim, dtype)


@cached("logcumsumexp()")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the cumulative sum of exp(x) along an axis, without overflow."""
    if not x.dtype.is_float:
        raise DTypeError(f"logcumsumexp() takes floats, found {x.dtype!r}: convert with .to(vk.f32)")
    return _run_along(_logcumsumexp, "logcumsumexp", x, dim, None)


# -- cumulative min/max


def _scan_min_max(
    replaces: Any, x: DeviceArray, x_indices: DeviceArray, y: DeviceArray, y_indices: DeviceArray
) -> None:
    """Compute the cumulative min/max of x (a, b, r) into y, and their indices into `y_indices`.

    `x_indices` has the index of each element of x along the scanned axis. The device function `replaces` is true if its
    first operand replaces the second as the min/max so far.
    """
    a, b, n = x.shape
    options = (replaces, arithmetic_type(x.dtype))
    limit = min(row_limit(x), MAX_SEGMENT)
    if n <= MAX_SEGMENT:
        ends, end_indices = (allocate((a, b), d, x.device) for d in (x.dtype, dtypes.i64))
        kernels.cumulative_extremes(x, x_indices, ends, end_indices, y, y_indices, *options, limit)
        return
    for i in range(a):
        parts = [_slice_at(array, 0, i) for array in (x, x_indices, y, y_indices)]
        _scan_min_max_long(replaces, *parts)


def _scan_min_max_long(
    replaces: Any, x: DeviceArray, x_indices: DeviceArray, y: DeviceArray, y_indices: DeviceArray
) -> None:
    """Variant of `_scan_min_max` for long rows (rows, r), in three passes like `_scan_long`."""
    row_count, n = x.shape
    size, full, remainder = _split_row(n)
    options = (replaces, arithmetic_type(x.dtype))
    limit = min(row_limit(x), MAX_SEGMENT)
    ends, prefixes = (allocate((row_count, full), x.dtype, x.device) for _ in range(2))
    end_indices, prefix_indices = (allocate((row_count, full), dtypes.i64, x.device) for _ in range(2))
    unused_ends, unused_indices = (allocate((row_count, 1), d, x.device) for d in (x.dtype, dtypes.i64))
    # pass 1: scan each segment; the remainder's min/max isn't needed
    for begin, count, length, partial, partial_indices in (
        (0, full, size, ends, end_indices),
        (full * size, 1, remainder, unused_ends, unused_indices),
    ):
        if length:
            parts = [_segments(array, begin, count, length) for array in (x, x_indices, y, y_indices)]
            kernels.cumulative_extremes(*parts[:2], partial, partial_indices, *parts[2:], *options, limit)
    # pass 2: scan the min/max of the segments; prefixes[i] becomes the prefix of segment i + 1
    as_3d = [
        DeviceArray(partial.buffer, 0, partial.dtype, (1, row_count, full), (0, full, 1))
        for partial in (ends, end_indices, prefixes, prefix_indices)
    ]
    _scan_min_max(replaces, *as_3d)
    # pass 3: combine all segments but the first with their prefixes; `first` is the index of the first of these prefixes
    for begin, count, length, first in ((size, full - 1, size, 0), (full * size, 1, remainder, full - 1)):
        if not count or not length:
            continue
        segment_prefixes = [
            DeviceArray(
                partial.buffer,
                first * partial.dtype.itemsize,
                partial.dtype,
                (row_count, count),
                (full, 1),
            )
            for partial in (prefixes, prefix_indices)
        ]
        kernels.apply_prefix_extremes(
            *segment_prefixes, *(_segments(array, begin, count, length) for array in (y, y_indices)), *options
        )


def _cumulative_min_max(x: Tensor, dim: int, name: str, replaces: Any) -> MinMax:
    """Return (values, indices) for `cummax` and `cummin`; gradients flow through a gather at the indices."""
    if x.ndim == 0:
        axis_of(dim, 1, name)
        return MinMax(x.clone(), creation.zeros((), dtype=dtypes.i64, device=x.device))
    axis = axis_of(dim, x.ndim, name)
    index_array = allocate(x.shape, dtypes.i64, x.device)
    values = allocate(x.shape, x.dtype, x.device)
    if 0 not in x.shape:
        positions = creation.arange(x.shape[axis], device=x.device)._array
        shape = tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim))
        broadcast_positions = views.expand(
            Tensor(DeviceArray(positions.buffer, 0, positions.dtype, shape, contiguous_strides(shape))), x.shape
        )
        parts = [
            _axis_last(three_axes(a, axis))
            for a in (x._array, broadcast_positions.contiguous()._array, values, index_array)
        ]
        _scan_min_max(replaces, *parts)
    indices = Tensor(index_array)
    return MinMax(gather(x, axis, indices) if x.requires_grad and x.numel() else Tensor(values), indices)


@cached("cummax()")
def cummax(x: Tensor, dim: int) -> MinMax:
    """Return (values, indices) of the cumulative maximum along an axis.

    Of equal elements the last index is returned. NaN propagates.
    """
    return _cumulative_min_max(x, dim, "cummax", kernels.replaces_maximum)


@cached("cummin()")
def cummin(x: Tensor, dim: int) -> MinMax:
    """Return (values, indices) of the cumulative minimum along an axis.

    Of equal elements the last index is returned. NaN propagates.
    """
    return _cumulative_min_max(x, dim, "cummin", kernels.replaces_minimum)


# -- differences and integrals


@cached("diff()")
@computed_in_f32
def diff(x: Any, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Return the differences of adjacent elements along an axis, taken n times; for bool, True where they differ.

    `prepend` and `append` are concatenated to x first.
    """
    if x.ndim == 0:
        raise ShapeError("diff() takes a tensor with at least one axis")
    axis = axis_of(dim, x.ndim, "diff")
    if as_int(n, "diff(n=)", 0) == 0:  # a copy, as results aren't views of x
        return x.clone()  # type: ignore[no-any-return]
    x = (
        cat([p for p in (prepend, x, append) if p is not None], axis)
        if prepend is not None or append is not None
        else x
    )
    for _ in range(min(n, x.shape[axis])):  # no elements are left then
        size = max(x.shape[axis] - 1, 0)
        high, low = narrow(x, axis, min(1, x.shape[axis]), size), narrow(x, axis, 0, size)
        x = high ^ low if x.dtype.kind == "bool" else high - low
    return x  # type: ignore[no-any-return]


def _areas(name: str, y: Any, x: Any, dx: Any, dim: int) -> Tensor:
    """Return the areas of the trapezoids between adjacent elements along an axis; see `trapezoid`."""
    axis = axis_of(dim, y.ndim, name)
    size = max(y.shape[axis] - 1, 0)
    sums = narrow(y, axis, min(1, y.shape[axis]), size) + narrow(y, axis, 0, size)
    if x is None:
        return sums * (dx / 2 if not isinstance(dx, Tensor) else dx * 0.5)
    if x.ndim == 1 and y.ndim > 1 and x.shape[0] == y.shape[axis]:
        x = views.reshape(x, tuple(-1 if i == axis else 1 for i in range(y.ndim)))
    along = axis - y.ndim  # counted from the end, since x may have fewer axes than y
    return sums * diff(x, dim=along) * 0.5


@computed_in_f32
def trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """Integrate y along an axis by the trapezoidal rule; y is sampled at the coordinates x, or at distance `dx`."""
    if x is not None and dx != 1:
        raise ArgumentError("trapezoid() takes x or dx, not both")
    return _areas("trapezoid", y, x, dx, dim).sum(dim)


@computed_in_f32
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """Return the cumulative integral of y along an axis by the trapezoidal rule; see `trapezoid`."""
    if x is not None and dx != 1:
        raise ArgumentError("cumulative_trapezoid() takes x or dx, not both")
    return cumsum(_areas("cumulative_trapezoid", y, x, dx, dim), dim)


trapz = trapezoid
