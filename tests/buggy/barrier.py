"""Missing barriers, and barriers that not all invocations of a workgroup reach."""

from __future__ import annotations

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def barrier_in_branch(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane] = x.get(i, pad=0)
    if vk.assume_uniform(i < x.shape[0]):  # bug: invocations past the end don't reach the barrier
        vk.barrier()
        y[i] = tile[L - 1 - lane]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def barrier_in_branch_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane] = x.get(i, pad=0)
    vk.barrier()
    if i < x.shape[0]:
        y[i] = tile[L - 1 - lane]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def barrier_in_loop(x: vk.In[vk.i32, "R"], y: vk.Out[vk.i32, "R 32"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x[row]
    for k in range(vk.assume_uniform(vk.i32(lane) % 3 + 1)):  # bug: the iteration count differs between lanes
        vk.barrier()
        tile[lane] += k
    y[row, lane] = tile[lane]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def barrier_in_loop_good(x: vk.In[vk.i32, "R"], y: vk.Out[vk.i32, "R 32"]):
    tile = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    tile[lane] = x[row]
    for k in range(3):
        vk.barrier()
        if k < lane % 3 + 1:
            tile[lane] += k
    y[row, lane] = tile[lane]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def barrier_after_test(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    tile = vk.shared(vk.i32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    value = x.get(i, pad=0)
    tile[lane] = value
    if vk.assume_uniform(value >= 0):  # bug: only some lanes reach the barrier
        vk.barrier()
    y.put(i, tile[lane])


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def barrier_after_test_good(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    tile = vk.shared(vk.i32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    value = x.get(i, pad=0)
    tile[lane] = value
    vk.barrier()
    y.put(i, tile[lane])


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def one_lane_loads(x: vk.In[vk.f32, "R"], y: vk.Out[vk.f32, "R 32"]):
    held = vk.shared(vk.f32, 1)
    lane, row = vk.local_id(0), vk.group_id(0)
    if lane == 0:
        held[0] = x[row]
    y[row, lane] = held[0]  # bug: no barrier after lane 0 wrote


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def one_lane_loads_good(x: vk.In[vk.f32, "R"], y: vk.Out[vk.f32, "R 32"]):
    held = vk.shared(vk.f32, 1)
    lane, row = vk.local_id(0), vk.group_id(0)
    if lane == 0:
        held[0] = x[row]
    vk.barrier()
    y[row, lane] = held[0]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def ping_pong(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    one, two = vk.shared(vk.f32, L), vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    one[lane] = x.get(i, pad=0)
    vk.barrier()
    two[lane] = one[(lane + 1) % L]
    one[lane] = two[(lane + 1) % L]  # bug: no barrier between the two steps
    vk.barrier()
    y.put(i, one[lane])


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def ping_pong_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    one, two = vk.shared(vk.f32, L), vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    one[lane] = x.get(i, pad=0)
    vk.barrier()
    two[lane] = one[(lane + 1) % L]
    vk.barrier()
    one[lane] = two[(lane + 1) % L]
    vk.barrier()
    y.put(i, one[lane])


@vk.kernel(groups=lambda x: x.shape[0], local=(8, 8))
def transposed_tile(x: vk.In[vk.i32, "B 8 8"], y: vk.Out[vk.i32, "B 8 8"]):
    tile = vk.shared(vk.i32, (8, 8))
    tx, ty, b = vk.local_id(0), vk.local_id(1), vk.group_id(0)
    tile[ty, tx] = x[b, ty, tx]
    y[b, ty, tx] = tile[tx, ty]  # bug: no barrier before the read


@vk.kernel(groups=lambda x: x.shape[0], local=(8, 8))
def transposed_tile_good(x: vk.In[vk.i32, "B 8 8"], y: vk.Out[vk.i32, "B 8 8"]):
    tile = vk.shared(vk.i32, (8, 8))
    tx, ty, b = vk.local_id(0), vk.local_id(1), vk.group_id(0)
    tile[ty, tx] = x[b, ty, tx]
    vk.barrier()
    y[b, ty, tx] = tile[tx, ty]


PAIRS = (
    pair(barrier_in_branch, barrier_in_branch_good, minimal={"N": 1}),
    pair(barrier_in_loop, barrier_in_loop_good, minimal={"R": 1}),
    pair(barrier_after_test, barrier_after_test_good, minimal={"N": 1}),
    pair(one_lane_loads, one_lane_loads_good, minimal={"R": 1}),
    pair(ping_pong, ping_pong_good, minimal={"N": 1}),
    pair(transposed_tile, transposed_tile_good, minimal={"B": 1}),
)
