"""Variances and logarithms of sums of exponentials along lines, each line read once or twice by one workgroup.

Enters: arrays brought to three axes (a, b, r) by the caller; workgroups of SIZE invocations. Leaves: one number per line. The
order of additions depends on the shape and SIZE alone. A NaN makes the line's result NaN.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeVar

import vkjit as vk

__all__ = ["log_sum_exp", "variance", "variance_held"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)


@functools.cache
def variance(S: Any) -> Any:
    """The kernel whose divisor is a number of type S."""

    @vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
    def variance(
        x: vk.In[T, "A B R"],
        y: vk.Out[U, "A B"],
        divisor: S,
        ACC: vk.Const[Any],
        SUM: vk.Const[Any],
        ROOT: vk.Const[bool],
        SIZE: vk.Const[int],
    ):
        """The sum of squares of distances from the mean, kept in SUM, over the divisor; with ROOT its root."""
        wg, lane, b, a = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
        n = x.shape[2]
        whole = n // (4 * SIZE) * (4 * SIZE)
        s0, s1, s2, s3 = ACC(0), ACC(0), ACC(0), ACC(0)
        for start in range(0, whole, 4 * SIZE):
            r = start + lane
            s0 += ACC(x[a, b, r])
            s1 += ACC(x[a, b, r + SIZE])
            s2 += ACC(x[a, b, r + 2 * SIZE])
            s3 += ACC(x[a, b, r + 3 * SIZE])
        for r in range(whole + lane, n, SIZE):
            s0 += ACC(x[a, b, r])
        center = wg.sum((s0 + s1) + (s2 + s3)) / ACC(n)
        q0, q1, q2, q3 = SUM(0), SUM(0), SUM(0), SUM(0)
        e0, e1, e2, e3 = SUM(0), SUM(0), SUM(0), SUM(0)
        for start in range(0, whole, 4 * SIZE):
            r = start + lane
            d0, d1 = SUM(ACC(x[a, b, r]) - center), SUM(ACC(x[a, b, r + SIZE]) - center)
            d2, d3 = SUM(ACC(x[a, b, r + 2 * SIZE]) - center), SUM(ACC(x[a, b, r + 3 * SIZE]) - center)
            q0, e0 = q0 + d0 * d0, e0 + d0
            q1, e1 = q1 + d1 * d1, e1 + d1
            q2, e2 = q2 + d2 * d2, e2 + d2
            q3, e3 = q3 + d3 * d3, e3 + d3
        for r in range(whole + lane, n, SIZE):
            d0 = SUM(ACC(x[a, b, r]) - center)
            q0, e0 = q0 + d0 * d0, e0 + d0
        error = wg.sum((e0 + e1) + (e2 + e3))  # 0, but for the rounding of the mean
        squares = wg.sum((q0 + q1) + (q2 + q3)) - error * (error / SUM(n))
        squares = vk.where(squares < 0, SUM(0), squares) / SUM(divisor)
        if lane == 0:
            y[a, b] = U(vk.sqrt(squares) if ROOT else squares)

    return variance


@functools.cache
def variance_held(S: Any) -> Any:
    """As `variance`, of lines of neighbours of whole fours, each read once: an invocation holds HELD fours of it."""

    @vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
    def variance_held(
        x: vk.In[T, "A B R"],
        y: vk.Out[U, "A B"],
        divisor: S,
        ACC: vk.Const[Any],
        SUM: vk.Const[Any],
        ROOT: vk.Const[bool],
        SIZE: vk.Const[int],
        HELD: vk.Const[int],
    ):
        wg, lane, b, a = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
        n = vk.i32(x.shape[2])
        held, total = (), ACC(0)
        for i in vk.unroll(HELD):
            r, values = (i * SIZE + lane) * 4, (ACC(0), ACC(0), ACC(0), ACC(0))
            if r < n:
                values = (ACC(x[a, b, r]), ACC(x[a, b, r + 1]), ACC(x[a, b, r + 2]), ACC(x[a, b, r + 3]))
            held = held + (values,)
        for i in vk.unroll(HELD):
            total += (held[i][0] + held[i][1]) + (held[i][2] + held[i][3])
        center = wg.sum(total) / ACC(n)
        squares, error = SUM(0), SUM(0)
        for i in vk.unroll(HELD):
            if (i * SIZE + lane) * 4 < n:
                for k in vk.unroll(4):
                    away = SUM(held[i][k] - center)
                    squares, error = squares + away * away, error + away
        off = wg.sum(error)  # 0, but for the rounding of the mean
        found = wg.sum(squares) - off * (off / SUM(n))
        found = vk.where(found < 0, SUM(0), found) / SUM(divisor)
        if lane == 0:
            y[a, b] = U(vk.sqrt(found) if ROOT else found)

    return variance_held


@vk.func
def greater(x, y):
    """The greater one; of NaN and y, y: the sum that follows shows it."""
    return vk.where(x > y, x, y)


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
def log_sum_exp(x: vk.In[T, "A B R"], y: vk.Out[U, "A B"], ACC: vk.Const[Any], SIZE: vk.Const[int]):
    """log(sum(exp(x))) along each line; where the greatest element is infinite, that infinity."""
    wg, lane, b, a = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    whole = n // (4 * SIZE) * (4 * SIZE)
    m0, m1, m2, m3 = ACC(-math.inf), ACC(-math.inf), ACC(-math.inf), ACC(-math.inf)
    for start in range(0, whole, 4 * SIZE):
        r = start + lane
        m0 = greater(ACC(x[a, b, r]), m0)
        m1 = greater(ACC(x[a, b, r + SIZE]), m1)
        m2 = greater(ACC(x[a, b, r + 2 * SIZE]), m2)
        m3 = greater(ACC(x[a, b, r + 3 * SIZE]), m3)
    for r in range(whole + lane, n, SIZE):
        m0 = greater(ACC(x[a, b, r]), m0)
    top = wg.max(greater(greater(m0, m1), greater(m2, m3)))
    base = vk.where(vk.abs(top) == ACC(math.inf), ACC(0), top)
    s0, s1, s2, s3 = ACC(0), ACC(0), ACC(0), ACC(0)
    for start in range(0, whole, 4 * SIZE):
        r = start + lane
        s0 += vk.exp(ACC(x[a, b, r]) - base)
        s1 += vk.exp(ACC(x[a, b, r + SIZE]) - base)
        s2 += vk.exp(ACC(x[a, b, r + 2 * SIZE]) - base)
        s3 += vk.exp(ACC(x[a, b, r + 3 * SIZE]) - base)
    for r in range(whole + lane, n, SIZE):
        s0 += vk.exp(ACC(x[a, b, r]) - base)
    total = wg.sum((s0 + s1) + (s2 + s3))
    if lane == 0:
        y[a, b] = U(vk.log(total) + base)
