"""Stream compaction on GPUs: the kernels behind `compaction`, with sixteen contiguous elements per invocation.

The input is a dense vector; bools may come as 32-bit words of four. TAKE(x, i, n, 16) reads element n of the i-th
group of sixteen; elements are compared with 0 in the type IN. Indices within a tile are first compacted in shared
memory, so that the stores to the output are coalesced.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["LOCAL", "TILE", "count_tiles", "gather_tile_values", "scan_counts", "write_tile_indices"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

LOCAL = 256
"""Invocations of a workgroup."""
TILE = 16 * LOCAL
"""Elements that a workgroup processes per iteration."""


@vk.func
def nonzero_mask(x, i, total, TAKE, IN):
    """Return a 16-bit mask of the nonzero elements of the i-th group of sixteen; bits past the end are 0.

    `total` counts elements and may exceed the index type, since bools in words of four make a shorter array. It is
    therefore compared in units of sixteen. Groups that begin past the end are allowed: the last segment may extend there.
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
    """counts[s] = the number of nonzero elements of segment s, which is `tiles` tiles long."""
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    found = vk.i32(0)
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        found += vk.i32(vk.popcount(nonzero_mask(x, tile * LOCAL + lane, total, TAKE, IN)))
    everywhere = wg.sum(found)
    if lane == 0:
        counts[s] = everywhere


@vk.kernel(groups=lambda: 1, local=LOCAL, debug=False)
def scan_counts(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts = the exclusive prefix sum of counts, then the total; by one workgroup, eight counts per invocation."""
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
def compact_tile(places, flags, lane):
    """Write the tile-local indices of the elements set in `flags` to `places` (shared memory), in order; return their number.

    `flags` is the `nonzero_mask` of the sixteen elements of this invocation, `lane` its index in the workgroup.
    """
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
def write_tile_indices(
    x: vk.In[T, "W"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[vk.i64, "M"],
    tiles: vk.i64,
    total: vk.i64,
    TAKE: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Write the indices of the nonzero elements of segment s to y, from starts[s] on."""
    places, s, lane = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    at = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = compact_tile(places, nonzero_mask(x, tile * LOCAL + lane, total, TAKE, IN), lane)
        for k in range(vk.i32(lane), count, LOCAL):
            y[at + k] = vk.i64(tile) * TILE + vk.i64(places[k])
        vk.barrier()
        at += count


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=LOCAL, debug=False)
def gather_tile_values(
    x: vk.In[T, "W"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    tiles: vk.i64,
    total: vk.i64,
    TAKE: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Like `write_tile_indices`, but writes the elements of `values` at these indices."""
    places, s, lane = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    at = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = compact_tile(places, nonzero_mask(x, tile * LOCAL + lane, total, TAKE, IN), lane)
        for k in range(vk.i32(lane), count, LOCAL):
            y[at + k] = values[tile * TILE + vk.index(places[k])]
        vk.barrier()
        at += count
