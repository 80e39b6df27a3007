"""Variance and log-sum-exp along rows, one workgroup per row.

The caller reshapes arrays to three axes (a, b, r); rows run along r. Each kernel writes one value per row. The order of
additions depends on the shape and the workgroup size SIZE alone, so results are deterministic. A NaN makes the result
of its row NaN.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeVar

import vkjit as vk

__all__ = ["log_sum_exp", "variance", "variance_in_registers"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)


@functools.cache
def variance(S: Any) -> Any:
    """Return the variance kernel for a `divisor` scalar of type S."""

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
        """Divide the sum of squared deviations from the mean, accumulated in SUM, by `divisor`; with ROOT, take its
        square root.

        Corrected two-pass algorithm: the squared sum of deviations, which is 0 up to rounding, is subtracted.
        """
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
        error = wg.sum((e0 + e1) + (e2 + e3))  # 0 up to the rounding error of the mean
        squares = wg.sum((q0 + q1) + (q2 + q3)) - error * (error / SUM(n))
        squares = vk.where(squares < 0, SUM(0), squares) / SUM(divisor)
        if lane == 0:
            y[a, b] = U(vk.sqrt(squares) if ROOT else squares)

    return variance


@functools.cache
def variance_in_registers(S: Any) -> Any:
    """Return a variant of `variance` that reads each row once, for contiguous rows whose length is a multiple of 4.

    In its kernel, each of SIZE invocations keeps VECTORS vec4s of the row in registers.
    """

    @vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
    def variance_held(
        x: vk.In[T, "A B R"],
        y: vk.Out[U, "A B"],
        divisor: S,
        ACC: vk.Const[Any],
        SUM: vk.Const[Any],
        ROOT: vk.Const[bool],
        SIZE: vk.Const[int],
        VECTORS: vk.Const[int],
    ):
        wg, lane, b, a = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
        n = vk.i32(x.shape[2])
        held, total = (), ACC(0)
        for i in vk.unroll(VECTORS):
            r, values = (i * SIZE + lane) * 4, (ACC(0), ACC(0), ACC(0), ACC(0))
            if r < n:
                values = (ACC(x[a, b, r]), ACC(x[a, b, r + 1]), ACC(x[a, b, r + 2]), ACC(x[a, b, r + 3]))
            held = held + (values,)
        for i in vk.unroll(VECTORS):
            total += (held[i][0] + held[i][1]) + (held[i][2] + held[i][3])
        center = wg.sum(total) / ACC(n)
        squares, error = SUM(0), SUM(0)
        for i in vk.unroll(VECTORS):
            if (i * SIZE + lane) * 4 < n:
                for k in vk.unroll(4):
                    away = SUM(held[i][k] - center)
                    squares, error = squares + away * away, error + away
        off = wg.sum(error)  # 0 up to the rounding error of the mean
        found = wg.sum(squares) - off * (off / SUM(n))
        found = vk.where(found < 0, SUM(0), found) / SUM(divisor)
        if lane == 0:
            y[a, b] = U(vk.sqrt(found) if ROOT else found)

    return variance_held


@vk.func
def greater(x, y):
    """Return the larger value. If `x` is NaN, return `y`: the NaN still shows in the sum computed afterwards."""
    return vk.where(x > y, x, y)


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
def log_sum_exp(x: vk.In[T, "A B R"], y: vk.Out[U, "A B"], ACC: vk.Const[Any], SIZE: vk.Const[int]):
    """Compute log(sum(exp(x))) along each row. Where the maximum is infinite, the result is that infinity."""
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
