"""In-place updates and aliased arguments: arrays that are read and written by the same launch."""

from __future__ import annotations

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(over="x")
def smoothed(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = 0.5 * (x[i] + x.get(i + 1, pad=0))  # bug: the next element may be smoothed already


@vk.kernel(over="y")
def smoothed_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 0.5 * (x[i] + x.get(i + 1, pad=0))


@vk.kernel(over="x")
def reversed_in_place(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    x[i] = x[x.shape[0] - 1 - i]  # bug: half of the elements are overwritten before they are read


@vk.kernel(over="x")
def reversed_in_place_good(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    j = x.shape[0] - 1 - i
    if i < j:
        first = x[i]
        x[i] = x[j]
        x[j] = first


@vk.kernel(over="x")
def transposed_in_place(x: vk.InOut[vk.i32, "N N"]):
    i, j = vk.index()
    x[i, j] = x[j, i]  # bug: both invocations of a pair write


@vk.kernel(over="x")
def transposed_in_place_good(x: vk.InOut[vk.i32, "N N"]):
    i, j = vk.index()
    if i < j:
        first = x[i, j]
        x[i, j] = x[j, i]
        x[j, i] = first


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def rotated(x: vk.InOut[vk.f32, "R 32"]):
    lane, row = vk.local_id(0), vk.group_id(0)
    x[row, lane] = x[row, (lane + 1) % L]  # bug: reads what an adjacent lane writes


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def rotated_good(x: vk.InOut[vk.f32, "R 32"]):
    lane, row = vk.local_id(0), vk.group_id(0)
    value = x[row, (lane + 1) % L]
    vk.barrier()
    x[row, lane] = value


@vk.kernel(over="y")
def adds_reversed(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] += x[x.shape[0] - 1 - i]  # bug: if x is y, the other end may have changed


@vk.kernel(over="y")
def adds_itself(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] += x[i]


@vk.kernel(groups=1, local=L)
def prefix_in_place(x: vk.InOut[vk.i32, "32"]):
    lane = vk.local_id(0)
    for level in range(5):
        step = 1 << level
        if lane >= step:
            x[lane] += x[lane - step]  # bug: reads and writes without a barrier in between
        vk.barrier()


@vk.kernel(groups=1, local=L)
def prefix_in_place_good(x: vk.InOut[vk.i32, "32"]):
    lane = vk.local_id(0)
    for level in range(5):
        step = 1 << level
        before = x[lane - step] if lane >= step else vk.i32(0)
        vk.barrier()
        x[lane] += before
        vk.barrier()


PAIRS = (
    pair(smoothed, smoothed_good, minimal={"N": 2}),
    pair(reversed_in_place, reversed_in_place_good, minimal={"N": 2}),
    pair(transposed_in_place, transposed_in_place_good, minimal={"N": 2}),
    pair(rotated, rotated_good, minimal={"R": 1}),
    pair(adds_reversed, adds_itself, aliases=[("x", "y")], minimal={"N": 2}),
    pair(prefix_in_place, prefix_in_place_good),
)
