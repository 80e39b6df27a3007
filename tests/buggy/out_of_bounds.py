"""Out-of-bounds indices into global, shared and local arrays."""

from __future__ import annotations

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(over="y")
def successor(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i + 1]  # bug: the last element has no successor


@vk.kernel(over="y")
def successor_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x.get(i + 1, pad=0)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def unguarded(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 2.0 * x.get(i, pad=0)  # bug: unguarded write by invocations past the end


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def unguarded_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y.put(i, 2.0 * x.get(i, pad=0))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def tile_too_small(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane] = x.get(i, pad=0)
    vk.barrier()
    y.put(i, tile[lane] + tile[lane + 1])  # bug: the last lane has no successor


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def tile_too_small_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, L)
    lane, i = vk.local_id(0), vk.global_id(0)
    tile[lane] = x.get(i, pad=0)
    vk.barrier()
    y.put(i, tile[lane] + tile[(lane + 1) % L])


@vk.kernel(over="y")
def votes(x: vk.In[vk.i32, "N K"], y: vk.Out[vk.i32, "N"]):
    count = vk.local(vk.i32, 4)
    for c in range(4):
        count[c] = 0
    for k in range(x.shape[1]):
        count[x[vk.global_id(0), k]] += 1  # bug: five possible values, four counters
    y[vk.global_id(0)] = count[0]


@vk.kernel(over="y")
def votes_good(x: vk.In[vk.i32, "N K"], y: vk.Out[vk.i32, "N"]):
    count = vk.local(vk.i32, 5)
    for c in range(5):
        count[c] = 0
    for k in range(x.shape[1]):
        count[x[vk.global_id(0), k]] += 1
    y[vk.global_id(0)] = count[0]


@vk.kernel(over="y")
def difference(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] - x[i - 1]  # bug: the first element has no predecessor


@vk.kernel(over="y")
def difference_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] - x.get(i - 1, pad=0)


@vk.kernel(over="y")
def below(x: vk.In[vk.f32, "H W"], y: vk.Out[vk.f32, "H W"]):
    i, j = vk.index()
    y[i, j] = x[i, j]
    if j < x.shape[1]:
        y[i, j] = x[i + 1, j]  # bug: the wrong axis is guarded


@vk.kernel(over="y")
def below_good(x: vk.In[vk.f32, "H W"], y: vk.Out[vk.f32, "H W"]):
    i, j = vk.index()
    y[i, j] = x[i, j]
    if i + 1 < x.shape[0]:
        y[i, j] = x[i + 1, j]


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], L), local=L)
def pooled(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N//2"]):
    i = vk.global_id(0)
    if 2 * i < x.shape[0]:
        y[i] = vk.max(x[2 * i], x.get(2 * i + 1, pad=0))  # bug: with an odd length, the last element has no pair


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], L), local=L)
def pooled_good(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N//2"]):
    i = vk.global_id(0)
    if 2 * i + 1 < x.shape[0]:
        y[i] = vk.max(x[2 * i], x[2 * i + 1])


PAIRS = (
    pair(successor, successor_good, minimal={"N": 1}),
    pair(unguarded, unguarded_good, minimal={"N": 1}),
    pair(tile_too_small, tile_too_small_good, minimal={"N": 1}),
    pair(votes, votes_good, elements={"x": (0, 4)}, minimal={"N": 1, "K": 1}),
    pair(difference, difference_good, minimal={"N": 1}),
    pair(below, below_good, minimal={"H": 1, "W": 1}),
    pair(pooled, pooled_good, minimal={"N": 3}),
)
