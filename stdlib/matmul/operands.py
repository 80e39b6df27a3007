"""GEMM operands accessed as 16-byte vectors.

`flat_operand` views a batch of row-major or column-major matrices as a flat array of 32-bit words with strides in vectors;
`load_tile_vector` loads a vector of a tile of it in a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.runtime.device import DeviceArray

__all__ = ["Operand", "flat_operand", "load_tile_vector", "load_vector"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A batch of matrices as a flat array.

    `words` is the memory from the first element on. `line_stride` and `batch_stride` are the strides of lines and
    matrices in 16-byte vectors. `along_last_axis` is true if the vectors lie along the array's last axis.
    """

    words: DeviceArray
    line_stride: int
    batch_stride: int
    along_last_axis: bool


def flat_operand(array: DeviceArray, word: Any) -> Operand | None:
    """View an array as an operand of 4-byte words; None unless it consists of whole 16-byte-aligned vectors."""
    each = 16 // array.dtype.itemsize
    along = array.strides[2] == 1 and (array.strides[1] != 1 or array.shape[2] > 1)
    inner, outer = (2, 1) if along else (1, 2)
    line, batch = array.strides[outer], array.strides[0]
    if array.strides[inner] != 1 or array.shape[inner] % each or array.offset % 16:
        return None
    if line % each or batch % each or line < array.shape[inner] or batch < 0:
        return None
    last = batch * (array.shape[0] - 1) + line * (array.shape[outer] - 1) + array.shape[inner]
    words = last * array.dtype.itemsize // 4
    if words >= 1 << 31:  # offsets are computed in 32 bits
        return None
    return Operand(DeviceArray(array.buffer, array.offset, word, (words,), (1,)), line // each, batch // each, along)


@vk.func
def load_vector(x, base, ld, line, column, inside, T, EXACT):
    """Load the 16-byte vector at a line and column, or 0 unless `inside`. EXACT: `inside` isn't checked.

    `base`, the line stride `ld` and `column` are in vectors.
    """
    p = (base + line * ld + column) * 4
    if EXACT:
        return vk.vec(T, 4)(x[p], x[p + 1], x[p + 2], x[p + 3])
    else:
        return vk.vec(T, 4)(
            vk.where(inside, x[p], 0), vk.where(inside, x[p + 1], 0), vk.where(inside, x[p + 2], 0),
            vk.where(inside, x[p + 3], 0),
        )  # fmt: skip


@vk.func
def load_tile_vector(x, base, ld, k, first, last, depth, r, c, T, ALONG, E, EXACT, EDGES):
    """Load the vector at line r, column c of a tile that begins at vector k along K and at `first` across it.

    ALONG: the vectors lie along K, and `first` and `last` count lines. Otherwise lines are indexed by K (E lines per unit of
    k), and `first` and `last` count vectors. EDGES: the tile may extend past `last`, which is then loaded instead; its results
    are never stored. Unless EXACT, loads past `depth`, the end of K in vectors, are clamped to be valid and return 0.
    """
    if ALONG:
        line, column = first + r, k + c
        inside = column < depth
        if EDGES:
            line = vk.min(line, last)
        if not EXACT:
            column = vk.min(column, depth - 1)
        return load_vector(x, base, ld, line, column, inside, T, EXACT)
    else:
        line, column = k * E + r, first + c
        inside = line < depth * E
        if EDGES:
            column = vk.min(column, last)
        if not EXACT:
            line = vk.min(line, depth * E - 1)
        return load_vector(x, base, ld, line, column, inside, T, EXACT)
