"""Reduced-precision f32 matrix products on bf16 cooperative matrices with f32 accumulation, if the user permits it.

`set_matmul_precision` sets the permitted precision, and `dispatch.multiply` calls `multiply_reduced` first. The setting
bounds the error of each result, relative to the sum of |a[i, k]| |b[k, j]| over k, as follows, where K is the number of
products summed:

    highest   (K + 1) 2**-23: plain f32
    high      2**-14.3 + (3 K + 1) 2**-23: operands are split into two bf16 terms, and three of the four products are summed
    medium    2**-6.99 + (K + 1) 2**-23: operands are rounded to bf16

bf16 has the exponent range of f32: a result overflows only if it is within this error of the largest f32 number.
Infinities and NaN behave as in f32. f32 is always used on devices without bf16 matrices, for small products, and if the
layout of the result doesn't allow cooperative matrices to be stored to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.device import DeviceArray, DeviceCaps
from vkjit.runtime.dispatch_cache import renew
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.matmul.cooperative_plan import multiply_coopmat
from vkjit.stdlib.partial_sums import scratch

__all__ = ["get_matmul_precision", "multiply_reduced", "set_matmul_precision"]

PRECISIONS = ("highest", "high", "medium")
MAX_BF16 = 3.3895313892515355e38
"""The largest finite bf16 number."""
MIN_MULTIPLY_ADDS = 1 << 24
"""Minimum number of multiply-adds at which converting the operands pays off."""


@dataclass(slots=True)
class _Setting:
    """The process-wide setting of `set_matmul_precision`."""

    precision: str = "highest"


_setting = _Setting()


def set_matmul_precision(precision: str) -> None:
    """Set the precision of f32 matrix products for the whole process: "highest" (the default), "high" or "medium".

    This is a permission, used on devices with bf16 cooperative matrices. "high" keeps errors below 2**-14.3 of the sum
    of the products' magnitudes, "medium" below 2**-6.99, in addition to those of f32 accumulation. Raises
    `ArgumentError` for any other value.
    """
    if precision not in PRECISIONS:
        options = ", ".join(map(repr, PRECISIONS))
        raise ArgumentError(f"the precision of products is one of {options}, found {precision!r}")
    _setting.precision = precision
    renew()


def get_matmul_precision() -> str:
    """Return the current setting of `set_matmul_precision`."""
    return _setting.precision


@vk.func
def round_to_bf16(x):
    """Round x to bf16; finite values beyond the range saturate to the largest finite number."""
    if vk.isfinite(x):
        return vk.bf16(vk.min(vk.max(x, -MAX_BF16), MAX_BF16))
    return vk.bf16(x)


@vk.kernel(over="y", debug=False)
def convert_to_bf16(x: vk.In[vk.f32, "G M K"], y: vk.Out[vk.bf16, "G R C"]):
    """y = x rounded to bf16, padded with zeros from (M, K) to (R, C)."""
    g, i, k = vk.index()
    y[g, i, k] = round_to_bf16(x.get(g, i, k, pad=0))


@vk.kernel(over="first", debug=False)
def split_to_bf16(
    x: vk.In[vk.f32, "G M K"],
    first: vk.Out[vk.bf16, "G R C"],
    again: vk.Out[vk.bf16, "G R C"],
    rest: vk.Out[vk.bf16, "G R C"],
):
    """Split x into two bf16 terms, x ~ first + rest, padded with zeros from (M, K) to (R, C).

    `first` is x rounded to bf16, `rest` the remainder x - first rounded to bf16. `again` is a second copy of `first`.
    The product of a and b, both split, is approximated by three products of bf16:
    a.first * b.first + a.again * b.rest + a.rest * b.again. Where x is infinite or NaN, `again` and `rest` are 0, so
    that such an element contributes only to the first of these products.
    """
    g, i, k = vk.index()
    value = x.get(g, i, k, pad=0)
    high = round_to_bf16(value)
    first[g, i, k] = high
    if vk.isfinite(value):
        again[g, i, k] = high
        rest[g, i, k] = vk.bf16(value - vk.f32(high))
    else:
        again[g, i, k] = vk.bf16(0)
        rest[g, i, k] = vk.bf16(0)


def multiply_reduced(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> bool:
    """Queue c = a @ b, a product of f32, on bf16 cooperative matrices.

    Return False, and queue nothing, if this isn't permitted, supported or worthwhile.
    """
    precision = _setting.precision
    if precision == "highest" or not (a.dtype is b.dtype is c.dtype is vk.f32):
        return False
    if math.prod(c.shape) * a.shape[2] < MIN_MULTIPLY_ADDS or not _has_bf16(c.device.caps):
        return False
    # `multiply_coopmat` requires of c that rows are contiguous and begin at multiples of 16 bytes; tested here before
    # the operands are converted in vain
    if c.shape[2] % 4 or c.offset % 16:
        return False
    if c.strides[2] != 1 or c.strides[1] != c.shape[2]:
        return False
    parts = 3 if precision == "high" else 1
    left, right = _pack_left(a, parts), _pack_right(b, parts)
    return multiply_coopmat(left, right, c)


def _has_bf16(caps: DeviceCaps) -> bool:
    """True if the device has bf16 cooperative matrices with f32 accumulation."""
    return native_shape(caps.matrices, "bf16", "bf16", "f32") is not None


def _round_up(extent: int) -> int:
    """Round an extent in bf16 elements up to whole 16-byte vectors."""
    return vk.cdiv(extent, 8) * 8


def _pack_left(a: DeviceArray, parts: int) -> DeviceArray:
    """Convert a from (G, M, K) to bf16 (G, M, parts * K'), where K' is K padded to whole 16-byte vectors.

    With `parts` = 1, a is rounded. With 3, the results `first`, `again` and `rest` of `split_to_bf16` are concatenated
    along K in this order; `_pack_right` concatenates those of b in the order `first`, `rest`, `again`. One matrix
    product over the longer K then computes first * first + again * rest + rest * again.
    """
    groups, rows, depth = a.shape[0], a.shape[1], _round_up(a.shape[2])
    packed = scratch((groups, rows, parts * depth), vk.bf16, a.device)
    pieces = [_view(packed, 2, n * depth, depth) for n in range(parts)]
    _convert(a, pieces, ("first", "again", "rest"))
    return packed


def _pack_right(b: DeviceArray, parts: int) -> DeviceArray:
    """Convert b from (G, K, N) to bf16 (G, parts * K', N'), where K' and N' are padded to whole 16-byte vectors.

    With `parts` = 1, b is rounded. With 3, the results `first`, `rest` and `again` of `split_to_bf16` are concatenated
    along K in this order, which matches that of `_pack_left`.
    """
    groups, depth, columns = b.shape[0], _round_up(b.shape[1]), _round_up(b.shape[2])
    packed = scratch((groups, parts * depth, columns), vk.bf16, b.device)
    pieces = [_view(packed, 1, n * depth, depth) for n in range(parts)]
    _convert(b, pieces, ("first", "rest", "again"))
    return packed


def _convert(x: DeviceArray, pieces: list[DeviceArray], order: tuple[str, str, str]) -> None:
    """Convert x to bf16: round it to a single piece, or store the results of `split_to_bf16` to three pieces.

    `order` names, for each of three pieces, the result of `split_to_bf16` that is stored to it.
    """
    if len(pieces) == 1:
        convert_to_bf16(x, pieces[0])
        return
    named: dict[str, Any] = dict(zip(order, pieces, strict=True))
    split_to_bf16(x, named["first"], named["again"], named["rest"])


def _view(array: DeviceArray, axis: int, start: int, count: int) -> DeviceArray:
    """Return a view of `count` elements along an axis, from `start` on."""
    shape = tuple(count if n == axis else e for n, e in enumerate(array.shape))
    offset = array.offset + start * array.strides[axis] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, shape, array.strides)
