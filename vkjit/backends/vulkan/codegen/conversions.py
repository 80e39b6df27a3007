"""Lowering of `cast` and `bitcast` of scalars and vectors.

`semantics.cast` defines the results: integers wrap, floats are truncated and saturated to integers (NaN gives 0), a
conversion to bool is `!= 0`, and f32 is rounded to the nearest bf16, ties to even. The result of OpConvertFToS and
OpConvertFToU is undefined for floats outside the integer type's range, so such values are replaced first, except in
`raw` casts, which assert that they don't occur.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar, Type
from vkjit.spirv import OpenBlock

from .context import Context, dtype_of, lanes_of
from .wide import from_words, zero_extended

__all__ = ["HANDLERS", "bits_to_value", "convert", "round_to_bf16", "sign_extended", "value_to_bits"]


def _cast(ctx: Context, op: Op) -> None:
    source, target = op.operands[0], op.attrs["type"]
    narrow = ctx.narrow.get(source)
    to = dtype_of(target)
    if narrow is not None and to.is_integer and to.bits == 32:
        ctx.values[op.result] = narrow[0]
        return
    raw = bool(op.attrs.get("raw"))
    ctx.values[op.result] = convert(ctx, ctx.get(source), source.type, target, raw=raw)
    _record_narrow(ctx, source, op.result)


def _record_narrow(ctx: Context, source: Value, result: Value) -> None:
    """Record in `ctx.narrow` that a 64-bit value is a sign-extended i32."""
    if source.type == Scalar(dtypes.i32) and result.type in (Scalar(dtypes.index), Scalar(dtypes.i64)):
        ctx.narrow[result] = (ctx.get(source), True)


def convert(ctx: Context, value: int, source: Type, target: Type, *, raw: bool = False) -> int:
    """Convert a value from IR type `source` to `target`. `raw` asserts that it is in the range of `target`."""
    a, b = dtype_of(source), dtype_of(target)
    if a is b:
        return value
    lanes = lanes_of(target)
    if b.kind == "bool":
        zero = ctx.number(ctx.scalar_type(a), 0, lanes)
        opname = "OpFUnordNotEqual" if a.is_float else "OpINotEqual"
        return ctx.block.emit(opname, ctx.shaped(ctx.writer.type_bool(), lanes), value, zero)
    if a.kind == "bool":
        one, zero = (ctx.constant(target, number) for number in (1, 0))
        return ctx.block.emit("OpSelect", ctx.type(target), value, one, zero)
    if a.is_float:
        if raw and b.is_integer:
            return ctx.block.emit("OpConvertFToS" if b.is_signed else "OpConvertFToU", ctx.type(target), value)
        return _from_float(ctx, value, a, b, lanes)
    if b.is_float:
        return _int_to_float(ctx, value, a, b, lanes)
    if a.bits == b.bits:
        return value
    if a.is_signed and a.bits == 32 and b.bits == 64:
        return sign_extended(ctx, ctx.block, value, lanes)
    if b.bits == 64 and not ctx.int64:
        word = convert(ctx, value, source, Scalar(dtypes.i32 if a.is_signed else dtypes.u32))
        return sign_extended(ctx, ctx.block, word) if a.is_signed else zero_extended(ctx, ctx.block, word)
    opname = "OpSConvert" if a.is_signed and b.bits > a.bits else "OpUConvert"
    return ctx.block.emit(opname, ctx.type(target), value)


def sign_extended(ctx: Context, block: OpenBlock, value: int, lanes: int = 1) -> int:
    """Sign-extend 32-bit integers to 64 bits.

    Does without OpSConvert on drivers with the quirk `widened_compare`, which miscompile comparisons of its result.
    """
    if not ctx.int64:
        return from_words(ctx, block, value, block.emit("OpShiftRightArithmetic", ctx.uint, value, ctx.word(31)))
    wide = ctx.shaped(ctx.ulong, lanes)
    if "widened_compare" not in ctx.caps.quirks:
        return block.emit("OpSConvert", wide, value)
    sign = ctx.number(ctx.ulong, 1 << 31, lanes)
    flipped = block.emit("OpBitwiseXor", wide, block.emit("OpUConvert", wide, value), sign)
    return block.emit("OpISub", wide, flipped, sign)


def _int_to_float(ctx: Context, value: int, a: DType, b: DType, lanes: int) -> int:
    opname = "OpConvertSToF" if a.is_signed else "OpConvertUToF"
    result = ctx.block.emit(opname, ctx.shaped(ctx.scalar_type(b), lanes), value)
    return round_to_bf16(ctx, result, lanes) if b is dtypes.bf16 else result


def _from_float(ctx: Context, value: int, a: DType, b: DType, lanes: int) -> int:
    if not b.is_float:
        return _float_to_int(ctx, value, a, b, lanes)
    carrier_a, carrier_b = ctx.scalar_type(a), ctx.scalar_type(b)
    if carrier_a != carrier_b:
        value = ctx.block.emit("OpFConvert", ctx.shaped(carrier_b, lanes), value)
    return round_to_bf16(ctx, value, lanes) if b is dtypes.bf16 else value


def _float_to_int(ctx: Context, value: int, a: DType, b: DType, lanes: int) -> int:
    """Truncate a float to an integer, saturated to the integer type's range; NaN gives 0."""
    block, writer = ctx.block, ctx.writer
    if a.bits == 16 and a is not dtypes.bf16:
        value = block.emit("OpFConvert", ctx.shaped(writer.type_float(32), lanes), value)
    scalar = writer.type_float(64 if a.bits == 64 else 32)
    floats, bools = ctx.shaped(scalar, lanes), ctx.shaped(writer.type_bool(), lanes)
    target = Scalar(b)
    ints = ctx.shaped(ctx.scalar_type(b), lanes)
    low = -(1 << (b.bits - 1)) if b.is_signed else 0
    high = 1 << (b.bits - 1 if b.is_signed else b.bits)
    above = block.emit("OpFOrdGreaterThanEqual", bools, value, ctx.number(scalar, float(high), lanes))
    least = ctx.number(scalar, float(low), lanes)
    inside = block.emit("OpFOrdGreaterThanEqual", bools, value, least)
    below = block.emit("OpFOrdLessThan", bools, value, least)
    inside = block.emit("OpLogicalAnd", bools, inside, block.emit("OpLogicalNot", bools, above))
    safe = block.emit("OpSelect", floats, inside, value, ctx.number(scalar, 0.0, lanes))
    result = block.emit("OpConvertFToS" if b.is_signed else "OpConvertFToU", ints, safe)
    result = block.emit("OpSelect", ints, above, ctx.splat(ctx.constant(target, high - 1), lanes), result)
    if not b.is_signed:
        return result
    return block.emit("OpSelect", ints, below, ctx.splat(ctx.constant(target, low), lanes), result)


def round_to_bf16(ctx: Context, value: int, lanes: int = 1) -> int:
    """Round an f32 to the nearest bf16, ties to even. The result is an f32."""
    block = ctx.block
    words, floats = ctx.shaped(ctx.uint, lanes), ctx.shaped(ctx.writer.type_float(32), lanes)
    bits = block.emit("OpBitcast", words, value)
    high = block.emit("OpShiftRightLogical", words, bits, ctx.number(ctx.uint, 16, lanes))
    odd = block.emit("OpBitwiseAnd", words, high, ctx.number(ctx.uint, 1, lanes))
    sum_ = block.emit("OpIAdd", words, bits, block.emit("OpIAdd", words, odd, ctx.number(ctx.uint, 0x7FFF, lanes)))
    rounded = block.emit("OpBitwiseAnd", words, sum_, ctx.number(ctx.uint, 0xFFFF0000, lanes))
    nan = block.emit("OpIsNan", ctx.shaped(ctx.writer.type_bool(), lanes), value)
    rounded = block.emit("OpSelect", words, nan, ctx.number(ctx.uint, 0x7FC00000, lanes), rounded)
    return block.emit("OpBitcast", floats, rounded)


def value_to_bits(ctx: Context, value: int, type_: Type) -> tuple[int, int]:
    """Return (id, SPIR-V type) of a value's bits, as integers of its dtype's width (16 for bf16).

    A bf16 must be rounded already. Raises InternalError for bool.
    """
    dtype, lanes = dtype_of(type_), lanes_of(type_)
    if dtype.kind == "bool":
        raise InternalError("a bool has no bits: convert it to an integer first")
    target = ctx.shaped(ctx.writer.type_int(dtype.bits), lanes)
    if not dtype.is_float:
        return value, target
    if dtype is not dtypes.bf16:
        return ctx.block.emit("OpBitcast", target, value), target
    words = ctx.shaped(ctx.uint, lanes)
    bits = ctx.block.emit("OpBitcast", words, value)
    bits = ctx.block.emit("OpShiftRightLogical", words, bits, ctx.number(ctx.uint, 16, lanes))
    return ctx.block.emit("OpUConvert", target, bits), target


def bits_to_value(ctx: Context, bits: int, type_: Type) -> int:
    """Convert integers of the dtype's width to a value: the inverse of `value_to_bits`."""
    dtype, lanes = dtype_of(type_), lanes_of(type_)
    if not dtype.is_float:
        return bits
    if dtype is not dtypes.bf16:
        return ctx.block.emit("OpBitcast", ctx.type(type_), bits)
    words = ctx.shaped(ctx.uint, lanes)
    wide = ctx.block.emit("OpUConvert", words, bits)
    wide = ctx.block.emit("OpShiftLeftLogical", words, wide, ctx.number(ctx.uint, 16, lanes))
    return ctx.block.emit("OpBitcast", ctx.type(type_), wide)


def _bitcast(ctx: Context, op: Op) -> None:
    source, target = op.operands[0].type, op.attrs["type"]
    a, b = dtype_of(source), dtype_of(target)
    if a.bits * lanes_of(source) != b.bits * lanes_of(target) or "bool" in (a.kind, b.kind):
        raise InternalError(f"bitcast at {op.loc} from {source} to {target}: expected the same width, and not bool")
    value, type_id = ctx.get(op.operands[0]), ctx.type(target)
    if dtypes.bf16 in (a, b):
        value, current = value_to_bits(ctx, value, source)
        ints = ctx.shaped(ctx.writer.type_int(b.bits), lanes_of(target))
        value = value if current == ints else ctx.block.emit("OpBitcast", ints, value)
        ctx.values[op.result] = bits_to_value(ctx, value, target)
        return
    same = ctx.type(source) == type_id
    ctx.values[op.result] = value if same else ctx.block.emit("OpBitcast", type_id, value)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {"cast": _cast, "bitcast": _bitcast}
