"""Lowering of atomic operations on global and shared arrays.

A native instruction is used if the device has it for the type, else a compare-and-exchange loop on the element's bits.
An 8- or 16-bit element of a global array is accessed as part of the 32-bit word that contains it; in a shared array,
each such element has a word of its own. Float min and max propagate NaN and treat -0 as less than +0.

Device scope needs VulkanMemoryModelDeviceScope. Without it, the scope is QueueFamily, which is equivalent on devices
with one queue.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.backends.codegen.usage import root_of
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar, Type

from .context import Context, dtype_of
from .conversions import bits_to_value, round_to_bf16, value_to_bits
from .memory import CLASSES, Place, element_address, place_of
from .min_max import ordered_extreme
from .storage import array_type
from .wide import low_word, pointer_to, words

__all__ = ["HANDLERS", "scope_of"]

_INTEGER = {
    "add": "OpAtomicIAdd",
    "sub": "OpAtomicISub",
    "and": "OpAtomicAnd",
    "or": "OpAtomicOr",
    "xor": "OpAtomicXor",
    "exchange": "OpAtomicExchange",
}
_CORE = {"add": "IAdd", "sub": "ISub", "and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}
_ORDERS = {
    "relaxed": "",
    "acquire": "Acquire|MakeVisible",
    "release": "Release|MakeAvailable",
    "acq_rel": "AcquireRelease|MakeAvailable|MakeVisible",
    "seq_cst": "AcquireRelease|MakeAvailable|MakeVisible",
}
_LOAD_ORDERS = {"release": "relaxed", "acq_rel": "acquire", "seq_cst": "acquire"}
_STORE_ORDERS = {"acquire": "relaxed", "acq_rel": "release", "seq_cst": "release"}


def scope_of(ctx: Context, name: str) -> int:
    """Return the id of a memory scope: "subgroup", "workgroup" or "device"."""
    if name == "device":
        return ctx.writer.scope("Device" if "memory_model_device_scope" in ctx.caps.features else "QueueFamily")
    if name not in ("workgroup", "subgroup"):
        raise InternalError(f"no scope is called {name!r}: expected 'workgroup' or 'device'")
    return ctx.writer.scope(name.capitalize())


def _scope(ctx: Context, op: Op) -> int:
    shared = array_type(op.operands[0]).space == "shared"
    return scope_of(ctx, "workgroup" if shared else op.attrs["scope"])


def _semantics(ctx: Context, order: str) -> int:
    if order not in _ORDERS:
        raise InternalError(f"no memory order is called {order!r}: expected one of {', '.join(_ORDERS)}")
    text = _ORDERS[order]
    if "ordered_atomics" in ctx.caps.quirks:
        text = ""
    return ctx.writer.semantics(f"{text}|UniformMemory|WorkgroupMemory" if text else "Relaxed")


def _element(op: Op) -> tuple[Type, DType]:
    element = array_type(op.operands[0]).element
    if not isinstance(element, Scalar) or element.dtype.kind == "bool":
        raise InternalError(f"{op.name} at {op.loc} on {element}: expected a scalar that isn't bool")
    return element, element.dtype


def _require_int64_atomics(ctx: Context, op: Op, dtype: DType) -> None:
    """Record the feature for 64-bit integer atomics, if needed: there is one for buffers and one for shared memory."""
    if dtype.bits == 64:
        shared = array_type(op.operands[0]).space == "shared"
        ctx.features.add("int64_shared_atomics" if shared else "int64_atomics")


# Load, store, compare-and-exchange


def _atomic_load(ctx: Context, op: Op) -> None:
    element, dtype = _element(op)
    order = op.attrs["order"]
    semantics = _semantics(ctx, _LOAD_ORDERS.get(order, order))
    if dtype.bits < 32:
        pointer, shift = _word_of(ctx, op)
        word = ctx.block.emit("OpAtomicLoad", ctx.uint, pointer, _scope(ctx, op), semantics)
        ctx.values[op.result] = _unpack(ctx, word, shift, element)
        return
    place = _bits_place(ctx, op, dtype)
    bits = ctx.block.emit("OpAtomicLoad", place.stored, place.pointer, _scope(ctx, op), semantics)
    ctx.values[op.result] = bits_to_value(ctx, bits, element)


def _atomic_store(ctx: Context, op: Op) -> None:
    element, dtype = _element(op)
    order = _STORE_ORDERS.get(op.attrs["order"], op.attrs["order"])
    if dtype.bits < 32:
        _update_in_word(ctx, op, lambda _: ctx.get(op.operands[-1]), order)
        return
    place = _bits_place(ctx, op, dtype)
    bits, _ = value_to_bits(ctx, ctx.get(op.operands[-1]), element)
    ctx.block.emit_void("OpAtomicStore", place.pointer, _scope(ctx, op), _semantics(ctx, order), bits)


def _atomic_cas(ctx: Context, op: Op) -> None:
    element, dtype = _element(op)
    expected, desired = (ctx.get(value) for value in op.operands[-2:])
    if dtype.bits < 32:
        ctx.values[op.result] = _small_cas(ctx, op, expected, desired)
        return
    place = _bits_place(ctx, op, dtype)
    old, new = (value_to_bits(ctx, value, element)[0] for value in (expected, desired))
    bits = _exchange(ctx, op, place.pointer, place.stored, new, old, op.attrs["order"])
    ctx.values[op.result] = bits_to_value(ctx, bits, element)


def _exchange(ctx: Context, op: Op, pointer: int, type_id: int, new: int, old: int, order: str) -> int:
    equal, unequal = _semantics(ctx, order), _semantics(ctx, _LOAD_ORDERS.get(order, order))
    scope = _scope(ctx, op)
    return ctx.block.emit("OpAtomicCompareExchange", type_id, pointer, scope, equal, unequal, new, old)


def _bits_place(ctx: Context, op: Op, dtype: DType) -> Place:
    """Return the location of an element, accessed as an integer."""
    _require_int64_atomics(ctx, op, dtype)
    return place_of(ctx, op, as_bits=True)


# Read-modify-write


def _atomic(ctx: Context, op: Op) -> None:
    _, dtype = _element(op)
    if dtype.bits < 32:
        ctx.values[op.result] = _update_in_word(ctx, op, lambda old: _combined(ctx, op, old), op.attrs["order"])
    elif dtype.is_float:
        _float_atomic(ctx, op, dtype)
    else:
        _integer_atomic(ctx, op, dtype)


def _integer_name(op: Op, dtype: DType) -> str:
    name = op.attrs["op"]
    if name in ("min", "max"):
        return f"OpAtomic{'S' if dtype.is_signed else 'U'}{name.capitalize()}"
    if name not in _INTEGER:
        raise InternalError(f"no atomic operation is called {name!r} at {op.loc}")
    return _INTEGER[name]


def _integer_atomic(ctx: Context, op: Op, dtype: DType) -> None:
    if dtype.bits == 64 and not ctx.int64:
        _update_words(ctx, op)
        return
    _require_int64_atomics(ctx, op, dtype)
    place = place_of(ctx, op)
    operands = (place.pointer, _scope(ctx, op), _semantics(ctx, op.attrs["order"]), ctx.get(op.operands[-1]))
    ctx.values[op.result] = ctx.block.emit(_integer_name(op, dtype), place.stored, *operands)


def _update_words(ctx: Context, op: Op) -> None:
    """Update the words of a 64-bit element one by one, for operations that `split_int64` allows: the result is unused.

    The sum of a word with its carry is added to the next word, so that all additions together are exact.
    """
    name, pointer, block = op.attrs["op"], place_of(ctx, op).pointer, ctx.block
    low, high = words(ctx, block, ctx.get(op.operands[-1]))
    if name == "sub":
        is_zero = block.emit("OpIEqual", ctx.writer.type_bool(), low, ctx.word(0))
        low = block.emit("OpSNegate", ctx.uint, low)
        high = block.emit("OpNot", ctx.uint, high)
        high = block.emit("OpIAdd", ctx.uint, high, block.emit("OpSelect", ctx.uint, is_zero, ctx.word(1), ctx.word(0)))
    storage = CLASSES[array_type(op.operands[0]).space]
    word_pointer, order = (
        ctx.writer.type_pointer(storage, ctx.uint),
        (_scope(ctx, op), _semantics(ctx, op.attrs["order"])),
    )
    instruction = "OpAtomicIAdd" if name == "sub" else _INTEGER[name]
    places = [block.emit("OpAccessChain", word_pointer, pointer, ctx.word(lane)) for lane in (0, 1)]
    old = block.emit(instruction, ctx.uint, places[0], *order, low)
    if name in ("add", "sub"):
        sum_ = block.emit("OpIAdd", ctx.uint, old, low)
        carries = block.emit("OpULessThan", ctx.writer.type_bool(), sum_, old)
        high = block.emit("OpIAdd", ctx.uint, high, block.emit("OpSelect", ctx.uint, carries, ctx.word(1), ctx.word(0)))
    block.emit(instruction, ctx.uint, places[1], *order, high)


def _float_atomic(ctx: Context, op: Op, dtype: DType) -> None:
    name = op.attrs["op"]
    value = ctx.get(op.operands[-1])
    element: Type = Scalar(dtype)
    if name in ("add", "sub") and _adds_natively(ctx, op, dtype):
        place = place_of(ctx, op)
        if name == "sub":
            value = ctx.block.emit("OpFNegate", place.stored, value)
        semantics = _semantics(ctx, op.attrs["order"])
        operands = (place.pointer, _scope(ctx, op), semantics, value)
        ctx.values[op.result] = ctx.block.emit("OpAtomicFAddEXT", place.stored, *operands)
        return
    place = _bits_place(ctx, op, dtype)
    if name == "exchange":
        bits, _ = value_to_bits(ctx, value, element)
        operands = (place.pointer, _scope(ctx, op), _semantics(ctx, op.attrs["order"]), bits)
        old = ctx.block.emit("OpAtomicExchange", place.stored, *operands)
        ctx.values[op.result] = bits_to_value(ctx, old, element)
        return

    def change(bits: int) -> int:
        return value_to_bits(ctx, _combined(ctx, op, bits_to_value(ctx, bits, element)), element)[0]

    old = _cas_loop(ctx, op, place.pointer, place.stored, change, op.attrs["order"])
    ctx.values[op.result] = bits_to_value(ctx, old, element)


def _adds_natively(ctx: Context, op: Op, dtype: DType) -> bool:
    """True if the device supports it natively and the storage type is float. Records the feature in that case."""
    shared = array_type(op.operands[0]).space == "shared"
    feature = f"float{dtype.bits}_shared_atomic_add" if shared else f"float{dtype.bits}_atomic_add"
    if feature not in ctx.caps.features:
        return False
    if shared and not all(_is_add(other) for other in ctx.usage.atomics[root_of(op.operands[0])]):
        return False
    ctx.features.add(feature)
    return True


def _is_add(op: Op) -> bool:
    return op.name == "atomic" and op.attrs["op"] == "add"


def _combined(ctx: Context, op: Op, old: int) -> int:
    """Return the new value of an element whose old value is `old`."""
    name, operand = op.attrs["op"], op.operands[-1]
    value, dtype = ctx.get(operand), dtype_of(operand.type)
    type_id, block = ctx.type(operand.type), ctx.block
    if name == "exchange":
        return value
    if name in ("min", "max"):
        return ordered_extreme(ctx, name, old, value, operand.type)
    if dtype.is_float:
        return block.emit("OpFAdd" if name == "add" else "OpFSub", type_id, old, value)
    return block.emit(f"Op{_CORE[name]}", type_id, old, value)


def _cas_loop(ctx: Context, op: Op, pointer: int, type_id: int, change: Callable[[int], int], order: str) -> int:
    """Repeat a compare-and-exchange until it succeeds. Return the old bits; `change` computes the new from the old."""
    function = ctx.function
    header_label, body, continue_target, merge = (function.label() for _ in range(4))
    start = ctx.block.emit("OpAtomicLoad", type_id, pointer, _scope(ctx, op), _semantics(ctx, "relaxed"))
    before = ctx.block.label
    ctx.block.branch(header_label)
    ctx.open(header_label)
    header = ctx.block
    old = header.phi(type_id, start, before)
    header.loop_merge(merge, continue_target)
    header.branch(body)
    ctx.open(body)
    observed = _exchange(ctx, op, pointer, type_id, change(old.id), old.id, order)
    done = ctx.block.emit("OpIEqual", ctx.writer.type_bool(), observed, old.id)
    ctx.block.branch_conditional(done, merge, continue_target)
    ctx.open(continue_target)
    old.add(observed, continue_target)
    ctx.block.branch(header_label)
    ctx.open(merge)
    return observed


# Elements of 8 and 16 bits


def _word_of(ctx: Context, op: Op) -> tuple[int, int]:
    """Return (pointer to the 32-bit word that contains the element, bit offset of the element in it)."""
    if array_type(op.operands[0]).space != "global":
        return place_of(ctx, op).pointer, ctx.word(0)
    address = element_address(ctx, op)
    block, writer = ctx.block, ctx.writer
    base = block.emit("OpBitwiseAnd", ctx.ulong, address, ctx.long(~3))
    pointer = pointer_to(ctx, block, writer.type_pointer("PhysicalStorageBuffer", ctx.uint), base)
    low = block.emit("OpBitwiseAnd", ctx.uint, low_word(ctx, block, address), ctx.word(3))
    return pointer, block.emit("OpShiftLeftLogical", ctx.uint, low, ctx.word(3))


def _small_bits(ctx: Context, value: int, element: Type) -> int:
    """Return the bits of an 8-bit or 16-bit value. The f32 that represents a bf16 is rounded first."""
    rounded = round_to_bf16(ctx, value) if dtype_of(element) is dtypes.bf16 else value
    return value_to_bits(ctx, rounded, element)[0]


def _unpack(ctx: Context, word: int, shift: int, element: Type) -> int:
    shifted = ctx.block.emit("OpShiftRightLogical", ctx.uint, word, shift)
    small = ctx.block.emit("OpUConvert", ctx.writer.type_int(dtype_of(element).bits), shifted)
    return bits_to_value(ctx, small, element)


def _pack(ctx: Context, word: int, value: int, shift: int, element: Type) -> int:
    """Return `word` with one element replaced by `value`."""
    block = ctx.block
    mask = ctx.word((1 << dtype_of(element).bits) - 1)
    keep = block.emit("OpNot", ctx.uint, block.emit("OpShiftLeftLogical", ctx.uint, mask, shift))
    wide = block.emit("OpUConvert", ctx.uint, _small_bits(ctx, value, element))
    placed = block.emit("OpShiftLeftLogical", ctx.uint, wide, shift)
    return block.emit("OpBitwiseOr", ctx.uint, block.emit("OpBitwiseAnd", ctx.uint, word, keep), placed)


def _update_in_word(ctx: Context, op: Op, change: Callable[[int], int], order: str) -> int:
    """Update an 8-bit or 16-bit element by a compare-and-exchange loop on its word. Return the old element."""
    element, _ = _element(op)
    pointer, shift = _word_of(ctx, op)

    def change_word(word: int) -> int:
        return _pack(ctx, word, change(_unpack(ctx, word, shift, element)), shift, element)

    return _unpack(ctx, _cas_loop(ctx, op, pointer, ctx.uint, change_word, order), shift, element)


def _small_cas(ctx: Context, op: Op, expected: int, desired: int) -> int:
    """Emit a compare-and-exchange of an 8-bit or 16-bit element. Return the old element.

    If the bits differ from the expected ones, the word is written back unchanged.
    """
    element, _ = _element(op)
    expected_bits = _small_bits(ctx, expected, element)
    bool_type = ctx.writer.type_bool()

    def change(old: int) -> int:
        same = ctx.block.emit("OpIEqual", bool_type, _small_bits(ctx, old, element), expected_bits)
        return ctx.block.emit("OpSelect", ctx.type(element), same, desired, old)

    return _update_in_word(ctx, op, change, op.attrs["order"])


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    "atomic": _atomic,
    "atomic_cas": _atomic_cas,
    "atomic_load": _atomic_load,
    "atomic_store": _atomic_store,
}
