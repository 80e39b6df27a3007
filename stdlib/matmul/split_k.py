"""Split-K for products with a large K and few results: K is divided into parts, computed as one batched product.

`by_rule` uses it on GPUs, with the number of parts from `split_k_parts`. The parts of the operands are views, so
nothing is copied. Partial sums are kept in the accumulator type and added in a fixed order afterwards, so that results
are reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.partial_sums import is_dense, scratch, sum_partials

__all__ = ["multiply_split_k", "split_k_parts"]

Multiply = Callable[[DeviceArray, DeviceArray, DeviceArray, Any], object]

STEP = 64
"""The K extent of a part is a multiple of this: whole tiles and whole 16-byte vectors."""
SIDE = 64
"""Rows and columns of the smallest tile."""
MAX_TILES = 128
"""Maximum number of output tiles for split-K; more keep a large GPU busy."""
TARGET_TILES = 512
"""Number of output tiles, over all parts, that split-K aims at."""
MIN_DEPTH = 2048
"""Minimum K at which split-K is worth the additional sums."""
MIN_PART_DEPTH = 512
"""Minimum extent of a part along K."""
MAX_PARTS = 8
"""Maximum number of split-K parts."""


def split_k_parts(c: DeviceArray, depth: int) -> int:
    """Return the number of split-K parts for a product with result c and K = `depth`; 1 if split-K doesn't pay off."""
    tiles = c.shape[0] * vk.cdiv(c.shape[1], SIDE) * vk.cdiv(c.shape[2], SIDE)
    if c.shape[0] != 1 or tiles > MAX_TILES or depth < MIN_DEPTH:
        return 1
    return max(1, min(TARGET_TILES // max(tiles, 1), depth // MIN_PART_DEPTH, MAX_PARTS))


def multiply_split_k(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, parts: int, multiply: Multiply
) -> bool:
    """Queue c = a @ b on the device of c in at most `parts` split-K parts.

    `multiply(a, b, c, accumulate)` queues a batched product with accumulator type `accumulate`. Return False, and queue
    nothing, if `parts` is 1, the batch isn't 1, c isn't dense, or K is too small to split.
    """
    depth = a.shape[2]
    if parts < 2 or c.shape[0] != 1 or not is_dense(c) or depth < 2 * STEP:
        return False
    chunk = vk.cdiv(vk.cdiv(depth, parts), STEP) * STEP
    full, remainder = divmod(
        depth, chunk
    )  # the number of parts of `chunk` elements, and the length of a last, shorter one
    results = math.prod(c.shape)
    partial = scratch((full + (remainder > 0), *c.shape[1:]), accumulate, c.device)
    # K is axis 2 of a and axis 1 of b
    multiply(_part(a, 2, 0, full, chunk), _part(b, 1, 0, full, chunk), _slice_parts(partial, 0, full), accumulate)
    if remainder:
        start = full * chunk
        multiply(
            _part(a, 2, start, 1, remainder),
            _part(b, 1, start, 1, remainder),
            _slice_parts(partial, full, 1),
            accumulate,
        )
    sums = DeviceArray(partial.buffer, partial.offset, accumulate, (partial.shape[0], results), (results, 1))
    sum_partials(sums, c)
    return True


def _part(array: DeviceArray, axis: int, start: int, count: int, length: int) -> DeviceArray:
    """View `count` consecutive pieces of `length` elements along an axis, the first from `start` on, as a batch."""
    stride = array.strides[axis]
    shape = tuple(length if n == axis else e for n, e in enumerate(array.shape))
    offset = array.offset + start * stride * array.dtype.itemsize
    return DeviceArray(
        array.buffer, offset, array.dtype, (count, *shape[1:]), (length * stride, array.strides[1], array.strides[2])
    )


def _slice_parts(partial: DeviceArray, first: int, count: int) -> DeviceArray:
    """View `count` parts of the partial sums, from the part `first` on."""
    offset = partial.offset + first * partial.strides[0] * partial.dtype.itemsize
    return DeviceArray(partial.buffer, offset, partial.dtype, (count, *partial.shape[1:]), partial.strides)
