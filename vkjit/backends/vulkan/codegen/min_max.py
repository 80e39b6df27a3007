"""Minimum and maximum as the language defines them: NaN propagates, and -0 is less than +0.

Also an order-preserving map from floats to integers, so that min and max reductions of floats can use integer
operations, which are exact in any order.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.types import Type

from .context import Context, dtype_of, lanes_of

__all__ = ["float_to_ordered", "ordered_extreme", "ordered_to_float"]


def ordered_extreme(ctx: Context, name: str, a: int, b: int, type_: Type) -> int:
    """Return the minimum or maximum of two values; `name` is "min" or "max"."""
    dtype, lanes, block = dtype_of(type_), lanes_of(type_), ctx.block
    type_id = ctx.type(type_)
    if not dtype.is_float:
        return block.glsl(f"{'S' if dtype.is_signed else 'U'}{name.capitalize()}", type_id, a, b)
    bools = ctx.shaped(ctx.writer.type_bool(), lanes)
    ints = ctx.shaped(ctx.writer.type_int(ctx.writer.info(ctx.scalar_type(dtype)).bits), lanes)
    a_wins = block.emit("OpFOrdLessThan" if name == "min" else "OpFOrdGreaterThan", bools, a, b)
    chosen = block.emit("OpSelect", type_id, a_wins, a, b)
    equal = block.emit("OpFOrdEqual", bools, a, b)
    bits = [block.emit("OpBitcast", ints, value) for value in (a, b)]
    # Equal values differ at most in the sign of zero: OR keeps the minus sign, AND drops it.
    merged = block.emit("OpBitwiseOr" if name == "min" else "OpBitwiseAnd", ints, *bits)
    chosen = block.emit("OpSelect", type_id, equal, block.emit("OpBitcast", type_id, merged), chosen)
    # If b is NaN, both comparisons were false, so `chosen` is b already.
    return block.emit("OpSelect", type_id, block.emit("OpIsNan", bools, a), a, chosen)


def _flip(ctx: Context, bits: int, width: int) -> int:
    """Invert the bits below the sign bit if the value is negative. The function is its own inverse."""
    ints = ctx.writer.type_int(width)
    block = ctx.block
    sign = block.emit("OpShiftRightArithmetic", ints, bits, ctx.writer.constant(ints, width - 1))
    mask = block.emit("OpBitwiseAnd", ints, sign, ctx.writer.constant(ints, (1 << (width - 1)) - 1))
    return block.emit("OpBitwiseXor", ints, bits, mask)


def float_to_ordered(ctx: Context, value: int, type_: Type, name: str) -> int:
    """Map a float scalar to a signed integer so that order is preserved and -0 is less than +0.

    NaN maps to the greatest integer if `name` is "max" and to the least if it is "min", so that the result is NaN.
    """
    dtype = dtype_of(type_)
    width = 32 if dtype is dtypes.bf16 else dtype.bits
    ints = ctx.writer.type_int(width)
    key = _flip(ctx, ctx.block.emit("OpBitcast", ints, value), width)
    nan = ctx.block.emit("OpIsNan", ctx.writer.type_bool(), value)
    last = (1 << (width - 1)) - 1 if name == "max" else 1 << (width - 1)
    return ctx.block.emit("OpSelect", ints, nan, ctx.writer.constant(ints, last), key)


def ordered_to_float(ctx: Context, key: int, type_: Type) -> int:
    """Invert `float_to_ordered`. The integer that represents NaN maps to a NaN."""
    dtype = dtype_of(type_)
    width = 32 if dtype is dtypes.bf16 else dtype.bits
    return ctx.block.emit("OpBitcast", ctx.type(type_), _flip(ctx, key, width))
