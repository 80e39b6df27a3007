"""Reduction strategy: coalesce axes, split long rows into segments, and launch the kernel stages.

A row is one slice along the reduced axis. Results are contiguous arrays of the remaining axes. Nothing synchronizes
with the device. On software (CPU) Vulkan drivers no invocation runs more than a few thousand iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vkjit import dtypes, lang
from vkjit.dtypes import DType
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.registry import device_class, row_kernel_class
from vkjit.stdlib.rows import reduce as kernels

from ..memory import allocate
from .copies import copy_values
from .elementwise_launch import arithmetic_type
from .views import reshaped_strides

__all__ = ["Reducer", "contiguous_rows", "invocations_per_row", "reduce_axes", "search_axis"]

Axis = tuple[int, int]
"""Extent and stride of an axis."""

UNLIMITED = 2**62
MAX_ROW_SOFTWARE = 16384
"""Longest row that one invocation reduces on a software driver."""


@dataclass(frozen=True, slots=True)
class Reducer:
    """A reduction: how to load, combine and finish elements, and the start value.

    `start` is a number, or "least" or "greatest" for the lowest or highest value of the accumulator's type.
    """

    load: Any
    combine: Any
    finish: Any
    start: float | str


SUM = Reducer(kernels.load_value, kernels.add, kernels.finish_value, 0)
MEAN = Reducer(kernels.load_value, kernels.add, kernels.finish_mean, 0)
PRODUCT = Reducer(kernels.load_value, kernels.product, kernels.finish_value, 1)
MAXIMUM = Reducer(kernels.load_value, lang.max, kernels.finish_value, "least")
MINIMUM = Reducer(kernels.load_value, lang.min, kernels.finish_value, "greatest")
ANY = Reducer(kernels.load_nonzero, kernels.bitwise_or, kernels.finish_value, 0)
ALL = Reducer(kernels.load_nonzero, kernels.bitwise_and, kernels.finish_value, 1)
ROOT_OF_SQUARES = Reducer(kernels.load_square, kernels.add, kernels.finish_root, 0)
SUM_OF_SQUARES = Reducer(kernels.load_square, kernels.add, kernels.finish_value, 0)


def start_value(reducer: Reducer, accumulate: DType) -> float:
    """Return the initial value of the accumulator."""
    if isinstance(reducer.start, str):
        if accumulate.is_float:
            return -math.inf if reducer.start == "least" else math.inf
        signed = accumulate.is_signed
        low, high = (
            (-(2 ** (accumulate.bits - 1)), 2 ** (accumulate.bits - 1) - 1) if signed else (0, 2**accumulate.bits - 1)
        )
        return low if reducer.start == "least" else high
    return float(reducer.start) if accumulate.is_float else int(reducer.start)


def _coalesced(array: DeviceArray, axes: Sequence[int]) -> list[Axis]:
    """Return (extent, stride) of the given axes, in order, dropping size-1 axes and coalescing adjacent ones."""
    merged: list[Axis] = []
    for axis in axes:
        extent, stride = array.shape[axis], array.strides[axis]
        if extent == 1:
            continue
        if merged and merged[-1][1] == stride * extent:
            merged[-1] = (merged[-1][0] * extent, stride)
        else:
            merged.append((extent, stride))
    return merged


def _as_3d(array: DeviceArray, kept: list[Axis], line: Axis) -> DeviceArray:
    """View the array as (a, b, r): at most two kept axes, then the reduced one."""
    pad = [(1, 0)] * (2 - len(kept)) + kept
    shape, strides = zip(*pad, line, strict=True)
    return DeviceArray(array.buffer, array.offset, array.dtype, tuple(shape), tuple(strides))


def _copied_c_order(array: DeviceArray, axes: Sequence[Axis]) -> DeviceArray:
    """Copy the elements along axes given as (extent, stride) to a C-order array."""
    shape = tuple(extent for extent, _ in axes)
    copied = allocate(shape, array.dtype, array.device)
    copy_values(DeviceArray(array.buffer, array.offset, array.dtype, shape, tuple(s for _, s in axes)), copied)
    return copied


def _one_line_axis(array: DeviceArray, kept: list[Axis], line: Axis) -> DeviceArray:
    """View the array as (a, b, r), copying it if more than two axes are kept."""
    if len(kept) > 2:
        array = _copied_c_order(array, [*kept, line])
        kept, line = [(math.prod(e for e, _ in kept), line[0])], (line[0], 1)
    return _as_3d(array, kept, line)


def _rows_merged(x: DeviceArray) -> DeviceArray:
    """View (a, b, r) as (1, rows, r), copying it if the first two axes can't be merged."""
    a, b, n = x.shape
    combined = reshaped_strides((a, b), x.strides[:2], (a * b,))
    if combined is None:
        x = _copied_c_order(x, list(zip(x.shape, x.strides, strict=True)))
        combined = (n,)
    return DeviceArray(x.buffer, x.offset, x.dtype, (1, a * b, n), (0, combined[0], x.strides[2]))


def _segments(x: DeviceArray, length: int) -> Iterator[tuple[DeviceArray, int]]:
    """Split (1, rows, r) into segments of `length` and a remainder; yield each view and its first segment number.

    Views are (segments, rows, length), or (1, segments, length) for a single row.
    """
    _, lines, n = x.shape
    whole = n // length
    step = x.strides[2]
    for start, count, size in ((0, whole, length), (whole, 1, n - whole * length)):
        if not count or not size:
            continue
        offset = x.offset + start * length * step * x.dtype.itemsize
        shape, strides = (count, lines, size), (size * step, x.strides[1], step)
        if lines == 1:
            shape, strides = (1, count, size), (0, size * step, step)
        yield DeviceArray(x.buffer, offset, x.dtype, shape, strides), start


def _partial_part(partial: DeviceArray, view: DeviceArray, first: int, lines: int) -> DeviceArray:
    """Return the part of (segments, rows) that holds the results of a view from `_segments`."""
    offset = partial.offset + first * lines * partial.dtype.itemsize
    shape = view.shape[:2]
    return DeviceArray(partial.buffer, offset, partial.dtype, shape, contiguous_strides(shape))


def _as_lines(partial: DeviceArray) -> DeviceArray:
    """View (segments, rows) as (1, rows, segments)."""
    count, lines = partial.shape
    return DeviceArray(partial.buffer, partial.offset, partial.dtype, (1, lines, count), (0, 1, lines))


def _as_2d(x: DeviceArray) -> DeviceArray:
    """View (1, rows, r) as (rows, r)."""
    return DeviceArray(x.buffer, x.offset, x.dtype, x.shape[1:], x.strides[1:])


def reduce_axes(
    array: DeviceArray, axes: Sequence[int], reducer: Reducer, result: DType, accumulate: DType
) -> DeviceArray:
    """Reduce a non-empty array over `axes`; the remaining axes keep their order."""
    stay = [i for i in range(len(array.shape)) if i not in axes]
    out = allocate(tuple(array.shape[i] for i in stay), result, array.device)
    if reducer is ANY and (words := _bools_as_words(array, axes)) is not None:
        array = words
    kept, lines = _coalesced(array, stay), _coalesced(array, sorted(axes)) or [(1, 0)]
    run = _Run(reducer, accumulate, math.prod(array.shape[i] for i in axes))
    while len(lines) > 1:  # innermost axis first
        line = lines.pop()
        around = [*kept, *lines]
        partial = allocate(tuple(e for e, _ in around), accumulate, array.device)
        run.stage(_one_line_axis(array, around, line), partial, last=False)
        array = partial
        pairs = list(zip(partial.shape, partial.strides, strict=True))
        kept, lines = pairs[: len(kept)], pairs[len(kept) :]
    run.stage(_one_line_axis(array, kept, lines[0]), out, last=True)
    return out


def _bools_as_words(array: DeviceArray, axes: Sequence[int]) -> DeviceArray | None:
    """View bools as u32 words of four elements, for `ANY` on GPUs; None if the layout doesn't allow it."""
    last = len(array.shape) - 1
    if (
        array.dtype.kind != "bool"
        or last not in axes
        or device_class(array.device) != "gpu"
        or array.strides[last] != 1
    ):
        return None
    if array.offset % 4 or array.shape[last] % 4 or any(stride % 4 for stride in array.strides[:last]):
        return None
    shape, strides = (
        (*array.shape[:last], array.shape[last] // 4),
        tuple(stride // 4 for stride in array.strides[:last]),
    )
    return DeviceArray(array.buffer, array.offset, dtypes.u32, shape, (*strides, 1))


class _Run:
    """The stages of one reduction. `fresh` is True while the input still holds elements, not partial results."""

    def __init__(self, reducer: Reducer, accumulate: DType, total: int) -> None:
        self.reducer = reducer
        self.accumulate = accumulate
        self.total = total
        self.fresh = True

    def stage(self, x: DeviceArray, out: DeviceArray, *, last: bool) -> None:
        """Reduce (a, b, r) into contiguous `out`, through partial results if the rows are long."""
        while segment_length(x) < x.shape[2]:
            x = self._cut(_rows_merged(x), segment_length(x))
            self.fresh = False
        shape = x.shape[:2]
        self.launch(x, DeviceArray(out.buffer, out.offset, out.dtype, shape, contiguous_strides(shape)), last=last)
        self.fresh = False

    def _cut(self, x: DeviceArray, length: int) -> DeviceArray:
        """Reduce the segments of (1, rows, r) to partial results."""
        partial = allocate((-(-x.shape[2] // length), x.shape[1]), self.accumulate, x.device)
        for part, first in _segments(x, length):
            self.launch(part, _partial_part(partial, part, first, x.shape[1]), last=False)
        return _as_lines(partial)

    def _loading(self, x: DeviceArray) -> tuple[Any, DType]:
        """Return the function applied to each loaded element, and the type to which elements are converted first."""
        if not self.fresh:
            return kernels.load_value, self.accumulate
        return self.reducer.load, _load_type(self.reducer, x.dtype, self.accumulate)

    def launch(self, x: DeviceArray, y: DeviceArray, *, last: bool) -> None:
        """Launch one kernel that reduces (a, b, r) to (a, b)."""
        load, loaded = self._loading(x)
        finish = self.reducer.finish if last else kernels.finish_value
        constants = (
            load,
            self.reducer.combine,
            finish,
            start_value(self.reducer, self.accumulate),
            loaded,
            self.accumulate,
        )
        if uses_subgroup_per_row(x):
            size = x.device.caps.subgroup_size
            kernels.reduce_per_subgroup(x, y, self.total, *constants, size, size.bit_length() - 1)
        elif uses_workgroup_per_row(x) and can_shuffle(x, self.accumulate):
            size = x.device.caps.subgroup_size
            local = size if x.shape[2] <= MAX_SUBGROUP_ROW else kernels.GROUP
            kernels.reduce_by_shuffles(x, y, self.total, *constants, local, size.bit_length() - 1, 4)
        elif uses_workgroup_per_row(x):
            kernels.reduce_per_workgroup(x, y, self.total, *constants)
        else:
            kernels.reduce_per_invocation(*_grid_order(x, y), self.total, *constants, row_limit(x))


def _grid_order(*arrays: DeviceArray) -> list[DeviceArray]:
    """Order axes a and b so that the longer one fills the wider dimension of the grid."""
    a, b = arrays[0].shape[:2]
    if b >= 32 or a <= b:
        return list(arrays)
    return [
        DeviceArray(
            x.buffer, x.offset, x.dtype,
            (x.shape[1], x.shape[0], *x.shape[2:]), (x.strides[1], x.strides[0], *x.strides[2:]),
        )
        for x in arrays
    ]  # fmt: skip


def _load_type(reducer: Reducer, dtype: DType, accumulate: DType) -> DType:
    """Return the type to which elements are converted before the reducer's load function is applied."""
    return arithmetic_type(dtype) if reducer.load is kernels.load_nonzero else accumulate


def row_limit(x: DeviceArray) -> int:
    """Return an upper bound of the row length, as a hint for the compiler."""
    return UNLIMITED if device_class(x.device) == "gpu" else MAX_ROW_SOFTWARE


def uses_workgroup_per_row(x: DeviceArray) -> bool:
    """True if one workgroup per row is best: on GPUs, for long contiguous rows, or few rows."""
    if device_class(x.device) == "cpu":
        return False
    lines = x.shape[0] * x.shape[1]
    return x.shape[2] >= 64 and (abs(x.strides[2]) <= 1 or lines < 1024)


MAX_SUBGROUP_ROW = 2048
"""Longest row reduced by a single subgroup."""


def can_shuffle(x: DeviceArray, dtype: DType) -> bool:
    """True if the device can shuffle values of this type within subgroups whose size divides a workgroup of 256."""
    caps = x.device.caps
    return dtype.itemsize == 4 and "subgroup_shuffle" in caps.features and caps.subgroup_size <= 64


MAX_ROW_READ_TWICE = 1 << 15
"""Longest row that a workgroup reads twice, the second time from cache."""


def contiguous_rows(array: DeviceArray, axes: Sequence[int]) -> DeviceArray | None:
    """View a non-empty array as contiguous rows (a, b, r) along `axes`, for kernels with one workgroup per row.

    Returns None if the layout or the device doesn't allow it, or if there are too few rows for their length.
    """
    kept, lines = (
        _coalesced(array, [i for i in range(len(array.shape)) if i not in axes]),
        _coalesced(array, sorted(axes)),
    )
    if len(kept) > 2 or len(lines) != 1 or lines[0][1] != 1 or row_kernel_class(array.device) != "gpu":
        return None
    count = math.prod(extent for extent, _ in kept)
    return _as_3d(array, kept, lines[0]) if lines[0][0] <= (MAX_ROW_READ_TWICE if count >= 64 else 4096) else None


def invocations_per_row(lines: DeviceArray) -> int:
    """Return the number of invocations that read a row together."""
    if lines.device.caps.kind == "llvm-cpu":
        return int(lines.device.caps.subgroup_size)
    return 256 if lines.shape[2] >= 512 else 64


def uses_subgroup_per_row(x: DeviceArray) -> bool:
    """True if one subgroup per row is best: contiguous rows on the LLVM CPU backend (vector lanes)."""
    return x.device.caps.kind == "llvm-cpu" and x.strides[2] == 1 and x.shape[2] >= 64 and not uses_workgroup_per_row(x)


def segment_length(x: DeviceArray) -> int:
    """Return the segment length that keeps the device busy without overlong loops."""
    lines, length = x.shape[0] * x.shape[1], x.shape[2]
    if x.device.caps.kind == "interpreter":
        longest, busy, shortest = 512, 4096, 64
    elif uses_subgroup_per_row(x):
        longest, busy, shortest = 1 << 24, 128, 8192
    elif device_class(x.device) == "cpu":
        longest, busy, shortest = 8192, 1024, 4096
    elif uses_workgroup_per_row(x):
        longest, busy, shortest = 1 << 22, 1024, 4096
    else:
        longest, busy, shortest = 1 << 16, 65536, 64
    return min(longest, max(shortest, -(-length * lines // busy)))


SEARCH_INVOCATIONS = 16
"""Invocations that search one block of a row in parallel."""


def search_axis(array: DeviceArray, axis: int, *, greatest: bool) -> DeviceArray:
    """Return the i64 indices of the min/max of a non-empty array along an axis; the first of equal elements."""
    stay = [i for i in range(len(array.shape)) if i != axis]
    out = allocate(tuple(array.shape[i] for i in stay), dtypes.i64, array.device)
    x = _one_line_axis(array, _coalesced(array, stay), (array.shape[axis], array.strides[axis]))
    takes = kernels.replaces_maximum if greatest else kernels.replaces_minimum
    options = (takes, arithmetic_type(array.dtype), row_limit(x))
    if _searches_by_subgroup(x):
        outputs = DeviceArray(out.buffer, 0, dtypes.i64, x.shape[:2], contiguous_strides(x.shape[:2]))
        size = x.device.caps.subgroup_size
        kernels.arg_reduce_per_subgroup(x, outputs, *options[:2], size, size.bit_length() - 1)
        return out
    blocks = _search_blocks(x)
    if not blocks:
        outputs = DeviceArray(out.buffer, 0, dtypes.i64, x.shape[:2], contiguous_strides(x.shape[:2]))
        kernels.arg_reduce_per_invocation(*_grid_order(x, outputs), *options)
        return out
    x = _as_2d(_rows_merged(x))
    lines, n = x.shape
    values, indices = (
        allocate((lines, blocks, SEARCH_INVOCATIONS), dtype, x.device) for dtype in (x.dtype, dtypes.i64)
    )
    kernels.arg_reduce_blocks(x, values, indices, -(-n // blocks), *options)
    parts = blocks * SEARCH_INVOCATIONS
    values, indices = (_as_shape(part, (lines, parts)) for part in (values, indices))
    while parts > 1:
        parts = -(-parts // 64) if parts > 512 else 1
        best = allocate((lines, parts), x.dtype, x.device)
        shape = (lines, parts)
        target = allocate(shape, dtypes.i64, x.device) if parts > 1 else _as_shape(out, shape)
        kernels.arg_reduce_partials(values, indices, best, target, *options)
        values, indices = best, target
    return out


def _searches_by_subgroup(x: DeviceArray) -> bool:
    """True if a subgroup searches each row: on GPUs, for many contiguous rows whose type subgroups can shuffle."""
    if device_class(x.device) != "gpu" or x.strides[2] != 1 or not can_shuffle(x, arithmetic_type(x.dtype)):
        return False
    lines, n = x.shape[0] * x.shape[1], x.shape[2]
    return n >= 64 and (n <= 2048 or (lines >= 512 and n <= 1 << 16))


def _as_shape(array: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """View a contiguous array in another shape."""
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, contiguous_strides(shape))


def _search_blocks(x: DeviceArray) -> int:
    """Return the number of blocks per row, each searched by `SEARCH_INVOCATIONS` invocations; 0 if one searches the whole row."""
    lines, n = x.shape[0] * x.shape[1], x.shape[2]
    if n < 16 * SEARCH_INVOCATIONS:
        return 0
    busy = 64 if device_class(x.device) == "cpu" else 2048
    return max(
        1, min(-(-busy // lines), n // (64 * SEARCH_INVOCATIONS)), -(-n // (MAX_ROW_SOFTWARE * SEARCH_INVOCATIONS))
    )
