"""Stream compaction on GPUs: the kernels that `compaction` launches on devices of class "gpu".

One workgroup processes a segment of the dense input vector, in iterations over tiles of TILE elements. In each tile it
first compacts the indices of nonzero elements in shared memory, so that the stores to the output are coalesced.

Parameters that the kernels share:

- x: the input vector (type T), or for bools a view of it as 32-bit words of four elements each.
- values: the vector (type U) from which `gather_tile_values` takes elements.
- tiles and total: the number of tiles per segment, and the number of elements of the input vector.
- starts: starts[s] is the offset of segment s in the output y; the last of its S1 elements is the length of y.
- LOAD: an element accessor of `elementwise.vec4`: LOAD(x, i, n, 16) loads element n of the i-th group of sixteen.
- IN: the type in which elements are compared with 0.

In the kernels, `thread` is an invocation's index in the workgroup.
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
    """Return a 16-bit mask of the nonzero elements of the i-th group of sixteen elements.

    Bits of elements past the end of the vector are 0. The whole group may be past the end, since the last segment is
    padded to whole tiles.
    """
    # `total` may not fit into the kernel's index type, which is chosen for the length of x: a quarter of `total` if x
    # is a view of bools as words. The number of groups fits, so i is compared with that.
    flags, full_groups, remainder = vk.u32(0), vk.index(total // 16), vk.i32(total % 16)
    if i < full_groups:
        for n in vk.unroll(16):
            flags = flags | (vk.where(IN(LOAD(x, i, n, 16)) != 0, vk.u32(1), vk.u32(0)) << vk.u32(n))
    elif i == full_groups:
        for n in vk.unroll(16):
            if n < remainder:
                flags = flags | (vk.where(IN(LOAD(x, i, n, 16)) != 0, vk.u32(1), vk.u32(0)) << vk.u32(n))
    return flags


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda counts: counts.shape[0], local=LOCAL, debug=False)
def count_tiles(
    x: vk.In[T, "W"], counts: vk.Out[vk.i32, "S"], tiles: vk.i64, total: vk.i64, LOAD: vk.Const[Any], IN: vk.Const[Any]
):
    """counts[s] = the number of nonzero elements of segment s, by one workgroup per segment."""
    wg, s, thread = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    count = vk.i32(0)
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count += vk.i32(vk.popcount(nonzero_mask(x, tile * LOCAL + thread, total, LOAD, IN)))
    segment_count = wg.sum(count)
    if thread == 0:
        counts[s] = segment_count


@vk.kernel(groups=lambda: 1, local=LOCAL, debug=False)
def scan_counts(counts: vk.In[vk.i32, "S"], starts: vk.Out[vk.i64, "S+1"]):
    """starts[s] = the sum of counts[:s], for s from 0 to the number of segments, by one workgroup.

    The workgroup loops over blocks of 8 * LOCAL counts, eight per invocation; `carry` is the sum of the previous
    blocks.
    """
    wg, thread, count = vk.workgroup(), vk.local_id(0), counts.shape[0]
    carry = vk.i64(0)
    for base in range(0, count, 8 * LOCAL):
        s = base + 8 * thread
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
    if thread == 0:
        starts[count] = carry


@vk.func
def compact_tile(indices, flags, thread):
    """Find the nonzero elements of a tile: write their indices in the tile to shared memory, and return their number.

    All invocations of the workgroup call it. `flags` is the `nonzero_mask` of the calling invocation's sixteen
    elements, `thread` the invocation's index in the workgroup, `indices` the array in shared memory. Indices are in
    order.
    """
    wg, count = vk.workgroup(), vk.i32(vk.popcount(flags))
    inclusive = wg.scan(count)
    cursor = inclusive - count
    for n in vk.unroll(16):
        if ((flags >> vk.u32(n)) & vk.u32(1)) != vk.u32(0):
            indices[cursor] = vk.u32(thread * 16 + n)
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
    indices, s, thread = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    offset = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = compact_tile(indices, nonzero_mask(x, tile * LOCAL + thread, total, LOAD, IN), thread)
        for k in range(vk.i32(thread), count, LOCAL):
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
    indices, s, thread = vk.shared(vk.u32, TILE), vk.group_id(0), vk.local_id(0)
    offset = vk.index(starts[s])
    for tile in range(s * vk.index(tiles), (s + 1) * vk.index(tiles)):
        count = compact_tile(indices, nonzero_mask(x, tile * LOCAL + thread, total, LOAD, IN), thread)
        for k in range(vk.i32(thread), count, LOCAL):
            y[offset + k] = values[tile * TILE + vk.index(indices[k])]
        vk.barrier()
        offset += count
