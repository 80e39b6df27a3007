"""Preparation of strided arrays for elementwise kernels: broadcast to a common shape, then merge axes.

The resulting views have the same shape, of the lowest possible rank (at least 1); contiguous arrays of one shape become
vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vkjit.errors import ShapeError
from vkjit.runtime.device import DeviceArray

__all__ = ["broadcast_shapes", "coalesce", "expand", "overlaps_itself"]

Shape = tuple[int, ...]


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the common shape to which the shapes broadcast. Raises ShapeError if there is none."""
    rank = max((len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            if extent == 1 or extent == result[axis]:
                continue
            if result[axis] != 1:
                raise ShapeError(
                    f"shapes {', '.join(map(str, shapes))} don't broadcast: along axis {axis - rank} the sizes are "
                    f"{result[axis]} and {extent}, expected equal sizes or 1"
                )
            result[axis] = extent
    return tuple(result)


def expand(array: DeviceArray, shape: Shape) -> DeviceArray:
    """Return the array as a view of `shape`; new and stretched axes have stride 0."""
    if array.shape == shape:
        return array
    missing = len(shape) - len(array.shape)
    strides = [0] * missing
    for extent, stride, target in zip(array.shape, array.strides, shape[missing:], strict=True):
        if extent not in (target, 1):
            raise ShapeError(f"a tensor of shape {array.shape} can't be expanded to {shape}")
        strides.append(stride if extent == target else 0)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, tuple(strides))


def coalesce(arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Drop axes of size 1, and merge adjacent axes that are contiguous with each other in every array.

    All arrays must have the same shape.
    """
    shape = arrays[0].shape
    if len(shape) == 1:
        return list(arrays)
    axes = [a for a, extent in enumerate(shape) if extent != 1]
    merged_shape: list[int] = []
    merged_strides: list[list[int]] = [[] for _ in arrays]
    for axis in axes:
        steps = [array.strides[axis] for array in arrays]
        if merged_shape and all(
            strides[-1] == step * shape[axis] for strides, step in zip(merged_strides, steps, strict=True)
        ):
            merged_shape[-1] *= shape[axis]
            for strides, step in zip(merged_strides, steps, strict=True):
                strides[-1] = step
            continue
        merged_shape.append(shape[axis])
        for strides, step in zip(merged_strides, steps, strict=True):
            strides.append(step)
    if not merged_shape:
        merged_shape = [1]
        merged_strides = [[1] for _ in arrays]
    return [
        DeviceArray(a.buffer, a.offset, a.dtype, tuple(merged_shape), tuple(strides))
        for a, strides in zip(arrays, merged_strides, strict=True)
    ]


_MAX_ENUMERATED = 1 << 20
"""Maximum number of elements of an array for which `overlaps_itself` lists all offsets and looks for duplicates."""


def overlaps_itself(shape: Shape, strides: Shape) -> bool:
    """True if several elements of an array share a memory location.

    If each stride exceeds the largest offset that the axes with smaller strides reach, no elements overlap. Otherwise
    all offsets are compared; for more than `_MAX_ENUMERATED` elements the result is True without a check.
    """
    reach = 0  # the largest offset, in elements, along the axes with smaller strides
    steps = sorted((abs(s), e) for e, s in zip(shape, strides, strict=True) if e > 1)
    for stride, extent in steps:
        if stride <= reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    count = math.prod(shape)
    # no comparison is needed: an empty array has no overlap, an array with a stride of 0 has one
    if count == 0 or steps[0][0] == 0 or count > _MAX_ENUMERATED:
        return count != 0
    offsets = np.zeros(shape, np.int64)
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        offsets += (np.arange(extent) * stride).reshape((-1,) + (1,) * (len(shape) - 1 - axis))
    return bool(np.unique(offsets).size < count)
