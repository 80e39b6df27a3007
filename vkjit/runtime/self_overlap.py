"""Detection of arrays whose elements overlap in memory.

Concurrent writes to overlapping elements are races, so arrays whose shape and strides are certain to make elements
overlap may only be read.
"""

from __future__ import annotations

import functools
import itertools
import math

__all__ = ["elements_overlap"]


@functools.lru_cache(maxsize=1024)
def elements_overlap(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Return True if elements of `size` are certain to overlap.

    Strides and `size` are in the same unit. Exact for up to two axes; otherwise checks the total extent and pairs of
    axes.
    """
    if 0 in shape:
        return False
    axes, reach = sorted((abs(step), extent) for step, extent in zip(strides, shape, strict=True) if extent > 1), size
    if all(step >= reach and (reach := reach + (extent - 1) * step) for step, extent in axes):
        return False
    span = size + sum((extent - 1) * step for step, extent in axes)
    if axes[0][0] < size or math.prod(shape) * size > span:
        return True
    return any(_meet(first, second, size) for first, second in itertools.combinations(axes, 2))


def _meet(first: tuple[int, int], second: tuple[int, int], size: int) -> bool:
    """Return True if an offset along the first axis comes within `size` of one along the second.

    Axes are (stride, extent). The first axis has the smaller stride, of at least `size`.
    """
    (step, extent), (long_step, long_extent) = first, second
    common = math.gcd(step, long_step)
    cycle = step // common
    for apart in range(1 - size, size):
        if apart % common:
            continue
        # the smallest number of long steps for which adding `apart` gives a multiple of the small step
        steps = -(apart // common) * pow(long_step // common, -1, cycle) % cycle or cycle
        if steps < long_extent and (steps * long_step + apart) // step < extent:
            return True
    return False
