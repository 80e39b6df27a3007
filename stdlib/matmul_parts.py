"""Long products with few results: parts of the depth as one batch of products, added in order afterwards.

Enters: arrays of three axes, and the function that multiplies. Leaves: c. The parts are views of the factors, so nothing is
copied; they are summed in the accumulator's type, in order, and the results are the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib.partial import dense, scratch, sum_parts

__all__ = ["multiply_in_parts", "parts_by_rule"]

Multiply = Callable[[DeviceArray, DeviceArray, DeviceArray, Any], object]

STEP = 64
"""Depths of parts are multiples of it: whole tiles, whole vectors of 16 bytes."""
SIDE = 64
"""Rows and columns of the smallest tile."""
FEW_TILES = 128
"""Tiles of results up to which a large GPU has processors left over."""
WANTED_TILES = 512
LEAST_DEPTH = 2048
"""Depth of a product from which on parts are worth their sums."""
LEAST_PART = 512
MOST_PARTS = 8


def parts_by_rule(c: DeviceArray, depth: int) -> int:
    """Parts that keep a large GPU busy with a product; 1 where it is busy without."""
    tiles = c.shape[0] * vk.cdiv(c.shape[1], SIDE) * vk.cdiv(c.shape[2], SIDE)
    if c.shape[0] != 1 or tiles > FEW_TILES or depth < LEAST_DEPTH:
        return 1
    return max(1, min(WANTED_TILES // max(tiles, 1), depth // LEAST_PART, MOST_PARTS))


def multiply_in_parts(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, parts: int, multiply: Multiply
) -> bool:
    """Queues the product on the device of c, in about so many parts, unless it has a batch or c isn't dense: then False.
    `multiply(a, b, c, accumulate)` queues a product of a batch.
    """
    depth = a.shape[2]
    if parts < 2 or c.shape[0] != 1 or not dense(c) or depth < 2 * STEP:
        return False
    chunk = vk.cdiv(vk.cdiv(depth, parts), STEP) * STEP
    whole, rest = divmod(depth, chunk)
    results = math.prod(c.shape)
    made = scratch((whole + (rest > 0), *c.shape[1:]), accumulate, c.device)
    multiply(_part(a, 2, 0, whole, chunk), _part(b, 1, 0, whole, chunk), _results(made, 0, whole), accumulate)
    if rest:
        start = whole * chunk
        multiply(_part(a, 2, start, 1, rest), _part(b, 1, start, 1, rest), _results(made, whole, 1), accumulate)
    sums = DeviceArray(made.buffer, made.offset, accumulate, (made.shape[0], results), (results, 1))
    sum_parts(sums, c)
    return True


def _part(array: DeviceArray, axis: int, start: int, count: int, length: int) -> DeviceArray:
    """A batch of `count` pieces of `length` elements along an axis, from `start` on."""
    stride = array.strides[axis]
    shape = tuple(length if n == axis else e for n, e in enumerate(array.shape))
    offset = array.offset + start * stride * array.dtype.itemsize
    return DeviceArray(
        array.buffer, offset, array.dtype, (count, *shape[1:]), (length * stride, array.strides[1], array.strides[2])
    )


def _results(made: DeviceArray, first: int, count: int) -> DeviceArray:
    offset = made.offset + first * made.strides[0] * made.dtype.itemsize
    return DeviceArray(made.buffer, offset, made.dtype, (count, *made.shape[1:]), made.strides)
