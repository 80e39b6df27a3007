"""64-bit integers and addresses, which are vectors of two 32-bit words on devices without 64-bit integers.

`ctx.ulong` is the type of 64-bit integers on either kind of device. The pass `split_int64` leaves no arithmetic on them for
devices without 64-bit integers, except that of ids and addresses, which is emitted here.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.spirv import OpenBlock

from .context import Context

__all__ = ["HANDLERS", "from_words", "low_word", "pointer_to", "product", "total", "words", "zero_extended"]


def from_words(ctx: Context, block: OpenBlock, low: int, high: int) -> int:
    """Return the 64-bit integer that consists of two words."""
    pair = block.emit("OpCompositeConstruct", ctx.pair, low, high)
    return block.emit("OpBitcast", ctx.ulong, pair) if ctx.int64 else pair


def low_word(ctx: Context, block: OpenBlock, value: int) -> int:
    """Return the low 32 bits of a 64-bit integer."""
    if ctx.int64:
        return block.emit("OpUConvert", ctx.uint, value)
    return block.emit("OpCompositeExtract", ctx.uint, value, 0)


def zero_extended(ctx: Context, block: OpenBlock, word: int) -> int:
    """Return a 32-bit integer extended to 64 bits by zeros."""
    if ctx.int64:
        return block.emit("OpUConvert", ctx.ulong, word)
    return block.emit("OpCompositeConstruct", ctx.ulong, word, ctx.word(0))


def product(ctx: Context, block: OpenBlock, value: int, factor: int) -> int:
    """Return a 64-bit integer times a constant of at most 32 bits."""
    if ctx.int64:
        return block.emit("OpIMul", ctx.ulong, value, ctx.long(factor))
    low, high = words(ctx, block, value)
    low_product, carry = _both(ctx, block, "OpUMulExtended", low, ctx.word(factor))
    high_product = block.emit("OpIMul", ctx.uint, high, ctx.word(factor))
    return block.emit(
        "OpCompositeConstruct", ctx.ulong, low_product, block.emit("OpIAdd", ctx.uint, high_product, carry)
    )


def total(ctx: Context, block: OpenBlock, a: int, b: int) -> int:
    """Return the sum of two 64-bit integers."""
    if ctx.int64:
        return block.emit("OpIAdd", ctx.ulong, a, b)
    (a_low, a_high), (b_low, b_high) = words(ctx, block, a), words(ctx, block, b)
    low, carry = _both(ctx, block, "OpIAddCarry", a_low, b_low)
    high = block.emit("OpIAdd", ctx.uint, block.emit("OpIAdd", ctx.uint, a_high, b_high), carry)
    return block.emit("OpCompositeConstruct", ctx.ulong, low, high)


def pointer_to(ctx: Context, block: OpenBlock, type_id: int, address: int) -> int:
    """Return an address as a pointer of a SPIR-V type."""
    return block.emit("OpConvertUToPtr" if ctx.int64 else "OpBitcast", type_id, address)


def words(ctx: Context, block: OpenBlock, pair: int) -> tuple[int, int]:
    """Return the words of a 64-bit integer of a device without 64-bit integers."""
    low, high = (block.emit("OpCompositeExtract", ctx.uint, pair, lane) for lane in (0, 1))
    return low, high


def _both(ctx: Context, block: OpenBlock, opname: str, a: int, b: int) -> tuple[int, int]:
    """Return the two results of OpUMulExtended or OpIAddCarry: the low word, and the high word or the carry."""
    return words(ctx, block, block.emit(opname, ctx.writer.type_struct((ctx.uint, ctx.uint)), a, b))


def _extract_word(ctx: Context, op: Op) -> None:
    source, lane = op.operands[0], op.attrs["lane"]
    if lane == 0 and source in ctx.narrow:
        ctx.values[op.result] = ctx.narrow[source][0]
        return
    value = ctx.get(source)
    pair = ctx.block.emit("OpBitcast", ctx.pair, value) if ctx.int64 else value
    ctx.values[op.result] = ctx.block.emit("OpCompositeExtract", ctx.uint, pair, lane)


def _join_words(ctx: Context, op: Op) -> None:
    low, high = (ctx.get(word) for word in op.operands)
    ctx.values[op.result] = from_words(ctx, ctx.block, low, high)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {"extract_word": _extract_word, "join_words": _join_words}
