"""Updates of shared memory locations that need atomics but don't use them."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(over="x")
def counted(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"]):
    if x[vk.global_id(0)] > 0:
        count[0] += 1  # bug: not atomic


@vk.kernel(over="x")
def counted_good(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"]):
    if x[vk.global_id(0)] > 0:
        vk.atomic.add(count, 0, 1)


@vk.kernel(over="x")
def histogram(x: vk.In[vk.i32, "N"], bins: vk.InOut[vk.i32, "8"]):
    bins[x[vk.global_id(0)]] += 1  # bug: not atomic


@vk.kernel(over="x")
def histogram_good(x: vk.In[vk.i32, "N"], bins: vk.InOut[vk.i32, "8"]):
    vk.atomic.add(bins, x[vk.global_id(0)], 1)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def summed(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "1"]):
    wg = vk.workgroup()
    part = wg.sum(x.get(vk.global_id(0), pad=0))
    if vk.local_id(0) == 0:
        y[0] += part  # bug: workgroups run concurrently


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def summed_good(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "1"]):
    wg = vk.workgroup()
    part = wg.sum(x.get(vk.global_id(0), pad=0))
    if vk.local_id(0) == 0:
        vk.atomic.add(y, 0, part)


@vk.kernel(over="x")
def largest(x: vk.In[vk.i32, "N"], best: vk.InOut[vk.i32, "1"]):
    value = x[vk.global_id(0)]
    if value > best[0]:
        best[0] = value  # bug: another invocation may have written a larger value


@vk.kernel(over="x")
def largest_good(x: vk.In[vk.i32, "N"], best: vk.InOut[vk.i32, "1"]):
    vk.atomic.max(best, 0, x[vk.global_id(0)])


@vk.kernel(over="x")
def appended(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"], y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    if x[i] > 0:
        place = count[0]
        count[0] = place + 1  # bug: two invocations may get the same index
        y.put(place, 1)


@vk.kernel(over="x")
def appended_good(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"], y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    if x[i] > 0:
        place = vk.atomic.add(count, 0, 1)
        y.put(place, 1)


@vk.kernel(over="edge")
def degrees(edge: vk.In[vk.i32, "E"], degree: vk.InOut[vk.i32, "V"]):
    node = edge[vk.global_id(0)]
    degree[node] = degree[node] + 1  # bug: not atomic


@vk.kernel(over="edge")
def degrees_good(edge: vk.In[vk.i32, "E"], degree: vk.InOut[vk.i32, "V"]):
    vk.atomic.add(degree, edge[vk.global_id(0)], 1)


def _counted(x: Any, count: Any) -> Any:
    return count + np.int32((x > 0).sum())


PAIRS = (
    pair(counted, counted_good, _counted, minimal={"N": 2}),
    pair(histogram, histogram_good, elements={"x": (0, 7)}, minimal={"N": 2}),
    pair(summed, summed_good, minimal={"N": 33}),
    pair(largest, largest_good, minimal={"N": 2}),
    pair(appended, appended_good, minimal={"N": 2}),
    pair(degrees, degrees_good, elements={"edge": (0, "V-1")}, minimal={"E": 2, "V": 1}),
)
