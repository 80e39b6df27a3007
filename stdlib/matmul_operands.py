"""Operands of products, read in vectors of 16 bytes.

Enters: arrays of three axes. Leaves: their memory as a plain array of words, with the distances between lines and between
matrices in vectors; and, in kernels, a vector of a tile, wherever its lines lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

__all__ = ["Operand", "fetch", "flat_operand", "part"]


@dataclass(frozen=True, slots=True)
class Operand:
    """`words`: the memory from the first element on; `line`, `batch`: distances in vectors of 16 bytes. `along`: vectors
    lie along the array's last axis.
    """

    words: DeviceArray
    line: int
    batch: int
    along: bool


def flat_operand(array: DeviceArray, word: Any) -> Operand | None:
    """The operand as words of a type of 4 bytes; None for an array that isn't made of whole aligned vectors."""
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
def fetch(x, base, ld, line, column, inside, T, EXACT):
    """The vector of 16 bytes at a line and column (in vectors), 0 where it isn't inside."""
    p = (base + line * ld + column) * 4
    if EXACT:
        return vk.vec(T, 4)(x[p], x[p + 1], x[p + 2], x[p + 3])
    else:
        return vk.vec(T, 4)(
            vk.where(inside, x[p], 0), vk.where(inside, x[p + 1], 0), vk.where(inside, x[p + 2], 0),
            vk.where(inside, x[p + 3], 0),
        )  # fmt: skip


@vk.func
def part(x, base, ld, k, first, last, depth, r, c, T, ALONG, E, EXACT, EDGES):
    """A vector of a tile: line r and column c of it, the tile beginning at vector k of the depth and at `first`.

    ALONG: vectors lie along the depth, lines across it (`first`, `last` count lines); else lines lie along the depth
    (there are E per vector of k), and `first`, `last` count vectors.
    """
    if ALONG:
        line, column = first + r, k + c
        inside = column < depth
        if EDGES:
            line = vk.min(line, last)
        if not EXACT:
            column = vk.min(column, depth - 1)
        return fetch(x, base, ld, line, column, inside, T, EXACT)
    else:
        line, column = k * E + r, first + c
        inside = line < depth * E
        if EDGES:
            column = vk.min(column, last)
        if not EXACT:
            line = vk.min(line, depth * E - 1)
        return fetch(x, base, ld, line, column, inside, T, EXACT)
