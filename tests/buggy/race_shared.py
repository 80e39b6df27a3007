"""Data races in shared memory: missing barriers, or several invocations that write the same location."""

from __future__ import annotations

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def reversed_tile(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane] = x.get(i, pad=0)
    y.put(i, tile[L - 1 - lane])  # bug: no barrier before the read


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def reversed_tile_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane] = x.get(i, pad=0)
    vk.barrier()
    y.put(i, tile[L - 1 - lane])


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def tree(x: vk.In[vk.i32, "R 32"], y: vk.Out[vk.i32, "R"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x[row, lane]
    vk.barrier()
    for level in range(5):
        half = 16 >> level
        if lane < half:
            tile[lane] += tile[lane + half]  # bug: no barrier between levels
    vk.barrier()
    if lane == 0:
        y[row] = tile[0]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def tree_good(x: vk.In[vk.i32, "R 32"], y: vk.Out[vk.i32, "R"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x[row, lane]
    vk.barrier()
    for level in range(5):
        half = 16 >> level
        if lane < half:
            tile[lane] += tile[lane + half]
        vk.barrier()
    if lane == 0:
        y[row] = tile[0]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def reused_tile(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    total = vk.i32(0)
    for first in range(0, x.shape[1], L):
        tile[lane] = x.get(row, first + lane, pad=0)  # bug: others may still read the previous iteration's tile
        vk.barrier()
        for k in range(L):
            total += tile[k]
    if lane == 0:
        y[row] = total


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def reused_tile_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    total = vk.i32(0)
    for first in range(0, x.shape[1], L):
        tile[lane] = x.get(row, first + lane, pad=0)
        vk.barrier()
        for k in range(L):
            total += tile[k]
        vk.barrier()
    if lane == 0:
        y[row] = total


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def any_positive(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
    found = vk.shared(vk.i32, 1)
    lane, i = vk.local_id(0), vk.global_id(0)
    if lane == 0:
        found[0] = 0
    vk.barrier()
    if x.get(i, pad=0) > 0:
        found[0] = vk.i32(lane)  # bug: which lane's write wins is undefined
    vk.barrier()
    y.put(i, found[0])


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def any_positive_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
    found = vk.shared(vk.i32, 1)
    lane, i = vk.local_id(0), vk.global_id(0)
    if lane == 0:
        found[0] = 0
    vk.barrier()
    if x.get(i, pad=0) > 0:
        vk.atomic.max(found, 0, vk.i32(lane))
    vk.barrier()
    y.put(i, found[0])


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def scan_in_place(x: vk.In[vk.i32, "R 32"], y: vk.Out[vk.i32, "R 32"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x[row, lane]
    vk.barrier()
    for level in range(5):
        step = 1 << level
        if lane >= step:
            tile[lane] += tile[lane - step]  # bug: reads and writes without a barrier in between
        vk.barrier()
    y[row, lane] = tile[lane]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def scan_in_place_good(x: vk.In[vk.i32, "R 32"], y: vk.Out[vk.i32, "R 32"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x[row, lane]
    vk.barrier()
    for level in range(5):
        step = 1 << level
        before = vk.i32(0)
        if lane >= step:
            before = tile[lane - step]
        vk.barrier()
        tile[lane] += before
        vk.barrier()
    y[row, lane] = tile[lane]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def counted_in_tile(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    bins = vk.shared(vk.i32, 4)
    lane, i = vk.local_id(0), vk.global_id(0)
    if lane < 4:
        bins[lane] = 0
    vk.barrier()
    bins[x.get(i, pad=0) & 3] += 1  # bug: not atomic
    vk.barrier()
    y.put(i, bins[x.get(i, pad=0) & 3])


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def counted_in_tile_good(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    bins = vk.shared(vk.i32, 4)
    lane, i = vk.local_id(0), vk.global_id(0)
    if lane < 4:
        bins[lane] = 0
    vk.barrier()
    vk.atomic.add(bins, x.get(i, pad=0) & 3, 1)
    vk.barrier()
    y.put(i, bins[x.get(i, pad=0) & 3])


PAIRS = (
    pair(reversed_tile, reversed_tile_good, minimal={"N": 1}),
    pair(tree, tree_good, minimal={"R": 1}),
    pair(reused_tile, reused_tile_good, minimal={"R": 1, "C": 33}),
    pair(any_positive, any_positive_good, minimal={"N": 2}),
    pair(scan_in_place, scan_in_place_good, minimal={"R": 1}),
    pair(counted_in_tile, counted_in_tile_good, minimal={"N": 1}),
)
