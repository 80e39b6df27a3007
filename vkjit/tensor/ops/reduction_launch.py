"""Launch of reductions and min/max searches over axes of an array.

The axes are coalesced first; if several remain to be reduced, they are reduced one after the other, innermost first. A
*row* is a slice along the axis being reduced. The kernels take arrays viewed as (a, b, r): two axes that are kept, then
the axis within the row. Rows that are too long, or too few to keep the device busy, are split into segments; the
partial results of the segments are reduced by another launch.

Results are contiguous arrays of the remaining axes. Nothing synchronizes with the device. On software (CPU) Vulkan
drivers, which stop long loops, no invocation runs more than a few thousand iterations.
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
"""Row limit (see `row_limit`) on devices without one."""
MAX_ROW_SOFTWARE = 16384
"""Maximum number of elements of a row that a single invocation processes on devices of class "cpu"."""


@dataclass(frozen=True, slots=True)
class Reducer:
    """A reduction operator.

    It has three device functions: `load` converts an element to a value, `combine` combines two values, and `finish`
    makes the result from the combined value and the number of elements. `start` is the identity of `combine`: a number,
    or "least" or "greatest" for the lowest or highest value of the accumulator's type.
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
    """Return the initial value of an accumulator of type `accumulate`."""
    if isinstance(reducer.start, str):
        if accumulate.is_float:
            return -math.inf if reducer.start == "least" else math.inf
        signed, bits = accumulate.is_signed, accumulate.bits
        if reducer.start == "least":
            return -(1 << (bits - 1)) if signed else 0
        return (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    return float(reducer.start) if accumulate.is_float else int(reducer.start)


def _coalesced(array: DeviceArray, axes: Sequence[int]) -> list[Axis]:
    """Return (extent, stride) of the given axes in order, without axes of size 1 and with contiguous axes merged."""
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


def _as_3d(array: DeviceArray, kept: list[Axis], row_axis: Axis) -> DeviceArray:
    """View the array as (a, b, r): `kept`, padded to two axes, then `row_axis`, the axis to reduce."""
    padded = [(1, 0)] * (2 - len(kept)) + kept  # (1, 0): an axis of size 1 and stride 0
    shape, strides = zip(*padded, row_axis, strict=True)
    return DeviceArray(array.buffer, array.offset, array.dtype, tuple(shape), tuple(strides))


def _copied_c_order(array: DeviceArray, axes: Sequence[Axis]) -> DeviceArray:
    """Copy the elements along axes given as (extent, stride) to a C-order array."""
    shape = tuple(extent for extent, _ in axes)
    copied = allocate(shape, array.dtype, array.device)
    copy_values(DeviceArray(array.buffer, array.offset, array.dtype, shape, tuple(s for _, s in axes)), copied)
    return copied


def _as_rows(array: DeviceArray, kept: list[Axis], row_axis: Axis) -> DeviceArray:
    """View the array as (a, b, r), with `row_axis` as the axis to reduce; copy it if more than two axes are kept."""
    if len(kept) > 2:
        array = _copied_c_order(array, [*kept, row_axis])
        kept, row_axis = [(math.prod(e for e, _ in kept), row_axis[0])], (row_axis[0], 1)
    return _as_3d(array, kept, row_axis)


def _rows_merged(x: DeviceArray) -> DeviceArray:
    """View (a, b, r) as (1, rows, r); copy it if the first two axes can't be merged."""
    a, b, n = x.shape
    merged_strides = reshaped_strides((a, b), x.strides[:2], (a * b,))
    if merged_strides is None:
        x = _copied_c_order(x, list(zip(x.shape, x.strides, strict=True)))
        merged_strides = (n,)
    return DeviceArray(x.buffer, x.offset, x.dtype, (1, a * b, n), (0, merged_strides[0], x.strides[2]))


def _segments(x: DeviceArray, length: int) -> Iterator[tuple[DeviceArray, int]]:
    """Split (1, rows, r) into segments of `length`; yield views of them, each with the number of its first segment.

    The first view has all full segments: (segments, rows, length), or (1, segments, length) for a single row. The
    second has the shorter last segment, if there is one.
    """
    _, rows, n = x.shape
    full_segments = n // length
    step = x.strides[2]
    # (number of the first segment, number of segments, their size): the full segments, then the shorter last one
    for first, count, size in ((0, full_segments, length), (full_segments, 1, n - full_segments * length)):
        if not count or not size:
            continue
        offset = x.offset + first * length * step * x.dtype.itemsize
        shape, strides = (count, rows, size), (size * step, x.strides[1], step)
        if rows == 1:
            shape, strides = (1, count, size), (0, size * step, step)
        yield DeviceArray(x.buffer, offset, x.dtype, shape, strides), first


def _partials_of(partial: DeviceArray, view: DeviceArray, first: int, rows: int) -> DeviceArray:
    """View the part of `partial` (segments, rows) that takes the results for `view`, one of the views of `_segments`.

    `first` is the number of the view's first segment.
    """
    offset = partial.offset + first * rows * partial.dtype.itemsize
    shape = view.shape[:2]
    return DeviceArray(partial.buffer, offset, partial.dtype, shape, contiguous_strides(shape))


def _partials_as_rows(partial: DeviceArray) -> DeviceArray:
    """View (segments, rows) as (1, rows, segments)."""
    count, rows = partial.shape
    return DeviceArray(partial.buffer, partial.offset, partial.dtype, (1, rows, count), (0, 1, rows))


def _as_2d(x: DeviceArray) -> DeviceArray:
    """View (1, rows, r) as (rows, r)."""
    return DeviceArray(x.buffer, x.offset, x.dtype, x.shape[1:], x.strides[1:])


def reduce_axes(
    array: DeviceArray, axes: Sequence[int], reducer: Reducer, result: DType, accumulate: DType
) -> DeviceArray:
    """Return a non-empty array reduced over `axes`, in the type `result`; the remaining axes keep their order.

    Values are combined in the type `accumulate`.
    """
    kept_axes = [i for i in range(len(array.shape)) if i not in axes]
    out = allocate(tuple(array.shape[i] for i in kept_axes), result, array.device)
    # four bools per word: a word is nonzero if any of its bools is true
    if reducer is ANY and (words := _bools_as_words(array, axes)) is not None:
        array = words
    kept = _coalesced(array, kept_axes)
    row_axes = _coalesced(array, sorted(axes)) or [(1, 0)]  # rows of one element if all axes to reduce have size 1
    reduction = _Reduction(reducer, accumulate, math.prod(array.shape[i] for i in axes))
    while len(row_axes) > 1:  # reduce the innermost axis, until only one is left
        row_axis = row_axes.pop()
        remaining = [*kept, *row_axes]
        partial = allocate(tuple(e for e, _ in remaining), accumulate, array.device)
        reduction.stage(_as_rows(array, remaining, row_axis), partial, last=False)
        array = partial
        pairs = list(zip(partial.shape, partial.strides, strict=True))
        kept, row_axes = pairs[: len(kept)], pairs[len(kept) :]
    reduction.stage(_as_rows(array, kept, row_axes[0]), out, last=True)
    return out


def _bools_as_words(array: DeviceArray, axes: Sequence[int]) -> DeviceArray | None:
    """View bools as u32 words of four elements each, for the reducer `ANY`.

    Returns None for other types, if the layout doesn't allow such a view, or if the device isn't a GPU.
    """
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
    shape = (*array.shape[:last], array.shape[last] // 4)
    strides = tuple(stride // 4 for stride in array.strides[:last])
    return DeviceArray(array.buffer, array.offset, dtypes.u32, shape, (*strides, 1))


class _Reduction:
    """A reduction in progress, which may take several launches.

    `reads_elements` is True until the first launch, which reads elements and applies the reducer's `load` to them.
    Later launches read partial results. `total` is the number of elements per result.
    """

    def __init__(self, reducer: Reducer, accumulate: DType, total: int) -> None:
        self.reducer = reducer
        self.accumulate = accumulate
        self.total = total
        self.reads_elements = True

    def stage(self, x: DeviceArray, out: DeviceArray, *, last: bool) -> None:
        """Reduce (a, b, r) along its last axis into contiguous `out`, in several launches if the rows are long.

        `last` is True if no further axis is to be reduced, so that the reducer's `finish` is applied.
        """
        while segment_length(x) < x.shape[2]:
            x = self._reduce_segments(_rows_merged(x), segment_length(x))
            self.reads_elements = False
        shape = x.shape[:2]
        self.launch(x, DeviceArray(out.buffer, out.offset, out.dtype, shape, contiguous_strides(shape)), last=last)
        self.reads_elements = False

    def _reduce_segments(self, x: DeviceArray, length: int) -> DeviceArray:
        """Reduce segments of `length` elements of (1, rows, r); return the partial results as (1, rows, segments)."""
        partial = allocate((-(-x.shape[2] // length), x.shape[1]), self.accumulate, x.device)
        for part, first in _segments(x, length):
            self.launch(part, _partials_of(partial, part, first, x.shape[1]), last=False)
        return _partials_as_rows(partial)

    def _loading(self, x: DeviceArray) -> tuple[Any, DType]:
        """Return the kernel's LOAD function, and the type to which elements are converted before it is applied."""
        if not self.reads_elements:
            return kernels.load_value, self.accumulate
        return self.reducer.load, _load_type(self.reducer, x.dtype, self.accumulate)

    def launch(self, x: DeviceArray, y: DeviceArray, *, last: bool) -> None:
        """Launch the kernel that reduces x (a, b, r) to y (a, b). With `last`, it applies the reducer's `finish`."""
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
        # the kernels take the subgroup size as its base-2 logarithm: size.bit_length() - 1
        if uses_subgroup_per_row(x):
            size = x.device.caps.subgroup_size
            kernels.reduce_per_subgroup(x, y, self.total, *constants, size, size.bit_length() - 1)
        elif uses_workgroup_per_row(x) and can_shuffle(x, self.accumulate):
            size = x.device.caps.subgroup_size
            # invocations per row; the last argument is the number of vec4 loads in flight per invocation
            local = size if x.shape[2] <= MAX_SUBGROUP_ROW else kernels.GROUP
            kernels.reduce_by_shuffles(x, y, self.total, *constants, local, size.bit_length() - 1, 4)
        elif uses_workgroup_per_row(x):
            kernels.reduce_per_workgroup(x, y, self.total, *constants)
        else:
            kernels.reduce_per_invocation(*_grid_order(x, y), self.total, *constants, row_limit(x))


def _grid_order(*arrays: DeviceArray) -> list[DeviceArray]:
    """Return the arrays (a, b, ...) with a and b exchanged if b is below 32 and a is larger.

    b is the grid dimension with adjacent invocations, so it should be the larger one.
    """
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
    # a test for nonzero needs the element's own value: converted to the integer accumulator, 0.5 would be 0
    return arithmetic_type(dtype) if reducer.load is kernels.load_nonzero else accumulate


def row_limit(x: DeviceArray) -> int:
    """Return the maximum number of elements of a row that one invocation processes; kernels take it as a constant."""
    return UNLIMITED if device_class(x.device) == "gpu" else MAX_ROW_SOFTWARE


def uses_workgroup_per_row(x: DeviceArray) -> bool:
    """True if each row of (a, b, r) should be reduced by a whole workgroup: on GPUs, for long rows.

    Rows whose elements aren't adjacent qualify only if there are few of them: otherwise one invocation per row, with
    adjacent rows in adjacent invocations, keeps the GPU busy.
    """
    if device_class(x.device) == "cpu":
        return False
    rows = x.shape[0] * x.shape[1]
    is_long = x.shape[2] >= 64
    is_adjacent = abs(x.strides[2]) <= 1
    return is_long and (is_adjacent or rows < 1024)


MAX_SUBGROUP_ROW = 2048
"""Maximum row length for which a workgroup per row is a single subgroup."""


def can_shuffle(x: DeviceArray, dtype: DType) -> bool:
    """True if kernels can combine values of this type by subgroup shuffles.

    These kernels take 4-byte types and subgroups of at most 64 lanes.
    """
    caps = x.device.caps
    return dtype.itemsize == 4 and "subgroup_shuffle" in caps.features and caps.subgroup_size <= 64


MAX_ROW_READ_TWICE = 1 << 15
"""Maximum length of rows that a workgroup reads twice, the second time from cache."""


def contiguous_rows(array: DeviceArray, axes: Sequence[int]) -> DeviceArray | None:
    """View a non-empty array as contiguous rows (a, b, r) along `axes`, for kernels with a workgroup per row.

    Returns None if the layout or the device doesn't allow it, or if the rows are too long: above 4096 elements, or
    above `MAX_ROW_READ_TWICE` if there are at least 64 rows.
    """
    kept = _coalesced(array, [i for i in range(len(array.shape)) if i not in axes])
    row_axes = _coalesced(array, sorted(axes))
    if len(kept) > 2 or len(row_axes) != 1 or row_axes[0][1] != 1 or row_kernel_class(array.device) != "gpu":
        return None
    count = math.prod(extent for extent, _ in kept)
    max_length = MAX_ROW_READ_TWICE if count >= 64 else 4096
    return _as_3d(array, kept, row_axes[0]) if row_axes[0][0] <= max_length else None


def invocations_per_row(rows: DeviceArray) -> int:
    """Return the number of invocations per row for kernels that take rows from `contiguous_rows`."""
    if rows.device.caps.kind == "llvm-cpu":  # one subgroup: the lanes of a vector
        return int(rows.device.caps.subgroup_size)
    return 256 if rows.shape[2] >= 512 else 64


def uses_subgroup_per_row(x: DeviceArray) -> bool:
    """True if each row of (a, b, r) should be reduced by a whole subgroup.

    This is the case for contiguous rows on the LLVM CPU backend, where a subgroup is the lanes of a vector.
    """
    return x.device.caps.kind == "llvm-cpu" and x.strides[2] == 1 and x.shape[2] >= 64 and not uses_workgroup_per_row(x)


def segment_length(x: DeviceArray) -> int:
    """Return the length of the segments into which the rows of (a, b, r) should be split.

    Rows of at most this length aren't split. The length is chosen so that all rows together have about `busy` segments,
    enough to keep the device busy. It is at least `shortest`, and at most `longest` to bound the iterations per
    invocation.
    """
    rows, length = x.shape[0] * x.shape[1], x.shape[2]
    # by the device, and the kernel that `_Reduction.launch` will choose
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
    return min(longest, max(shortest, -(-length * rows // busy)))


SEARCH_INVOCATIONS = 16
"""Number of invocations that search one block of a row."""


def search_axis(array: DeviceArray, axis: int, *, greatest: bool) -> DeviceArray:
    """Return the indices (i64) of the minima, or maxima if `greatest`, of a non-empty array along an axis.

    Of equal elements the first is returned. Long rows are searched in blocks by `SEARCH_INVOCATIONS` invocations per
    block, each of which finds one candidate. Then the candidates of a row are compared, in one or more launches.
    """
    kept_axes = [i for i in range(len(array.shape)) if i != axis]
    out = allocate(tuple(array.shape[i] for i in kept_axes), dtypes.i64, array.device)
    x = _as_rows(array, _coalesced(array, kept_axes), (array.shape[axis], array.strides[axis]))
    replaces = kernels.replaces_maximum if greatest else kernels.replaces_minimum
    options = (replaces, arithmetic_type(array.dtype), row_limit(x))
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
    rows, n = x.shape
    values, indices = (allocate((rows, blocks, SEARCH_INVOCATIONS), dtype, x.device) for dtype in (x.dtype, dtypes.i64))
    kernels.arg_reduce_blocks(x, values, indices, -(-n // blocks), *options)
    candidates = blocks * SEARCH_INVOCATIONS
    values, indices = (_as_shape(partial, (rows, candidates)) for partial in (values, indices))
    while candidates > 1:
        # each invocation compares 64 candidates, or all of them if there are few; the last launch writes to `out`
        candidates = -(-candidates // 64) if candidates > 512 else 1
        best = allocate((rows, candidates), x.dtype, x.device)
        shape = (rows, candidates)
        target = allocate(shape, dtypes.i64, x.device) if candidates > 1 else _as_shape(out, shape)
        kernels.arg_reduce_partials(values, indices, best, target, *options)
        values, indices = best, target
    return out


def _searches_by_subgroup(x: DeviceArray) -> bool:
    """True if each row is searched by a subgroup: on GPUs, for contiguous rows of a type that subgroups can shuffle.

    Rows must be long enough to occupy a subgroup. Long rows are searched in this way only if there are many of them;
    few long rows are split into blocks (`_search_blocks`) to keep the GPU busy.
    """
    if device_class(x.device) != "gpu" or x.strides[2] != 1 or not can_shuffle(x, arithmetic_type(x.dtype)):
        return False
    rows, n = x.shape[0] * x.shape[1], x.shape[2]
    return n >= 64 and (n <= 2048 or (rows >= 512 and n <= 1 << 16))


def _as_shape(array: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """View a contiguous array in another shape."""
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, contiguous_strides(shape))


def _search_blocks(x: DeviceArray) -> int:
    """Return the number of blocks per row, each searched by `SEARCH_INVOCATIONS` invocations.

    0 means that one invocation searches the whole row.
    """
    rows, n = x.shape[0] * x.shape[1], x.shape[2]
    if n < 16 * SEARCH_INVOCATIONS:  # fewer than 16 elements per invocation of a block
        return 0
    busy = 64 if device_class(x.device) == "cpu" else 2048  # number of blocks that keep the device busy
    enough_blocks = -(-busy // rows)
    max_blocks = n // (64 * SEARCH_INVOCATIONS)  # with at least 64 elements per invocation
    min_blocks = -(-n // (MAX_ROW_SOFTWARE * SEARCH_INVOCATIONS))  # with at most MAX_ROW_SOFTWARE per invocation
    return max(1, min(enough_blocks, max_blocks), min_blocks)
