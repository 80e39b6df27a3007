"""Lowering of subgroup operations (`sg_*`) to shuffles, votes, and native reductions and scans.

- Reductions of floats are butterflies with increasing strides (lane ^ 1, ^ 2, ^ 4...), so the order of operations
  doesn't depend on the driver; only `fast_math` kernels use native float reductions. A butterfly needs all invocations
  to be active. They are: collectives are in uniform control flow, and subgroups are full. In `padded` kernels, lanes
  without a partner keep their value, and all take the result of lane 0, which always has one. Reductions with the
  attribute `partial` may have inactive invocations and are always native.
- Integer reductions are exact in any order, so they are native where that is fast. Min and max of floats are computed
  on integers of the same order (see `min_max`), except in `fast_math` kernels.
- Scans that aren't native double their stride in each step (Hillis-Steele): lane i combines its value with that of lane
  i - 1, then i - 2, i - 4...
- Shuffles move 32-bit words, so that no extended subgroup types are needed: narrower values are widened, 64-bit values
  are split into two words.
- Scans read lower lanes by a shuffle with a computed lane id, since shuffle-up by a constant is broken on one driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar, Type

from .context import Context, dtype_of, lanes_of
from .conversions import round_to_bf16
from .ids import has_partner, lane_word
from .min_max import float_to_ordered, ordered_extreme, ordered_to_float
from .wide import from_words, low_word

__all__ = ["HANDLERS"]

_NATIVE = {
    "add": ("IAdd", "IAdd", "FAdd"),
    "mul": ("IMul", "IMul", "FMul"),
    "min": ("SMin", "UMin", "FMin"),
    "max": ("SMax", "UMax", "FMax"),
    "and": ("BitwiseAnd", "BitwiseAnd", ""),
    "or": ("BitwiseOr", "BitwiseOr", ""),
    "xor": ("BitwiseXor", "BitwiseXor", ""),
}
"""Reduction -> the instruction's name after "OpGroupNonUniform", for signed, unsigned and float operands."""

_STEP = {
    "add": ("OpIAdd", "OpFAdd"),
    "mul": ("OpIMul", "OpFMul"),
    "and": ("OpBitwiseAnd", ""),
    "or": ("OpBitwiseOr", ""),
    "xor": ("OpBitwiseXor", ""),
}
"""Reduction -> the instruction that combines two values, for integers and for floats."""

_I32, _U32, _F32, _BOOL = (Scalar(dtype) for dtype in (dtypes.i32, dtypes.u32, dtypes.f32, dtypes.boolean))


def _scope(ctx: Context) -> int:
    return ctx.writer.scope("Subgroup")


# Moving values between lanes

Move = Callable[[int, int], int]
"""Emits a shuffle: takes a 32-bit SPIR-V type and a value of it, and returns the other lane's value."""


def _shuffled(ctx: Context, value: int, type_: Type, move: Move) -> int:
    """Shuffle a value of any scalar or vector type."""
    lanes = lanes_of(type_)
    if lanes == 1:
        return _shuffled_scalar(ctx, value, dtype_of(type_), move)
    scalar = Scalar(dtype_of(type_))
    parts = [ctx.block.emit("OpCompositeExtract", ctx.type(scalar), value, lane) for lane in range(lanes)]
    moved = [_shuffled_scalar(ctx, part, scalar.dtype, move) for part in parts]
    return ctx.block.emit("OpCompositeConstruct", ctx.type(type_), *moved)


def _shuffled_scalar(ctx: Context, value: int, dtype: DType, move: Move) -> int:
    block, writer, own = ctx.block, ctx.writer, ctx.scalar_type(dtype)
    if dtype.kind == "bool":
        word = block.emit("OpSelect", ctx.uint, value, ctx.word(1), ctx.word(0))
        return block.emit("OpINotEqual", own, move(ctx.uint, word), ctx.word(0))
    bits = dtype.bits if own == ctx.ulong else writer.info(own).bits
    if bits == 32:
        return move(own, value)
    if bits == 64:
        pair = ctx.pair
        both = value if own == pair else block.emit("OpBitcast", pair, value)
        halves = [move(ctx.uint, block.emit("OpCompositeExtract", ctx.uint, both, half)) for half in (0, 1)]
        moved = block.emit("OpCompositeConstruct", pair, *halves)
        return moved if own == pair else block.emit("OpBitcast", own, moved)
    if dtype.is_float:
        single = writer.type_float(32)
        return block.emit("OpFConvert", own, move(single, block.emit("OpFConvert", single, value)))
    return block.emit("OpUConvert", own, move(ctx.uint, block.emit("OpUConvert", ctx.uint, value)))


def _by_xor(ctx: Context, mask: int) -> Move:
    return lambda type_id, value: ctx.block.emit(
        "OpGroupNonUniformShuffleXor", type_id, _scope(ctx), value, ctx.word(mask)
    )


def _by_lane(ctx: Context, lane: int) -> Move:
    return lambda type_id, value: ctx.block.emit("OpGroupNonUniformShuffle", type_id, _scope(ctx), value, lane)


def _lane_operand(ctx: Context, value: Value) -> int:
    """Return a lane id as 32 bits."""
    if value in ctx.narrow:
        return ctx.narrow[value][0]
    lane = ctx.get(value)
    return lane if dtype_of(value.type).bits == 32 else low_word(ctx, ctx.block, lane)


def _shuffle(ctx: Context, op: Op) -> None:
    source, lane = op.operands
    move = _by_lane(ctx, _lane_operand(ctx, lane))
    ctx.values[op.result] = _shuffled(ctx, ctx.get(source), source.type, move)


def _shuffle_xor(ctx: Context, op: Op) -> None:
    source = op.operands[0]
    ctx.values[op.result] = _shuffled(ctx, ctx.get(source), source.type, _by_xor(ctx, op.attrs["mask"]))


# Reductions and scans


def _to_working_type(ctx: Context, value: int, dtype: DType, name: str) -> tuple[int, Type]:
    """Convert an operand to the type in which the reduction is computed. Return the value and the type."""
    if dtype.kind == "bool":
        return ctx.block.emit("OpSelect", ctx.uint, value, ctx.word(1), ctx.word(0)), _U32
    if dtype.is_float:
        if name not in ("min", "max") or ctx.kernel.attrs.get("fast_math"):
            return value, Scalar(dtype)
        key = float_to_ordered(ctx, value, Scalar(dtype), name)
        bits = ctx.writer.info(ctx.writer.type_of(key)).bits
        if bits == 16:
            return ctx.block.emit("OpSConvert", ctx.uint, key), _I32
        return key, Scalar(dtypes.i64) if bits == 64 else _I32
    if dtype.bits < 32:
        opname = "OpSConvert" if dtype.is_signed else "OpUConvert"
        return ctx.block.emit(opname, ctx.uint, value), _I32 if dtype.is_signed else _U32
    return value, Scalar(dtype)


def _from_working_type(ctx: Context, value: int, working: Type, dtype: DType) -> int:
    """The inverse of `_working`."""
    if dtype.kind == "bool":
        return ctx.block.emit("OpINotEqual", ctx.type(_BOOL), value, ctx.word(0))
    if dtype_of(working) is dtype:
        return value
    if not dtype.is_float:
        return ctx.block.emit("OpUConvert", ctx.scalar_type(dtype), value)
    if dtype.bits == 16 and dtype is not dtypes.bf16:
        value = ctx.block.emit("OpUConvert", ctx.writer.type_int(16), value)
    return ordered_to_float(ctx, value, Scalar(dtype))


def _native_name(ctx: Context, op: Op, dtype: DType, name: str) -> str:
    """Return the native instruction for a reduction or scan of this dtype; "" if it must be composed of shuffles."""
    signed, unsigned, float_ = _NATIVE[name]
    spelling = float_ if dtype.is_float else signed if dtype.is_signed else unsigned
    if op.attrs.get("partial"):
        return f"OpGroupNonUniform{spelling}"
    if "subgroup_arithmetic" not in ctx.caps.features or "slow_subgroup_arithmetic" in ctx.caps.quirks:
        return ""
    if dtype.is_float:
        usable = bool(ctx.kernel.attrs.get("fast_math")) and dtype.bits == 32
    else:
        usable = dtype.bits == 32
    return f"OpGroupNonUniform{spelling}" if usable else ""


def _step(ctx: Context, name: str, a: int, b: int, type_: Type, op: Op) -> int:
    """Combine the values of two lanes."""
    dtype = dtype_of(type_)
    if name in ("min", "max"):
        if dtype.is_float:
            return ctx.block.glsl(f"N{name.capitalize()}", ctx.type(type_), a, b)
        return ordered_extreme(ctx, name, a, b, type_)
    value = ctx.block.emit(_STEP[name][dtype.is_float], ctx.type(type_), a, b)
    if dtype.is_float and ctx.exact(op):
        ctx.writer.decorate(value, "NoContraction")
    return round_to_bf16(ctx, value) if dtype is dtypes.bf16 else value


def _per_lane(ctx: Context, op: Op, function: Callable[[Context, Op, int, DType, str], int]) -> None:
    """Lower a reduction or scan by applying `function` to the scalar operand or to each component of a vector."""
    type_, name = op.operands[0].type, op.attrs["op"]
    dtype, lanes, value = dtype_of(type_), lanes_of(type_), ctx.get(op.operands[0])
    if name not in _NATIVE:
        raise InternalError(f"{op.name} at {op.loc}: no reduction is called {name!r}")
    if lanes == 1:
        ctx.values[op.result] = function(ctx, op, value, dtype, name)
        return
    scalar = ctx.scalar_type(dtype)
    parts = [ctx.block.emit("OpCompositeExtract", scalar, value, lane) for lane in range(lanes)]
    done = [function(ctx, op, part, dtype, name) for part in parts]
    ctx.values[op.result] = ctx.block.emit("OpCompositeConstruct", ctx.type(type_), *done)


def _reduce_scalar(ctx: Context, op: Op, value: int, dtype: DType, name: str) -> int:
    value, working = _to_working_type(ctx, value, dtype, name)
    native = _native_name(ctx, op, dtype_of(working), name)
    if native:
        value = ctx.block.emit(native, ctx.type(working), _scope(ctx), "Reduce", value)
        return _from_working_type(ctx, value, working, dtype)
    stride = 1
    padded = ctx.kernel.attrs.get("padded")
    while stride < ctx.subgroup_size:
        other = _shuffled(ctx, value, working, _by_xor(ctx, stride))
        combined = _step(ctx, name, value, other, working, op)
        value = (
            ctx.block.emit("OpSelect", ctx.type(working), has_partner(ctx, stride), combined, value)
            if padded
            else combined
        )
        stride *= 2
    if padded:
        value = _shuffled(ctx, value, working, _by_lane(ctx, ctx.word(0)))
    return _from_working_type(ctx, value, working, dtype)


def _identity(ctx: Context, name: str, type_: Type) -> int:
    """Return the identity of a reduction: the result of an exclusive scan in the first lane."""
    dtype = dtype_of(type_)
    if name in ("min", "max"):
        if dtype.is_float:
            return ctx.constant(type_, float("inf") if name == "min" else float("-inf"))
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        high = (1 << (dtype.bits - 1 if dtype.is_signed else dtype.bits)) - 1
        return ctx.constant(type_, high if name == "min" else low)
    return ctx.constant(type_, {"mul": 1, "and": -1}.get(name, 0))


def _scan_scalar(ctx: Context, op: Op, value: int, dtype: DType, name: str) -> int:
    value, working = _to_working_type(ctx, value, dtype, name)
    exclusive = bool(op.attrs["exclusive"])
    native = _native_name(ctx, op, dtype_of(working), name)
    if native and not (exclusive and working != Scalar(dtype)):
        kind = "ExclusiveScan" if exclusive else "InclusiveScan"
        value = ctx.block.emit(native, ctx.type(working), _scope(ctx), kind, value)
        return _from_working_type(ctx, value, working, dtype)
    stride = 1
    while stride < ctx.subgroup_size:
        below, valid = _below(ctx, value, working, stride)
        combined = _step(ctx, name, below, value, working, op)
        value = ctx.block.emit("OpSelect", ctx.type(working), valid, combined, value)
        stride *= 2
    value = _from_working_type(ctx, value, working, dtype)
    if not exclusive:
        return value
    own: Type = Scalar(dtype)
    below, valid = _below(ctx, value, own, 1)
    first = ctx.constant(_BOOL, name == "and") if dtype.kind == "bool" else _identity(ctx, name, own)
    return ctx.block.emit("OpSelect", ctx.type(own), valid, below, first)


def _below(ctx: Context, value: int, type_: Type, stride: int) -> tuple[int, int]:
    """Return (the value of the lane with the id lower by `stride`, the condition that there is one)."""
    lane = lane_word(ctx)
    step = ctx.word(stride)
    source = ctx.once(("lane_below", stride), lambda entry: entry.emit("OpISub", ctx.uint, lane, step))
    masked = ctx.once(
        ("lane_below_masked", stride),
        lambda entry: entry.emit("OpBitwiseAnd", ctx.uint, source, ctx.word(ctx.subgroup_size - 1)),
    )
    bool_type = ctx.writer.type_bool()
    valid = ctx.once(("has_below", stride), lambda entry: entry.emit("OpUGreaterThanEqual", bool_type, lane, step))
    return _shuffled(ctx, value, type_, _by_lane(ctx, masked)), valid


def _reduce(ctx: Context, op: Op) -> None:
    _per_lane(ctx, op, _reduce_scalar)


def _scan(ctx: Context, op: Op) -> None:
    _per_lane(ctx, op, _scan_scalar)


# Votes


def _vote(opname: str) -> Callable[[Context, Op], None]:
    def lower(ctx: Context, op: Op) -> None:
        operands: list[Any] = [ctx.get(operand) for operand in op.operands]
        ctx.values[op.result] = ctx.block.emit(opname, ctx.writer.type_bool(), _scope(ctx), *operands)

    return lower


def _ballot(ctx: Context, op: Op) -> None:
    writer, block = ctx.writer, ctx.block
    mask = block.emit("OpGroupNonUniformBallot", writer.type_vector(ctx.uint, 4), _scope(ctx), ctx.get(op.operands[0]))
    words = (block.emit("OpCompositeExtract", ctx.uint, mask, 0), block.emit("OpCompositeExtract", ctx.uint, mask, 1))
    if dtype_of(op.attrs["type"]).bits == 32:
        ctx.values[op.result] = words[0]
        return
    ctx.values[op.result] = from_words(ctx, block, *words)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    "sg_reduce": _reduce,
    "sg_scan": _scan,
    "sg_broadcast": _shuffle,
    "sg_shuffle": _shuffle,
    "sg_shuffle_xor": _shuffle_xor,
    "sg_any": _vote("OpGroupNonUniformAny"),
    "sg_all": _vote("OpGroupNonUniformAll"),
    "sg_elect": _vote("OpGroupNonUniformElect"),
    "sg_ballot": _ballot,
}
