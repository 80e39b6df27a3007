"""Stream compaction on GPUs: the kernels that `compaction` launches there.

One workgroup processes a segment of the dense input vector x, in iterations over tiles of TILE elements. In each tile
it first compacts the indices of nonzero elements in shared memory, so that the stores to the output are coalesced.

Parameters of the kernels: `tiles` is the number of tiles per segment, `total` the number of elements of the vector, and
starts[s] the offset of segment s in the output. x is the vector itself, or for bools, 32-bit words of four elements
each. Const LOAD is an element accessor of `vec4`: LOAD(x, i, n, 16) loads element n of the i-th group of sixteen. Const
IN is the type in which elements are compared with 0.
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
def nonzero_mask(x, i, total, LOAD, IN):
    """Return a 16-bit mask of the nonzero elements of the i-th group of sixteen; bits past the end are 0.

    `total` may exceed the index type, which is chosen for the array's own length, a quarter for bools in 32-bit words.
    It is therefore compared in units of sixteen. Groups past the end are allowed, since the last segment may extend
    there.
    """
    flags, full_groups, remainder = vk.u32(0), vk.index(total // 16), vk.i32(total % 16)
    if i < full_groups:
        for n in vk.unroll(16):
            flags = flags | (vk.where(IN(LOAD(x, i, n, 16)) != 0, vk.u32(1), vk.u32(0)) << vk.u32(n))
    elif i == full_groups:
        for n in vk.unroll(16):
            if n < remainder:
                flags = flags | (vk.where(IN(LOAD(x, i, n, 16)) != 0, vk.u32(1), vk.u32(0)) << vk.u32(n))
    return flags


@vk.kernel(groups=lambda counts: counts.shape[0], local=LOCAL, debug=False)
def count_tiles(
    x: vk.In[T, "W"], counts: vk.Out[vk.i32, "S"], tiles: vk.i64, total: vk.i64, LOAD: vk.Const[Any], IN: vk.Const[Any]
):
    """counts[s] = the number of nonzero elements of segment s, by one workgroup per segment."""
    wg, s, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    count = vk.i32(0)
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count += vk.i32(vk.popcount(nonzero_mask(x, tile * LOCAL + lane, total, LOAD, IN)))
    segment_count = wg.sum(count)
    if lane == 0:
        counts[s] = segment_count


@vk.kernel(groups=lambda: 1, local=LOCAL, debug=False)
def scan_counts(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts = the exclusive prefix sum of counts, followed by the total.

    One workgroup loops over blocks of eight counts per invocation; `carry` is the sum of the previous blocks.
    """
    wg, lane, count = vk.workgroup(), vk.local_id(0), counts.shape[0]
    carry = vk.i64(0)
    for base in range(0, count, 8 * LOCAL):
        s = base + 8 * lane
        own_counts, own_sum = (), vk.i64(0)
        for k in vk.unroll(8):
            own_counts = own_counts + (vk.i64(counts.get(s + k, pad=0)),)
            own_sum = own_sum + own_counts[k]
        inclusive = wg.scan(own_sum)
        offset = carry + inclusive - own_sum
        for k in vk.unroll(8):
            if s + k < count:
                starts[s + k] = offset
            offset = offset + own_counts[k]
        carry += wg.broadcast(inclusive, LOCAL - 1)
    if lane == 0:
        starts[count] = carry


@vk.func
def compact_tile(indices, flags, lane):
    """Write the indices, within the tile, of the tile's nonzero elements to `indices` (shared memory), in order.

    `flags` is the `nonzero_mask` of the sixteen elements of this invocation, `lane` the invocation's index in the
    workgroup. Returns the number of nonzero elements of the tile.
    """
    wg, count = vk.workgroup(), vk.i32(vk.popcount(flags))
    inclusive = wg.scan(count)
    cursor = inclusive - count
    for n in vk.unroll(16):
        if ((flags >> vk.u32(n)) & vk.u32(1)) != vk.u32(0):
            indices[cursor] = vk.u32(lane * 16 + n)
            cursor += 1
    vk.barrier()
    return wg.broadcast(inclusive, LOCAL - 1)


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=LOCAL, debug=False)
def write_tile_indices(
    x: vk.In[T, "W"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[vk.i64, "M"],
    tiles: vk.i64,
    total: vk.i64,
    LOAD: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Write the indices of the nonzero elements of segment s to y, from y[starts[s]] on; one workgroup per segment."""
    indices, s, lane = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    offset = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = compact_tile(indices, nonzero_mask(x, tile * LOCAL + lane, total, LOAD, IN), lane)
        for k in range(vk.i32(lane), count, LOCAL):
            y[offset + k] = vk.i64(tile) * TILE + vk.i64(indices[k])
        vk.barrier()
        offset += count


@vk.kernel(groups=lambda starts: starts.shape[0] - 1, local=LOCAL, debug=False)
def gather_tile_values(
    x: vk.In[T, "W"],
    values: vk.In[U, "N"],
    starts: vk.In[vk.i64, "S1"],
    y: vk.InOut[U, "M"],
    tiles: vk.i64,
    total: vk.i64,
    LOAD: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Write values[n] for each nonzero x[n] of segment s to y, from y[starts[s]] on, by one workgroup per segment."""
    indices, s, lane = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    offset = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = compact_tile(indices, nonzero_mask(x, tile * LOCAL + lane, total, LOAD, IN), lane)
        for k in range(vk.i32(lane), count, LOCAL):
            y[offset + k] = values[tile * TILE + vk.index(indices[k])]
        vk.barrier()
        offset += count
