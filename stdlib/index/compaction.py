"""Stream compaction: count nonzero elements and gather their indices and values.

`vkjit.tensor.ops.compaction` calls these functions for nonzero, masked_select and the like. The dense input vector x of
N elements is cut into S segments of `length` elements; the last segment may be shorter. The first pass counts the
nonzero elements of each segment. The second computes `starts`, which has S1 = S + 1 elements: starts[s] is the number
of nonzero elements before segment s, the offset of the segment in the output, and starts[S] is the total. The last pass
writes the indices of the nonzero elements (i64), or the elements of another vector at these indices, in order.

The kernels of this module are for devices of class "cpu", where one invocation writes the output of a segment. GPUs
launch the kernels of `compaction_tiles`, where a workgroup does. T is the type of x, U that of the elements gathered
from another vector. Const IN is the type in which elements of x are compared with 0.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.elementwise import vec4 as vec4_kernels
from vkjit.stdlib.index import compaction_tiles as tiles
from vkjit.stdlib.partial_sums import scratch
from vkjit.stdlib.registry import MAX_CPU_ITERATIONS, device_class

__all__ = ["segment_offsets", "unravel", "write_indices", "write_values"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

MIN_SEGMENT_LENGTH = 4096
"""Minimum number of elements per segment."""
MAX_SEGMENTS = 8192
"""Maximum number of segments, except on software drivers, whose loop limit may require shorter and more segments."""


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda counts: counts.shape[0], local=lambda SIZE: SIZE, debug=False)
def _count_segments(
    x: vk.In[T, "N"], counts: vk.Out[vk.i32, "S"], length: vk.i64, IN: vk.Const[Any], SIZE: vk.Const[int]
):
    """counts[s] = the number of nonzero elements of segment s, by a workgroup of SIZE invocations per segment."""
    wg, s, thread = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    begin = s * length
    count = vk.i32(0)
    for n in range(begin + thread, vk.min(begin + length, x.shape[0]), SIZE):
        count += vk.where(IN(x[n]) != 0, 1, 0)
    total = wg.sum(count)
    if thread == 0:
        counts[s] = total


@vk.kernel(groups=lambda: 1, local=1, debug=False)
def _scan_counts(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts[s] = the sum of counts[:s], for s from 0 to the number of segments; one invocation computes all."""
    total = vk.i64(0)
    for s in range(counts.shape[0]):
        starts[s] = total
        total += vk.i64(counts[s])
    starts[counts.shape[0]] = total


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=1, debug=False)
def _write_indices(
    x: vk.In[T, "N"], starts: vk.In[vk.i64, "S1"], y: vk.InOut[vk.i64, "M"], length: vk.i64, IN: vk.Const[Any]
):
    """Write the indices of the nonzero elements of segment s to y[starts[s] : starts[s + 1]].

    One invocation per segment. Every iteration stores its index at y[cursor], but only a nonzero element advances the
    cursor, so the next store overwrites the index of a zero element. This avoids a branch on the element.
    """
    s = vk.group_id(0)
    cursor, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if cursor < stop:
            y[cursor] = n
        cursor += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=1, debug=False)
def _gather_values(
    x: vk.In[T, "N"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    length: vk.i64,
    IN: vk.Const[Any],
):
    """Write values[n] for each nonzero x[n] of segment s to y[starts[s] : starts[s + 1]].

    Works like `_write_indices`, which stores n instead of values[n].
    """
    s = vk.group_id(0)
    cursor, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if cursor < stop:
            y[cursor] = values[n]
        cursor += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


def _compare_type(x: DeviceArray) -> vk.DType:
    """Return IN, the type in which elements of x are compared with 0."""
    if x.dtype.kind == "bool":
        return vk.i32
    return vk.f32 if x.dtype.is_float and x.dtype.bits == 16 else x.dtype


def _segment_length(x: DeviceArray) -> int:
    """Return the number of elements per segment, at least MIN_SEGMENT_LENGTH.

    On GPUs it is a multiple of `compaction_tiles.TILE`. On software drivers it is at most `MAX_CPU_ITERATIONS`, since
    one invocation loops over a segment. The LLVM backend ("llvm-cpu") has no such limit; 2**30 elements are allowed.
    """
    length = max(MIN_SEGMENT_LENGTH, -(-x.shape[0] // MAX_SEGMENTS))
    if _uses_tiles(x):
        return -(-length // tiles.TILE) * tiles.TILE
    max_length = 1 << 30 if x.device.caps.kind == "llvm-cpu" else MAX_CPU_ITERATIONS
    return min(length, max_length)


def _uses_tiles(x: DeviceArray) -> bool:
    """True if x is on a device of class "gpu", which launches the kernels of `compaction_tiles`."""
    return device_class(x.device) == "gpu"


def _tile_arguments(x: DeviceArray) -> tuple[DeviceArray, tuple[Any, ...]] | None:
    """Return the arguments (x, (tiles, total, LOAD, IN)) of the kernels of `compaction_tiles`; None on class "cpu".

    The returned x is the vector itself or, for bools, if possible, a view of it as 32-bit words of four bools each.
    """
    if not _uses_tiles(x):
        return None
    element_count, accessor = x.shape[0], vec4_kernels.load_element
    tiles_per_segment = _segment_length(x) // tiles.TILE
    compare_type = _compare_type(x)
    if x.dtype.kind == "bool" and element_count % 4 == 0 and x.offset % 4 == 0:  # whole, aligned words
        x, accessor = DeviceArray(x.buffer, x.offset, vk.u32, (element_count // 4,), (1,)), vec4_kernels.load_bool
    return x, (tiles_per_segment, element_count, accessor, compare_type)


def segment_offsets(x: DeviceArray) -> DeviceArray:
    """Return `starts` (i64) of a nonempty vector x: the number of nonzero elements before each segment, then of all."""
    length = _segment_length(x)
    counts = scratch((-(-x.shape[0] // length),), vk.i32, x.device)
    starts = scratch((counts.shape[0] + 1,), vk.i64, x.device)
    if (tile_args := _tile_arguments(x)) is not None:
        tiles.count_tiles(tile_args[0], counts, *tile_args[1])
        tiles.scan_counts(counts, starts)
    else:
        _count_segments(x, counts, length, _compare_type(x), x.device.caps.subgroup_size)
        _scan_counts(counts, starts)
    return starts


def write_indices(x: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """y = the indices of the nonzero elements of x, in order.

    `starts` is the result of `segment_offsets`, and y has as many elements as x has nonzero ones.
    """
    if (tile_args := _tile_arguments(x)) is not None:
        tiles.write_tile_indices(tile_args[0], starts, y, *tile_args[1])
    else:
        _write_indices(x, starts, y, _segment_length(x), _compare_type(x))


def write_values(x: DeviceArray, values: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """y = the elements of `values` where x is nonzero, in order.

    `starts` is the result of `segment_offsets`, and y has as many elements as x has nonzero ones.
    """
    if (tile_args := _tile_arguments(x)) is not None:
        tiles.gather_tile_values(tile_args[0], values, starts, y, *tile_args[1])
    else:
        _gather_values(x, values, starts, y, _segment_length(x), _compare_type(x))


@vk.kernel(over="y", debug=False)
def _unravel(
    flat: vk.In[vk.i64, "M"], strides: vk.In[vk.i64, "R"], extents: vk.In[vk.i64, "R"], y: vk.Out[vk.i64, "M R"],
    C: vk.Const[Any],
):  # fmt: skip
    """y[m, r] = coordinate r of the flat index flat[m].

    `strides` and `extents` are described at `unravel`. C is the unsigned type in which to divide, u32 or u64.
    """
    r, m = vk.global_id(0), vk.global_id(1)
    y[m, r] = vk.i64(C(flat[m]) // C(strides[r]) % C(extents[r]))


def unravel(indices: DeviceArray, strides: DeviceArray, extents: DeviceArray, y: DeviceArray, narrow: bool) -> None:
    """Convert flat indices to coordinates: y[m, r] = indices[m] // strides[r] % extents[r].

    `extents` is the shape of the array that the indices refer to, and `strides` its C-order strides, in elements.
    `narrow` promises that this array has fewer than 2**32 elements, so that 32-bit divisions suffice.
    """
    _unravel(indices, strides, extents, y, vk.u32 if narrow else vk.u64)
