"""Weighted mean of per-row losses in one launch, optionally fused with the cross entropy itself.

Takes the losses, already multiplied by their class weights, and the weights, one per row; for small inputs, the scores
instead, whose cross entropy it computes. Produces sum(losses) / sum(weights), and 1 / sum(weights) for the gradient. The
order of summation depends only on the number of rows.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..registry import MAX_CPU_ITERATIONS, device_class

__all__ = ["cross_entropy_mean", "cross_entropy_mean_gradient", "mean_of_rows", "supports_fused", "supports_mean"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
G = TypeVar("G", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

GROUP = 256
MAX_ROWS = 1 << 18
"""Maximum number of rows that one workgroup sums; for more, several launches are faster."""
MAX_SCORES = 8192
"""Maximum number of scores for the fused cross entropy, which runs on one workgroup."""


@vk.kernel(groups=1, local=GROUP, debug=False)
def mean_by_group(
    loss: vk.In[T, "N"], scale: vk.In[A, "N"], y: vk.Out[T, "1"], inverse: vk.Out[A, "1"], ACC: vk.Const[Any]
):
    """One workgroup: each invocation sums every GROUP-th row, followed by a tree reduction."""
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
def mean_by_invocation(
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


def supports_mean(rows: int, device: Any) -> bool:
    """True if `mean_of_rows` is the best choice for that many rows."""
    return 0 < rows <= (MAX_ROWS if device_class(device) == "gpu" else MAX_CPU_ITERATIONS)


def mean_of_rows(loss: DeviceArray, scale: DeviceArray, y: DeviceArray, inverse: DeviceArray) -> None:
    """y = sum(loss) / sum(scale), inverse = 1 / sum(scale); all have one axis, and loss and scale are dense."""
    run = mean_by_group if device_class(loss.device) == "gpu" else mean_by_invocation
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
    """y = the mean cross entropy, inverse = 1 / the sum of the rows' weights.

    m and s are each row's maximum and its sum of exp(x - m). One workgroup; each invocation processes every GROUP-th row.
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
def mean_gradient(
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
    """y = the gradient of x, from g, the gradient of the mean."""
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


def supports_fused(rows: int, classes: int, device: Any) -> bool:
    """True if `cross_entropy_mean` is the best choice for that many scores."""
    return 0 < rows * classes <= MAX_SCORES and device_class(device) == "gpu"


def cross_entropy_mean(
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    statistics: tuple[DeviceArray, DeviceArray],
    y: DeviceArray,
    inverse: DeviceArray,
    ignore_index: int,
) -> None:
    """Compute y and inverse, of one element each, and the row statistics (m, s).

    x has two axes; target and statistics have one.
    """
    m, s = statistics
    factors = _placeholder(x) if weight is None else weight
    cross_entropy_by_group(x, target, factors, m, s, y, inverse, ignore_index, weight is not None, inverse.dtype)


def _placeholder(array: DeviceArray) -> DeviceArray:
    """Return a placeholder of one axis for an argument that isn't read."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (1,), (1,))


def cross_entropy_mean_gradient(
    g: DeviceArray,
    inverse: DeviceArray,
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    statistics: tuple[DeviceArray, DeviceArray],
    y: DeviceArray,
    ignore_index: int,
) -> None:
    """y = the gradient of x, from g, the gradient of the mean."""
    m, s = statistics
    mean_gradient(g, inverse, x, target, m if weight is None else weight, m, s, y, ignore_index, weight is not None)
