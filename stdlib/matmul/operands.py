"""Matrix operands accessed as 16-byte vectors, for the kernels of `cooperative` and `vec4`.

A *line* of an operand is a row of a row-major matrix, or a column of a column-major one: its contiguous axis.
`flat_operand` views a batch of such matrices as a flat array of 32-bit words with strides in vectors. In a kernel,
`load_tile_vector` loads a vector of a tile of this array.
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

    `words` is the memory from the first element on, as 32-bit words. `line_stride` and `batch_stride` are the strides
    of lines and matrices in 16-byte vectors. `along_last_axis` is true if lines, and thus vectors, lie along the
    array's last axis.
    """

    words: DeviceArray
    line_stride: int
    batch_stride: int
    along_last_axis: bool


def flat_operand(array: DeviceArray, word: Any) -> Operand | None:
    """View an array with three axes as an operand of words of the 4-byte type `word`.

    Return None unless its lines consist of whole vectors, aligned to 16 bytes.
    """
    each = 16 // array.dtype.itemsize  # elements per vector
    # if both strides are 1, one of the extents is 1, and the lines lie along the other axis
    along = array.strides[2] == 1 and (array.strides[1] != 1 or array.shape[2] > 1)
    inner, outer = (2, 1) if along else (1, 2)  # the axis along the lines, and the axis across them
    line, batch = array.strides[outer], array.strides[0]
    if array.strides[inner] != 1 or array.shape[inner] % each or array.offset % 16:
        return None
    # lines and matrices must be whole vectors apart, and lines must not overlap
    if line % each or batch % each or line < array.shape[inner] or batch < 0:
        return None
    elements = batch * (array.shape[0] - 1) + line * (array.shape[outer] - 1) + array.shape[inner]  # up to the last one
    words = elements * array.dtype.itemsize // 4
    if words >= 1 << 31:  # offsets are computed in 32 bits
        return None
    return Operand(DeviceArray(array.buffer, array.offset, word, (words,), (1,)), line // each, batch // each, along)


@vk.func
def load_vector(x, base, line_stride, line, column, inside, T, EXACT):
    """Load a 16-byte vector of four words of type T, or zeros unless `inside`. With EXACT, `inside` isn't checked.

    `column` is the index of the vector in its line. `base`, the start of the matrix, and `line_stride`, the stride of
    lines, are in vectors, too.
    """
    p = (base + line * line_stride + column) * 4
    if EXACT:
        return vk.vec(T, 4)(x[p], x[p + 1], x[p + 2], x[p + 3])
    else:
        return vk.vec(T, 4)(
            vk.where(inside, x[p], 0), vk.where(inside, x[p + 1], 0), vk.where(inside, x[p + 2], 0),
            vk.where(inside, x[p + 3], 0),
        )  # fmt: skip


@vk.func
def load_tile_vector(x, base, line_stride, k, first, last, depth, r, c, T, ALONG, E, EXACT, EDGES):
    """Load the vector at line r, vector c of a tile of x, as four words of type T.

    Along K, the tile begins at k, counted in vectors of E elements. Along the other axis, it begins at `first`, and
    `last` is the last index of the matrix. ALONG: the vectors lie along K, and `first` and `last` count lines.
    Otherwise there is a line for each k, and `first` and `last` count vectors. `base` and `line_stride` are the offset
    of the matrix and the stride of lines, in vectors.

    EDGES: the tile may extend past `last`. Line or vector `last` is then loaded instead; the results that use it are
    never stored. Unless EXACT, loads past `depth`, the end of K in vectors, return 0; their addresses are clamped to be
    valid.
    """
    if ALONG:
        line, column = first + r, k + c
        inside = column < depth
        if EDGES:
            line = vk.min(line, last)
        if not EXACT:
            column = vk.min(column, depth - 1)
        return load_vector(x, base, line_stride, line, column, inside, T, EXACT)
    else:
        line, column = k * E + r, first + c
        inside = line < depth * E
        if EDGES:
            column = vk.min(column, last)
        if not EXACT:
            line = vk.min(line, depth * E - 1)
        return load_vector(x, base, line_stride, line, column, inside, T, EXACT)
