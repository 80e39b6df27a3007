"""SPIR-V types of array elements in memory, and conversions of values to and from them.

In buffers and shared memory, a bool is a byte and a bf16 is a 16-bit integer; shared memory of devices without 8-bit
or 16-bit integers uses 32-bit words instead. The elements of a shared array are integers, of at least 32 bits, if its
atomics require that. Local arrays hold values unchanged: bool as OpTypeBool, bf16 as f32.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Value
from vkjit.ir.types import Array, Type

from .context import Context, dtype_of, lanes_of
from .conversions import bits_to_value, round_to_bf16, value_to_bits

__all__ = ["array_type", "from_memory", "stored_type", "to_memory", "variable_stored"]


def array_type(array: Value) -> Array:
    """Return the array type of a value. Raises InternalError if the value isn't an array."""
    kind = array.type
    if not isinstance(kind, Array):
        raise InternalError(f"expected an array, found {kind}")
    return kind


def _stored_scalar(ctx: Context, dtype: DType, space: str) -> int:
    """Return the SPIR-V type of a scalar in memory."""
    if dtype.kind == "bool":
        if space == "local":
            return ctx.writer.type_bool()
        return ctx.writer.type_int(8 if space == "global" or "u8" in ctx.caps.dtypes else 32)
    if dtype is dtypes.bf16:
        if space == "local":
            return ctx.writer.type_float(32)
        return ctx.writer.type_int(16 if space == "global" or "u16" in ctx.caps.dtypes else 32)
    return ctx.scalar_type(dtype)


def stored_type(ctx: Context, element: Type, space: str) -> int:
    """Return the SPIR-V type of an element of a global, shared or local array (`space`)."""
    scalar, lanes = _stored_scalar(ctx, dtype_of(element), space), lanes_of(element)
    if lanes > 1 and not ctx.int64 and scalar == ctx.ulong and space == "global":
        return ctx.writer.type_struct((scalar,) * lanes, tuple(range(0, 8 * lanes, 8)))
    return ctx.shaped(scalar, lanes)


def variable_stored(ctx: Context, root: Value) -> int:
    """Return the SPIR-V element type of a shared or local array's variable: an integer type if its atomics need it."""
    array = array_type(root)
    dtype = dtype_of(array.element)
    if dtype.bits < 32 and ctx.usage.atomics.get(root):
        return ctx.uint  # atomics have at least 32 bits
    if dtype.is_float and not _native_atomics(ctx, root, dtype):
        return ctx.shaped(ctx.writer.type_int(dtype.bits), lanes_of(array.element))
    return stored_type(ctx, array.element, array.space)


def _native_atomics(ctx: Context, root: Value, dtype: DType) -> bool:
    """True if each atomic operation on this shared array, if any, has a native float instruction on the device."""
    return all(
        op.name == "atomic" and op.attrs["op"] == "add" and f"float{dtype.bits}_shared_atomic_add" in ctx.caps.features
        for op in ctx.usage.atomics.get(root, ())
    )


def to_memory(ctx: Context, value: int, element: Type, stored: int, rounded: bool) -> int:
    """Convert a value to the SPIR-V type `stored` that its element has in memory.

    If `rounded`, a bf16 value is known to be rounded to bf16 already.
    """
    dtype, lanes = dtype_of(element), lanes_of(element)
    carrier = ctx.type(element)
    if carrier == stored:
        return value
    block = ctx.block
    if dtype.kind == "bool":
        words = ctx.shaped(ctx.uint, lanes)
        one, zero = ctx.number(ctx.uint, 1, lanes), ctx.number(ctx.uint, 0, lanes)
        word = block.emit("OpSelect", words, value, one, zero)
        return word if words == stored else block.emit("OpUConvert", stored, word)
    if dtype is dtypes.bf16:
        words = ctx.shaped(ctx.uint, lanes)
        bits = block.emit("OpBitcast", words, value if rounded else round_to_bf16(ctx, value, lanes))
        word = block.emit("OpShiftRightLogical", words, bits, ctx.number(ctx.uint, 16, lanes))
        return word if words == stored else block.emit("OpUConvert", stored, word)
    if ctx.writer.info(stored).kind == "struct":
        return block.emit("OpCopyLogical", stored, value)
    if dtype.bits < ctx.writer.info(stored).bits and lanes == 1:
        return block.emit("OpUConvert", stored, value_to_bits(ctx, value, element)[0])
    return block.emit("OpBitcast", stored, value)


def from_memory(ctx: Context, value: int, element: Type, stored: int) -> int:
    """Convert a loaded element of SPIR-V type `stored` to a value of IR type `element`."""
    dtype, lanes = dtype_of(element), lanes_of(element)
    carrier = ctx.type(element)
    if carrier == stored:
        return value
    block = ctx.block
    words = ctx.shaped(ctx.uint, lanes)
    if dtype.kind == "bool":
        word = value if words == stored else block.emit("OpUConvert", words, value)
        return block.emit("OpINotEqual", carrier, word, ctx.number(ctx.uint, 0, lanes))
    if dtype is dtypes.bf16:
        word = value if words == stored else block.emit("OpUConvert", words, value)
        bits = block.emit("OpShiftLeftLogical", words, word, ctx.number(ctx.uint, 16, lanes))
        return block.emit("OpBitcast", carrier, bits)
    if ctx.writer.info(stored).kind == "struct":
        return block.emit("OpCopyLogical", carrier, value)
    if dtype.bits < ctx.writer.info(stored).bits and lanes == 1:
        return bits_to_value(ctx, block.emit("OpUConvert", ctx.writer.type_int(dtype.bits), value), element)
    return block.emit("OpBitcast", carrier, value)
