"""Stream compaction: count nonzero elements and gather their indices and values.

The dense input vector is cut into segments, one per workgroup. The first pass counts the nonzero elements of each segment,
an exclusive scan of the counts gives each segment's output offset, and the last pass writes the indices (i64) or the values
there, in order. A segment is processed by one invocation on devices of class "cpu" and by 256 on GPUs, which find their
output offsets by a scan (`compaction_tiles`).
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
    """Count the nonzero elements of each segment of `length` elements into `counts`.

    One workgroup of SIZE invocations per segment. Elements are compared with 0 in the type IN.
    """
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    begin = s * length
    found = vk.i32(0)
    for n in range(begin + lane, vk.min(begin + length, x.shape[0]), SIZE):
        found += vk.where(IN(x[n]) != 0, 1, 0)
    total = wg.sum(found)
    if lane == 0:
        counts[s] = total


@vk.kernel(groups=lambda: 1, local=1, debug=False)
def _scan_counts(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts = the exclusive prefix sum of counts, then the total; by one invocation."""
    total = vk.i64(0)
    for s in range(counts.shape[0]):
        starts[s] = total
        total += vk.i64(counts[s])
    starts[counts.shape[0]] = total


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=1, debug=False)
def _write_indices(
    x: vk.In[T, "N"], starts: vk.In[vk.i64, "S1"], y: vk.InOut[vk.i64, "M"], length: vk.i64, IN: vk.Const[Any]
):
    """Write the indices of the nonzero elements of segment s to y[starts[s] : starts[s + 1]], one invocation per segment.

    A segment has `length` elements, which are compared with 0 in the type IN.
    Every iteration stores at the cursor; only a nonzero element advances it.
    """
    s = vk.group_id(0)
    at, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if at < stop:
            y[at] = n
        at += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=1, debug=False)
def _gather_values(
    x: vk.In[T, "N"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    length: vk.i64,
    IN: vk.Const[Any],
):
    """Like `_write_indices`, but writes values[n] instead of n."""
    s = vk.group_id(0)
    at, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if at < stop:
            y[at] = values[n]
        at += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


def _compare_type(x: DeviceArray) -> vk.DType:
    """Return the type in which elements are compared with 0."""
    if x.dtype.kind == "bool":
        return vk.i32
    return vk.f32 if x.dtype.is_float and x.dtype.bits == 16 else x.dtype


def _segment_length(x: DeviceArray) -> int:
    """Return the length of a segment in elements.

    A multiple of the tile on GPUs; on software drivers at most `MAX_CPU_ITERATIONS`, the iterations allowed to one invocation.
    """
    length = max(4096, -(-x.shape[0] // MAX_SEGMENTS))
    if choose("compaction", x.device)(x) > 1:
        return -(-length // tiles.TILE) * tiles.TILE
    return min(length, MAX_CPU_ITERATIONS if x.device.caps.kind != "llvm-cpu" else 1 << 30)


@variant("compaction", "gpu")
def _invocations_gpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants have the same signature
    return tiles.LOCAL


@variant("compaction", "cpu")
def _invocations_cpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants have the same signature
    """Return the number of invocations that share a segment."""
    return 1


def _tile_arguments(x: DeviceArray) -> tuple[DeviceArray, tuple[Any, ...]] | None:
    """Return the vector and the remaining arguments of the tile kernels; None if one invocation processes each segment.

    The arguments are (tiles per segment, elements, element accessor, comparison type). An aligned vector of bools is
    returned as 32-bit words of four.
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
    """Return the number of nonzero elements before each segment, then the total (i64), for a nonempty vector."""
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
    """y = the indices of the nonzero elements of x, in order; y has exactly that many elements."""
    if (tile_args := _tile_arguments(x)) is not None:
        tiles.write_tile_indices(tile_args[0], starts, y, *tile_args[1])
    else:
        _write_indices(x, starts, y, _segment_length(x), _compare_type(x))


def write_values(x: DeviceArray, values: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """y = the elements of `values` where x is nonzero, in order; y has exactly that many elements."""
    if (tile_args := _tile_arguments(x)) is not None:
        tiles.gather_tile_values(tile_args[0], values, starts, y, *tile_args[1])
    else:
        _gather_values(x, values, starts, y, _segment_length(x), _compare_type(x))


@vk.kernel(over="y", debug=False)
def _unravel(
    places: vk.In[vk.i64, "M"], inner: vk.In[vk.i64, "R"], extents: vk.In[vk.i64, "R"], y: vk.Out[vk.i64, "M R"],
    C: vk.Const[Any],
):  # fmt: skip
    r, m = vk.global_id(0), vk.global_id(1)
    y[m, r] = vk.i64(C(places[m]) // C(inner[r]) % C(extents[r]))


def unravel(indices: DeviceArray, strides: DeviceArray, extents: DeviceArray, y: DeviceArray, narrow: bool) -> None:
    """Unravel flat indices: y[m, r] = indices[m] // strides[r] % extents[r].

    `extents` is the shape of the array and `strides` its C-order strides, in elements. `narrow` promises that the array has
    fewer than 2**32 elements, so that 32-bit divisions suffice.
    """
    _unravel(indices, strides, extents, y, vk.u32 if narrow else vk.u64)
