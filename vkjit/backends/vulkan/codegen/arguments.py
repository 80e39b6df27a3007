"""Loads from the argument block in a kernel.

Each field is loaded once, in the entry block. The block consists of push constants; if it is indirect, it is in a
buffer whose address is the only push constant. Scalars smaller than 32 bits are extracted from a 32-bit word, so that
no capability for 8-bit or 16-bit push constants is needed.
"""

from __future__ import annotations

from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Value
from vkjit.ir.types import Array
from vkjit.runtime.artifact import ArgField
from vkjit.spirv import OpenBlock

from .context import Context
from .conversions import sign_extended
from .wide import pointer_to, zero_extended

__all__ = ["address_of", "field_of", "load_field", "load_word", "map_scalars"]


def map_scalars(ctx: Context) -> None:
    """Load the scalar parameters that the kernel uses."""
    for position in sorted(ctx.usage.scalars):
        param = ctx.kernel.params[position]
        if not isinstance(param.type, Array):
            ctx.values[param] = load_field(ctx, field_of(ctx, "scalar", ctx.args[position], 0))


def address_of(ctx: Context, param: Value) -> int:
    """Return the address (u64) of an array parameter's first element."""
    return load_field(ctx, field_of(ctx, "address", ctx.args[ctx.positions[param]], 0))


def field_of(ctx: Context, role: str, arg: int, axis: int) -> ArgField:
    """Return a field of the block. `arg` is the parameter's number in the launch arguments, -1 for other fields.

    Raises InternalError if the layout has no such field.
    """
    for item in ctx.layout[0]:
        if item.role == role and item.arg == arg and item.axis == axis:
            return item
    raise InternalError(f"kernel {ctx.kernel.name}: the argument block has no {role} of parameter {arg}, axis {axis}")


def load_field(ctx: Context, item: ArgField) -> int:
    """Return the value of a field, in the field's type."""
    return ctx.once(("field", item.offset), lambda entry: _load_field(ctx, entry, item))


def load_word(ctx: Context, item: ArgField) -> int:
    """Return the value of a 32-bit or 64-bit integer field as 64 bits.

    Strides are sign-extended. The others are never negative and are zero-extended.
    """
    value = load_field(ctx, item)
    if item.size == 8:
        return value

    def widened(entry: OpenBlock) -> int:
        if item.role == "stride":
            return sign_extended(ctx, entry, value)
        return zero_extended(ctx, entry, value)

    return ctx.once(("wide", item.offset), widened)


def _load_field(ctx: Context, entry: OpenBlock, item: ArgField) -> int:
    if item.dtype.kind == "bool" or item.size < 4:
        return _extract_small(ctx, entry, item)
    return _load_member(ctx, entry, item.offset, ctx.scalar_type(item.dtype))


def _extract_small(ctx: Context, entry: OpenBlock, item: ArgField) -> int:
    """Extract a bool or a value of 8 or 16 bits from the 32-bit word that contains it."""
    start = item.offset // 4 * 4
    word = ctx.once(("word", start), lambda block: _load_member(ctx, block, start, ctx.uint))
    shift = (item.offset - start) * 8
    if item.dtype.kind == "bool":
        bits = entry.emit("OpBitwiseAnd", ctx.uint, word, ctx.word(0xFF << shift))
        return entry.emit("OpINotEqual", ctx.writer.type_bool(), bits, ctx.word(0))
    target = ctx.scalar_type(item.dtype)
    if item.dtype.is_float:
        pair = entry.emit("OpBitcast", ctx.writer.type_vector(target, 2), word)
        return entry.emit("OpCompositeExtract", target, pair, shift // 16)
    shifted = entry.emit("OpShiftRightLogical", ctx.uint, word, ctx.word(shift)) if shift else word
    return entry.emit("OpUConvert", target, shifted)


def _slots(ctx: Context) -> dict[int, DType | None]:
    """Return the dtype of each member of the block's struct, by offset; None for a word of small scalars."""
    slots: dict[int, DType | None] = {}
    for item in ctx.layout[0]:
        if item.size < 4:
            slots[item.offset // 4 * 4] = None
        else:
            slots[item.offset] = item.dtype
    return slots


def _block_type(ctx: Context) -> tuple[int, list[int]]:
    """Return the struct type of the block and the offsets of its members."""
    slots = _slots(ctx)
    members = tuple(ctx.uint if dtype is None else ctx.scalar_type(dtype) for dtype in slots.values())
    struct = ctx.writer.type_struct(
        members, tuple(slots), name="Arguments", member_names=_member_names(ctx, list(slots)), block=True
    )
    return struct, list(slots)


def _member_names(ctx: Context, offsets: list[int]) -> tuple[str, ...]:
    names = ctx.kernel.attrs.get("param_names", ())
    names_by_offset: dict[int, str] = {}
    for item in ctx.layout[0]:
        base = names[item.arg] if 0 <= item.arg < len(names) else ""
        text = base if item.role == "scalar" else f"{base}_{item.role}{item.axis}".lstrip("_")
        names_by_offset.setdefault(item.offset // 4 * 4, text)
    return tuple(names_by_offset.get(offset, "") for offset in offsets)


def _load_member(ctx: Context, entry: OpenBlock, offset: int, type_id: int) -> int:
    struct, offsets = _block_type(ctx)
    member = ctx.word(offsets.index(offset))
    writer = ctx.writer
    if not ctx.layout[2]:
        variable = ctx.once("arguments", lambda _: writer.variable("PushConstant", struct, "arguments"))
        pointer = entry.emit("OpAccessChain", writer.type_pointer("PushConstant", type_id), variable, member)
        return entry.emit("OpLoad", type_id, pointer)
    base = ctx.once("arguments", lambda block: _indirect_block(ctx, block, struct))
    storage = writer.type_pointer("PhysicalStorageBuffer", type_id)
    pointer = entry.emit("OpAccessChain", storage, base, member)
    align = 8 if type_id == ctx.ulong else writer.info(type_id).bits // 8
    return entry.emit("OpLoad", type_id, pointer, "Aligned", align)


def _indirect_block(ctx: Context, entry: OpenBlock, struct: int) -> int:
    """Return a pointer to the block in the buffer whose address is the push constant."""
    writer = ctx.writer
    for member in range(len(writer.info(struct).members)):
        writer.decorate_member(struct, member, "NonWritable")
    address_block = writer.type_struct((ctx.ulong,), (0,), name="ArgumentsAddress", block=True)
    variable = writer.variable("PushConstant", address_block, "arguments_address")
    pointer = entry.emit("OpAccessChain", writer.type_pointer("PushConstant", ctx.ulong), variable, ctx.word(0))
    address = entry.emit("OpLoad", ctx.ulong, pointer)
    return pointer_to(ctx, entry, writer.type_pointer("PhysicalStorageBuffer", struct), address)
