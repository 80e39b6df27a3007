"""Loads and stores: global arrays by address, shared and local arrays as variables.

Enters: arrays (parameters, allocations, `linear` views) and indices. Leaves: pointers, loads and stores. Holds: a
global array is a pointer to a structure of one runtime array, converted from its address once in the entry block;
each access carries the largest alignment that is sure. In memory a bool is a byte and a bf16 16 bits. Where
invocations communicate (barriers, fences, atomics), accesses to what the kernel writes and to shared arrays are
NonPrivate.

A view with another element type is another pointer for a global array. Shared and local arrays have no other view
than flattening, but for types of the same width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vkjit import dtypes
from vkjit.backends.codegen.usage import root_of
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array, Type
from vkjit.spirv import OpenBlock

from .arguments import address_of, field_of, load_word
from .context import Context, dtype_of, lanes_of
from .storage import array_type, from_memory, stored_type, to_memory, variable_stored

__all__ = [
    "HANDLERS",
    "Place",
    "element_address",
    "is_private",
    "orders_buffers",
    "place_of",
    "shared_bytes",
]

_ROUNDED: frozenset[OpName] = frozenset({"cast", "load", "const", "bitcast", "atomic_load", "poison"})
"""Operations whose bf16 results are rounded already."""

_CLASSES = {"global": "PhysicalStorageBuffer", "shared": "Workgroup", "local": "Function"}


@dataclass(frozen=True, slots=True)
class Place:
    """One element in memory: a pointer, the element's type as stored, and the flags of an access to it."""

    pointer: int
    stored: int
    align: int
    private: bool

    @property
    def operands(self) -> tuple[int | str, ...]:
        """The memory operands of a load or store."""
        names = "" if self.private else "NonPrivatePointer"
        if not self.align:
            return (names,) if names else ()
        return ("Aligned" + (f"|{names}" if names else ""), self.align)


# Pointers


def is_private(ctx: Context, root: Value) -> bool:
    """May accesses skip the ordering that barriers and fences give?"""
    array = array_type(root)
    if array.space == "local" or not ctx.usage.synchronises:
        return True
    if array.space == "shared":
        return False
    usage, position = ctx.usage, ctx.positions[root]
    if array.restrict:
        return position not in usage.writes or position not in usage.reads
    return not usage.writes or not usage.reads


def orders_buffers(ctx: Context) -> bool:
    """Do barriers have to order accesses to global arrays?"""
    params = [ctx.kernel.params[position] for position in ctx.usage.addresses]
    return not all(is_private(ctx, param) for param in params)


def _element_bytes(element: Type) -> int:
    return dtype_of(element).itemsize * lanes_of(element)


def _alignment(array: Value) -> int:
    """Bytes that an element's address is surely a multiple of: its size, or what a view's `align` attribute says."""
    element = array_type(array).element
    lanes = lanes_of(element)
    view = array.op
    if view is not None and "align" in view.attrs:
        return math.gcd(view.attrs["align"], _element_bytes(element))
    return dtype_of(element).itemsize * (lanes if lanes in (2, 4) else 1)


def base_pointer(ctx: Context, root: Value, stored: int, stride: int) -> int:
    """A pointer to the structure of one runtime array that a global array is, made in the entry block."""
    readonly = array_type(root).access == "in" and array_type(root).restrict

    def make(entry: OpenBlock) -> int:
        writer = ctx.writer
        runtime = writer.type_runtime_array(stored, stride)
        name = "ReadOnly" if readonly else "Elements"
        struct = writer.type_struct((runtime,), (0,), name=name, block=True)
        if readonly:
            writer.decorate_member(struct, 0, "NonWritable")
        pointer = writer.type_pointer("PhysicalStorageBuffer", struct)
        return entry.emit("OpConvertUToPtr", pointer, address_of(ctx, root))

    return ctx.once(("base", root, stored, stride, readonly), make)


def _variable(ctx: Context, root: Value) -> int:
    """The variable of a shared or local array, an array of its elements."""

    def make(_: OpenBlock) -> int:
        array = array_type(root)
        count = max(math.prod(array.shape or ()), 1)
        whole = ctx.writer.type_array(variable_stored(ctx, root), count)
        name = root.name or array.space
        if array.space == "shared":
            return ctx.writer.variable("Workgroup", whole, name)
        return ctx.function.variable(whole, name)

    return ctx.once(("variable", root), make)


@dataclass(frozen=True, slots=True)
class _View:
    """What all accesses through one array value share: the access chain up to the index, types and flags."""

    chain: tuple[int, ...]
    pointer: int
    stored: int
    align: int
    private: bool


def _view_of(ctx: Context, array: Value, as_bits: bool) -> _View:
    known: _View | None = ctx.views.get((array, as_bits))
    if known is None:
        make = _global_view if array_type(array).space == "global" else _variable_view
        known = ctx.views[array, as_bits] = make(ctx, array, as_bits)
    return known


def _global_view(ctx: Context, array: Value, as_bits: bool) -> _View:
    kind, root = array_type(array), root_of(array)
    dtype = dtype_of(kind.element)
    stored = stored_type(ctx, kind.element, "global")
    if as_bits and dtype.is_float:
        stored = ctx.shaped(ctx.writer.type_int(dtype.bits), lanes_of(kind.element))
    base = base_pointer(ctx, root, stored, _element_bytes(kind.element))
    pointer = ctx.writer.type_pointer("PhysicalStorageBuffer", stored)
    return _View((base, ctx.word(0)), pointer, stored, _alignment(array), is_private(ctx, root))


def _variable_view(ctx: Context, array: Value, _: bool) -> _View:
    kind, root = array_type(array), root_of(array)
    own = array_type(root).element
    if lanes_of(own) != lanes_of(kind.element) or dtype_of(own).bits != dtype_of(kind.element).bits:
        raise InternalError(f"kernel {ctx.kernel.name}: a {kind.space} array of {own} has no view as {kind.element}")
    stored = variable_stored(ctx, root)
    pointer = ctx.writer.type_pointer(_CLASSES[kind.space], stored)
    return _View((_variable(ctx, root),), pointer, stored, 0, is_private(ctx, root))


def place_of(ctx: Context, op: Op, *, as_bits: bool = False) -> Place:
    """Where the array's element at the operation's indices lies. `as_bits` makes a float's place an integer's."""
    array = op.operands[0]
    view = _view_of(ctx, array, as_bits)
    root = array_type(root_of(array))
    if root.space == "global" and not root.contiguous and ctx.kernel.attrs.get("backward"):
        # an access chain takes no negative index into a runtime array: drivers may extend it with zeros
        pointer = ctx.block.emit("OpConvertUToPtr", view.pointer, element_address(ctx, op))
    else:
        index = _index(ctx, op, root_of(array))
        pointer = ctx.block.emit("OpAccessChain", view.pointer, *view.chain, index)
    align = max(view.align, op.attrs.get("align", 0)) if view.align else 0
    return Place(pointer, view.stored, align, view.private)


def element_address(ctx: Context, op: Op) -> int:
    """The address (u64) of the element of a global array that an operation works on."""
    array = op.operands[0]
    index = _index(ctx, op, root_of(array))
    block = ctx.block
    if ctx.writer.info(ctx.writer.type_of(index)).bits == 32:
        index = block.emit("OpSConvert", ctx.ulong, index)
    size = ctx.writer.constant(ctx.ulong, _element_bytes(array_type(array).element))
    offset = block.emit("OpIMul", ctx.ulong, index, size)
    return block.emit("OpIAdd", ctx.ulong, address_of(ctx, root_of(array)), offset)


# Indices


def _index(ctx: Context, op: Op, root: Value) -> int:
    """The offset in elements that the operation's indices denote, in 32 bits where these are known to be enough."""
    kind = array_type(op.operands[0])
    indices = op.operands[1 : 1 + kind.rank]
    if len(indices) == 1 and (kind.linear or kind.contiguous or kind.space != "global"):
        return _offset(ctx, indices[0], kind.space)
    if not indices:
        return ctx.word(0)
    writer, block = ctx.writer, ctx.block
    total = 0
    for axis, value in enumerate(indices):
        wide = _wide_index(ctx, value)
        step = _stride(ctx, kind, root, axis)
        term = wide if step is None else block.emit("OpIMul", ctx.ulong, wide, step)
        total = term if axis == 0 else block.emit("OpIAdd", ctx.ulong, total, term)
    return total or writer.constant(ctx.ulong, 0)


def _offset(ctx: Context, value: Value, space: str) -> int:
    op = value.op
    if op is not None and op.name == "const" and -(1 << 31) <= int(op.attrs["value"]) < 1 << 31:
        return ctx.word(int(op.attrs["value"]))
    narrow = ctx.narrow.get(value)
    if narrow is not None and (narrow[1] or space != "global"):
        return narrow[0]
    dtype = dtype_of(value.type)
    if dtype.bits < 32 or dtype is dtypes.u32:
        return _wide_index(ctx, value)
    return ctx.get(value)


def _wide_index(ctx: Context, value: Value) -> int:
    dtype = dtype_of(value.type)
    if dtype.bits == 64:
        return ctx.get(value)
    return ctx.block.emit("OpSConvert" if dtype.is_signed else "OpUConvert", ctx.ulong, ctx.get(value))


def _stride(ctx: Context, kind: Array, root: Value, axis: int) -> int | None:
    """The stride (64 bits) of an axis of an array that isn't linear yet; None for 1."""
    if kind.shape is not None:
        step = math.prod(kind.shape[axis + 1 :])
        return None if step == 1 else ctx.writer.constant(ctx.ulong, step)
    arg = ctx.args[ctx.positions[root]]
    if not kind.contiguous:
        return load_word(ctx, field_of(ctx, "stride", arg, axis))
    later = range(axis + 1, kind.rank)
    if not later:
        return None

    def make(entry: OpenBlock) -> int:
        product = load_word(ctx, field_of(ctx, "extent", arg, later[0]))
        for other in later[1:]:
            product = entry.emit("OpIMul", ctx.ulong, product, load_word(ctx, field_of(ctx, "extent", arg, other)))
        return product

    return ctx.once(("contiguous_stride", arg, axis), make)


# Operations


def _load(ctx: Context, op: Op) -> None:
    place = place_of(ctx, op)
    raw = ctx.block.emit("OpLoad", place.stored, place.pointer, *place.operands)
    ctx.values[op.result] = from_memory(ctx, raw, op.result.type, place.stored)


def _store(ctx: Context, op: Op) -> None:
    value = op.operands[-1]
    place = place_of(ctx, op)
    rounded = value.op is not None and value.op.name in _ROUNDED
    stored = to_memory(ctx, ctx.get(value), value.type, place.stored, rounded)
    ctx.block.emit_void("OpStore", place.pointer, stored, *place.operands)


def _allocate(ctx: Context, op: Op) -> None:
    _variable(ctx, op.result)


def _linear(ctx: Context, op: Op) -> None:
    """A view emits nothing: accesses through it find the array that it views."""


def shared_bytes(ctx: Context) -> int:
    """Bytes of workgroup memory that the kernel's shared arrays take."""
    total = 0
    for op in ctx.usage.shared:
        array = array_type(op.result)
        stored = ctx.writer.info(variable_stored(ctx, op.result))
        size = stored.bits // 8 * max(stored.length, 1) * max(math.prod(array.shape or ()), 1)
        total = -(-total // 16) * 16 + size
    return total


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    "load": _load,
    "store": _store,
    "shared": _allocate,
    "local": _allocate,
    "linear": _linear,
}
