"""Wrong operators, narrow types, failing assertions, divisions by zero."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair


@vk.kernel(over="y")
def narrow_mean(a: vk.In[vk.u8, "N"], b: vk.In[vk.u8, "N"], y: vk.Out[vk.u8, "N"]):
    i = vk.global_id(0)
    y[i] = (a[i] + b[i]) // vk.u8(2)  # bug: the sum wraps


@vk.kernel(over="y")
def narrow_mean_good(a: vk.In[vk.u8, "N"], b: vk.In[vk.u8, "N"], y: vk.Out[vk.u8, "N"]):
    i = vk.global_id(0)
    y[i] = vk.u8((vk.i32(a[i]) + vk.i32(b[i])) // 2)


@vk.kernel(over="y")
def checked(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    assert x[i] != 3  # bug: 3 is a valid input
    y[i] = x[i]


@vk.kernel(over="y")
def checked_good(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


@vk.kernel(over="y")
def quotient(a: vk.In[vk.i32, "N"], b: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = a[i] // b[i]  # bug: b may be zero


@vk.kernel(over="y")
def quotient_good(a: vk.In[vk.i32, "N"], b: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = a[i] // b[i] if b[i] != 0 else 0


@vk.kernel(over="y")
def distance(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.abs(a[i] + b[i])  # bug: adds instead of subtracting


@vk.kernel(over="y")
def distance_good(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.abs(a[i] - b[i])


def _mean(a: Any, b: Any) -> Any:
    return ((a.astype(int) + b) // 2).astype(np.uint8)


PAIRS = (
    pair(narrow_mean, narrow_mean_good, _mean, minimal={"N": 1}),
    pair(checked, checked_good, minimal={"N": 1}),
    pair(quotient, quotient_good, minimal={"N": 1}),
    pair(distance, distance_good, lambda a, b: np.abs(a - b), minimal={"N": 1}),
)
