"""Reads of uninitialized memory, and outputs that are never written."""

from __future__ import annotations

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(over="y")
def adds_to_out(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] += x[i]  # bug: an Out is uninitialized


@vk.kernel(over="y")
def adds_to_out_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def half_filled_tile(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    if lane < x.shape[1]:
        tile[lane] = x[row, lane]
    vk.barrier()
    if lane == 0:
        total = vk.i32(0)
        for k in range(L):
            total += tile[k]  # bug: a short row leaves the rest of the tile uninitialized
        y[row] = total


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def half_filled_tile_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x.get(row, lane, pad=0)
    vk.barrier()
    if lane == 0:
        total = vk.i32(0)
        for k in range(L):
            total += tile[k]
        y[row] = total


@vk.kernel(over="y")
def local_counters(x: vk.In[vk.i32, "N K"], y: vk.Out[vk.i32, "N"]):
    count = vk.local(vk.i32, 4)
    i = vk.global_id(0)
    for k in range(x.shape[1]):
        count[x[i, k]] += 1  # bug: the counters aren't initialized
    y[i] = count[0] if x.shape[1] > 0 else 0


@vk.kernel(over="y")
def local_counters_good(x: vk.In[vk.i32, "N K"], y: vk.Out[vk.i32, "N"]):
    count = vk.local(vk.i32, 4)
    i = vk.global_id(0)
    for c in range(4):
        count[c] = 0
    for k in range(x.shape[1]):
        count[x[i, k]] += 1
    y[i] = count[0] if x.shape[1] > 0 else 0


@vk.kernel(over="y")
def writes_positive(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if x[i] > 0.0:
        y[i] = x[i]  # bug: elements that aren't positive are never written


@vk.kernel(over="y")
def writes_positive_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 0.0
    if x[i] > 0.0:
        y[i] = x[i]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def shared_total(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    total = vk.shared(vk.i32, 1)
    lane, row = vk.local_id(0), vk.group_id(0)
    for k in range(lane, x.shape[1], L):
        vk.atomic.add(total, 0, x[row, k])  # bug: the total isn't initialized
    vk.barrier()
    if lane == 0 and x.shape[1] > 0:
        y[row] = total[0]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def shared_total_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    total = vk.shared(vk.i32, 1)
    lane, row = vk.local_id(0), vk.group_id(0)
    if lane == 0:
        total[0] = 0
    vk.barrier()
    for k in range(lane, x.shape[1], L):
        vk.atomic.add(total, 0, x[row, k])
    vk.barrier()
    if lane == 0:
        y[row] = total[0]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def halo(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    tile = vk.shared(vk.i32, L + 2)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane + 1] = x.get(i, pad=0)
    if lane == 0:
        tile[0] = x.get(i - 1, pad=0)
    vk.barrier()
    y.put(i, tile[lane] + tile[lane + 1] + tile[lane + 2])  # bug: the last element of the tile is never written


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def halo_good(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    tile = vk.shared(vk.i32, L + 2)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane + 1] = x.get(i, pad=0)
    if lane == 0:
        tile[0] = x.get(i - 1, pad=0)
    if lane == L - 1:
        tile[L + 1] = x.get(i + 1, pad=0)
    vk.barrier()
    y.put(i, tile[lane] + tile[lane + 1] + tile[lane + 2])


PAIRS = (
    pair(adds_to_out, adds_to_out_good, minimal={"N": 1}),
    pair(half_filled_tile, half_filled_tile_good, minimal={"R": 1, "C": 0}),
    pair(local_counters, local_counters_good, elements={"x": (0, 3)}, minimal={"N": 1, "K": 1}),
    pair(writes_positive, writes_positive_good, minimal={"N": 1}),
    pair(shared_total, shared_total_good, dims={"C": (1, None)}, minimal={"R": 1, "C": 1}),
    pair(halo, halo_good, minimal={"N": 1}),
)
