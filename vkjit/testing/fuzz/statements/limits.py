"""Statements that compute up to the limits of integer types and past them, where results wrap.

`_beyond` emits products, sums and shifts of ids, sizes and other values. Operations follow that depend on the sign and
on all bits: division, remainder, comparison, conversion, guarded accesses.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import BOOL, INDEX, Scalar

from .builder import Maker, Place, statement

__all__: list[str] = []

_DIVISORS = [1, 2, 3, 7, 64, 1000, 65_537, 1_000_003, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 63) - 1]
_CONSUMERS: list[OpName] = [
    "floordiv", "floormod", "floormod", "truncdiv", "truncrem", "lt", "le", "gt", "ge", "min", "max", "shr",
]  # fmt: skip


def _limits(type: Scalar) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    bits = type.dtype.bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type.dtype.is_signed else (0, (1 << bits) - 1)


def _number(m: Maker, type: Scalar) -> Value:
    """Return a constant near a power of two that fits into the type, mostly one of its largest."""
    low, high = _limits(type)
    bits = type.dtype.bits
    power = 1 << m.pick([bits - 1, bits - 1, bits - 2, bits // 2, bits // 2 - 1, m.draw(1, bits - 1)])
    number = power // m.pick([1, 1, 1, 3, 5]) + m.pick([-2, -1, 0, 1, 2])
    return m.builder.const(min(max(-number if type.dtype.is_signed and m.chance(0.3) else number, low), high), type)


def _source(m: Maker, type: Scalar) -> Value:
    """Return an id or a size, which is never negative, or any value."""
    if m.chance(0.3):
        return m.value(type)
    sources = [
        v for v in m.scope if v.op is not None and v.op.name in ("global_id", "local_id", "num_groups", "extent")
    ]
    return m.builder.cast(m.pick(sources) if sources else m.value(INDEX), type)


def _beyond(m: Maker, type: Scalar) -> Value:
    """Return a value that often is at a limit of the type, or has wrapped."""
    b, x = m.builder, _source(m, type)
    variant = m.draw(-1, 5)
    if variant <= 0:  # a power
        for _ in range(m.draw(2, 6)):
            x = b.emit("mul", x, x if m.chance(0.8) else _source(m, type))
    elif variant == 1:
        x = b.emit("mul", x, _number(m, type))
    elif variant == 2:
        near = b.emit("add", x, _number(m, type))
        x = b.emit("mul", near, near if m.chance(0.5) else _source(m, type))
    elif variant == 3:
        x = b.emit("shl", x, b.const(type.dtype.bits - m.draw(1, 8), type))
    elif variant == 4:
        x = b.emit("mul", b.emit("mul", x, _number(m, type)), b.emit("mul", _source(m, type), _number(m, type)))
    else:
        x = b.emit(m.pick(["add", "sub"]), _number(m, type), x)
    return b.emit(m.pick(["add", "sub", "xor"]), x, _source(m, type)) if m.chance(0.2) else x


@statement(3)
def _past_the_limit(m: Maker) -> None:
    """A value past the limits of its type, and operations that depend on its sign."""
    type = m.type(["int", "uint", "index"], vectors=False) if m.chance(0.5) else INDEX
    assert isinstance(type, Scalar)
    x = m.keep(_beyond(m, type))
    for _ in range(m.draw(1, 3)):
        name = m.pick(_CONSUMERS)
        low, high = _limits(type)
        divisor = min(max(m.pick(_DIVISORS) * (m.pick([1, 1, -1]) if type.dtype.is_signed else 1), low), high)
        other = m.builder.const(divisor, type) if m.chance(0.7) else _source(m, type)
        if name == "shr":
            other = m.builder.const(m.draw(0, type.dtype.bits - 1), type)
        result = m.builder.emit(name, *((x, other) if name == "shr" or m.chance(0.8) else (other, x)))
        if isinstance(result.type, Scalar) and result.type != BOOL and m.chance(0.5):
            result = m.builder.cast(result, m.type(["int", "uint", "index", "float"], vectors=False))
        _keep(m, result)


def _keep(m: Maker, result: Value) -> None:
    """Add a result to the scope, and store its bits where nothing overwrites them."""
    m.keep(result)
    if isinstance(result.type, Scalar) and not result.type.dtype.is_float:
        m.probe(m.builder.cast(result, dtypes.i64))


def _readable(m: Maker) -> list[Place]:
    """Return the arrays of kind "read" that have an axis."""
    return [p for p in m.places if p.kind == "read" and p.type.rank]


@statement(1, lambda m: bool(_readable(m)))
def _guarded(m: Maker) -> None:
    """A load at an index past the limits, guarded by comparisons with 0 and with the extent.

    If accesses are checked, the comparison with 0 is sometimes left out: a negative index is then reported.
    """
    place = m.pick(_readable(m))
    b, indices = m.builder, place.index(m)
    axis = m.draw(0, place.type.rank - 1)
    index = indices[axis] = _beyond(m, INDEX)
    condition = b.emit("lt", index, b.emit("extent", place.array, axis=axis))
    if not m.traits.bounds or m.chance(0.7):
        condition = b.emit("and", condition, b.emit("ge", index, b.index(0)))
    inside, outside = Region(), Region()
    with b.at(inside):
        b.op("yield", b.emit("load", place.array, *indices))
    with b.at(outside):
        b.op("yield", m.constant(place.element))
    _keep(m, b.op("if", condition, types=[place.element], regions=[inside, outside]).result)


@statement(1)
def _far_range(m: Maker) -> None:
    """A `for` with bounds near a limit of 32 or 64 bits and a step of any size; the last index may be past the limit."""
    b = m.builder
    type = m.pick([INDEX, *(Scalar(d) for d in (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64))])
    low, high = _limits(type)
    limit = m.pick([n for n in (1 << 31, 1 << 32, 1 << 63, 1 << 64, -(1 << 31), -(1 << 63)) if low <= n <= high + 1])
    step = m.pick([1, 2, 3, 1 << 16, (1 << 30) + 1, 1 << (type.dtype.bits - 2), high]) if m.chance(0.8) else 1
    start = min(max(limit - step * m.draw(0, 3) + m.draw(-3, 3), low), high)
    end = min(start + step * m.draw(0, 4) + m.draw(0, 2), high)
    if type.dtype.is_signed and m.chance(0.4):  # downwards
        start, end, step = min(end, high), max(start - m.draw(0, 2), low), -step
    if abs(end - start) // abs(step) > 6:
        return
    values = [b.const(start, type), b.const(end, type), b.const(step, type)]
    if m.chance(0.5):  # the end isn't known
        first, last = sorted((start, end))
        values[1] = b.emit("min", b.emit("max", m.value(type), b.const(first, type)), b.const(last, type))
    region = Region([type, type])
    counter, carried = region.args
    with m.inside(region):
        other = b.emit("mul", counter, m.value(type)) if m.chance(0.5) else counter
        b.op("continue", b.emit(m.pick(["add", "xor"]), b.emit("mul", carried, b.const(3, type)), other))
    _keep(m, b.op("for", *values, m.value(type), types=[type], regions=[region]).result)
