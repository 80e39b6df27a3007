"""Stream compaction: count nonzero elements and gather their indices and values.

`vkjit.tensor.ops.compaction` calls these functions for nonzero, masked_select and the like. The dense input vector x is
cut into segments, one per workgroup. The first pass counts the nonzero elements of each segment. An exclusive scan of
the counts then gives `starts`, the offset of each segment in the output, followed by the total. The last pass writes
the indices of the nonzero elements (i64), or the elements of another vector at these indices, in order.

The kernels of this module are for class "cpu", where one invocation writes a segment's output; on GPUs a workgroup does
it, by the kernels of `compaction_tiles`. Const IN is the type in which elements are compared with 0.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.elementwise import vec4 as fours
from vkjit.stdlib.index import compaction_tiles as tiles
from vkjit.stdlib.partial_sums import scratch
from vkjit.stdlib.registry import MAX_CPU_ITERATIONS, choose, variant

__all__ = ["segment_offsets", "unravel", "write_indices", "write_values"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

MAX_SEGMENTS = 8192
"""Maximum number of segments."""


@vk.kernel(groups=lambda counts: counts.shape[0], local=lambda SIZE: SIZE, debug=False)
def _count_segments(
    x: vk.In[T, "N"], counts: vk.Out[vk.i32, "S"], length: vk.i64, IN: vk.Const[Any], SIZE: vk.Const[int]
):
    """counts[s] = the number of nonzero elements of segment s, by a workgroup of SIZE invocations.

    A segment has `length` elements; the last segment may be shorter.
    """
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    begin = s * length
    count = vk.i32(0)
    for n in range(begin + lane, vk.min(begin + length, x.shape[0]), SIZE):
        count += vk.where(IN(x[n]) != 0, 1, 0)
    total = wg.sum(count)
    if lane == 0:
        counts[s] = total


@vk.kernel(groups=lambda: 1, local=1, debug=False)
def _scan_counts(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts = the exclusive prefix sum of counts, followed by the total, by one invocation."""
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

    One invocation per segment, which has `length` elements. Every iteration stores its index at the cursor, but only a
    nonzero element advances the cursor, so that the next store overwrites the index of a zero element. This avoids a
    branch on the element.
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
    """Write values[n] for each nonzero x[n] of segment s to y[starts[s] : starts[s + 1]], as `_write_indices` does."""
    s = vk.group_id(0)
    cursor, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if cursor < stop:
            y[cursor] = values[n]
        cursor += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


def _compare_type(x: DeviceArray) -> vk.DType:
    """Return the type in which elements are compared with 0."""
    if x.dtype.kind == "bool":
        return vk.i32
    return vk.f32 if x.dtype.is_float and x.dtype.bits == 16 else x.dtype


def _segment_length(x: DeviceArray) -> int:
    """Return the length of a segment in elements.

    On GPUs it is a multiple of `compaction_tiles.TILE`; on software drivers it is at most `MAX_CPU_ITERATIONS`, since
    one invocation loops over a segment.
    """
    length = max(4096, -(-x.shape[0] // MAX_SEGMENTS))
    if choose("compaction", x.device)(x) > 1:
        return -(-length // tiles.TILE) * tiles.TILE
    return min(length, MAX_CPU_ITERATIONS if x.device.caps.kind != "llvm-cpu" else 1 << 30)


@variant("compaction", "gpu")
def _invocations_gpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants have the same signature
    """Return the number of invocations that share a segment."""
    return tiles.LOCAL


@variant("compaction", "cpu")
def _invocations_cpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants have the same signature
    """Return the number of invocations that share a segment."""
    return 1


def _tile_arguments(x: DeviceArray) -> tuple[DeviceArray, tuple[Any, ...]] | None:
    """Return x and the remaining arguments of the kernels of `compaction_tiles`; None on devices of class "cpu".

    These arguments are (tiles per segment, number of elements, element accessor, comparison type). An aligned vector of
    bools is returned as a vector of 32-bit words of four bools.
    """
    if choose("compaction", x.device)(x) == 1:
        return None
    total, take = x.shape[0], fours.load_element
    length = _segment_length(x) // tiles.TILE
    as_type = _compare_type(x)
    if x.dtype.kind == "bool" and total % 4 == 0 and x.offset % 4 == 0:
        x, take = DeviceArray(x.buffer, x.offset, vk.u32, (total // 4,), (1,)), fours.load_bool
    return x, (length, total, take, as_type)


def segment_offsets(x: DeviceArray) -> DeviceArray:
    """Return `starts` (i64) of a nonempty vector x: the number of nonzero elements before each segment, and of all."""
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
    """y[m, r] = coordinate r of the flat index flat[m]; C is the unsigned type of the divisions. See `unravel`."""
    r, m = vk.global_id(0), vk.global_id(1)
    y[m, r] = vk.i64(C(flat[m]) // C(strides[r]) % C(extents[r]))


def unravel(indices: DeviceArray, strides: DeviceArray, extents: DeviceArray, y: DeviceArray, narrow: bool) -> None:
    """Unravel flat indices: y[m, r] = indices[m] // strides[r] % extents[r].

    `extents` is the shape of the array that the indices refer to, and `strides` its C-order strides, in elements.
    `narrow` promises that this array has fewer than 2**32 elements, so that 32-bit divisions suffice.
    """
    _unravel(indices, strides, extents, y, vk.u32 if narrow else vk.u64)
