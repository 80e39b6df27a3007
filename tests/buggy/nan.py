"""NaN that gets lost or is treated as a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair


@vk.kernel(over="y")
def relu(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if x[i] > 0.0 else 0.0  # bug: NaN becomes 0


@vk.kernel(over="y")
def relu_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.max(x[i], 0.0)


@vk.kernel(over="y")
def row_max(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    r = vk.global_id(0)
    best = x[r, 0]
    for k in range(x.shape[1]):
        if x[r, k] > best:  # bug: the comparison is false for NaN
            best = x[r, k]
    y[r] = best


@vk.kernel(over="y")
def row_max_good(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    r = vk.global_id(0)
    best = x[r, 0]
    for k in range(x.shape[1]):
        best = vk.max(best, x[r, k])
    y[r] = best


@vk.kernel(over="y")
def clipped(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.fmin(vk.fmax(x[i], -1.0), 1.0)  # bug: fmin and fmax ignore NaN


@vk.kernel(over="y")
def clipped_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.min(vk.max(x[i], -1.0), 1.0)


@vk.kernel(over="y")
def sign(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 1.0 if x[i] > 0.0 else (0.0 if x[i] == 0.0 else -1.0)  # bug: NaN is treated as negative


@vk.kernel(over="y")
def sign_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 1.0 if x[i] > 0.0 else (-1.0 if x[i] < 0.0 else x[i])


@vk.kernel(over="y")
def sum_of_present(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    r = vk.global_id(0)
    total = vk.f32(0)
    for k in range(x.shape[1]):
        if not (x[r, k] == math.nan):  # bug: nothing compares equal to NaN
            total += x[r, k]
    y[r] = total


@vk.kernel(over="y")
def sum_of_present_good(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    r = vk.global_id(0)
    total = vk.f32(0)
    for k in range(x.shape[1]):
        if x[r, k] == x[r, k]:
            total += x[r, k]
    y[r] = total


@vk.kernel(over="y")
def is_small(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = 0 if vk.abs(x[i]) >= 1.0 else 1  # bug: NaN counts as small


@vk.kernel(over="y")
def is_small_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = 1 if vk.abs(x[i]) < 1.0 else 0


def _present(x: Any) -> Any:
    return np.nansum(x, axis=1)


ROWS = {"C": (1, None)}

PAIRS = (
    pair(relu, relu_good, lambda x: np.maximum(x, 0), minimal={"N": 1}),
    pair(row_max, row_max_good, lambda x: x.max(axis=1), dims=ROWS, minimal={"R": 1, "C": 2}),
    pair(clipped, clipped_good, lambda x: np.clip(x, -1, 1), minimal={"N": 1}),
    pair(sign, sign_good, np.sign, minimal={"N": 1}),
    pair(sum_of_present, sum_of_present_good, _present, minimal={"R": 1, "C": 1}),
    pair(is_small, is_small_good, lambda x: (np.abs(x) < 1).astype(np.int32), minimal={"N": 1}),
)
