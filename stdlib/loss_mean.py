"""The mean of the losses of rows, weighted by their classes, in one launch.

Enters: losses that have been multiplied with their weights, and the weights, one per row. Leaves: the sum of losses divided by
the sum of weights, and one divided by that sum, for the gradient. The order of the sums depends on the number of rows alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

from .registry import CPU_LOOP, device_class

__all__ = ["mean_of_rows", "takes"]

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

GROUP = 256
MOST_ROWS = 1 << 18
"""Rows that one workgroup sums up; more are worth several launches."""


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
