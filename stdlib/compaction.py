"""Where elements aren't 0: how many, their places, and the values beside them.

Enters: a vector without gaps. Leaves: how many elements of it aren't 0 before each segment, then their places (i64) or the
values at these places, in order. A workgroup takes a segment: one invocation on a processor, 256 on a GPU, where a running
count along the workgroup gives each its place.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
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


@vk.kernel(groups=lambda: 1, local=lambda SIZE: SIZE, debug=False)
def _add_up_together(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"], SIZE: vk.Const[int]):
    """As `_add_up`, by a workgroup."""
    wg, lane, count = vk.workgroup(), vk.local_id(0), counts.shape[0]
    total = vk.i64(0)
    for base in range(0, count, SIZE):
        s = base + lane
        own = vk.i64(counts.get(s, pad=0))
        upto = wg.scan(own)
        if s < count:
            starts[s] = total + upto - own
        total += wg.broadcast(upto, SIZE - 1)
    if lane == 0:
        starts[count] = total


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


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=lambda SIZE: SIZE, debug=False)
def _places_together(
    x: vk.In[T, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[vk.i64, "M"],
    length: vk.i64,
    IN: vk.Const[Any],
    SIZE: vk.Const[int],
):
    """As `_places`, by a workgroup."""
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    at, begin = starts[s], s * length
    stop = vk.min(begin + length, x.shape[0])
    for base in range(begin, stop, SIZE):
        n = base + lane
        found = (n < stop) & (IN(x.get(n, pad=0)) != 0)
        upto = wg.scan(vk.where(found, vk.i32(1), vk.i32(0)))
        if found:
            y[at + vk.i64(upto) - 1] = vk.i64(n)
        at += vk.i64(wg.broadcast(upto, SIZE - 1))


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=lambda SIZE: SIZE, debug=False)
def _values_together(
    x: vk.In[T, "N"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    length: vk.i64,
    IN: vk.Const[Any],
    SIZE: vk.Const[int],
):
    """As `_places_together`, for values."""
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    at, begin = starts[s], s * length
    stop = vk.min(begin + length, x.shape[0])
    for base in range(begin, stop, SIZE):
        n = base + lane
        found = (n < stop) & (IN(x.get(n, pad=0)) != 0)
        upto = wg.scan(vk.where(found, vk.i32(1), vk.i32(0)))
        if found:
            y[at + vk.i64(upto) - 1] = values[n]
        at += vk.i64(wg.broadcast(upto, SIZE - 1))


def _taken_as(x: DeviceArray) -> vk.DType:
    """What elements are compared with 0 as."""
    if x.dtype.kind == "bool":
        return vk.i32
    return vk.f32 if x.dtype.is_float and x.dtype.bits == 16 else x.dtype


def _length(x: DeviceArray) -> int:
    """Elements of a segment; few enough for one invocation of a software driver."""
    most = CPU_LOOP if choose("compaction", x.device)(x) == 1 and x.device.caps.kind != "llvm-cpu" else 1 << 30
    return min(most, max(4096, -(-x.shape[0] // MOST_SEGMENTS)))


@variant("compaction", "gpu")
def _side_gpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants take the same
    return 256


@variant("compaction", "cpu")
def _side_cpu(x: DeviceArray) -> int:  # noqa: ARG001  # all variants take the same
    """Invocations that take a segment together."""
    return 1


def starts_of_segments(x: DeviceArray) -> DeviceArray:
    """How many elements of a vector that isn't empty aren't 0 before each of its segments, and at the end before its end
    (i64).
    """
    length, side = _length(x), choose("compaction", x.device)(x)
    counts = scratch((-(-x.shape[0] // length),), vk.i32, x.device)
    starts = scratch((counts.shape[0] + 1,), vk.i64, x.device)
    together = x.device.caps.subgroup_size if side == 1 else side
    _count(x, counts, length, _taken_as(x), together)
    if side == 1:
        _add_up(counts, starts)
    else:
        _add_up_together(counts, starts, side)
    return starts


def write_places(x: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """The places of elements that aren't 0, in order, into a vector of just their number."""
    length, side = _length(x), choose("compaction", x.device)(x)
    if side == 1:
        _places(x, starts, y, length, _taken_as(x))
    else:
        _places_together(x, starts, y, length, _taken_as(x), side)


def write_values(x: DeviceArray, values: DeviceArray, starts: DeviceArray, y: DeviceArray) -> None:
    """The values where elements of x aren't 0, in order, into a vector of just their number."""
    length, side = _length(x), choose("compaction", x.device)(x)
    if side == 1:
        _values(x, values, starts, y, length, _taken_as(x))
    else:
        _values_together(x, values, starts, y, length, _taken_as(x), side)


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
