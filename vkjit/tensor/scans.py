"""Running sums, triangles of matrices, and padding.

Enters: tensors. Leaves: new tensors, recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError
from ..runtime.interface import DeviceArray, contiguous_strides
from ..stdlib import functions
from ..stdlib import scan as kernels
from . import creation, maps, views
from .copies import copy_values
from .dispatch import operation
from .indexing import index_select, three_axes
from .maps import arithmetic_type
from .reducing import line_limit
from .tensor import Tensor
from .views import axis_of

__all__ = ["cumsum", "meshgrid", "pad", "tril", "triu"]

MOST = 1024
"""Elements that one invocation sums up before lines are cut."""


@operation("cumsum")
def _cumsum(x: Tensor, *, dim: int, dtype: DType) -> Tensor:
    out = creation.allocate(x.shape, dtype, x.device)
    if 0 not in x.shape:
        _running(_last(three_axes(x._array, dim)), _last(three_axes(out, dim)), arithmetic_type(dtype))
    return Tensor(out)


def _last(array: DeviceArray) -> DeviceArray:
    """(before, along, after) as (before, after, along)."""
    (a, r, b), (p, q, s) = array.shape, array.strides
    return DeviceArray(array.buffer, array.offset, array.dtype, (a, b, r), (p, s, q))


def _running(x: DeviceArray, y: DeviceArray, accumulate: DType) -> None:
    """Sums up the lines of (a, b, r); long ones in segments, whose ends are then summed up and added."""
    a, b, n = x.shape
    limit = min(line_limit(x), MOST)
    if n <= MOST:
        ends = creation.allocate((a, b), y.dtype, x.device)
        kernels.running_sums(x, ends, y, accumulate, limit)
        return
    fewer = 0 if a <= b else 1
    for i in range(x.shape[fewer]):
        _running_long(_without(x, fewer, i), _without(y, fewer, i), accumulate, limit)


def _without(array: DeviceArray, axis: int, i: int) -> DeviceArray:
    """The slice of three axes at one place of an axis, without that axis."""
    offset = array.offset + i * array.strides[axis] * array.dtype.itemsize
    shape, strides = (tuple(v for n, v in enumerate(w) if n != axis) for w in (array.shape, array.strides))
    return DeviceArray(array.buffer, offset, array.dtype, shape, strides)


def _segments(array: DeviceArray, start: int, count: int, size: int) -> DeviceArray:
    """Segments of the lines of (b, r), as (b, count, size)."""
    line, step = array.strides
    offset = array.offset + start * step * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, (array.shape[0], count, size), (line, size * step, step))


def _running_long(x: DeviceArray, y: DeviceArray, accumulate: DType, limit: int) -> None:
    lines, n = x.shape
    size = min(MOST, max(32, math.isqrt(n)))
    whole, rest = divmod(n, size)
    ends = creation.allocate((lines, whole), accumulate, x.device)
    wide = creation.allocate((lines, n), accumulate, x.device)
    kernels.running_sums(_segments(x, 0, whole, size), ends, _segments(wide, 0, whole, size), accumulate, limit)
    if rest:
        last = creation.allocate((lines, 1), accumulate, x.device)
        begin = whole * size
        kernels.running_sums(_segments(x, begin, 1, rest), last, _segments(wide, begin, 1, rest), accumulate, limit)
    before = creation.allocate((lines, whole), accumulate, x.device)
    shape = (1, lines, whole)
    source, target = (DeviceArray(e.buffer, e.offset, e.dtype, shape, (0, whole, 1)) for e in (ends, before))
    _running(source, target, accumulate)
    zero = DeviceArray(before.buffer, 0, accumulate, (lines, whole, 1), (whole, 1, 0))
    copy_values(_segments(wide, 0, 1, size), _segments(y, 0, 1, size))
    for start, count, length, first in ((size, whole - 1, size, 0), (whole * size, 1, rest, whole - 1)):
        if not count or not length:
            continue
        added = DeviceArray(zero.buffer, first * accumulate.itemsize, accumulate, (lines, count, length), (whole, 1, 0))
        place = Tensor(_segments(y, start, count, length))
        maps.write_map(functions.add, (Tensor(_segments(wide, start, count, length)), Tensor(added)), place, accumulate)


def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along an axis; integers and bool in i64 unless dtype= says otherwise."""
    result = creation.as_dtype(dtype) if dtype is not None else x.dtype if x.dtype.is_float else dtypes.i64
    if x.ndim == 0:
        return views.reshape(cumsum(views.reshape(x, 1), 0, dtype=result), ())
    return _cumsum(x, dim=axis_of(dim, x.ndim, "cumsum"), dtype=result)


# -- triangles


@operation("triangle")
def triangle(x: Tensor, *, diagonal: int, upper: bool) -> Tensor:
    """x on one side of a diagonal of its last two axes, else 0."""
    out = creation.allocate(x.shape, x.dtype, x.device)
    if 0 not in x.shape:
        shape = (math.prod(x.shape[:-2]), *x.shape[-2:])
        source = views.reshape(x, shape)._array
        kernels.triangle(
            source, DeviceArray(out.buffer, 0, out.dtype, shape, contiguous_strides(shape)), diagonal, upper
        )
    return Tensor(out)


def _matrix(x: Tensor, name: str) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{name}() takes matrices, found shape {x.shape}")
    return x


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The matrices' part on and below a diagonal, 0 above it."""
    return triangle(_matrix(x, "tril"), diagonal=diagonal, upper=False)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The matrices' part on and above a diagonal, 0 below it."""
    return triangle(_matrix(x, "triu"), diagonal=diagonal, upper=True)


# -- padding


@operation("pad")
def _pad_constant(x: Tensor, *, widths: tuple[tuple[int, int], ...], value: float) -> Tensor:
    shape = tuple(e + low + high for e, (low, high) in zip(x.shape, widths, strict=True))
    out = creation.full(shape, value, dtype=x.dtype, device=x.device)
    starts = tuple(low for low, _ in widths)
    part = views.slice_view(out, starts=starts, sizes=x.shape, steps=(1,) * x.ndim)
    copy_values(x._array, part._array)
    return out


def _cropped(x: Tensor, widths: list[tuple[int, int]]) -> Tensor:
    """Negative widths take elements away."""
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
    """Which element each place of a padded axis shows."""
    places = np.arange(-low, extent + high)
    if mode == "replicate":
        return np.clip(places, 0, extent - 1)
    if mode == "circular":
        return places % extent
    period = max(2 * (extent - 1), 1)
    folded = np.abs(places) % period
    return np.where(folded >= extent, period - folded, folded)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """x with elements put before and after its last axes; negative widths take elements away.

    pad: (before, after) of the last axis, then of the one before it, and so on. mode: "constant" (`value`), "reflect"
    (mirrored without the edge), "replicate" (the edge), "circular".
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ArgumentError(f"pad() takes two widths per axis, for at most {x.ndim} axes; found {tuple(pad)}")
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ArgumentError(f'pad(mode=...) is "constant", "reflect", "replicate" or "circular", found {mode!r}')
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    x = _cropped(x, widths)
    positive = tuple((max(low, 0), max(high, 0)) for low, high in widths)
    if mode == "constant":
        return _pad_constant(x, widths=positive, value=value)
    for axis, (low, high) in enumerate(positive):
        if not low and not high:
            continue
        most = x.shape[axis] - (mode == "reflect")
        if x.shape[axis] == 0 or (mode != "replicate" and max(low, high) > most):
            raise ShapeError(
                f"pad(mode={mode!r}): widths {low} and {high} are too large for the {x.shape[axis]} elements of axis "
                f"{axis}"
            )
        index = creation.upload(_sources(x.shape[axis], low, high, mode), dtypes.i64, x.device)
        x = index_select(x, axis, index)
    return x


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of all points of a grid, one tensor per axis; `indexing="xy"` exchanges the first two axes."""
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f'meshgrid(indexing=...) is "ij" or "xy", found {indexing!r}')
    swap = indexing == "xy" and len(tensors) > 1
    ordered = [tensors[1], tensors[0], *tensors[2:]] if swap else list(tensors)
    shape = tuple(x.numel() for x in ordered)
    wide = [
        views.expand(views.reshape(x, tuple(-1 if i == axis else 1 for i in range(len(shape)))), shape)
        for axis, x in enumerate(ordered)
    ]
    return (wide[1], wide[0], *wide[2:]) if swap else tuple(wide)
