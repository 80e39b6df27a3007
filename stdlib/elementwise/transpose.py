"""Copies that change the memory order: source and target are contiguous along different axes.

Tensor copies (`vkjit.tensor.ops.copies`) call `try_transposing_copy`. Source x and target y have the shape (G, I, J); x
is contiguous along I, y along J. Elements are converted to the type of y. A workgroup copies a tile of one matrix (I,
J). On a GPU the tile goes through shared memory, so that loads and stores are both coalesced. On the "llvm-cpu" device
it is copied row by row, and the cache lines of x that adjacent rows share stay in the L1 cache meanwhile.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.registry import choose, variant

__all__ = ["TILE_SIZE", "try_transposing_copy"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

TILE_SIZE = 32
"""Side length of a tile in elements."""


@vk.kernel(
    groups=lambda y: (vk.cdiv(y.shape[2], TILE_SIZE), vk.cdiv(y.shape[1], TILE_SIZE), y.shape[0]),
    local=(TILE_SIZE, 8),
    debug=False,
)
def _through_shared(x: vk.In[T, "G I J"], y: vk.Out[R, "G I J"]):
    """y = x, by workgroups that each copy a tile of TILE_SIZE x TILE_SIZE elements through shared memory.

    An invocation copies four elements, eight rows apart.
    """
    tile = vk.shared(T, (TILE_SIZE, TILE_SIZE + 1))  # the additional column avoids bank conflicts
    column, row = vk.local_id(0), vk.local_id(1)
    g, first, left = vk.group_id(2), vk.group_id(1) * TILE_SIZE, vk.group_id(0) * TILE_SIZE
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
    """y = x, by workgroups of SIZE invocations (the width of a CPU vector) that each copy 16 rows of SIZE elements."""
    g, first, j = vk.group_id(2), vk.group_id(1) * 16, vk.group_id(0) * SIZE + vk.local_id(0)
    if j < y.shape[2]:
        for i in range(first, vk.min(first + 16, y.shape[1])):
            y[g, i, j] = R(x[g, i, j])


def try_transposing_copy(x: DeviceArray, y: DeviceArray) -> bool:
    """Copy x to y if the device has a transposing kernel; return True if it has one.

    If not, the caller copies by other means.
    """
    return bool(choose("transpose", x.device)(x, y))


@variant("transpose", "gpu")
def _copy_gpu(x: DeviceArray, y: DeviceArray) -> bool:
    _through_shared(x, y)
    return True


@variant("transpose", "llvm-cpu")
def _copy_llvm_cpu(x: DeviceArray, y: DeviceArray) -> bool:
    _row_by_row(x, y, x.device.caps.subgroup_size)
    return True


@variant("transpose", "cpu")
def _copy_nothing(x: DeviceArray, y: DeviceArray) -> bool:  # noqa: ARG001  # all variants have the same signature
    """Copy nothing: the other devices of class "cpu" have no transposing kernel."""
    return False
