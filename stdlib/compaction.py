"""Where elements aren't 0: how many, their places, and the values beside them.

Enters: a vector without gaps. Leaves: how many elements of it aren't 0 before each segment, then their places (i64) or the
values at these places, in order. A workgroup takes a segment: one invocation on a processor, 256 on a GPU, where running
counts give each its place (`compaction_tiles`).
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib import compaction_tiles as tiles
from vkjit.stdlib import elementwise_fours as fours
from vkjit.stdlib.partial import scratch
from vkjit.stdlib.registry import CPU_LOOP, choose, variant

__all__ = ["coordinates", "starts_of_segments", "write_places", "write_values"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

MOST_SEGMENTS = 8192
"""Segments that a vector is cut into at most."""


@vk.kernel(groups=lambda counts: counts.shape[0], local=lambda SIZE: SIZE, debug=False)
def _count(x: vk.In[T, "N"], counts: vk.Out[vk.i32, "S"], length: vk.i64, IN: vk.Const[Any], SIZE: vk.Const[int]):
    """counts[s] = how many elements of segment s aren't 0."""
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    begin = s * length
    found = vk.i32(0)
    for n in range(begin + lane, vk.min(begin + length, x.shape[0]), SIZE):
        found += vk.where(IN(x[n]) != 0, 1, 0)
    total = wg.sum(found)
    if lane == 0:
        counts[s] = total


@vk.kernel(groups=lambda: 1, local=1, debug=False)
def _add_up(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts[s] = the sum of counts before s, by one invocation."""
    total = vk.i64(0)
    for s in range(counts.shape[0]):
        starts[s] = total
        total += vk.i64(counts[s])
    starts[counts.shape[0]] = total


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=1, debug=False)
def _places(x: vk.In[T, "N"], starts: vk.In[vk.i64, "S1"], y: vk.InOut[vk.i64, "M"], length: vk.i64, IN: vk.Const[Any]):
    """The places of segment s, from starts[s] on, by one invocation: each round writes, only some move on."""
    s = vk.group_id(0)
    at, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if at < stop:
            y[at] = n
        at += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=1, debug=False)
def _values(
    x: vk.In[T, "N"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    length: vk.i64,
    IN: vk.Const[Any],
):
    """As `_places`, for values."""
    s = vk.group_id(0)
    at, stop, begin = starts[s], starts[s + 1], vk.i64(s) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        if at < stop:
            y[at] = values[n]
        at += vk.where(IN(x[n]) != 0, vk.i64(1), vk.i64(0))


def _taken_as(x: DeviceArray) -> vk.DType:
    """What elements are compared with 0 as."""
    if x.dtype.kind == "bool":
        return vk.i32
    return vk.f32 if x.dtype.is_float and x.dtype.bits == 16 else x.dtype


def _length(x: DeviceArray) -> int:
    """Elements of a segment: whole tiles on a GPU, elsewhere few enough for one invocation of a software driver."""
    length = max(4096, -(-x.shape[0] // MOST_SEGMENTS))
    if choose("compaction", x.device)(x) > 1:
        return -(-length // tiles.TILE) * tiles.TILE
    return min(length, CPU_LOOP if x.device.caps.kind != "llvm-cpu" else 1 << 30)


@variant("compaction", "gpu")
def _side_gpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants take the same
    return tiles.LOCAL


@variant("compaction", "cpu")
def _side_cpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants take the same
    """Invocations that take a segment together."""
    return 1


def _in_tiles(x: DeviceArray) -> tuple[DeviceArray, tuple[Any, ...]] | None:
    """The vector as kernels of tiles take it, and what else they take; None where invocations take segments."""
    if choose("compaction", x.device)(x) == 1:
        return None
    total, take = x.shape[0], fours.one_of
    length = _length(x) // tiles.TILE
    as_type = _taken_as(x)
    if x.dtype.kind == "bool" and total % 4 == 0 and x.offset % 4 == 0:
        x, take = DeviceArray(x.buffer, x.offset, vk.u32, (total // 4,), (1,)), fours.truth_of
    return x, (length, total, take, as_type)


def starts_of_segments(x: DeviceArray) -> DeviceArray:
    """How many elements of a vector that isn't empty aren't 0 before each of its segments, and at the end before its end
    (i64).
    """
    length = _length(x)
    counts = scratch((-(-x.shape[0] // length),), vk.i32, x.device)
    starts = scratch((counts.shape[0] + 1,), vk.i64, x.device)
    if (found := _in_tiles(x)) is not None:
        tiles.count_tiles(found[0], counts, *found[1])
        tiles.add_up_eights(counts, starts)
    else:
        _count(x, counts, length, _taken_as(x), x.device.caps.subgroup_size)
        _add_up(counts, starts)
    return starts


def write_places(x: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """The places of elements that aren't 0, in order, into a vector of just their number."""
    if (found := _in_tiles(x)) is not None:
        tiles.places_of_tiles(found[0], starts, y, *found[1])
    else:
        _places(x, starts, y, _length(x), _taken_as(x))


def write_values(x: DeviceArray, values: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """The values where elements of x aren't 0, in order, into a vector of just their number."""
    if (found := _in_tiles(x)) is not None:
        tiles.values_of_tiles(found[0], values, starts, y, *found[1])
    else:
        _values(x, values, starts, y, _length(x), _taken_as(x))


@vk.kernel(over="y", debug=False)
def _coordinates(
    places: vk.In[vk.i64, "M"], inner: vk.In[vk.i64, "R"], extents: vk.In[vk.i64, "R"], y: vk.Out[vk.i64, "M R"],
    C: vk.Const[Any],
):  # fmt: skip
    r, m = vk.global_id(0), vk.global_id(1)
    y[m, r] = vk.i64(C(places[m]) // C(inner[r]) % C(extents[r]))


def coordinates(places: DeviceArray, inner: DeviceArray, extents: DeviceArray, y: DeviceArray, narrow: bool) -> None:
    """y[m] = the index of the element at place m in C order of an array, whose axis r has extents[r] slices of inner[r]
    elements. `narrow` says that it has fewer than 2**32 elements.
    """
    _coordinates(places, inner, extents, y, vk.u32 if narrow else vk.u64)
