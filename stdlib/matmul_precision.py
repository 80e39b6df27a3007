"""Products of f32 in less precision, where the user allows it: on cooperative matrices of bf16, summed in f32.

Enters: arrays of f32 and what `set_matmul_precision` allows. Leaves: c, with errors of each result, relative to the sum of
|a[i, k]| |b[k, j]|, of at most (`K` products are summed, 2**-24 is half a unit of f32):

    highest   (K + 1) 2**-23, as f32 is: nothing is ever reduced
    high      2**-14.3 + (3 K + 1) 2**-23: each number is the sum of two of bf16, and three of the four products are summed
    medium    2**-6.99 + (K + 1) 2**-23: each number is rounded to bf16

bf16 has the exponents of f32, so nothing overflows that isn't as near to the largest number as that, and infinities and NaN are
what they are in f32. Devices without such matrices, small products, and layouts that matrices can't store to stay in f32,
whatever is allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.interface import DeviceArray, DeviceCaps
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.runtime.ways import renew
from vkjit.stdlib.matmul_matrices import multiply_by_matrices
from vkjit.stdlib.partial import scratch

__all__ = ["get_matmul_precision", "multiply_reduced", "set_matmul_precision"]

PRECISIONS = ("highest", "high", "medium")
LARGEST = 3.3895313892515355e38
"""The largest number of bf16."""
WORTH = 1 << 24
"""Multiply-adds of a product from which on it is worth taking numbers apart."""


@dataclass(slots=True)
class _Setting:
    """What is allowed now, in the whole process."""

    precision: str = "highest"


_setting = _Setting()


def set_matmul_precision(precision: str) -> None:
    """Says how precise products of f32 have to be, in the whole process: "highest" (the default), "high" or "medium".

    It is a permission: devices with cooperative matrices of bf16 use it. "high" keeps errors below 2**-14.3 of the sum of
    the products' magnitudes, "medium" below 2**-6.99, besides those of sums in f32. Raises ArgumentError for another word.
    """
    if precision not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise ArgumentError(f"the precision of products is one of {known}, found {precision!r}")
    _setting.precision = precision
    renew()


def get_matmul_precision() -> str:
    """What `set_matmul_precision` was told last."""
    return _setting.precision


@vk.func
def high_part(x):
    """The number of bf16 next to x; the largest one for finite numbers beyond it."""
    if vk.isfinite(x):
        return vk.bf16(vk.min(vk.max(x, -LARGEST), LARGEST))
    return vk.bf16(x)


@vk.kernel(over="y", debug=False)
def rounded(x: vk.In[vk.f32, "G M K"], y: vk.Out[vk.bf16, "G R C"]):
    """y = x in bf16, 0 past its end."""
    g, i, k = vk.index()
    y[g, i, k] = high_part(x.get(g, i, k, pad=0))


@vk.kernel(over="first", debug=False)
def taken_apart(
    x: vk.In[vk.f32, "G M K"],
    first: vk.Out[vk.bf16, "G R C"],
    again: vk.Out[vk.bf16, "G R C"],
    rest: vk.Out[vk.bf16, "G R C"],
):
    """x = first + rest as far as two numbers of bf16 go, 0 past its end. `again` is `first` where that is finite, else 0, and
    there is no rest where x isn't finite: what is infinite is so in one product only.
    """
    g, i, k = vk.index()
    v = x.get(g, i, k, pad=0)
    high = high_part(v)
    first[g, i, k] = high
    if vk.isfinite(v):
        again[g, i, k] = high
        rest[g, i, k] = vk.bf16(v - vk.f32(high))
    else:
        again[g, i, k] = vk.bf16(0)
        rest[g, i, k] = vk.bf16(0)


def multiply_reduced(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> bool:
    """Queues a product of f32 on the matrices of the device of c, as far as the user allows it; else False."""
    precision = _setting.precision
    if precision == "highest" or not (a.dtype is b.dtype is c.dtype is vk.f32):
        return False
    if math.prod(c.shape) * a.shape[2] < WORTH or not _serves(c.device.caps) or c.shape[2] % 4 or c.offset % 16:
        return False
    if c.strides[2] != 1 or c.strides[1] != c.shape[2]:
        return False
    parts = 3 if precision == "high" else 1
    left, right = _left(a, parts), _right(b, parts)
    return multiply_by_matrices(left, right, c)


def _serves(caps: DeviceCaps) -> bool:
    return native_shape(caps.matrices, "bf16", "bf16", "f32") is not None


def _whole(extent: int) -> int:
    """The extent in whole vectors of 16 bytes."""
    return vk.cdiv(extent, 8) * 8


def _left(a: DeviceArray, parts: int) -> DeviceArray:
    """(G, M, K) as (G, M, parts * K'): the first part, the first again, the rest."""
    groups, rows, depth = a.shape[0], a.shape[1], _whole(a.shape[2])
    made = scratch((groups, rows, parts * depth), vk.bf16, a.device)
    pieces = [_view(made, 2, n * depth, depth) for n in range(parts)]
    _fill(a, pieces, ("first", "again", "rest"))
    return made


def _right(b: DeviceArray, parts: int) -> DeviceArray:
    """(G, K, N) as (G, parts * K', N'): the first part, the rest, the first again."""
    groups, depth, columns = b.shape[0], _whole(b.shape[1]), _whole(b.shape[2])
    made = scratch((groups, parts * depth, columns), vk.bf16, b.device)
    pieces = [_view(made, 1, n * depth, depth) for n in range(parts)]
    _fill(b, pieces, ("first", "rest", "again"))
    return made


def _fill(x: DeviceArray, pieces: list[DeviceArray], order: tuple[str, str, str]) -> None:
    if len(pieces) == 1:
        rounded(x, pieces[0])
        return
    named: dict[str, Any] = dict(zip(order, pieces, strict=True))
    taken_apart(x, named["first"], named["again"], named["rest"])


def _view(array: DeviceArray, axis: int, start: int, count: int) -> DeviceArray:
    """A part of an array along an axis."""
    shape = tuple(count if n == axis else e for n, e in enumerate(array.shape))
    offset = array.offset + start * array.strides[axis] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, shape, array.strides)
