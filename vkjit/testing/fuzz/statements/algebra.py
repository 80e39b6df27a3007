"""Statements that peephole rules of the passes match, such as those of algebraic simplification.

Examples are operations with special constants, nested operations, negated conditions and short loops. One in four
programs has the trait `algebra` (see `Traits`) and consists mostly of these statements. Each result is stored in a
column of its own (see `Probe`) and not overwritten, so that a rule that is wrong for only a few operands is detected.

Each function in `_PATTERNS` emits one form of operations that a rule matches, and returns the result.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import BOOL, INDEX, Scalar, Type, Vector

from .builder import Maker, kind, statement
from .expressions import BINARY, COMPARISONS, UNARY, exact_names, special_number

__all__: list[str] = []

_NUMBERS = ("int", "uint", "index", "float")
_INTEGERS = ("int", "uint", "index")


def _binary_name(m: Maker, type: Type) -> OpName:
    """Return a random exact binary operation for a type.

    `pow` is left out, as are `copysign`, `fmin` and `fmax`, whose results may depend on the unspecified sign of a NaN
    or of a zero.
    """
    return m.pick([n for n in exact_names(m, BINARY[kind(type)], type) if n not in ("pow", "copysign", "fmin", "fmax")])


def _special(m: Maker) -> Value:
    """A binary operation with 0, 1 or -1 as one operand."""
    type = m.type(_NUMBERS)
    constant = m.builder.const(special_number(m, type), type)
    operands = (m.value(type), constant) if m.chance(0.8) else (constant, m.value(type))
    return m.builder.emit(_binary_name(m, type), *operands)


def _chain(m: Maker) -> Value:
    """A chain of two operations with constants: `(x op a) op b`."""
    type = m.type(_NUMBERS)
    name = _binary_name(m, type)
    x = m.builder.emit(name, m.value(type), m.constant(type))
    return m.builder.emit(name if m.chance(0.7) else _binary_name(m, type), x, m.constant(type))


def _negated(m: Maker) -> Value:
    """The negation of a comparison."""
    type = m.type(_NUMBERS, vectors=False)
    comparison = m.builder.emit(m.pick(COMPARISONS[kind(type)]), m.value(type), m.value(type))
    return m.builder.emit("not", comparison)


def _pair(m: Maker) -> Value:
    """Two nested unary operations."""
    type = m.type(_NUMBERS)
    names = exact_names(m, UNARY[kind(type)], type)
    return m.builder.emit(m.pick(names), m.builder.emit(m.pick(names), m.value(type)))


def _casts(m: Maker) -> Value:
    """A cast, mostly followed by a cast back or to a third type."""
    source = m.type(_NUMBERS, vectors=False)
    middle = Scalar(m.pick([t for t in (*dtypes.ALL, dtypes.index) if Scalar(t) != source]))
    converted = m.builder.emit("cast", m.value(source), type=middle)
    target = source if m.chance(0.6) else m.type(_NUMBERS, vectors=False)
    return converted if target == middle else m.builder.emit("cast", converted, type=target)


def _near_tie(m: Maker) -> Value:
    """A cast to f16 of an f64 value that is close to the midpoint of two f16 values.

    A cast through f32 would round twice and give a wrong result. The f16 is then scaled to an integer, so that all its
    bits are compared.
    """
    b, wide = m.builder, Scalar(dtypes.f64)
    whole = b.emit("cast", b.emit("and", m.value(INDEX), b.index(3)), type=wide)
    offset = m.pick([-1, 1]) * (1 + 2.0 ** -m.pick([9, 10, 11]) + m.pick([-1, 1]) * 2.0 ** -m.pick([25, 30, 40]))
    half = b.emit("cast", b.emit("add", whole, b.const(offset, wide)), type=Scalar(dtypes.f16))
    return b.emit(
        "cast", b.emit("mul", b.emit("cast", half, type=wide), b.const(2.0**14, wide)), type=Scalar(dtypes.i64)
    )


def _choice(m: Maker) -> Value:
    """One of these: a select with a negated condition; a select between boolean constants; a select between numeric
    constants; an `if` with a negated condition.
    """
    b, type = m.builder, m.type(_NUMBERS, vectors=False)
    condition = m.value(BOOL)
    variant = m.draw(0, 3)
    if variant == 0:
        return b.emit("select", b.emit("not", condition), m.value(type), m.value(type))
    if variant == 1:
        return b.emit("select", condition, b.const(m.chance(0.5), BOOL), b.const(m.chance(0.5), BOOL))
    if variant == 2:
        return b.emit("select", condition, m.constant(type), m.constant(type))
    yes, no = Region(), Region()
    with m.inside(yes):
        b.op("yield", m.value(type))
    with m.inside(no):
        b.op("yield", m.value(type))
    return b.op("if", b.emit("not", condition), types=[type], regions=[yes, no]).result


def _same(m: Maker) -> Value:
    """An operation with equal operands: `x op x`."""
    type = m.type(_NUMBERS)
    x = m.value(type)
    names = COMPARISONS[kind(type)] if m.chance(0.3) else [_binary_name(m, type)]
    return m.builder.emit(m.pick(names), x, x)


def _shift(m: Maker) -> Value:
    """A shift by an arbitrary amount, which may exceed the width of the type."""
    type = m.type(_INTEGERS)
    assert isinstance(type, (Scalar, Vector))
    amount = m.builder.const(m.draw(0, min(127, 2 * type.dtype.bits)), type) if m.chance(0.5) else m.value(type)
    return m.builder.emit(m.pick(["shl", "shr"]), m.value(type), amount)


def _product_of_ids(m: Maker) -> Value:
    """A power of the invocation's id plus a constant, which may wrap around, and an operation that reads its sign."""
    b = m.builder
    row = m.value(INDEX) if m.row is None else m.row  # device functions have no row
    factor = b.emit("add", row, b.index(m.pick([0, 1000, (1 << 31) - 1, 1 << 40])))
    product = factor
    for _ in range(m.draw(1, 5)):
        product = b.emit("mul", product, factor)
    name: OpName = m.pick(["floordiv", "floormod", "truncdiv", "truncrem", "lt", "min"])
    return b.emit(name, product, b.index(m.pick([3, 16, 1000003, (1 << 33) + 1])))


def _wide_index(m: Maker) -> Value:
    """Index arithmetic near the limits of 32 bits, followed by an operation that depends on all bits."""
    b = m.builder
    factor = m.pick([-3, 5, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 31, 3_000_000_001, -(1 << 33)])
    x = b.emit("and", m.value(INDEX), b.index(m.pick([3, 1023, (1 << 31) - 1])))
    product = b.emit(m.pick(["mul", "mul", "add", "sub"]), x, b.index(factor))
    name: OpName = m.pick(["lt", "ge", "min", "max", "floordiv", "floormod", "truncdiv", "truncrem"])
    result = b.emit(name, product, b.index(m.pick([7, 1000, -5, 1 << 31, -(1 << 31), 1 << 32])))
    return result if result.type == BOOL else b.emit("cast", result, type=m.pick([INDEX, Scalar(dtypes.i32)]))


def _loop(m: Maker) -> Value:
    """A short `for`. Some loops run up to the maximum of their type, and some have an early exit."""
    b = m.builder
    type = m.pick([INDEX, INDEX, m.type(_INTEGERS, vectors=False)])
    assert isinstance(type, Scalar)
    signed, bits = type.dtype.is_signed, type.dtype.bits
    maximum = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    step = m.pick([1, 1, 2, 3])
    low = m.pick([0, 0, 1, 3, maximum - m.draw(0, 6), maximum - m.draw(0, 6)])
    high = min(low + m.draw(0, 6), maximum)
    end = (
        b.const(high, type)
        if m.chance(0.7)
        else b.emit("min", b.emit("max", m.value(type), b.const(low, type)), b.const(high, type))
    )
    region = Region([type, type])
    counter, carried = region.args
    with m.inside(region):
        if m.chance(0.4):
            leave, stay = Region(), Region()
            with b.at(leave):
                b.op(m.pick(["break", "continue"]), b.emit("add", carried, counter))
            with b.at(stay):
                b.op("yield")
            b.op("if", b.emit("eq", counter, b.const(min(low + step, maximum), type)), types=[], regions=[leave, stay])
        term = b.emit("mul", counter, m.value(type)) if m.chance(0.6) else counter
        b.op("continue", b.emit(m.pick(["add", "sub", "xor"]), carried, term))
    loop = b.op("for", b.const(low, type), end, b.const(step, type), m.value(type), types=[type], regions=[region])
    return loop.result


def _components(m: Maker) -> Value:
    """A component of a vector that is built from scalars."""
    b = m.builder
    element = m.type(("int", "uint", "float"), vectors=False)
    assert isinstance(element, Scalar)
    if element == INDEX:
        element = Scalar(dtypes.i32)
    size = m.draw(2, 4)
    vector = b.emit("vec_make", *(m.value(element) for _ in range(size)), type=Vector(element.dtype, size))
    if m.chance(0.5):
        vector = b.emit("vec_insert", vector, m.value(element), lane=m.draw(0, size - 1))
    if m.chance(0.5):
        vector = b.emit("max" if element.dtype.is_float or m.chance(0.5) else "xor", vector, m.value(vector.type))
    return b.emit("vec_extract", vector, lane=m.draw(0, size - 1), type=element)


_PATTERNS: tuple[Callable[[Maker], Value], ...] = (
    _special, _special, _special, _chain, _chain, _negated, _pair, _casts, _casts, _near_tie, _choice, _same, _shift,
    _wide_index, _product_of_ids, _loop, _loop, _components,
)  # fmt: skip
"""The forms; repeated ones are chosen more often."""


@statement(40, lambda m: m.traits.algebra)
def _pattern(m: Maker) -> None:
    """One of `_PATTERNS`, and a store of its result."""
    value = m.keep(m.pick(_PATTERNS)(m))
    m.probe(value)
