"""Lowering of loads, stores and allocations: global arrays are accessed by address, shared and local ones as variables.

The base pointer of a global array points to a struct of one runtime array; it is converted from the address once, in
the entry block. Each access has the largest known alignment. If invocations communicate (by barriers, fences or
atomics), accesses to shared arrays, and to global arrays that may be both read and written, are NonPrivatePointer.

A view of a global array with another element type has a base pointer of its own. A view of a shared or local array must
have elements of the same width.
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
from .conversions import sign_extended
from .storage import array_type, from_memory, stored_type, to_memory, variable_stored
from .wide import pointer_to, product, total

__all__ = [
    "CLASSES",
    "HANDLERS",
    "Place",
    "element_address",
    "is_private",
    "orders_buffers",
    "place_of",
    "shared_bytes",
]

_ROUNDED: frozenset[OpName] = frozenset({"cast", "load", "const", "bitcast", "atomic_load", "poison"})
"""Operations whose bf16 results need no rounding."""

CLASSES = {"global": "PhysicalStorageBuffer", "shared": "Workgroup", "local": "Function"}
"""Maps the space of an array to its storage class."""


@dataclass(frozen=True, slots=True)
class Place:
    """Location of an element in memory: a pointer, the SPIR-V type `stored` there, and properties of accesses.

    `align` is in bytes, 0 for variables. `private` accesses aren't ordered by barriers and fences.
    """

    pointer: int
    stored: int
    align: int
    private: bool

    @property
    def operands(self) -> tuple[int | str, ...]:
        """Memory operands of a load or store."""
        names = "" if self.private else "NonPrivatePointer"
        if not self.align:
            return (names,) if names else ()
        return ("Aligned" + (f"|{names}" if names else ""), self.align)


# Pointers


def is_private(ctx: Context, root: Value) -> bool:
    """True if barriers and fences needn't order accesses to the array `root`."""
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
    """True if barriers must order accesses to global arrays."""
    params = [ctx.kernel.params[position] for position in ctx.usage.addresses]
    return not all(is_private(ctx, param) for param in params)


def _element_bytes(element: Type) -> int:
    return dtype_of(element).itemsize * lanes_of(element)


def _alignment(array: Value) -> int:
    """Return the known alignment of an element's address in bytes: its natural one, or a view's attribute `align`."""
    element = array_type(array).element
    lanes = lanes_of(element)
    view = array.op
    if view is not None and "align" in view.attrs:
        return math.gcd(view.attrs["align"], _element_bytes(element))
    return dtype_of(element).itemsize * (lanes if lanes in (2, 4) else 1)


def base_pointer(ctx: Context, root: Value, stored: int, stride: int) -> int:
    """Return the pointer to a global array as a struct of one runtime array, emitted in the entry block.

    `stored` is the SPIR-V type of the elements and `stride` their distance in bytes.
    """
    readonly = array_type(root).access == "in" and array_type(root).restrict

    def make(entry: OpenBlock) -> int:
        writer = ctx.writer
        runtime = writer.type_runtime_array(stored, stride)
        name = "ReadOnly" if readonly else "Elements"
        struct = writer.type_struct((runtime,), (0,), name=name, block=True)
        if readonly:
            writer.decorate_member(struct, 0, "NonWritable")
        pointer = writer.type_pointer("PhysicalStorageBuffer", struct)
        return pointer_to(ctx, entry, pointer, address_of(ctx, root))

    return ctx.once(("base", root, stored, stride, readonly), make)


def _variable(ctx: Context, root: Value) -> int:
    """Return the variable of a shared or local array."""

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
    """Common data of all accesses through one array value; the fields after `pointer` are those of `Place`.

    `chain` has the operands of the access chain before the element's index; `pointer` is the chain's result type.
    """

    chain: tuple[int, ...]
    pointer: int
    stored: int
    align: int
    private: bool


def _view_of(ctx: Context, array: Value, as_bits: bool) -> _View:
    view: _View | None = ctx.views.get((array, as_bits))
    if view is None:
        make = _global_view if array_type(array).space == "global" else _variable_view
        view = ctx.views[array, as_bits] = make(ctx, array, as_bits)
    return view


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
    pointer = ctx.writer.type_pointer(CLASSES[kind.space], stored)
    return _View((_variable(ctx, root),), pointer, stored, 0, is_private(ctx, root))


def place_of(ctx: Context, op: Op, *, as_bits: bool = False) -> Place:
    """Return the location of the element that a load, store or atomic accesses.

    With `as_bits`, a float in a global array is accessed as an integer.
    """
    array = op.operands[0]
    view = _view_of(ctx, array, as_bits)
    root = array_type(root_of(array))
    index = _index(ctx, op, root_of(array))
    # drivers may zero-extend the index of an access chain, so it must not be negative
    may_be_negative = root.space == "global" and not root.contiguous and ctx.kernel.attrs.get("backward")
    if may_be_negative or (not ctx.int64 and ctx.writer.type_of(index) == ctx.ulong):
        pointer = _computed_pointer(ctx, view, _address(ctx, array, index))
    else:
        pointer = ctx.block.emit("OpAccessChain", view.pointer, *view.chain, index)
    align = max(view.align, op.attrs.get("align", 0)) if view.align else 0
    return Place(pointer, view.stored, align, view.private)


def _computed_pointer(ctx: Context, view: _View, address: int) -> int:
    """Return a pointer to the element of a global array at an address."""
    if ctx.int64:
        return pointer_to(ctx, ctx.block, view.pointer, address)
    array = pointer_to(ctx, ctx.block, ctx.writer.type_of(view.chain[0]), address)
    return ctx.block.emit("OpAccessChain", view.pointer, array, ctx.word(0), ctx.word(0))


def element_address(ctx: Context, op: Op) -> int:
    """Return the address (u64) of the element of a global array that an operation accesses."""
    array = op.operands[0]
    return _address(ctx, array, _index(ctx, op, root_of(array)))


def _address(ctx: Context, array: Value, index: int) -> int:
    """Return the address of the element of a global array with this offset, of 32 or 64 bits."""
    block = ctx.block
    if ctx.writer.type_of(index) != ctx.ulong:
        index = block.emit("OpSConvert", ctx.ulong, index) if ctx.int64 else sign_extended(ctx, block, index)
    offset = product(ctx, block, index, _element_bytes(array_type(array).element))
    return total(ctx, block, address_of(ctx, root_of(array)), offset)


# Indices


def _index(ctx: Context, op: Op, root: Value) -> int:
    """Return the offset, in elements, of the element that an operation accesses. It has 32 bits if that suffices."""
    kind = array_type(op.operands[0])
    indices = op.operands[1 : 1 + kind.rank]
    if len(indices) == 1 and (kind.linear or kind.contiguous or kind.space != "global"):
        return _offset(ctx, indices[0], kind.space)
    if not indices:
        return ctx.word(0)
    block = ctx.block
    sum_ = 0
    for axis, value in enumerate(indices):
        wide = _wide_index(ctx, value)
        step = _stride(ctx, kind, root, axis)
        term = wide if step is None else block.emit("OpIMul", ctx.ulong, wide, step)
        sum_ = term if axis == 0 else block.emit("OpIAdd", ctx.ulong, sum_, term)
    return sum_ or ctx.long(0)


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
    """Return the stride (64 bits) of an axis of an array that isn't linearized; None if the stride is 1."""
    if kind.shape is not None:
        step = math.prod(kind.shape[axis + 1 :])
        return None if step == 1 else ctx.long(step)
    arg = ctx.args[ctx.positions[root]]
    if not kind.contiguous:
        return load_word(ctx, field_of(ctx, "stride", arg, axis))
    inner_axes = range(axis + 1, kind.rank)
    if not inner_axes:
        return None

    def make(entry: OpenBlock) -> int:
        product = load_word(ctx, field_of(ctx, "extent", arg, inner_axes[0]))
        for other in inner_axes[1:]:
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
    """Emit nothing: accesses through a view look up the array that it views."""


def shared_bytes(ctx: Context) -> int:
    """Return the total size in bytes of the kernel's shared arrays, each aligned to 16 bytes."""
    total = 0
    for op in ctx.usage.shared:
        array = array_type(op.result)
        stored = ctx.writer.info(variable_stored(ctx, op.result))
        item = _element_bytes(array.element) if stored.kind == "struct" else stored.bits // 8 * max(stored.length, 1)
        size = item * max(math.prod(array.shape or ()), 1)
        total = -(-total // 16) * 16 + size
    return total


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    "load": _load,
    "store": _store,
    "shared": _allocate,
    "local": _allocate,
    "linear": _linear,
}
