"""Weighted mean of per-row losses in one launch, optionally fused with the cross entropy itself.

`mean_of_rows` takes `loss` and `scale`, one element per row, as computed by `loss.cross_entropy` and `loss.nll`: the
losses, already multiplied by the weight of their target class, and these weights. It stores two arrays of one element:
y = sum(loss) / sum(scale), and inverse = 1 / sum(scale), which the gradient needs. For small inputs
`cross_entropy_mean` takes the scores x (N, C) and the class indices `target` (N,), computes their cross entropy itself,
and stores what its gradient needs in `statistics` (2 N + 1,): the maximum of each row, its sum of exp(x - maximum),
and `inverse`. The order of summation depends only on the number of rows.

Const ACC is the accumulator type. As in `loss`, Const WEIGHT is False if classes aren't weighted; then `weight` isn't
read, and its length D is arbitrary. Rows whose target is `ignored` don't count. T is the type of losses and scores, K
that of targets, W that of class weights, A that of `scale`, `inverse` and `statistics`, G that of the incoming gradient,
and R that of the resulting one. `thread` is an invocation's index in the workgroup.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import placeholder
from ..registry import MAX_CPU_ITERATIONS, device_class

__all__ = ["cross_entropy_mean", "cross_entropy_mean_gradient", "mean_of_rows", "supports_fused", "supports_mean"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
G = TypeVar("G", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

GROUP = 256
"""Invocations of a workgroup."""
MAX_ROWS = 1 << 18
"""Maximum number of rows that one workgroup sums; for more, several launches are faster."""
MAX_SCORES = 8192
"""Maximum number of scores for the fused cross entropy, which runs on one workgroup."""
MAX_CPU_CLASSES = 256
"""Maximum number of classes for it on software devices, where each row is computed in one lane."""


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=1, local=GROUP, debug=False)
def mean_by_group(
    loss: vk.In[T, "N"], scale: vk.In[A, "N"], y: vk.Out[T, "1"], inverse: vk.Out[A, "1"], ACC: vk.Const[Any]
):
    """y = the weighted mean of the losses, by one workgroup.

    Each invocation sums every GROUP-th row; a tree reduction adds the sums.
    """
    sums, weights = vk.shared(ACC, GROUP), vk.shared(ACC, GROUP)
    thread = vk.local_id(0)
    total, weight = ACC(0), ACC(0)
    for i in range(thread, loss.shape[0], GROUP):
        total += ACC(loss[i])
        weight += ACC(scale[i])
    sums[thread], weights[thread] = total, weight
    vk.barrier()
    half = GROUP // 2
    while half > 0:
        if thread < half:
            sums[thread] = sums[thread] + sums[thread + half]
            weights[thread] = weights[thread] + weights[thread + half]
        vk.barrier()
        half //= 2
    if thread == 0:
        y[0] = T(sums[0] / weights[0])
        inverse[0] = A(1 / weights[0])


@vk.kernel(over="y", debug=False)
def mean_by_invocation(
    loss: vk.In[T, "N"], scale: vk.In[A, "N"], y: vk.Out[T, "1"], inverse: vk.Out[A, "1"], ACC: vk.Const[Any]
):
    """y = the weighted mean of the losses, by one invocation that sums all rows."""
    i = vk.index()
    total, weight = ACC(0), ACC(0)
    for row in range(loss.shape[0]):
        total += ACC(loss[row])
        weight += ACC(scale[row])
    y[i] = T(total / weight)
    inverse[i] = A(1 / weight)


def supports_mean(rows: int, device: Any) -> bool:
    """True if `mean_of_rows` is preferable to several launches for that many rows."""
    return 0 < rows <= (MAX_ROWS if device_class(device) == "gpu" else MAX_CPU_ITERATIONS)


def mean_of_rows(loss: DeviceArray, scale: DeviceArray, y: DeviceArray, inverse: DeviceArray) -> None:
    """y = sum(loss) / sum(scale), inverse = 1 / sum(scale). All arrays have one axis; `loss` and `scale` are dense."""
    run = mean_by_group if device_class(loss.device) == "gpu" else mean_by_invocation
    run(loss, scale, y, inverse, scale.dtype)


@vk.kernel(groups=1, local=GROUP)
def cross_entropy_by_group(
    x: vk.In[T, "N C"],
    target: vk.In[K, "N"],
    weight: vk.In[W, "D"],
    statistics: vk.Out[A, "S"],
    y: vk.Out[T, "1"],
    ignored: vk.i64,
    WEIGHT: vk.Const[bool],
    ACC: vk.Const[Any],
):
    """y = the mean cross entropy, and `statistics`, by one workgroup. Each invocation processes every GROUP-th row."""
    sums, weights = vk.shared(ACC, GROUP), vk.shared(ACC, GROUP)
    thread = vk.local_id(0)
    total, weight_total = ACC(0), ACC(0)
    for i in range(thread, x.shape[0], GROUP):
        top = ACC(x[i, 0])
        for c in range(1, x.shape[1]):
            top = vk.max(top, ACC(x[i, c]))
        row_sum = ACC(0)
        for c in range(x.shape[1]):
            row_sum += vk.exp(ACC(x[i, c]) - top)
        statistics[i], statistics[x.shape[0] + i] = A(top), A(row_sum)
        t = vk.i64(target[i])
        if t != ignored:
            assert t >= 0, f"target {t} is no class: it is below 0"
            assert t < x.shape[1], f"target {t} is no class: there are {x.shape[1]}"
            if t >= 0 and t < x.shape[1]:
                factor = ACC(1)
                if WEIGHT:
                    factor = ACC(weight[t])
                total += factor * (vk.log(row_sum) - (ACC(x[i, t]) - top))
                weight_total += factor
    sums[thread], weights[thread] = total, weight_total
    vk.barrier()
    half = GROUP // 2
    while half > 0:
        if thread < half:
            sums[thread] = sums[thread] + sums[thread + half]
            weights[thread] = weights[thread] + weights[thread + half]
        vk.barrier()
        half //= 2
    if thread == 0:
        y[0] = T(sums[0] / weights[0])
        statistics[2 * x.shape[0]] = A(1 / weights[0])


@vk.kernel(over="y", debug=False)
def mean_gradient(
    g: vk.In[G, "1"],
    x: vk.In[T, "N C"],
    target: vk.In[K, "N"],
    weight: vk.In[W, "D"],
    statistics: vk.In[A, "S"],
    y: vk.Out[R, "N C"],
    ignored: vk.i64,
    WEIGHT: vk.Const[bool],
):
    """y = the gradient of x, from g, the gradient of the mean, and the results of `cross_entropy_by_group`."""
    i, c = vk.index()
    rows = x.shape[0]
    t = vk.i64(target[i])
    factor = A(0)
    if t != ignored and t >= 0 and t < x.shape[1]:
        factor = A(g[0]) * statistics[2 * rows]
        if WEIGHT:
            factor *= A(weight[t])
    probability = vk.exp(A(x[i, c]) - statistics[i]) / statistics[rows + i]
    if c == t:
        probability -= 1
    # rows that don't count have the factor 0; their gradient is 0 even if `probability` is NaN
    y[i, c] = R(vk.where(factor == 0, 0, factor * probability))


def supports_fused(rows: int, classes: int, device: Any) -> bool:
    """True if `cross_entropy_mean` is faster than separate launches: for few scores."""
    caps = device.caps
    if caps.max_invocations < GROUP or caps.max_local_size[0] < GROUP:
        return False
    return 0 < rows * classes <= MAX_SCORES and (device_class(device) == "gpu" or classes <= MAX_CPU_CLASSES)


def cross_entropy_mean(
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    statistics: DeviceArray,
    y: DeviceArray,
    ignore_index: int,
) -> None:
    """Compute the mean cross entropy y, of one element, and `statistics`, of 2 N + 1, for N rows."""
    factors = placeholder(x) if weight is None else weight
    cross_entropy_by_group(x, target, factors, statistics, y, ignore_index, weight is not None, statistics.dtype)


def cross_entropy_mean_gradient(
    g: DeviceArray,
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    statistics: DeviceArray,
    y: DeviceArray,
    ignore_index: int,
) -> None:
    """y = the gradient of x, from g, the gradient of the mean, and the statistics of `cross_entropy_mean`."""
    factors = placeholder(statistics) if weight is None else weight
    mean_gradient(g, x, target, factors, statistics, y, ignore_index, weight is not None)
