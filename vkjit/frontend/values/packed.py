"""8-bit floats in kernels: decode u8 elements to f32, encode numbers to u8.

The formats are described in `vkjit.lang.packed`; arrays store the bits as u8. The results are the same on every device:
only integer operations and exact float operations are used. Decoding is exact; encoding rounds to nearest, ties to
even.
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

_SIGN_BIT = 0x80
"""The sign bit of an 8-bit float. Shifted by `_SIGN_SHIFT`, it is that of an f32."""
_SIGN_SHIFT = 24
# The encoding of f32: the number of mantissa bits, the exponent's bias, and the bits of infinity and of a quiet NaN.
_F32_MANTISSA_BITS, _F32_BIAS = 23, 127
_F32_INFINITY, _F32_NAN = 0x7F800000, 0x7FC00000
_F32 = Scalar(dtypes.f32)


def decode(ctx: Context, kind: PackedFloat, bits: Value) -> Value:
    """Decode the bits (u8) of an 8-bit float of type `kind` to f32.

    The exponent and mantissa of a normal number are shifted to their place in an f32, and the exponent is changed from
    the bias `kind.bias` to the f32's bias of 127. A subnormal number is an integer multiple of the smallest subnormal.
    """
    has_infinity = kind.overflow != kind.nan  # otherwise numbers that are too large are encoded as NaN
    b = ctx.builder
    word = b.cast(bits, dtypes.u32)

    def u32_const(value: int) -> Value:
        return b.const(value, dtypes.u32)

    magnitude = b.emit("and", word, u32_const(_SIGN_BIT - 1))
    sign = b.emit("shl", b.emit("and", word, u32_const(_SIGN_BIT)), u32_const(_SIGN_SHIFT))
    aligned = b.emit("shl", magnitude, u32_const(_F32_MANTISSA_BITS - kind.mantissa))
    normal = b.emit("add", aligned, u32_const((_F32_BIAS - kind.bias) << _F32_MANTISSA_BITS))
    unit = b.const(math.ldexp(1.0, 1 - kind.bias - kind.mantissa), dtypes.f32)
    subnormal = b.emit("bitcast", b.emit("mul", b.cast(magnitude, dtypes.f32), unit), type=Scalar(dtypes.u32))
    # An exponent of 0 means a subnormal number.
    result = b.emit("select", b.emit("lt", magnitude, u32_const(1 << kind.mantissa)), subnormal, normal)
    if has_infinity:
        result = b.emit("select", b.emit("eq", magnitude, u32_const(kind.overflow)), u32_const(_F32_INFINITY), result)
    # NaNs are the bit patterns above the largest finite number and, if the format has one, above the infinity.
    largest_non_nan = max(kind.largest, kind.overflow) if has_infinity else kind.largest
    is_nan = b.emit("gt", magnitude, u32_const(largest_non_nan))
    result = b.emit("select", is_nan, u32_const(_F32_NAN), result)
    return b.emit("bitcast", b.emit("or", result, sign), type=_F32)


def encode(ctx: Context, node: Place, kind: PackedFloat, value: KernelValue) -> Value:
    """Encode a number to the nearest 8-bit float of type `kind`, as u8.

    A normal result is computed on the bits of the f32: change the exponent's bias from 127 to `kind.bias`, round the
    mantissa (a carry correctly increments the exponent), and shift. A subnormal result is the value in multiples of the
    smallest subnormal number, rounded to an integer. Numbers above the largest finite one become `kind.overflow`.
    """
    if is_scalar(value) and dtype_of_value(value) is dtypes.f64:
        raise ctx.error(node, f"an f64 isn't rounded to {kind!r} silently", "convert it where you mean it: vk.f32(x)")
    b = ctx.builder
    single = as_stored(ctx, node, value, _F32)

    def u32_const(value: int) -> Value:
        return b.const(value, dtypes.u32)

    bits = b.emit("bitcast", single, type=Scalar(dtypes.u32))
    abs_bits = b.emit("and", bits, u32_const(0x7FFFFFFF))  # all but the sign
    sign = b.emit("and", b.emit("shr", bits, u32_const(_SIGN_SHIFT)), u32_const(_SIGN_BIT))
    dropped = _F32_MANTISSA_BITS - kind.mantissa  # the number of mantissa bits that are rounded away
    # The f32 bits of the format's smallest normal number, which has the exponent 1 in the format.
    min_normal = (_F32_BIAS - kind.bias + 1) << _F32_MANTISSA_BITS
    rebiased = b.emit("sub", abs_bits, u32_const((_F32_BIAS - kind.bias) << _F32_MANTISSA_BITS))
    # Round to nearest, ties to even: add half a unit of the result, less 1 if the result's last bit is 0, and truncate.
    odd = b.emit("and", b.emit("shr", rebiased, u32_const(dropped)), u32_const(1))
    rounded = b.emit("add", b.emit("add", rebiased, u32_const((1 << (dropped - 1)) - 1)), odd)
    normal = b.emit("shr", rounded, u32_const(dropped))
    scale = b.const(math.ldexp(1.0, kind.bias - 1 + kind.mantissa), dtypes.f32)
    is_small = b.emit("lt", abs_bits, u32_const(min_normal))
    # Replace large magnitudes by 0, so that the product fits into an integer; `select` takes the other result for them.
    magnitude = b.emit("select", is_small, b.emit("bitcast", abs_bits, type=_F32), b.const(0.0, dtypes.f32))
    subnormal = b.cast(b.emit("round", b.emit("mul", magnitude, scale)), dtypes.u32)
    result = b.emit("select", is_small, subnormal, normal)
    result = b.emit("select", b.emit("gt", result, u32_const(kind.largest)), u32_const(kind.overflow), result)
    # Bits above those of infinity are a NaN.
    result = b.emit("select", b.emit("gt", abs_bits, u32_const(_F32_INFINITY)), u32_const(kind.nan), result)
    return b.cast(b.emit("or", result, sign), dtypes.u8)


def _is_packed(value: object) -> bool:
    return isinstance(value, PackedFloat)


also_capturable(_is_packed)


@callable_values(_is_packed)
def _rounded(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """Lower `vk.f8e4m3(x)` and `vk.f8e5m2(x)`: round x to the nearest 8-bit float and return it as f32."""
    assert isinstance(callee, PackedFloat)
    if len(call.args) != 1 or call.keywords:
        raise ctx.error(call.node, f"{callee!r}(x) takes one value, found {len(call.args) + len(call.keywords)}")
    value = call.args[0]
    if not (is_literal(value) or is_scalar(value)):
        raise ctx.error(call.node, f"{callee!r}(x) takes a number, found {describe_value(value)}")
    return decode(ctx, callee, encode(ctx, call.node, callee, convert(ctx, call.node, value, dtypes.f32)))
