"""Code generation for atomic operations, barriers and fences.

An atomic operation is a loop over the active lanes around an LLVM atomic instruction. Read-modify-write operations on
shared arrays use ordinary instructions, since a single thread accesses these. Those of floats on global arrays, except
exchange, are compare-and-exchange loops on the bits; min and max propagate NaN and order -0 below +0. Integer operations
at a uniform index whose result isn't used are first reduced over the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName

from .context import Generator, Handler, dtype_of
from .elementwise import round_to_bf16
from .llvm_text import intrinsic_suffix, memory_type
from .memory import element_pointer, from_memory, item_bytes, place_index, to_memory

__all__ = ["HANDLERS"]

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_FAILURE = {"monotonic": "monotonic", "acquire": "acquire", "release": "monotonic", "acq_rel": "acquire"}
_RMW_NAMES = {"add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor", "exchange": "xchg"}


@dataclass(frozen=True, slots=True)
class _Lane:
    """One active lane: the pointer to its element, and its operands as scalars."""

    pointer: str
    operands: list[str]


def _bits_type(dtype: DType) -> str:
    return f"i{8 * item_bytes(dtype)}"


def _to_bits(g: Generator, part: str, dtype: DType) -> str:
    """Convert a scalar to an integer with the bits that it has in memory."""
    stored, kind = to_memory(g, part, dtype, False), memory_type(dtype)
    return stored if kind == _bits_type(dtype) else g.text.op(f"bitcast {kind} {stored} to {_bits_type(dtype)}")


def _from_bits(g: Generator, bits: str, dtype: DType) -> str:
    kind = memory_type(dtype)
    raw = bits if kind == _bits_type(dtype) else g.text.op(f"bitcast {_bits_type(dtype)} {bits} to {kind}")
    return from_memory(g, raw, dtype, False)


def _each_lane(g: Generator, op: Op, operands: list[Value], change: Callable[[_Lane], str]) -> list[str]:
    """Emit a loop over the active lanes, and return the vector of the values that `change`, its body, returns.

    Vectors are spilled to memory, so that a lane's element is one load.
    """
    text = g.text
    array = op.operands[0]
    dtype = dtype_of(g.array(array).element)
    scalar, vector = g.type(dtype, False), g.type(dtype, True)
    index, kind = place_index(g, op, True)
    places = _spilled(g, index, kind)
    spilled = [_spilled(g, g.vector(v), g.type(dtype, True)) for v in operands]
    result = text.variable(vector, align=64)
    left = text.variable(f"i{g.width}")
    text.store(f"i{g.width}", "-1" if g.mask is None else g.bits(g.mask), left)
    head, leave = text.new_label("lane"), text.new_label("lanes")
    text.jump(head)
    text.label(head)
    with g.scope():
        word = text.load(f"i{g.width}", left)
        number = text.call(f"i{g.width}", f"llvm.cttz.i{g.width}", f"i{g.width} {word}", "i1 true")
        lane = g.resized(number, f"i{g.width}", "i64")
        element = kind[:-1].split(" x ")[1]
        place = text.load(element, text.op(f"getelementptr {element}, ptr {places}, i64 {lane}"))
        operand_parts = [text.load(scalar, text.op(f"getelementptr {scalar}, ptr {k}, i64 {lane}")) for k in spilled]
        old = change(_Lane(element_pointer(g, array, place, element), operand_parts))
        if op.results:
            text.store(scalar, old, text.op(f"getelementptr {scalar}, ptr {result}, i64 {lane}"))
        rest = text.op(f"and i{g.width} {word}, {text.op(f'sub i{g.width} {word}, 1')}")
        text.store(f"i{g.width}", rest, left)
        text.branch(text.op(f"icmp ne i{g.width} {rest}, 0"), head, leave)
    text.label(leave)
    return [text.load(vector, result)] if op.results else []


def _spilled(g: Generator, part: str, kind: str) -> str:
    variable = g.text.variable(kind, align=64)
    g.text.store(kind, part, variable)
    return variable


def _is_shared(g: Generator, op: Op) -> bool:
    return g.array(op.operands[0]).space == "shared"


def _order(op: Op) -> str:
    return _ORDERS[op.attrs["order"]]


# -- read-modify-write


def _combined(g: Generator, op: Op, old: str, value: str, dtype: DType) -> str:
    """Emit the new value of an element, computed from the old one and the operand."""
    name, kind = op.attrs["op"], g.type(dtype, False)
    if name == "exchange":
        return value
    if name in ("min", "max"):
        if dtype.is_float:
            intrinsic = f"llvm.{name}imum.{intrinsic_suffix(kind)}"
        else:
            intrinsic = f"llvm.{'s' if dtype.is_signed else 'u'}{name}.{kind}"
        return g.text.call(kind, intrinsic, f"{kind} {old}", f"{kind} {value}")
    if dtype.is_float:
        result = g.text.op(f"f{name} {kind} {old}, {value}")
        return round_to_bf16(g, result, False) if dtype is dtypes.bf16 else result
    return g.text.op(f"{name} {kind} {old}, {value}")


def _change(g: Generator, op: Op, lane: _Lane) -> str:
    dtype = dtype_of(g.array(op.operands[0]).element)
    value = lane.operands[0]
    if _is_shared(g, op):
        bits = g.text.load(_bits_type(dtype), lane.pointer)
        old = _from_bits(g, bits, dtype)
        new = _combined(g, op, old, value, dtype)
        g.text.store(_bits_type(dtype), _to_bits(g, new, dtype), lane.pointer)
        return old
    name, kind = op.attrs["op"], _bits_type(dtype)
    if name == "exchange" or not dtype.is_float:
        word = _RMW_NAMES.get(name) or (name if dtype.is_signed else f"u{name}")
        bits = _to_bits(g, value, dtype)
        return _from_bits(g, g.text.op(f"atomicrmw {word} ptr {lane.pointer}, {kind} {bits} {_order(op)}"), dtype)
    return _by_exchange(g, op, lane, dtype)


def _by_exchange(g: Generator, op: Op, lane: _Lane, dtype: DType) -> str:
    """Emit a loop that repeats a compare-and-exchange until it succeeds, and return the old value."""
    text, kind = g.text, _bits_type(dtype)
    expected = text.variable(kind)
    again, done = text.new_label("again"), text.new_label("done")
    first = text.op(f"load atomic {kind}, ptr {lane.pointer} monotonic, align {item_bytes(dtype)}")
    text.store(kind, first, expected)
    text.jump(again)
    text.label(again)
    bits = text.load(kind, expected)
    old = _from_bits(g, bits, dtype)
    new = _to_bits(g, _combined(g, op, old, lane.operands[0], dtype), dtype)
    order = _order(op)
    pair = text.op(f"cmpxchg ptr {lane.pointer}, {kind} {bits}, {kind} {new} {order} {_FAILURE[order]}")
    text.store(kind, text.op(f"extractvalue {{ {kind}, i1 }} {pair}, 0"), expected)
    text.branch(text.op(f"extractvalue {{ {kind}, i1 }} {pair}, 1"), done, again)
    text.label(done)
    return old


def _atomic(g: Generator, op: Op) -> None:
    value = op.operands[-1]
    dtype = dtype_of(value.type)
    combines = not dtype.is_float and op.attrs["op"] != "exchange" and op.result not in g.used
    if combines and g.shapes.is_uniform(op.operands[1]):
        index, kind = place_index(g, op, False)
        total = _reduced(g, op.attrs["op"], value, dtype)
        _change(g, op, _Lane(element_pointer(g, op.operands[0], index, kind), [total]))
        return
    g.define(op.result, _each_lane(g, op, [value], lambda lane: _change(g, op, lane)))


def _reduced(g: Generator, name: str, value: Value, dtype: DType) -> str:
    """Reduce the operands of all active lanes to one."""
    kind, whole = g.type(dtype, False), g.type(dtype, True)
    low = 0 if not dtype.is_signed else -(1 << (dtype.bits - 1))
    high = (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1
    neutral = {"and": -1, "min": high, "max": low}.get(name, 0)
    part = g.vector(value)
    if g.mask is not None:
        part = g.select(g.mask, whole, part, g.number(neutral, dtype, True))
    word = {"sub": "add", "min": "smin", "max": "smax"}.get(name, name)
    if name in ("min", "max") and not dtype.is_signed:
        word = f"u{name}"
    return g.text.call(kind, f"llvm.vector.reduce.{word}.{intrinsic_suffix(whole)}", f"{whole} {part}")


# -- compare-and-exchange, loads, stores, synchronization


def _cas(g: Generator, op: Op) -> None:
    dtype = dtype_of(g.array(op.operands[0]).element)
    kind = _bits_type(dtype)

    def change(lane: _Lane) -> str:
        expected, desired = (_to_bits(g, part, dtype) for part in lane.operands)
        if _is_shared(g, op):
            bits = g.text.load(kind, lane.pointer)
            same = g.text.op(f"icmp eq {kind} {bits}, {expected}")
            g.text.store(kind, g.text.op(f"select i1 {same}, {kind} {desired}, {kind} {bits}"), lane.pointer)
            return _from_bits(g, bits, dtype)
        order = _order(op)
        pair = g.text.op(f"cmpxchg ptr {lane.pointer}, {kind} {expected}, {kind} {desired} {order} {_FAILURE[order]}")
        return _from_bits(g, g.text.op(f"extractvalue {{ {kind}, i1 }} {pair}, 0"), dtype)

    g.define(op.result, _each_lane(g, op, list(op.operands[2:]), change))


def _load(g: Generator, op: Op) -> None:
    dtype = dtype_of(op.result.type)
    order = {"release": "monotonic", "acq_rel": "acquire"}.get(_order(op), _order(op))
    kind = _bits_type(dtype)

    def read(lane: _Lane) -> str:
        instruction = f"load atomic {kind}, ptr {lane.pointer} {order}, align {item_bytes(dtype)}"
        return _from_bits(g, g.text.op(instruction), dtype)

    g.define(op.result, _each_lane(g, op, [], read))


def _store(g: Generator, op: Op) -> None:
    value = op.operands[-1]
    dtype = dtype_of(value.type)
    order = {"acquire": "monotonic", "acq_rel": "release"}.get(_order(op), _order(op))
    kind = _bits_type(dtype)

    def write(lane: _Lane) -> str:
        bits = _to_bits(g, lane.operands[0], dtype)
        g.text.do(f"store atomic {kind} {bits}, ptr {lane.pointer} {order}, align {item_bytes(dtype)}")
        return lane.operands[0]

    _each_lane(g, op, [value], write)


def _barrier(_g: Generator, _op: Op) -> None:
    """Emit nothing: one thread runs the whole workgroup, one barrier region after the other."""


def _fence(g: Generator, _op: Op) -> None:
    g.text.do("fence acq_rel")


HANDLERS: dict[OpName, Handler] = {
    "atomic": _atomic, "atomic_cas": _cas, "atomic_load": _load, "atomic_store": _store, "barrier": _barrier,
    "fence": _fence,
}  # fmt: skip
