"""Where elements aren't 0, for GPUs: workgroups take tiles, an invocation sixteen neighbours at a time.

Enters: a vector without gaps, bools as words of 32 bits that hold four; TAKE, which gives an element of a group of sixteen. Leaves:
what `compaction` asks for. Places in a tile gather in shared memory, so that neighbours are written side by side.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["LOCAL", "TILE", "add_up_eights", "count_tiles", "places_of_tiles", "values_of_tiles"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

LOCAL = 256
"""Invocations of a workgroup."""
TILE = 16 * LOCAL
"""Elements that it takes at a time."""


@vk.func
def flags_of(x, i, total, TAKE, IN):
    """Bit n says whether element n of the i-th sixteen isn't 0; bits past the end are 0. The total may be more than an index holds:
    words of four bools count them by fewer, and segments end beyond it.
    """
    flags, whole, rest = vk.u32(0), vk.index(total // 16), vk.i32(total % 16)
    if i < whole:
        for n in vk.unroll(16):
            flags = flags | (vk.where(IN(TAKE(x, i, n, 16)) != 0, vk.u32(1), vk.u32(0)) << vk.u32(n))
    elif i == whole:
        for n in vk.unroll(16):
            if n < rest:
                flags = flags | (vk.where(IN(TAKE(x, i, n, 16)) != 0, vk.u32(1), vk.u32(0)) << vk.u32(n))
    return flags


@vk.kernel(groups=lambda counts: counts.shape[0], local=LOCAL, debug=False)
def count_tiles(
    x: vk.In[T, "W"], counts: vk.Out[vk.i32, "S"], tiles: vk.i64, total: vk.i64, TAKE: vk.Const[Any], IN: vk.Const[Any]
):
    """counts[s] = how many elements of segment s, of so many tiles, aren't 0."""
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    found = vk.i32(0)
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        found += vk.i32(vk.popcount(flags_of(x, tile * LOCAL + lane, total, TAKE, IN)))
    everywhere = wg.sum(found)
    if lane == 0:
        counts[s] = everywhere


@vk.kernel(groups=lambda: 1, local=LOCAL, debug=False)
def add_up_eights(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts[s] = the sum of counts before s, by one workgroup, an invocation eight at a time."""
    wg, lane, count = vk.workgroup(), vk.local_id(0), counts.shape[0]
    before = vk.i64(0)
    for base in range(0, count, 8 * LOCAL):
        s = base + 8 * lane
        own, found = (), vk.i64(0)
        for k in vk.unroll(8):
            own = own + (vk.i64(counts.get(s + k, pad=0)),)
            found = found + own[k]
        upto = wg.scan(found)
        here = before + upto - found
        for k in vk.unroll(8):
            if s + k < count:
                starts[s + k] = here
            here = here + own[k]
        before += wg.broadcast(upto, LOCAL - 1)
    if lane == 0:
        starts[count] = before


@vk.func
def gathered(places, flags, lane):
    """Writes the places in the tile of what the flags say to shared memory, in order; gives how many the tile has."""
    wg, count = vk.workgroup(), vk.i32(vk.popcount(flags))
    upto = wg.scan(count)
    at = upto - count
    for n in vk.unroll(16):
        if ((flags >> vk.u32(n)) & vk.u32(1)) != vk.u32(0):
            places[at] = vk.u32(lane * 16 + n)
            at += 1
    vk.barrier()
    return wg.broadcast(upto, LOCAL - 1)


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=LOCAL, debug=False)
def places_of_tiles(
    x: vk.In[T, "W"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[vk.i64, "M"],
    tiles: vk.i64,
    total: vk.i64,
    TAKE: vk.Const[Any],
    IN: vk.Const[Any],
):
    """The places of segment s, from starts[s] on."""
    places, s, lane = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    at = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = gathered(places, flags_of(x, tile * LOCAL + lane, total, TAKE, IN), lane)
        for k in range(vk.i32(lane), count, LOCAL):
            y[at + k] = vk.i64(tile) * TILE + vk.i64(places[k])
        vk.barrier()
        at += count


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=LOCAL, debug=False)
def values_of_tiles(
    x: vk.In[T, "W"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    tiles: vk.i64,
    total: vk.i64,
    TAKE: vk.Const[Any],
    IN: vk.Const[Any],
):
    """As `places_of_tiles`, for values."""
    places, s, lane = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    at = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = gathered(places, flags_of(x, tile * LOCAL + lane, total, TAKE, IN), lane)
        for k in range(vk.i32(lane), count, LOCAL):
            y[at + k] = values[tile * TILE + vk.index(places[k])]
        vk.barrier()
        at += count
