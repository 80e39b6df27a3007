"""Variance and log-sum-exp along rows, one workgroup per row: the kernels of `var`, `std` and `logsumexp` of tensors.

The caller reshapes arrays to three axes (A, B, R); a row is a slice along the last axis. Each kernel writes one value
per row. A workgroup has SIZE invocations. T and U are the element types of x and y, ACC is the type to which elements
are converted. The order of additions depends on the shape and SIZE alone, so results are deterministic. A NaN makes the
result of its row NaN.
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
    """Return the variance kernel whose scalar `divisor` has type S, which no array argument determines."""

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
        """y = the sum of squared deviations from the row's mean, divided by `divisor`; with ROOT, its square root.

        The mean is computed in ACC, the deviations are accumulated in the type SUM. Corrected two-pass algorithm: the
        sum of deviations, which would be 0 without the rounding error of the mean, is squared, divided by the number of
        elements and subtracted. A workgroup has SIZE invocations.
        """
        wg, invocation, b, a = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
        n = x.shape[2]
        # The elements before `whole` are added to four independent accumulators, which hides latency; the remaining
        # ones are added to the first accumulator.
        whole = n // (4 * SIZE) * (4 * SIZE)
        s0, s1, s2, s3 = ACC(0), ACC(0), ACC(0), ACC(0)
        for start in range(0, whole, 4 * SIZE):
            r = start + invocation
            s0 += ACC(x[a, b, r])
            s1 += ACC(x[a, b, r + SIZE])
            s2 += ACC(x[a, b, r + 2 * SIZE])
            s3 += ACC(x[a, b, r + 3 * SIZE])
        for r in range(whole + invocation, n, SIZE):
            s0 += ACC(x[a, b, r])
        center = wg.sum((s0 + s1) + (s2 + s3)) / ACC(n)
        # q: sums of squared deviations d from the mean, e: sums of the deviations
        q0, q1, q2, q3 = SUM(0), SUM(0), SUM(0), SUM(0)
        e0, e1, e2, e3 = SUM(0), SUM(0), SUM(0), SUM(0)
        for start in range(0, whole, 4 * SIZE):
            r = start + invocation
            d0, d1 = SUM(ACC(x[a, b, r]) - center), SUM(ACC(x[a, b, r + SIZE]) - center)
            d2, d3 = SUM(ACC(x[a, b, r + 2 * SIZE]) - center), SUM(ACC(x[a, b, r + 3 * SIZE]) - center)
            q0, e0 = q0 + d0 * d0, e0 + d0
            q1, e1 = q1 + d1 * d1, e1 + d1
            q2, e2 = q2 + d2 * d2, e2 + d2
            q3, e3 = q3 + d3 * d3, e3 + d3
        for r in range(whole + invocation, n, SIZE):
            d0 = SUM(ACC(x[a, b, r]) - center)
            q0, e0 = q0 + d0 * d0, e0 + d0
        error = wg.sum((e0 + e1) + (e2 + e3))  # 0 up to the rounding error of the mean
        squares = wg.sum((q0 + q1) + (q2 + q3)) - error * (error / SUM(n))
        squares = vk.where(squares < 0, SUM(0), squares) / SUM(divisor)  # unlike `max`, keeps NaN
        if invocation == 0:
            y[a, b] = U(vk.sqrt(squares) if ROOT else squares)

    return variance


@functools.cache
def variance_in_registers(S: Any) -> Any:
    """Return a variant of the `variance` kernel that reads each row once and keeps it in registers.

    Rows must be contiguous, and their length a multiple of 4. Each of SIZE invocations keeps VECTORS vec4s of the row.
    The other parameters are those of `variance`.
    """

    @vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
    def variance_in_registers(
        x: vk.In[T, "A B R"],
        y: vk.Out[U, "A B"],
        divisor: S,
        ACC: vk.Const[Any],
        SUM: vk.Const[Any],
        ROOT: vk.Const[bool],
        SIZE: vk.Const[int],
        VECTORS: vk.Const[int],
    ):
        """Variant of the kernel `variance`; each of SIZE invocations keeps VECTORS vec4s of the row in registers."""
        wg, invocation, b, a = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
        n = vk.i32(x.shape[2])
        register_row, total = (), ACC(0)
        for i in vk.unroll(VECTORS):
            r, values = (i * SIZE + invocation) * 4, (ACC(0), ACC(0), ACC(0), ACC(0))
            if r < n:
                values = (ACC(x[a, b, r]), ACC(x[a, b, r + 1]), ACC(x[a, b, r + 2]), ACC(x[a, b, r + 3]))
            register_row = register_row + (values,)
        for i in vk.unroll(VECTORS):
            total += (register_row[i][0] + register_row[i][1]) + (register_row[i][2] + register_row[i][3])
        center = wg.sum(total) / ACC(n)
        squares, error = SUM(0), SUM(0)
        for i in vk.unroll(VECTORS):
            if (i * SIZE + invocation) * 4 < n:
                for k in vk.unroll(4):
                    deviation = SUM(register_row[i][k] - center)
                    squares, error = squares + deviation * deviation, error + deviation
        total_error = wg.sum(error)  # 0 up to the rounding error of the mean
        result = wg.sum(squares) - total_error * (total_error / SUM(n))
        result = vk.where(result < 0, SUM(0), result) / SUM(divisor)
        if invocation == 0:
            y[a, b] = U(vk.sqrt(result) if ROOT else result)

    return variance_in_registers


@vk.func
def greater(x, y):
    """Return the larger of two values, or y if x is NaN.

    A NaN is thus missing from the maximum of its row, but `log_sum_exp` returns NaN because it also adds the NaN.
    """
    return vk.where(x > y, x, y)


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
def log_sum_exp(x: vk.In[T, "A B R"], y: vk.Out[U, "A B"], ACC: vk.Const[Any], SIZE: vk.Const[int]):
    """Compute y = log(sum(exp(x))) along each row. If a row's maximum is infinite, the result is that infinity.

    ACC is the type of sums; a workgroup of SIZE invocations processes a row.
    """
    wg, invocation, b, a = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    whole = n // (4 * SIZE) * (4 * SIZE)  # elements for the four independent accumulators, as in `variance`
    m0, m1, m2, m3 = ACC(-math.inf), ACC(-math.inf), ACC(-math.inf), ACC(-math.inf)
    for start in range(0, whole, 4 * SIZE):
        r = start + invocation
        m0 = greater(ACC(x[a, b, r]), m0)
        m1 = greater(ACC(x[a, b, r + SIZE]), m1)
        m2 = greater(ACC(x[a, b, r + 2 * SIZE]), m2)
        m3 = greater(ACC(x[a, b, r + 3 * SIZE]), m3)
    for r in range(whole + invocation, n, SIZE):
        m0 = greater(ACC(x[a, b, r]), m0)
    top = wg.max(greater(greater(m0, m1), greater(m2, m3)))
    base = vk.where(vk.abs(top) == ACC(math.inf), ACC(0), top)  # inf - inf would be NaN
    s0, s1, s2, s3 = ACC(0), ACC(0), ACC(0), ACC(0)
    for start in range(0, whole, 4 * SIZE):
        r = start + invocation
        s0 += vk.exp(ACC(x[a, b, r]) - base)
        s1 += vk.exp(ACC(x[a, b, r + SIZE]) - base)
        s2 += vk.exp(ACC(x[a, b, r + 2 * SIZE]) - base)
        s3 += vk.exp(ACC(x[a, b, r + 3 * SIZE]) - base)
    for r in range(whole + invocation, n, SIZE):
        s0 += vk.exp(ACC(x[a, b, r]) - base)
    total = wg.sum((s0 + s1) + (s2 + s3))
    if invocation == 0:
        y[a, b] = U(vk.log(total) + base)
