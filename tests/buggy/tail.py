"""Incomplete last tiles: forgotten, masked incorrectly, or cut off at the wrong index."""

from __future__ import annotations

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(groups=lambda x: x.shape[0] // L, local=L)
def no_tail(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 2.0 * x[i]  # bug: (in the number of workgroups) the tail is skipped


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def no_tail_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        y[i] = 2.0 * x[i]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def whole_tiles(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    total = vk.i32(0)
    for tile in range(x.shape[1] // L):  # bug: skips an incomplete last tile
        total += x.get(row, tile * L + lane, pad=0)
    total = wg.sum(total)
    if lane == 0:
        y[row] = total


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def whole_tiles_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    total = vk.i32(0)
    for tile in range(vk.cdiv(x.shape[1], L)):
        total += x.get(row, tile * L + lane, pad=0)
    total = wg.sum(total)
    if lane == 0:
        y[row] = total


@vk.kernel(over="y")
def only_hundred(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if i < 100 else 0.0  # bug: there may be more elements


@vk.kernel(over="y")
def only_hundred_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def all_but_last(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0] - 1:  # bug: off by one
        y[i] = 2.0 * x[i]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 4 * L), local=L)
def vectors(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    first = 4 * vk.global_id(0)
    if first + 4 <= x.shape[0]:  # bug: skips the tail if the length isn't a multiple of 4
        for k in vk.unroll(4):
            y[first + k] = 2.0 * x[first + k]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 4 * L), local=L)
def vectors_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    first = 4 * vk.global_id(0)
    for k in vk.unroll(4):
        if first + k < x.shape[0]:
            y[first + k] = 2.0 * x[first + k]


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[1], 8), vk.cdiv(x.shape[0], 8)), local=(8, 8))
def swapped_mask(x: vk.In[vk.f32, "M N"], y: vk.Out[vk.f32, "M N"]):
    j, i = vk.global_id(0), vk.global_id(1)
    if i < x.shape[1] and j < x.shape[0]:  # bug: the axes are swapped
        y.put(i, j, 2.0 * x.get(i, j, pad=0))


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[1], 8), vk.cdiv(x.shape[0], 8)), local=(8, 8))
def swapped_mask_good(x: vk.In[vk.f32, "M N"], y: vk.Out[vk.f32, "M N"]):
    j, i = vk.global_id(0), vk.global_id(1)
    if i < x.shape[0] and j < x.shape[1]:
        y.put(i, j, 2.0 * x.get(i, j, pad=0))


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def strided_rows(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    total = vk.i32(0)
    for k in range(lane, x.shape[1] - 1, L):  # bug: the last column is skipped
        total += x[row, k]
    total = wg.sum(total)
    if lane == 0:
        y[row] = total


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def strided_rows_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    total = vk.i32(0)
    for k in range(lane, x.shape[1], L):
        total += x[row, k]
    total = wg.sum(total)
    if lane == 0:
        y[row] = total


def _double(x):
    return 2 * x


def _sums(x):
    return x.sum(axis=1, dtype=np.int32)


PAIRS = (
    pair(no_tail, no_tail_good, minimal={"N": 1}),
    pair(whole_tiles, whole_tiles_good, _sums, minimal={"R": 1, "C": 1}),
    pair(only_hundred, only_hundred_good, lambda x: x, minimal={"N": 101}),
    pair(all_but_last, no_tail_good, _double, minimal={"N": 1}),
    pair(vectors, vectors_good, _double, minimal={"N": 1}),
    pair(swapped_mask, swapped_mask_good, _double),
    pair(strided_rows, strided_rows_good, _sums, minimal={"R": 1, "C": 1}),
)
