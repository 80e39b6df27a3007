"""The mean of the losses of rows, weighted by their classes, in one launch.

Enters: losses that have been multiplied with their weights, and the weights, one per row; or, where there are few, the scores
that cross entropy is to be computed of. Leaves: the sum of losses divided by the sum of weights, and one divided by that sum, for
the gradient. The order of the sums depends on the number of rows alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

from .registry import CPU_LOOP, device_class

__all__ = ["cross_entropy_mean", "cross_entropy_slopes", "mean_of_rows", "takes", "takes_scores"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
G = TypeVar("G", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

GROUP = 256
MOST_ROWS = 1 << 18
"""Rows that one workgroup sums up; more are worth several launches."""
MOST_SCORES = 8192
"""Scores that one workgroup goes through."""


@vk.kernel(groups=1, local=GROUP, debug=False)
def mean_by_group(
    loss: vk.In[T, "N"], scale: vk.In[A, "N"], y: vk.Out[T, "1"], inverse: vk.Out[A, "1"], ACC: vk.Const[Any]
):
    """One workgroup: each invocation sums every GROUP-th row, then a tree."""
    sums, weights = vk.shared(ACC, GROUP), vk.shared(ACC, GROUP)
    lane = vk.local_id(0)
    total, weight = ACC(0), ACC(0)
    for i in range(lane, loss.shape[0], GROUP):
        total += ACC(loss[i])
        weight += ACC(scale[i])
    sums[lane], weights[lane] = total, weight
    vk.barrier()
    width = GROUP // 2
    while width > 0:
        if lane < width:
            sums[lane] = sums[lane] + sums[lane + width]
            weights[lane] = weights[lane] + weights[lane + width]
        vk.barrier()
        width //= 2
    if lane == 0:
        y[0] = T(sums[0] / weights[0])
        inverse[0] = A(1 / weights[0])


@vk.kernel(over="y", debug=False)
def mean_by_one(
    loss: vk.In[T, "N"], scale: vk.In[A, "N"], y: vk.Out[T, "1"], inverse: vk.Out[A, "1"], ACC: vk.Const[Any]
):
    """One invocation sums all rows."""
    i = vk.index()
    total, weight = ACC(0), ACC(0)
    for row in range(loss.shape[0]):
        total += ACC(loss[row])
        weight += ACC(scale[row])
    y[i] = T(total / weight)
    inverse[i] = A(1 / weight)


def takes(rows: int, device: Any) -> bool:
    """Whether one launch sums up that many rows well."""
    return 0 < rows <= (MOST_ROWS if device_class(device) == "gpu" else CPU_LOOP)


def mean_of_rows(loss: DeviceArray, scale: DeviceArray, y: DeviceArray, inverse: DeviceArray) -> None:
    """y = sum(loss) / sum(scale), inverse = 1 / sum(scale); all of one axis, loss and scale dense."""
    run = mean_by_group if device_class(loss.device) == "gpu" else mean_by_one
    run(loss, scale, y, inverse, scale.dtype)


@vk.kernel(groups=1, local=GROUP)
def cross_entropy_by_group(
    x: vk.In[T, "N C"],
    target: vk.In[K, "N"],
    weight: vk.In[W, "D"],
    m: vk.Out[A, "N"],
    s: vk.Out[A, "N"],
    y: vk.Out[T, "1"],
    inverse: vk.Out[A, "1"],
    ignored: vk.i64,
    WEIGHT: vk.Const[bool],
    ACC: vk.Const[Any],
):
    """y = the mean cross entropy, inverse = 1 / the sum of the rows' weights; m and s are each row's maximum and its sum of
    exp(x - m). One workgroup, an invocation takes every GROUP-th row.
    """
    sums, weights = vk.shared(ACC, GROUP), vk.shared(ACC, GROUP)
    lane = vk.local_id(0)
    total, whole = ACC(0), ACC(0)
    for i in range(lane, x.shape[0], GROUP):
        top = ACC(x[i, 0])
        for c in range(1, x.shape[1]):
            top = vk.max(top, ACC(x[i, c]))
        row = ACC(0)
        for c in range(x.shape[1]):
            row += vk.exp(ACC(x[i, c]) - top)
        m[i], s[i] = A(top), A(row)
        t = vk.i64(target[i])
        if t != ignored:
            assert t >= 0, f"target {t} is no class: it is below 0"
            assert t < x.shape[1], f"target {t} is no class: there are {x.shape[1]}"
            if t >= 0 and t < x.shape[1]:
                factor = ACC(1)
                if WEIGHT:
                    factor = ACC(weight[t])
                total += factor * (vk.log(row) - (ACC(x[i, t]) - top))
                whole += factor
    sums[lane], weights[lane] = total, whole
    vk.barrier()
    width = GROUP // 2
    while width > 0:
        if lane < width:
            sums[lane] = sums[lane] + sums[lane + width]
            weights[lane] = weights[lane] + weights[lane + width]
        vk.barrier()
        width //= 2
    if lane == 0:
        y[0] = T(sums[0] / weights[0])
        inverse[0] = A(1 / weights[0])


@vk.kernel(over="y", debug=False)
def slopes_of_mean(
    g: vk.In[G, "1"],
    inverse: vk.In[A, "1"],
    x: vk.In[T, "N C"],
    target: vk.In[K, "N"],
    weight: vk.In[W, "D"],
    m: vk.In[A, "N"],
    s: vk.In[A, "N"],
    y: vk.Out[R, "N C"],
    ignored: vk.i64,
    WEIGHT: vk.Const[bool],
):
    """y = the gradient of x from g, that of the mean."""
    i, c = vk.index()
    t = vk.i64(target[i])
    factor = A(0)
    if t != ignored and t >= 0 and t < x.shape[1]:
        factor = A(g[0]) * inverse[0]
        if WEIGHT:
            factor *= A(weight[t])
    share = vk.exp(A(x[i, c]) - m[i]) / s[i]
    if c == t:
        share -= 1
    y[i, c] = R(vk.where(factor == 0, 0, factor * share))


def takes_scores(rows: int, classes: int, device: Any) -> bool:
    """Whether one workgroup computes the mean cross entropy of so many scores well."""
    return 0 < rows * classes <= MOST_SCORES and device_class(device) == "gpu"


def cross_entropy_mean(
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    statistics: tuple[DeviceArray, DeviceArray],
    y: DeviceArray,
    inverse: DeviceArray,
    ignored: int,
) -> None:
    """Writes y and inverse, of one element, and the statistics of rows. x: two axes, target and statistics: one."""
    m, s = statistics
    factors = _line(x) if weight is None else weight
    cross_entropy_by_group(x, target, factors, m, s, y, inverse, ignored, weight is not None, inverse.dtype)


def _line(array: DeviceArray) -> DeviceArray:
    """An array of one axis in place of one that isn't read."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (1,), (1,))


def cross_entropy_slopes(
    g: DeviceArray,
    inverse: DeviceArray,
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    statistics: tuple[DeviceArray, DeviceArray],
    y: DeviceArray,
    ignored: int,
) -> None:
    """y = the gradient of x from that of the mean."""
    m, s = statistics
    slopes_of_mean(g, inverse, x, target, m if weight is None else weight, m, s, y, ignored, weight is not None)
