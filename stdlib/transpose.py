"""Copies whose source has its neighbours along one axis and whose target along another.

Enters: arrays (g, i, j) with neighbours along i in x, along j in y. Leaves: y = x, converted. A workgroup takes a square: on a
GPU through shared memory, so that both sides are reached by neighbours; on a processor row by row, while what the rows have in
common lies in the first cache.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib.registry import choose, variant

__all__ = ["SIDE", "transposed_copy"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

SIDE = 32
"""Elements along a side of a square."""


@vk.kernel(
    groups=lambda y: (vk.cdiv(y.shape[2], SIDE), vk.cdiv(y.shape[1], SIDE), y.shape[0]), local=(SIDE, 8), debug=False
)
def _through_shared(x: vk.In[T, "G I J"], y: vk.Out[R, "G I J"]):
    tile = vk.shared(T, (SIDE, SIDE + 1))
    column, row = vk.local_id(0), vk.local_id(1)
    g, first, left = vk.group_id(2), vk.group_id(1) * SIDE, vk.group_id(0) * SIDE
    for k in vk.unroll(4):
        tile[row + 8 * k, column] = x.get(g, first + column, left + row + 8 * k, pad=0)
    vk.barrier()
    for k in vk.unroll(4):
        y.put(g, first + row + 8 * k, left + column, R(tile[column, row + 8 * k]))


@vk.kernel(
    groups=lambda y, SIZE: (vk.cdiv(y.shape[2], SIZE), vk.cdiv(y.shape[1], 16), y.shape[0]),
    local=lambda SIZE: SIZE,
    debug=False,
)
def _row_by_row(x: vk.In[T, "G I J"], y: vk.Out[R, "G I J"], SIZE: vk.Const[int]):
    g, first, j = vk.group_id(2), vk.group_id(1) * 16, vk.group_id(0) * SIZE + vk.local_id(0)
    if j < y.shape[2]:
        for i in range(first, vk.min(first + 16, y.shape[1])):
            y[g, i, j] = R(x[g, i, j])


def transposed_copy(x: DeviceArray, y: DeviceArray) -> bool:
    """Copies where that is worth it on the device; whether it did."""
    return bool(choose("transpose", x.device)(x, y))


@variant("transpose", "gpu")
def _copy_gpu(x: DeviceArray, y: DeviceArray) -> bool:
    _through_shared(x, y)
    return True


@variant("transpose", "llvm-cpu")
def _copy_processor(x: DeviceArray, y: DeviceArray) -> bool:
    _row_by_row(x, y, x.device.caps.subgroup_size)
    return True


@variant("transpose", "cpu")
def _copy_plainly(x: DeviceArray, y: DeviceArray) -> bool:  # noqa: ARG001  # all variants take the same
    return False
