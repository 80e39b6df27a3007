"""Choose and launch the kernel of a matrix product by rules for each device class, without tuning.

Registers the variants of "matmul", which `dispatch.multiply` uses unless a tuning record selects another kernel. a, b
and c are DeviceArrays with three axes (see the package's docstring), `accumulate` is the accumulator type.
"""

from __future__ import annotations

from typing import Any

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.matmul.cooperative_plan import multiply_coopmat
from vkjit.stdlib.matmul.cpu_panels import multiply_dots, multiply_panels
from vkjit.stdlib.matmul.registers import (
    as_pairs,
    multiply_broadcast,
    multiply_pairs,
    multiply_registers,
    readable_as_pairs,
)
from vkjit.stdlib.matmul.shared_tiles import LARGE, multiply_large_tiles, multiply_tiles, plain_mul_add
from vkjit.stdlib.matmul.split_k import multiply_split_k, split_k_parts
from vkjit.stdlib.matmul.vec4 import multiply_vec4
from vkjit.stdlib.registry import variant

__all__ = ["multiply_without_split_k"]

MIN_LARGE_TILES = 64
"""Minimum number of large tiles that keeps a GPU busy."""
MAX_DOT_COLUMNS = 2
"""Maximum number of columns for `multiply_dots`."""
MIN_GROUPS = 16
"""Number of workgroups that keeps the cores of a small machine evenly busy."""


@variant("matmul", "gpu")
def _on_gpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Use split-K for products with a large K and few results, otherwise a kernel that sums over the whole K."""
    if multiply_split_k(a, b, c, accumulate, split_k_parts(c, a.shape[2]), multiply_without_split_k):
        return
    multiply_without_split_k(a, b, c, accumulate)


def multiply_without_split_k(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Queue c = a @ b on a GPU without split-K: each result is computed by one workgroup.

    Tries, in this order, the kernels of `cooperative`, `vec4` and `shared_tiles`.
    """
    if multiply_coopmat(a, b, c):
        return
    # the parameters A_ROWS and B_ROWS of the kernels in `shared_tiles`: a, b is rather row-major than column-major
    a_rows = abs(a.strides[2]) <= abs(a.strides[1])
    b_rows = abs(b.strides[2]) <= abs(b.strides[1])
    tiles = c.shape[0] * vk.cdiv(c.shape[1], LARGE) * vk.cdiv(c.shape[2], LARGE)
    large = tiles >= MIN_LARGE_TILES and accumulate is vk.f32
    if large and a.dtype is b.dtype is vk.f32 and multiply_vec4(a, b, c):
        return
    if large:
        multiply_large_tiles(a, b, c, accumulate, a_rows, b_rows)
    else:  # an explicit fma: drivers don't contract where signed zeros and infinities are preserved
        multiply_tiles(a, b, c, accumulate, a_rows, b_rows, vk.fma if accumulate.is_float else plain_mul_add)


@variant("matmul", "cpu")
def _on_cpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Choose one of the kernels of `registers`, and the block of results per invocation.

    The block has at most 8 rows, and several columns if the result is wide enough.
    """
    # `caps.kind` is "cpu" for a Vulkan driver on the CPU; the device "cpu", of kind "llvm-cpu", has a variant of its
    # own, and comes here only if the class "cpu" is forced
    caps = c.device.caps
    rows, columns, size = *c.shape[1:], caps.subgroup_size
    if caps.kind == "interpreter":  # a single result per invocation: operations cost time there, invocations don't
        multiply_registers(a, b, c, accumulate, 1, 1, size)
    elif caps.kind == "llvm-cpu" or rows < 4 or "subgroup_shuffle" not in caps.features:
        multiply_registers(a, b, c, accumulate, min(rows, 8), 2 if columns > size else 1, size)
    elif accumulate is vk.f32 and readable_as_pairs(a) and readable_as_pairs(b):
        multiply_pairs(as_pairs(a), as_pairs(b), c, min(8, size), 2 if columns > 2 * size else 1, size)
    else:
        multiply_broadcast(a, b, c, accumulate, min(8, size), 4 if columns > 2 * size else 1, size)


@variant("matmul", "llvm-cpu")
def _on_llvm_cpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Use dot products for few columns, else `multiply_panels`, with blocks of results that fit into the registers."""
    size = c.device.caps.subgroup_size
    if c.shape[2] <= MAX_DOT_COLUMNS and a.strides[2] == 1 and a.shape[2] >= 4 * size:
        multiply_dots(a, b, c, accumulate, size, 4 if c.shape[1] >= 4 else 1, c.shape[2])
        return
    if c.shape[2] < min(size, c.shape[1]):  # few columns: transpose, so that lanes run along the longer axis
        a, b, c = _transposed(b), _transposed(a), _transposed(c)
    groups, rows, columns = c.shape
    # Up to 6 x 4 vectors of results, or 6 x 2 with fewer than 16 lanes: with the vectors of the panel, they fill the 32
    # (or 16) vector registers of such a CPU.
    max_across = 4 if size >= 16 else 2
    vectors_per_row = min(max_across, vk.cdiv(columns, size))
    rows_per_block = min(rows, 6)
    tiles = groups * vk.cdiv(columns, size * vectors_per_row) * vk.cdiv(rows, rows_per_block)
    # several blocks share a packed panel of b, if enough workgroups remain
    blocks = 16 if tiles >= 16 * MIN_GROUPS else 4 if tiles >= 4 * MIN_GROUPS else 1
    multiply_panels(a, b, c, accumulate, size, rows_per_block, vectors_per_row, blocks)


def _transposed(array: DeviceArray) -> DeviceArray:
    """Return a view of the batch with every matrix transposed."""
    (g, m, n), (s, t, u) = array.shape, array.strides
    return DeviceArray(array.buffer, array.offset, array.dtype, (g, n, m), (s, u, t))
