# mypy: disable-error-code="no-untyped-def, valid-type, index, operator"
"""Loops whose iterations a driver drops, and values of loops that a driver computes again after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import f32, i8, i32, i64

X = np.arange(20, dtype=np.int32)


# Loops with a constant start that are left at the minimum of a constant and a number: `j` counts down.


@vk.kernel(over="o")
def descending_range(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t = 0
    for j in range(20, min(x[i], 10), -1):
        t = t * 3 % 1009 + j
    o[i] = t


@vk.kernel(over="o")
def clamped_end(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t = 0
    for j in range(7, vk.clamp(x[i], 2, 7), -1):
        t = t * 3 % 1009 + j
    o[i] = t


@vk.kernel(over="o")
def descending_while(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, 10
    while j > min(x[i], 10):
        t = t * 3 % 1009 + j
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def limit_on_the_left(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, 10
    while True:
        if min(x[i], 8) > j:
            break
        t = t * 3 % 1009 + j
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def until_equal(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, 20
    while j != min(x[i], 10):
        t = t * 3 % 1009 + j
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def selected_limit(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, 10
    limit = x[i] if x[i] < 10 else 10
    while j > limit:
        t = t * 3 % 1009 + j
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def float_counter(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, f32(10)
    while j > vk.fmin(f32(x[i]), 10.0):
        t = t * 3 % 1009 + i32(j)
        j -= 1.0
    o[i] = t


@vk.kernel(over="o")
def narrow_counter(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, i8(10)
    while j > min(i8(x[i]), 10):
        t = t * 3 % 1009 + i32(j)
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def wide_counter(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, i64(10)
    while j > min(i64(x[i]), 10):
        t = t * 3 % 1009 + i32(j)
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def two_steps(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, 10
    while j > min(x[i], 10):
        j -= 1
        t = t * 3 % 1009 + j
        j -= 1
    o[i] = t


@vk.kernel(over="o")
def two_continues(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    t, j = 0, 10
    while j > min(x[i], 10):
        if t % 2 == 1:
            t = t * 3 % 1009 + j
            j -= 1
            continue
        t = t * 5 % 1009 + j
        j -= 1
    o[i] = t


def repeat(start: int, goes_on: Callable[[int], bool], step: int = 1, odd: int = 3, even: int = 3) -> int:
    t, j = 0, start
    while goes_on(j):
        j -= step // 2
        t = t * (odd if t % 2 else even) % 1009 + j
        j -= step - step // 2
    return t


DROPPED = [
    (descending_range, lambda x: repeat(20, lambda j: j > min(x, 10))),
    (clamped_end, lambda x: repeat(7, lambda j: j > min(max(x, 2), 7))),
    (descending_while, lambda x: repeat(10, lambda j: j > min(x, 10))),
    (limit_on_the_left, lambda x: repeat(10, lambda j: min(x, 8) <= j)),
    (until_equal, lambda x: repeat(20, lambda j: j != min(x, 10))),
    (selected_limit, lambda x: repeat(10, lambda j: j > min(x, 10))),
    (float_counter, lambda x: repeat(10, lambda j: j > min(x, 10))),
    (narrow_counter, lambda x: repeat(10, lambda j: j > min(x, 10))),
    (wide_counter, lambda x: repeat(10, lambda j: j > min(x, 10))),
    (two_steps, lambda x: repeat(10, lambda j: j > min(x, 10), step=2)),
    (two_continues, lambda x: repeat(10, lambda j: j > min(x, 10), even=5)),
]


@pytest.mark.parametrize(("kernel", "expected"), DROPPED, ids=lambda case: getattr(case, "__name__", ""))
def test_no_iteration_is_dropped(device: Any, kernel: Any, expected: Callable[[int], int]) -> None:
    assert np.asarray(kernel(X)).tolist() == [expected(x) for x in X.tolist()]


# Loops with one `break`, which invocations reach in different iterations; `t` is computed in the loop and read after it.


@vk.kernel(over="o")
def computed_before_the_step(x: vk.In[i32, "N"], o: vk.Out[i32, "N"], start: i32):
    i = vk.global_id(0)
    t, j = 0, start
    while True:
        t = t * 3 % 1009 + j
        j += 1
        if j > x[i]:
            break
    o[i] = t


@vk.kernel(over="o")
def chosen(x: vk.In[i32, "N"], o: vk.Out[i32, "N"], start: i32):
    i = vk.global_id(0)
    t, j = 0, start
    while True:
        if x[j] % 2 == 1:
            t = j * 3
        else:
            t = j * 5
        j += 1
        if j > x[i]:
            break
    o[i] = t


@vk.kernel(over="o")
def previous(x: vk.In[i32, "N"], o: vk.Out[i32, "N"], start: i32):
    """The steps of Collatz sequences, and the number before the last."""
    i = vk.global_id(0)
    t, n, steps = 0, x[i] + 1, start
    while True:
        t = n * 1000 + steps
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        if n <= 1:
            break
    o[i] = t


@vk.kernel(over="o")
def counted(x: vk.In[i32, "N"], o: vk.InOut[i32, "N"], start: i32):
    i = vk.global_id(0)
    t, j = 0, start
    while True:
        t = vk.atomic.add(o, i, 1)
        j += 1
        if j > x[i]:
            break
    o[i] = t


@vk.func
def returned(n: i32, start: i32) -> i32:
    j = start
    while True:
        t = j * j + n
        j += 3
        if t > 3 * n:
            return t


@vk.kernel(over="o")
def returned_from_a_loop(x: vk.In[i32, "N"], o: vk.Out[i32, "N"], start: i32):
    i = vk.global_id(0)
    o[i] = returned(x[i], start)


@vk.kernel(over="o")
def nested(x: vk.In[i32, "N"], o: vk.Out[i32, "N"], start: i32):
    i = vk.global_id(0)
    t, outer = 0, start
    while True:
        inner = 12
        while True:
            t = inner * 5
            inner -= 3
            if inner <= x[i]:
                break
        t += outer
        outer += 1
        if outer > start:
            break
    o[i] = t


def before_the_step(x: int) -> int:
    t = 0
    for j in range(x + 1):
        t = t * 3 % 1009 + j
    return t


def before_the_last(x: int) -> int:
    n, steps = x + 1, 0
    while True:
        t = n * 1000 + steps
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        if n <= 1:
            return t


AGAIN = [
    (computed_before_the_step, before_the_step),
    (chosen, lambda x: x * (3 if x % 2 else 5)),
    (previous, before_the_last),
    (counted, lambda x: x),
    (nested, lambda x: 5 * next(j for j in range(12, -99, -3) if j - 3 <= x)),
    (returned_from_a_loop, lambda x: next(j * j + x for j in range(0, 99, 3) if j * j > 2 * x)),
]


@pytest.mark.parametrize(("kernel", "expected"), AGAIN, ids=lambda case: getattr(case, "__name__", ""))
def test_values_of_loops_are_kept(device: Any, kernel: Any, expected: Callable[[int], int]) -> None:
    o = np.zeros(len(X), np.int32)
    kernel(X, o, 0)
    assert o.tolist() == [expected(x) for x in X.tolist()]
