"""Triangular matrices, padding, and coordinate grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.rows.copy_vec4 import supports_vec4, triangle_vec4
from vkjit.stdlib.scan_sort import scan as kernels

from ..dispatch import operation
from ..memory import allocate, as_int
from ..op_cache import cached
from ..tensor import Tensor
from . import creation, views
from .copies import copy_values
from .gather import index_select

__all__ = ["meshgrid", "pad", "tril", "triu"]

# -- triangles


@operation("triangle")
def triangle(x: Tensor, *, diagonal: int, upper: bool) -> Tensor:
    """Return a copy of x, whose last two axes are matrices, with one triangle set to 0.

    These are the elements above a diagonal, or if `upper` the elements below it. `diagonal` is the offset of that
    diagonal above the main one (negative: below).
    """
    out = allocate(x.shape, x.dtype, x.device)
    if 0 not in x.shape:
        shape = (math.prod(x.shape[:-2]), *x.shape[-2:])
        source = views.reshape(x, shape)._array
        target = DeviceArray(out.buffer, 0, out.dtype, shape, contiguous_strides(shape))
        if supports_vec4(source, target) and source.strides[2] == 1:
            triangle_vec4(source, target, diagonal, upper)
        else:
            kernels.triangle(source, target, diagonal, upper)
    return Tensor(out)


def _matrix(x: Tensor, name: str) -> Tensor:
    """Return x. Raises ShapeError if it has fewer than two axes."""
    if x.ndim < 2:
        raise ShapeError(f"{name}() takes matrices, found shape {x.shape}")
    return x


@cached("tril()")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the lower triangle of matrices: the elements above a diagonal are set to 0.

    `diagonal` is the offset of that diagonal above the main one (negative: below).
    """
    return triangle(_matrix(x, "tril"), diagonal=diagonal, upper=False)


@cached("triu()")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the upper triangle of matrices: the elements below a diagonal are set to 0.

    `diagonal` is the offset of that diagonal above the main one (negative: below).
    """
    return triangle(_matrix(x, "triu"), diagonal=diagonal, upper=True)


# -- padding


@operation("pad")
def _pad_constant(x: Tensor, *, widths: tuple[tuple[int, int], ...], value: float) -> Tensor:
    """Pad x with `value`. `widths` has the number of elements to add before and after each axis, none negative."""
    shape = tuple(e + low + high for e, (low, high) in zip(x.shape, widths, strict=True))
    out = creation.full(shape, value, dtype=x.dtype, device=x.device)
    starts = tuple(low for low, _ in widths)
    part = views.slice_view(out, starts=starts, sizes=x.shape, steps=(1,) * x.ndim)
    copy_values(x._array, part._array)
    return out


def _cropped(x: Tensor, widths: list[tuple[int, int]]) -> Tensor:
    """Return x without the elements that negative widths remove. `widths` has a pair (before, after) per axis."""
    for axis, (low, high) in enumerate(widths):
        if low < 0 or high < 0:
            start = max(-low, 0)
            size = x.shape[axis] - start - max(-high, 0)
            if size < 0:
                raise ShapeError(
                    f"pad(): widths {low} and {high} take away more than the {x.shape[axis]} elements of axis {axis}"
                )
            x = views.narrow(x, axis, start, size)
    return x


def _sources(extent: int, low: int, high: int, mode: str) -> Any:
    """Return, for each element of an axis padded by `low` and `high` elements, the index of the element it copies.

    `extent` is the size of the unpadded axis, `mode` that of `pad` except "constant".
    """
    positions = np.arange(-low, extent + high)
    if mode == "replicate":
        return np.clip(positions, 0, extent - 1)
    if mode == "circular":
        return positions % extent
    # "reflect": the indices run forwards, then back without repeating the ends, and so on
    period = max(2 * (extent - 1), 1)
    folded = np.abs(positions) % period
    return np.where(folded >= extent, period - folded, folded)


@cached("pad()")
def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad the last axes of x; negative widths crop.

    `pad` has the widths before and after the last axis, then those of the axis before it, and so on: (left, right, top,
    bottom, ...). `mode` is "constant" (pad with `value`), "reflect" (mirrored without repeating the edge), "replicate"
    (repeat the edge), or "circular".
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ArgumentError(f"pad() takes two widths per axis, for at most {x.ndim} axes; found {tuple(pad)}")
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ArgumentError(f'pad(mode=...) is "constant", "reflect", "replicate" or "circular", found {mode!r}')
    sizes = [as_int(width, "a width of pad()") for width in pad]
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    if (
        mode == "replicate"
        and 0 not in x.shape
        and all(e + low + high >= 0 for e, (low, high) in zip(x.shape, widths, strict=True))
    ):
        for axis, (low, high) in enumerate(widths):  # as in PyTorch, edges are those of the uncropped tensor
            if low or high:
                sources = _sources(x.shape[axis], low, high, mode)
                x = index_select(x, axis, creation.upload(sources, dtypes.i64, x.device))
        return x
    x = _cropped(x, widths)
    positive = tuple((max(low, 0), max(high, 0)) for low, high in widths)
    if mode == "constant":
        return _pad_constant(x, widths=positive, value=value)
    for axis, (low, high) in enumerate(positive):
        if not low and not high:
            continue
        limit = x.shape[axis] - (mode == "reflect")  # "reflect" doesn't repeat the edge
        if x.shape[axis] == 0 or (mode != "replicate" and max(low, high) > limit):
            raise ShapeError(
                f"pad(mode={mode!r}): widths {low} and {high} are too large for the {x.shape[axis]} elements of axis "
                f"{axis}"
            )
        index = creation.upload(_sources(x.shape[axis], low, high, mode), dtypes.i64, x.device)
        x = index_select(x, axis, index)
    return x


def meshgrid(*vectors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return the coordinates of all points of the grid that the vectors span, as one tensor per vector.

    The result's axis i belongs to vector i; `indexing="xy"` swaps the first two axes.
    """
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f'meshgrid(indexing=...) is "ij" or "xy", found {indexing!r}')
    tensors = tuple(vectors[0]) if len(vectors) == 1 and isinstance(vectors[0], (list, tuple)) else vectors
    for x in tensors:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"meshgrid() takes tensors, found a {type(x).__name__}: make one with vk.tensor(...)")
    swap = indexing == "xy" and len(tensors) > 1
    ordered = [tensors[1], tensors[0], *tensors[2:]] if swap else list(tensors)
    shape = tuple(x.numel() for x in ordered)
    grids = [
        views.expand(views.reshape(x, tuple(-1 if i == axis else 1 for i in range(len(shape)))), shape)
        for axis, x in enumerate(ordered)
    ]
    return (grids[1], grids[0], *grids[2:]) if swap else tuple(grids)
