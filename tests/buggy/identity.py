"""Reductions with an initial or padding value that isn't the identity."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair

L = 32


@vk.kernel(over="y")
def max_from_zero(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    best = vk.f32(0)  # bug: all elements may be negative
    for k in range(x.shape[1]):
        best = vk.max(best, x[vk.global_id(0), k])
    y[vk.global_id(0)] = best


@vk.kernel(over="y")
def max_from_zero_good(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    best = x[vk.global_id(0), 0]
    for k in range(x.shape[1]):
        best = vk.max(best, x[vk.global_id(0), k])
    y[vk.global_id(0)] = best


@vk.kernel(over="y")
def min_from_thousand(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    least = vk.i32(1000)  # bug: all elements may be larger
    for k in range(x.shape[1]):
        least = vk.min(least, x[vk.global_id(0), k])
    y[vk.global_id(0)] = least


@vk.kernel(over="y")
def min_from_thousand_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    least = vk.i32(2147483647)
    for k in range(x.shape[1]):
        least = vk.min(least, x[vk.global_id(0), k])
    y[vk.global_id(0)] = least


@vk.kernel(over="y")
def product_from_zero(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    product = vk.i32(0)  # bug: the empty product is 1
    for k in range(x.shape[1]):
        product *= x[vk.global_id(0), k]
    y[vk.global_id(0)] = product


@vk.kernel(over="y")
def product_from_one(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    product = vk.i32(1)
    for k in range(x.shape[1]):
        product *= x[vk.global_id(0), k]
    y[vk.global_id(0)] = product


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def min_padded(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    least = x[row, 0]
    for first in range(0, x.shape[1], L):
        least = vk.min(least, x.get(row, first + lane, pad=0))  # bug: the padding may be the minimum
    least = wg.min(least)
    if lane == 0:
        y[row] = least


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def min_padded_good(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    least = x[row, 0]
    for first in range(0, x.shape[1], L):
        if first + lane < x.shape[1]:
            least = vk.min(least, x[row, first + lane])
    least = wg.min(least)
    if lane == 0:
        y[row] = least


@vk.kernel(over="y")
def all_from_false(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    every = vk.i32(0)  # bug: the identity of `and` has all bits set
    for k in range(x.shape[1]):
        every &= x[vk.global_id(0), k]
    y[vk.global_id(0)] = every


@vk.kernel(over="y")
def all_from_true(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    every = vk.i32(-1)
    for k in range(x.shape[1]):
        every &= x[vk.global_id(0), k]
    y[vk.global_id(0)] = every


@vk.kernel(over="y")
def largest_magnitude(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    best = vk.f32(1)  # bug: all elements may be smaller
    for k in range(x.shape[1]):
        best = vk.max(best, vk.abs(x[vk.global_id(0), k]))
    y[vk.global_id(0)] = best


@vk.kernel(over="y")
def largest_magnitude_good(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    best = vk.f32(0)
    for k in range(x.shape[1]):
        best = vk.max(best, vk.abs(x[vk.global_id(0), k]))
    y[vk.global_id(0)] = best


def _products(x: Any) -> Any:
    return x.prod(axis=1, dtype=np.int32)


ROWS = {"C": (1, None)}
SMALLEST = {"R": 1, "C": 1}

PAIRS = (
    pair(max_from_zero, max_from_zero_good, lambda x: x.max(axis=1), dims=ROWS, minimal=SMALLEST),
    pair(min_from_thousand, min_from_thousand_good, lambda x: x.min(axis=1), dims=ROWS, minimal=SMALLEST),
    pair(product_from_zero, product_from_one, _products, minimal={"R": 1, "C": 0}),
    pair(min_padded, min_padded_good, lambda x: x.min(axis=1), dims=ROWS, minimal=SMALLEST),
    pair(
        all_from_false, all_from_true, lambda x: np.bitwise_and.reduce(x, axis=1, initial=-1), minimal={"R": 1, "C": 0}
    ),
    pair(
        largest_magnitude, largest_magnitude_good, lambda x: np.abs(x).max(axis=1, initial=0), minimal={"R": 1, "C": 0}
    ),
)
