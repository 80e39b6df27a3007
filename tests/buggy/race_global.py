"""Data races in global memory, within a workgroup and between workgroups."""

from __future__ import annotations

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def last_positive(x: vk.In[vk.i32, "N"], place: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        place[0] = vk.i32(i)  # bug: which write wins is undefined


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def last_positive_good(x: vk.In[vk.i32, "N"], place: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        vk.atomic.max(place, 0, vk.i32(i))


@vk.kernel(over="x")
def scattered(x: vk.In[vk.f32, "N"], to: vk.In[vk.i32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[to[i]] = x[i]  # bug: two invocations may write the same element


@vk.kernel(over="x")
def gathered(x: vk.In[vk.f32, "N"], to: vk.In[vk.i32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[to[i]]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def through_memory(x: vk.In[vk.f32, "N"], held: vk.InOut[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        held[i] = 2.0 * x[i]
    y.put(i, held.get(i ^ 1, pad=0))  # bug: no barrier before the read


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def through_memory_good(x: vk.In[vk.f32, "N"], held: vk.InOut[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        held[i] = 2.0 * x[i]
    vk.barrier()
    y.put(i, held.get(i ^ 1, pad=0))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def across_groups(x: vk.In[vk.f32, "N"], held: vk.InOut[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    n = x.shape[0]
    held.put(i, 2.0 * x.get(i, pad=0))
    vk.barrier()
    y.put(i, held.get(n - 1 - i, pad=0))  # bug: a barrier doesn't synchronize different workgroups


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def across_groups_good(x: vk.In[vk.f32, "N"], held: vk.InOut[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    n = x.shape[0]
    held.put(i, 2.0 * x.get(i, pad=0))
    y.put(i, 2.0 * x.get(n - 1 - i, pad=0))


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def one_result(x: vk.In[vk.i32, "R C"], y: vk.InOut[vk.i32, "R"]):
    row, lane = vk.group_id(0), vk.local_id(0)
    for k in range(lane, x.shape[1], L):
        y[row] = vk.max(y[row], x[row, k])  # bug: every lane writes


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def one_result_good(x: vk.In[vk.i32, "R C"], y: vk.InOut[vk.i32, "R"]):
    row, lane = vk.group_id(0), vk.local_id(0)
    for k in range(lane, x.shape[1], L):
        vk.atomic.max(y, row, x[row, k])


@vk.kernel(over="x")
def overlapping(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N+1"]):
    i = vk.global_id(0)
    y[i] = x[i]
    y[i + 1] = x[i] + 1  # bug: the next invocation's element


@vk.kernel(over="x")
def overlapping_good(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N+1"]):
    i = vk.global_id(0)
    y[i] = x[i]
    if i == x.shape[0] - 1:
        y[i + 1] = x[i] + 1


PAIRS = (
    pair(last_positive, last_positive_good, minimal={"N": 2}),
    pair(scattered, gathered, elements={"to": (0, "N-1")}, minimal={"N": 2}),
    pair(through_memory, through_memory_good, minimal={"N": 1}),
    pair(across_groups, across_groups_good),
    pair(one_result, one_result_good, minimal={"R": 1, "C": 2}),
    pair(overlapping, overlapping_good, minimal={"N": 2}),
)
