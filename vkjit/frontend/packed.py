"""Floats of 8 bits in kernels: decoding what memory holds, encoding what is stored.

Enters: elements of type u8, and numbers. Leaves: f32 values and u8 elements, by integer operations alone, the same on every
device. Values are exact; encoding rounds to nearest, ties to even.
"""

from __future__ import annotations

import math

from .. import dtypes
from ..ir.core import Value
from ..ir.types import Scalar
from ..lang.packed import PackedFloat
from .calls import callable_values
from .context import Call, Context, Place
from .conversions import as_stored, convert, dtype_of_value
from .resolve import also_capturable
from .values import KernelValue, describe_value, is_literal, is_scalar

__all__ = ["decoded", "encoded"]

_SIGN, _EXPONENT = 0x80, 23
_F32 = Scalar(dtypes.f32)


def decoded(ctx: Context, kind: PackedFloat, bits: Value) -> Value:
    """The number that 8 bits stand for, f32."""
    b = ctx.builder
    word = b.cast(bits, dtypes.u32)

    def number(value: int) -> Value:
        return b.const(value, dtypes.u32)

    size = b.emit("and", word, number(_SIGN - 1))
    sign = b.emit("shl", b.emit("and", word, number(_SIGN)), number(24))
    moved = b.emit("shl", size, number(_EXPONENT - kind.mantissa))
    normal = b.emit("add", moved, number((127 - kind.bias) << _EXPONENT))
    unit = b.const(math.ldexp(1.0, 1 - kind.bias - kind.mantissa), dtypes.f32)
    small = b.emit("bitcast", b.emit("mul", b.cast(size, dtypes.f32), unit), type=Scalar(dtypes.u32))
    found = b.emit("select", b.emit("lt", size, number(1 << kind.mantissa)), small, normal)
    if kind.overflow != kind.nan:
        found = b.emit("select", b.emit("eq", size, number(kind.overflow)), number(0x7F800000), found)
    special = b.emit("gt", size, number(max(kind.largest, kind.overflow if kind.overflow != kind.nan else 0)))
    found = b.emit("select", special, number(0x7FC00000), found)
    return b.emit("bitcast", b.emit("or", found, sign), type=_F32)


def encoded(ctx: Context, node: Place, kind: PackedFloat, value: KernelValue) -> Value:
    """The 8 bits of the nearest number, u8."""
    if is_scalar(value) and dtype_of_value(value) is dtypes.f64:
        raise ctx.error(node, f"an f64 isn't rounded to {kind!r} silently", "convert it where you mean it: vk.f32(x)")
    b = ctx.builder
    single = as_stored(ctx, node, value, _F32)

    def number(value: int) -> Value:
        return b.const(value, dtypes.u32)

    bits = b.emit("bitcast", single, type=Scalar(dtypes.u32))
    size = b.emit("and", bits, number(0x7FFFFFFF))
    sign = b.emit("and", b.emit("shr", bits, number(24)), number(_SIGN))
    dropped = _EXPONENT - kind.mantissa
    least = (127 - kind.bias + 1) << _EXPONENT
    rebiased = b.emit("sub", size, number((127 - kind.bias) << _EXPONENT))
    odd = b.emit("and", b.emit("shr", rebiased, number(dropped)), number(1))
    rounded = b.emit("add", b.emit("add", rebiased, number((1 << (dropped - 1)) - 1)), odd)
    normal = b.emit("shr", rounded, number(dropped))
    scale = b.const(math.ldexp(1.0, kind.bias - 1 + kind.mantissa), dtypes.f32)
    is_small = b.emit("lt", size, number(least))
    # what is large never reaches the product, so that it can't overflow an integer
    magnitude = b.emit("select", is_small, b.emit("bitcast", size, type=_F32), b.const(0.0, dtypes.f32))
    small = b.cast(b.emit("round", b.emit("mul", magnitude, scale)), dtypes.u32)
    found = b.emit("select", is_small, small, normal)
    found = b.emit("select", b.emit("gt", found, number(kind.largest)), number(kind.overflow), found)
    found = b.emit("select", b.emit("gt", size, number(0x7F800000)), number(kind.nan), found)
    return b.cast(b.emit("or", found, sign), dtypes.u8)


def _is_packed(value: object) -> bool:
    return isinstance(value, PackedFloat)


also_capturable(_is_packed)


@callable_values(_is_packed)
def _rounded(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """`vk.f8e4m3(x)`: the nearest number of that type, as f32."""
    assert isinstance(callee, PackedFloat)
    if len(call.args) != 1 or call.keywords:
        raise ctx.error(call.node, f"{callee!r}(x) takes one value, found {len(call.args) + len(call.keywords)}")
    value = call.args[0]
    if not (is_literal(value) or is_scalar(value)):
        raise ctx.error(call.node, f"{callee!r}(x) takes a number, found {describe_value(value)}")
    return decoded(ctx, callee, encoded(ctx, call.node, callee, convert(ctx, call.node, value, dtypes.f32)))
