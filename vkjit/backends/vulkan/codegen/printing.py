"""Lowering of `print`, which appends a record to the launch's print buffer; the host converts records to text.

For `print values... {site}`, an atomic add to the buffer's cursor reserves space for a record. Its 64-bit words are the
site's number plus one, the global id (x and y in one word, then z), and the values, stored as by `report`. Records that
don't fit are only counted. Once the cursor is past the end of the buffer, invocations no longer add to it, so that it
can't wrap around. `runtime.artifact.PRINT_BYTES` documents the layout of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar, Type, Vector
from vkjit.runtime.artifact import PRINT_CAPACITY, PRINT_HEAD

from ..runtime.printing import RECORD_HEAD
from .atomics import scope_of
from .context import Context, dtype_of, lanes_of
from .ids import global_id_word
from .report import buffer_words, wide_bits
from .wide import from_words, zero_extended

__all__ = ["HANDLERS", "describe_prints"]

_CURSOR, _LIMIT, _DROPPED = range(3)
"""Indices of the header's u32: number of words requested, position of the first record that didn't fit, number of
records that didn't fit."""


def describe_prints(prints: list[Op], local_size: tuple[int, ...]) -> dict[str, Any]:
    """Return the entries of the artifact's `info` that the host needs to convert records to text.

    `print_values` has the kind and the number of lanes of each value, by site; `print_local` is the workgroup size.
    """
    if not prints:
        return {}
    values = {op.attrs["site"]: tuple((_kind(v.type), lanes_of(v.type)) for v in op.operands) for op in prints}
    return {"print_values": values, "print_local": tuple(local_size)}


def _kind(type_: Type) -> str:
    """Return how the host interprets the 64 bits of a value: "float", "bool", "uint" (for u64 only) or "int"."""
    dtype: DType = dtype_of(type_)
    return "uint" if dtype is dtypes.u64 else "int" if dtype.is_integer else dtype.kind


def _header_word(ctx: Context, number: int) -> int:
    """Return a pointer to a u32 of the buffer's header."""
    pointer = ctx.writer.type_pointer("PhysicalStorageBuffer", ctx.uint)
    return ctx.block.emit("OpAccessChain", pointer, buffer_words(ctx, ctx.uint, "print"), ctx.word(0), ctx.word(number))


def _print(ctx: Context, op: Op) -> None:
    function, writer = ctx.function, ctx.writer
    reserve, full, fits, merge = (function.label() for _ in range(4))
    scope_and_semantics = (scope_of(ctx, "device"), writer.semantics("Relaxed"))
    bool_type, capacity = writer.type_bool(), ctx.word(PRINT_CAPACITY)
    values = [bits for value in op.operands for bits in _bits(ctx, ctx.get(value), value.type)]
    size = ctx.word(RECORD_HEAD + len(values))
    inner = function.label()
    before = ctx.block.emit("OpAtomicLoad", ctx.uint, _header_word(ctx, _CURSOR), *scope_and_semantics)
    has_space = ctx.block.emit("OpULessThanEqual", bool_type, before, capacity)
    ctx.block.selection_merge(merge)
    ctx.block.branch_conditional(has_space, reserve, full)
    ctx.open(reserve)
    start = ctx.block.emit("OpAtomicIAdd", ctx.uint, _header_word(ctx, _CURSOR), *scope_and_semantics, size)
    end = ctx.block.emit("OpIAdd", ctx.uint, start, size)
    enough = ctx.block.emit("OpULessThanEqual", bool_type, end, capacity)
    missed = function.label()
    ctx.block.selection_merge(inner)
    ctx.block.branch_conditional(enough, fits, missed)
    ctx.open(fits)
    _store_record(ctx, op, start, values)
    ctx.block.branch(inner)
    ctx.open(missed)
    ctx.block.emit("OpAtomicUMin", ctx.uint, _header_word(ctx, _LIMIT), *scope_and_semantics, start)
    _drop(ctx, scope_and_semantics)
    ctx.block.branch(inner)
    ctx.open(inner)
    ctx.block.branch(merge)
    ctx.open(full)
    _drop(ctx, scope_and_semantics)
    ctx.block.branch(merge)
    ctx.open(merge)


def _drop(ctx: Context, scope_and_semantics: tuple[int, int]) -> None:
    ctx.block.emit("OpAtomicIAdd", ctx.uint, _header_word(ctx, _DROPPED), *scope_and_semantics, ctx.word(1))


def _bits(ctx: Context, value: int, type_: Type) -> list[int]:
    """Return the lanes of a value, 64 bits each."""
    if not isinstance(type_, Vector):
        return [wide_bits(ctx, value, type_)]
    scalar = Scalar(type_.dtype)
    lanes = [ctx.block.emit("OpCompositeExtract", ctx.type(scalar), value, lane) for lane in range(type_.size)]
    return [wide_bits(ctx, lane, scalar) for lane in lanes]


def _store_record(ctx: Context, op: Op, at: int, values: list[int]) -> None:
    block, long = ctx.block, ctx.ulong
    x, y, z = (global_id_word(ctx, axis) for axis in range(3))
    words = [ctx.long(op.attrs["site"] + 1), from_words(ctx, block, x, y), zero_extended(ctx, block, z), *values]
    pointer = ctx.writer.type_pointer("PhysicalStorageBuffer", long)
    base = buffer_words(ctx, long, "print")
    for number, word in enumerate(words):
        index = block.emit("OpIAdd", ctx.uint, at, ctx.word(PRINT_HEAD + number))
        place = block.emit("OpAccessChain", pointer, base, ctx.word(0), index)
        block.emit_void("OpStore", place, word, "Aligned", 8)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {"print": _print}
