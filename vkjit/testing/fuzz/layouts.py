"""Random memory layouts for the arrays of generated programs.

The elements of an array don't overlap, except that read-only arrays may have a stride of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from vkjit.runtime.device import contiguous_strides

from .program import Layout

__all__ = ["contiguous", "strided"]


def contiguous(shape: Sequence[int], random: Random, fill: str = "data") -> Layout:
    """Return a C-order layout with a random offset in the buffer. `fill` is `Layout.fill`."""
    first = random.choice([0, 0, 1, 3, 8])
    total = first + _count(shape) + random.choice([0, 2])
    return Layout(tuple(shape), contiguous_strides(shape), first, max(total, 1), fill=fill)


def strided(shape: Sequence[int], random: Random, *, written: bool, fill: str = "data") -> Layout:
    """Return a layout with axes in random order and with padded and negative strides.

    `written` is False for read-only arrays; these sometimes have a stride of 0. `fill` is `Layout.fill`.
    """
    order = list(range(len(shape)))
    random.shuffle(order)
    strides, step = [0] * len(shape), random.choice([1, 1, 2, 3])
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
        step += random.choice([0, 0, 1, 4])
    if not written and shape and random.random() < 0.3:
        strides[random.randrange(len(shape))] = 0
    signed_strides = [-s if random.random() < 0.3 else s for s in strides]
    # offsets of the elements with the lowest and the highest address from the first element
    lowest = sum(s * (extent - 1) for s, extent in zip(signed_strides, shape, strict=True) if s < 0)
    highest = sum(s * (extent - 1) for s, extent in zip(signed_strides, shape, strict=True) if s > 0)
    first = random.choice([0, 0, 1, 5]) - lowest
    return Layout(tuple(shape), tuple(signed_strides), first, first + highest + 1 + random.choice([0, 3]), fill=fill)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
