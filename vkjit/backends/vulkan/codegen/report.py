"""Lowering of `report`, by which kernels tell the host that a check failed, and where.

An invocation for which the condition holds tries to claim the report buffer, by a compare-and-exchange of word 0 from 0
to the site's number plus one. If that succeeds, the invocation stores its global id in words 1 to 3 and the values from
word 4 on (see `backends.codegen.reports`).
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.backends.codegen.reports import FIRST_VALUE, MAX_VALUES
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar, Type
from vkjit.spirv import OpenBlock

from .arguments import field_of, load_field
from .atomics import scope_of
from .context import Context, dtype_of
from .conversions import convert
from .ids import global_id_word
from .wide import from_words, pointer_to

__all__ = ["HANDLERS", "buffer_words", "wide_bits"]


def buffer_words(ctx: Context, scalar: int, role: str = "report") -> int:
    """Return a pointer to the report buffer, viewed as a runtime array of the SPIR-V type `scalar`.

    With another `role`, return the buffer whose address is in the argument block's field of that role.
    """
    size = 8 if scalar == ctx.ulong else 4

    def make(entry: OpenBlock) -> int:
        address = load_field(ctx, field_of(ctx, role, -1, 0))
        runtime = ctx.writer.type_runtime_array(scalar, size)
        struct = ctx.writer.type_struct((runtime,), (0,), name=role.capitalize(), block=True)
        return pointer_to(ctx, entry, ctx.writer.type_pointer("PhysicalStorageBuffer", struct), address)

    return ctx.once((role, scalar), make)


def _element(ctx: Context, scalar: int, position: int) -> int:
    pointer = ctx.writer.type_pointer("PhysicalStorageBuffer", scalar)
    base = buffer_words(ctx, scalar)
    return ctx.block.emit("OpAccessChain", pointer, base, ctx.word(0), ctx.word(position))


def _report(ctx: Context, op: Op) -> None:
    function, writer = ctx.function, ctx.writer
    failed, claimed, merge = (function.label() for _ in range(3))
    condition = ctx.get(op.operands[0])
    ctx.block.selection_merge(merge)
    ctx.block.branch_conditional(condition, failed, merge)
    ctx.open(failed)
    site = ctx.word(op.attrs["site"] + 1)
    relaxed = writer.semantics("Relaxed")
    operands = (_element(ctx, ctx.uint, 0), scope_of(ctx, "device"), relaxed, relaxed, site, ctx.word(0))
    before = ctx.block.emit("OpAtomicCompareExchange", ctx.uint, *operands)
    won = ctx.block.emit("OpIEqual", writer.type_bool(), before, ctx.word(0))
    inner = function.label()
    ctx.block.selection_merge(inner)
    ctx.block.branch_conditional(won, claimed, inner)
    ctx.open(claimed)
    _store_report(ctx, op)
    ctx.block.branch(inner)
    ctx.open(inner)
    ctx.block.branch(merge)
    ctx.open(merge)


def _store_report(ctx: Context, op: Op) -> None:
    for axis in range(3):
        ctx.block.emit_void("OpStore", _element(ctx, ctx.uint, 1 + axis), global_id_word(ctx, axis), "Aligned", 4)
    for position, value in enumerate(op.operands[1 : 1 + MAX_VALUES]):
        bits = wide_bits(ctx, ctx.get(value), value.type)
        pointer = _element(ctx, ctx.ulong, FIRST_VALUE // 2 + position)
        ctx.block.emit_void("OpStore", pointer, bits, "Aligned", 8)


def wide_bits(ctx: Context, value: int, type_: Type) -> int:
    """Return a scalar as 64 bits: an integer or bool converted to i64, a float as the bits of an f64."""
    dtype = dtype_of(type_)
    if not dtype.is_float:
        return convert(ctx, value, type_, Scalar(dtypes.i64))
    if "f64" in ctx.caps.dtypes:
        double = convert(ctx, value, type_, Scalar(dtypes.f64))
        return ctx.block.emit("OpBitcast", ctx.ulong, double)
    single = convert(ctx, value, type_, Scalar(dtypes.f32))
    return _double_bits(ctx, ctx.block.emit("OpBitcast", ctx.uint, single))


def _double_bits(ctx: Context, bits: int) -> int:
    """Convert the bits of an f32 to those of an f64, for devices without f64. Subnormals become zeros."""
    block, word, uint = ctx.block, ctx.word, ctx.uint
    sign = block.emit("OpBitwiseAnd", uint, bits, word(1 << 31))
    fraction = block.emit("OpBitwiseAnd", uint, bits, word(0x7FFFFF))
    exponent = block.emit("OpBitwiseAnd", uint, bits, word(0x7F800000))
    is_special = block.emit("OpIEqual", ctx.writer.type_bool(), exponent, word(0x7F800000))
    is_zero = block.emit("OpIEqual", ctx.writer.type_bool(), exponent, word(0))
    biased = block.emit("OpIAdd", uint, block.emit("OpShiftRightLogical", uint, exponent, word(3)), word(896 << 20))
    biased = block.emit("OpSelect", uint, is_special, word(0x7FF00000), biased)
    high = block.emit("OpBitwiseOr", uint, biased, block.emit("OpShiftRightLogical", uint, fraction, word(3)))
    high = block.emit("OpBitwiseOr", uint, sign, block.emit("OpSelect", uint, is_zero, word(0), high))
    low = block.emit("OpShiftLeftLogical", uint, fraction, word(29))
    low = block.emit("OpSelect", uint, is_zero, word(0), low)
    return from_words(ctx, block, low, high)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {"report": _report}
