"""The `print` operation: records in the launch's print buffer, which the host turns into text.

Enters: `print values... {site}`. Leaves: an atomic addition to the buffer's cursor makes room for a record of words of 64
bits: the site's number plus one, the invocation's global id (x and y, then z), the values as `report` stores them. What has
no room is counted. Holds: the cursor stays near the buffer's size, however much is printed, so that it can't wrap;
`describe_prints` says what the host has to know. The buffer's layout is `runtime.artifact.PRINT_BYTES`.
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

__all__ = ["HANDLERS", "describe_prints"]

_CURSOR, _LIMIT, _DROPPED = range(3)
"""Words (u32) of the head: the words asked for, where the first record without room would be, how many had none."""


def describe_prints(prints: list[Op], local_size: tuple[int, ...]) -> dict[str, Any]:
    """What the host has to know beside the sites: by site, the values' types and lanes; the workgroup's size."""
    if not prints:
        return {}
    values = {op.attrs["site"]: tuple((_kind(v.type), lanes_of(v.type)) for v in op.operands) for op in prints}
    return {"print_values": values, "print_local": tuple(local_size)}


def _kind(type_: Type) -> str:
    """How the 64 bits of a value are read: "float", "uint" (where they need it), "bool" or "int"."""
    dtype: DType = dtype_of(type_)
    return "uint" if dtype is dtypes.u64 else "int" if dtype.is_integer else dtype.kind


def _word(ctx: Context, number: int) -> int:
    """A pointer to a word of the buffer's head."""
    pointer = ctx.writer.type_pointer("PhysicalStorageBuffer", ctx.uint)
    return ctx.block.emit("OpAccessChain", pointer, buffer_words(ctx, ctx.uint, "print"), ctx.word(0), ctx.word(number))


def _print(ctx: Context, op: Op) -> None:
    function, writer = ctx.function, ctx.writer
    room, full, fits, merge = (function.label() for _ in range(4))
    how = (scope_of(ctx, "device"), writer.semantics("Relaxed"))
    truth, capacity = writer.type_bool(), ctx.word(PRINT_CAPACITY)
    values = [bits for value in op.operands for bits in _bits(ctx, ctx.get(value), value.type)]
    size = ctx.word(RECORD_HEAD + len(values))
    inner = function.label()
    before = ctx.block.emit("OpAtomicLoad", ctx.uint, _word(ctx, _CURSOR), *how)
    open_ = ctx.block.emit("OpULessThanEqual", truth, before, capacity)
    ctx.block.selection_merge(merge)
    ctx.block.branch_conditional(open_, room, full)
    ctx.open(room)
    at = ctx.block.emit("OpAtomicIAdd", ctx.uint, _word(ctx, _CURSOR), *how, size)
    end = ctx.block.emit("OpIAdd", ctx.uint, at, size)
    enough = ctx.block.emit("OpULessThanEqual", truth, end, capacity)
    missed = function.label()
    ctx.block.selection_merge(inner)
    ctx.block.branch_conditional(enough, fits, missed)
    ctx.open(fits)
    _store_record(ctx, op, at, values)
    ctx.block.branch(inner)
    ctx.open(missed)
    ctx.block.emit("OpAtomicUMin", ctx.uint, _word(ctx, _LIMIT), *how, at)
    _drop(ctx, how)
    ctx.block.branch(inner)
    ctx.open(inner)
    ctx.block.branch(merge)
    ctx.open(full)
    _drop(ctx, how)
    ctx.block.branch(merge)
    ctx.open(merge)


def _drop(ctx: Context, how: tuple[int, int]) -> None:
    ctx.block.emit("OpAtomicIAdd", ctx.uint, _word(ctx, _DROPPED), *how, ctx.word(1))


def _bits(ctx: Context, value: int, type_: Type) -> list[int]:
    """The lanes of a value as 64 bits each."""
    if not isinstance(type_, Vector):
        return [wide_bits(ctx, value, type_)]
    scalar = Scalar(type_.dtype)
    lanes = [ctx.block.emit("OpCompositeExtract", ctx.type(scalar), value, lane) for lane in range(type_.size)]
    return [wide_bits(ctx, lane, scalar) for lane in lanes]


def _store_record(ctx: Context, op: Op, at: int, values: list[int]) -> None:
    block, long = ctx.block, ctx.ulong
    x, y, z = (block.emit("OpUConvert", long, global_id_word(ctx, axis)) for axis in range(3))
    upper = block.emit("OpShiftLeftLogical", long, y, ctx.writer.constant(long, 32))
    site = ctx.writer.constant(long, op.attrs["site"] + 1)
    words = [site, block.emit("OpBitwiseOr", long, x, upper), z, *values]
    pointer = ctx.writer.type_pointer("PhysicalStorageBuffer", long)
    base = buffer_words(ctx, long, "print")
    for number, word in enumerate(words):
        index = block.emit("OpIAdd", ctx.uint, at, ctx.word(PRINT_HEAD + number))
        place = block.emit("OpAccessChain", pointer, base, ctx.word(0), index)
        block.emit_void("OpStore", place, word, "Aligned", 8)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {"print": _print}
