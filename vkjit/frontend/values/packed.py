"""8-bit floats in kernels: decode u8 elements to f32, encode numbers to u8.

The results are the same on every device: only integer operations and exact float operations are used. Decoding is
exact; encoding rounds to nearest, ties to even.
"""

from __future__ import annotations

import math

from vkjit import dtypes
from vkjit.ir.core import Value
from vkjit.ir.types import Scalar
from vkjit.lang.packed import PackedFloat

from ..context import Call, Context, Place
from ..intrinsics import callable_values
from ..kernel_values import KernelValue, describe_value, is_literal, is_scalar
from ..resolve import also_capturable
from .conversions import as_stored, convert, dtype_of_value

__all__ = ["decode", "encode"]

_SIGN_BIT, _F32_MANTISSA_BITS = 0x80, 23
_F32 = Scalar(dtypes.f32)


def decode(ctx: Context, kind: PackedFloat, bits: Value) -> Value:
    """Decode 8 bits to f32."""
    b = ctx.builder
    word = b.cast(bits, dtypes.u32)

    def number(value: int) -> Value:
        return b.const(value, dtypes.u32)

    magnitude = b.emit("and", word, number(_SIGN_BIT - 1))
    sign = b.emit("shl", b.emit("and", word, number(_SIGN_BIT)), number(24))
    aligned = b.emit("shl", magnitude, number(_F32_MANTISSA_BITS - kind.mantissa))
    normal = b.emit("add", aligned, number((127 - kind.bias) << _F32_MANTISSA_BITS))
    unit = b.const(math.ldexp(1.0, 1 - kind.bias - kind.mantissa), dtypes.f32)
    subnormal = b.emit("bitcast", b.emit("mul", b.cast(magnitude, dtypes.f32), unit), type=Scalar(dtypes.u32))
    result = b.emit("select", b.emit("lt", magnitude, number(1 << kind.mantissa)), subnormal, normal)
    if kind.overflow != kind.nan:
        result = b.emit("select", b.emit("eq", magnitude, number(kind.overflow)), number(0x7F800000), result)
    special = b.emit("gt", magnitude, number(max(kind.largest, kind.overflow if kind.overflow != kind.nan else 0)))
    result = b.emit("select", special, number(0x7FC00000), result)
    return b.emit("bitcast", b.emit("or", result, sign), type=_F32)


def encode(ctx: Context, node: Place, kind: PackedFloat, value: KernelValue) -> Value:
    """Encode a number to the nearest 8-bit float, as u8."""
    if is_scalar(value) and dtype_of_value(value) is dtypes.f64:
        raise ctx.error(node, f"an f64 isn't rounded to {kind!r} silently", "convert it where you mean it: vk.f32(x)")
    b = ctx.builder
    single = as_stored(ctx, node, value, _F32)

    def number(value: int) -> Value:
        return b.const(value, dtypes.u32)

    bits = b.emit("bitcast", single, type=Scalar(dtypes.u32))
    abs_bits = b.emit("and", bits, number(0x7FFFFFFF))
    sign = b.emit("and", b.emit("shr", bits, number(24)), number(_SIGN_BIT))
    dropped = _F32_MANTISSA_BITS - kind.mantissa
    min_normal = (127 - kind.bias + 1) << _F32_MANTISSA_BITS
    rebiased = b.emit("sub", abs_bits, number((127 - kind.bias) << _F32_MANTISSA_BITS))
    odd = b.emit("and", b.emit("shr", rebiased, number(dropped)), number(1))
    rounded = b.emit("add", b.emit("add", rebiased, number((1 << (dropped - 1)) - 1)), odd)
    normal = b.emit("shr", rounded, number(dropped))
    scale = b.const(math.ldexp(1.0, kind.bias - 1 + kind.mantissa), dtypes.f32)
    is_small = b.emit("lt", abs_bits, number(min_normal))
    # Zero out large magnitudes, so that the product fits into an integer.
    magnitude = b.emit("select", is_small, b.emit("bitcast", abs_bits, type=_F32), b.const(0.0, dtypes.f32))
    subnormal = b.cast(b.emit("round", b.emit("mul", magnitude, scale)), dtypes.u32)
    result = b.emit("select", is_small, subnormal, normal)
    result = b.emit("select", b.emit("gt", result, number(kind.largest)), number(kind.overflow), result)
    result = b.emit("select", b.emit("gt", abs_bits, number(0x7F800000)), number(kind.nan), result)
    return b.cast(b.emit("or", result, sign), dtypes.u8)


def _is_packed(value: object) -> bool:
    return isinstance(value, PackedFloat)


also_capturable(_is_packed)


@callable_values(_is_packed)
def _rounded(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """Lower `vk.f8e4m3(x)`: round to the nearest number of that type, as f32."""
    assert isinstance(callee, PackedFloat)
    if len(call.args) != 1 or call.keywords:
        raise ctx.error(call.node, f"{callee!r}(x) takes one value, found {len(call.args) + len(call.keywords)}")
    value = call.args[0]
    if not (is_literal(value) or is_scalar(value)):
        raise ctx.error(call.node, f"{callee!r}(x) takes a number, found {describe_value(value)}")
    return decode(ctx, callee, encode(ctx, call.node, callee, convert(ctx, call.node, value, dtypes.f32)))
