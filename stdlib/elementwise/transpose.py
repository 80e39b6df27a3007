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
"""Side length of a tile on GPUs, in elements."""


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
# a workgroup has 8 rows of TILE_SIZE invocations; 4 = TILE_SIZE // 8 iterations copy the tile
@vk.kernel(
    groups=lambda y: (vk.cdiv(y.shape[2], TILE_SIZE), vk.cdiv(y.shape[1], TILE_SIZE), y.shape[0]),
    local=(TILE_SIZE, 8),
    debug=False,
)
def _through_shared(x: vk.In[T, "G I J"], y: vk.Out[R, "G I J"]):
    """y = x, by workgroups that each copy a tile of TILE_SIZE x TILE_SIZE elements through shared memory.

    The tile begins at row `first_row` and column `first_column` of a matrix. `column` and `row` are the invocation's
    coordinates in the workgroup. Each invocation copies four elements of x, eight columns apart, to shared memory, and
    from there four elements, eight rows apart, to y.
    """
    tile = vk.shared(T, (TILE_SIZE, TILE_SIZE + 1))  # the additional column avoids bank conflicts
    column, row = vk.local_id(0), vk.local_id(1)
    g, first_row, first_column = vk.group_id(2), vk.group_id(1) * TILE_SIZE, vk.group_id(0) * TILE_SIZE
    # store the transposed tile: adjacent invocations load adjacent elements of x, which are contiguous along I
    for k in vk.unroll(4):
        tile[row + 8 * k, column] = x.get(g, first_row + column, first_column + row + 8 * k, pad=0)
    vk.barrier()
    # adjacent invocations store adjacent elements of y, which are contiguous along J
    for k in vk.unroll(4):
        y.put(g, first_row + row + 8 * k, first_column + column, R(tile[column, row + 8 * k]))


# a tile has 16 rows, as many as there are f32 in a cache line of 64 bytes, which holds adjacent elements along I
@vk.kernel(
    groups=lambda y, SIZE: (vk.cdiv(y.shape[2], SIZE), vk.cdiv(y.shape[1], 16), y.shape[0]),
    local=lambda SIZE: SIZE,
    debug=False,
)
def _row_by_row(x: vk.In[T, "G I J"], y: vk.Out[R, "G I J"], SIZE: vk.Const[int]):
    """y = x, by workgroups that each copy a tile of 16 rows of SIZE elements, one column per invocation.

    SIZE, the number of invocations of a workgroup, is the width of a CPU vector, so that a vector copies a row at once.
    """
    g, first_row, j = vk.group_id(2), vk.group_id(1) * 16, vk.group_id(0) * SIZE + vk.local_id(0)
    if j < y.shape[2]:
        for i in range(first_row, vk.min(first_row + 16, y.shape[1])):
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
    _row_by_row(x, y, x.device.caps.subgroup_size)  # on this device a subgroup is a vector
    return True


@variant("transpose", "cpu")
def _copy_nothing(x: DeviceArray, y: DeviceArray) -> bool:  # noqa: ARG001  # all variants have the same signature
    """Copy nothing: the other devices of class "cpu" have no transposing kernel."""
    return False
