"""Algebraic simplifications that hold for all operands, NaN, infinities and signed zeros included; used by `fold`.

A rule takes an operation with at least one operand that isn't constant. `fold` has moved the constant operand of a
commutative operation to the right. The rule returns the values that replace the operation's results, or None if it
can't be simplified. Rules for integers:

    x + 0, x - 0, x * 1, x // 1, x | 0, x & ~0, x ^ 0, x << 0     x
    x * 0, x & 0, x - x, x ^ x, x % 1                             0
    x & x, x | x, min(x, x), max(x, x)                            x
    x - a                                                         x + -a
    (x + a) + b, (x * a) * b                                      x + (a + b), x * (a * b)
    x == x, x <= x; x < x, x != x; unsigned x < 0, x >= 0         true; false; false, true

Rules for floats, which preserve every bit except for NaN payloads:

    x + -0.0, x - 0.0, x * 1.0, x / 1.0     x
    x * -1.0, -0.0 - x                      -x
    x / 2**k (f32, f64)                     x * 2**-k, if 2**-k is a normal number
    -(-x), abs(-x), abs(abs(x))             x, abs(x), abs(x)
    x + -y, x - -y                          x - y, x + y

Booleans and selects: `not not x`, `x == true`, `not (a < b)` of integers, and `select` with a constant condition, with
equal operands, or between true and false. Conversions: two casts in a row become one if the first is exact, or if all
types are integers and the last one is no wider than the middle one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import Scalar, Vector

__all__ = ["IDENTITIES", "exact_conversion", "same_constant", "wrapped"]

Rule = Callable[[Op, Builder], "list[Value] | None"]
"""rule(operation, builder): see the module's docstring. The builder appends before the operation."""

IDENTITIES: dict[OpName, Rule] = {}
"""Rules by operation name."""

_INVERSE: dict[OpName, OpName] = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
"""The comparison that is true where another one is false, except for NaN."""


def _rule(*names: OpName) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule for the operations with these names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in IDENTITIES:
                raise ValueError(f"{name} has identities already")
            IDENTITIES[name] = rule
        return rule

    return register


def _kind(value: Value) -> str:
    return dtype_of(value).kind


def dtype_of(value: Value) -> DType:
    """Return the dtype of a scalar or vector value."""
    assert isinstance(value.type, (Scalar, Vector))
    return value.type.dtype


def same_constant(value: Value, number: float) -> bool:
    """True if the value is a constant equal to the number, signs of zeros included."""
    if not is_constant(value):
        return False
    constant = constant_of(value)
    return bool(constant == number) and math.copysign(1, constant) == math.copysign(1, number)


def _all_ones(value: Value) -> bool:
    """True for the integer constant with all bits set, and for the constant true."""
    if not is_constant(value):
        return False
    dtype = dtype_of(value)
    number = constant_of(value)
    if dtype.kind == "bool":
        return number is True
    all_ones = -1 if dtype.is_signed else (1 << dtype.bits) - 1
    return bool(number == all_ones)


def _defined_by(value: Value, name: OpName) -> Op | None:
    """Return the operation that defines the value if it has that name, else None."""
    op = value.op
    return op if op is not None and op.name == name else None


def _zero(op: Op, builder: Builder) -> list[Value]:
    """Return a zero of the result's type as the replacement of an operation."""
    return [builder.const(False if _kind(op.result) == "bool" else 0, op.result.type)]


def _kept_attributes(op: Op) -> dict[str, Any]:
    """Return the attributes that the replacement of an operation keeps (such as `exact`: not to be contracted)."""
    return {name: value for name, value in op.attrs.items() if name != "type"}


# -- arithmetic


@_rule("add")
def _add(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if _kind(x) == "float":
        if same_constant(y, -0.0):
            return [x]
        for a, b in ((x, y), (y, x)):
            negated = _defined_by(b, "neg")
            if negated is not None:
                return [builder.emit("sub", a, negated.operands[0], **_kept_attributes(op))]
        return None
    return [x] if same_constant(y, 0) else _reassociate(op, builder)


@_rule("sub")
def _sub(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if same_constant(y, 0):
        return [x]
    if _kind(x) == "float":
        if same_constant(x, -0.0):
            return [builder.emit("neg", y)]
        negated = _defined_by(y, "neg")
        return None if negated is None else [builder.emit("add", x, negated.operands[0], **_kept_attributes(op))]
    if x is y:
        return _zero(op, builder)
    if is_constant(y):
        return [builder.emit("add", x, builder.const(wrapped(-constant_of(y), dtype_of(y)), y.type))]
    return [builder.emit("neg", y)] if same_constant(x, 0) else None


@_rule("mul")
def _mul(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if same_constant(y, 1):
        return [x]
    if _kind(x) == "float":
        return [builder.emit("neg", x)] if same_constant(y, -1) else None
    return _zero(op, builder) if same_constant(y, 0) else _reassociate(op, builder)


def _reassociate(op: Op, builder: Builder) -> list[Value] | None:
    """Reassociate (x + a) + b and (x * a) * b of integers, which wrap, to combine the constants."""
    x, y = op.operands
    inner = _defined_by(x, op.name)
    if inner is None or not (is_constant(y) and is_constant(inner.operands[1])):
        return None
    a, b = constant_of(inner.operands[1]), constant_of(y)
    total = wrapped(a + b if op.name == "add" else a * b, dtype_of(y))
    return [builder.emit(op.name, inner.operands[0], builder.const(total, y.type))]


def wrapped(number: int, dtype: DType) -> int:
    """Wrap an integer to the range of an integer type."""
    number &= (1 << dtype.bits) - 1
    return number - (1 << dtype.bits) if dtype.is_signed and number >> (dtype.bits - 1) else number


@_rule("div")
def _div(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if same_constant(y, 1):
        return [x]
    inverse = _exact_inverse(y)
    return None if inverse is None else [builder.emit("mul", x, builder.const(inverse, y.type), **_kept_attributes(op))]


def _exact_inverse(value: Value) -> float | None:
    """Return the inverse of a constant 2**k or -2**k if both are normal numbers of the type, else None."""
    if not is_constant(value) or dtype_of(value) not in (dtypes.f32, dtypes.f64):
        return None
    number = float(constant_of(value))
    # The limit of |k + 1|, the exponent that `frexp` returns, for which 2**k and 2**-k are normal.
    limit = 125 if dtype_of(value) is dtypes.f32 else 1021
    if number == 0 or not math.isfinite(number):
        return None
    mantissa, exponent = math.frexp(number)
    return 1 / number if abs(mantissa) == 0.5 and abs(exponent) <= limit else None


@_rule("floordiv", "truncdiv")
def _quotient(op: Op, _builder: Builder) -> list[Value] | None:
    x, y = op.operands
    return [x] if _kind(x) != "float" and same_constant(y, 1) else None


@_rule("floormod", "truncrem")
def _remainder(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    return _zero(op, builder) if _kind(x) != "float" and same_constant(y, 1) else None


@_rule("neg")
def _neg(op: Op, _builder: Builder) -> list[Value] | None:
    inner = _defined_by(op.operands[0], "neg")
    return None if inner is None else [inner.operands[0]]


@_rule("abs")
def _abs(op: Op, builder: Builder) -> list[Value] | None:
    x = op.operands[0]
    inner = _defined_by(x, "abs")
    if inner is not None:
        return [x]
    inner = _defined_by(x, "neg")
    return None if inner is None or _kind(x) != "float" else [builder.emit("abs", inner.operands[0])]


@_rule("min", "max", "fmin", "fmax")
def _extreme(op: Op, _builder: Builder) -> list[Value] | None:
    x, y = op.operands
    return [x] if x is y else None


# -- bits


@_rule("and")
def _and(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if x is y or _all_ones(y):
        return [x]
    return _zero(op, builder) if same_constant(y, 0) else None


@_rule("or")
def _or(op: Op, _builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if x is y or same_constant(y, 0):
        return [x]
    return [y] if _all_ones(y) else None


@_rule("xor")
def _xor(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    if x is y:
        return _zero(op, builder)
    if same_constant(y, 0):
        return [x]
    return [builder.emit("not", x)] if _all_ones(y) else None


@_rule("not")
def _not(op: Op, builder: Builder) -> list[Value] | None:
    inner = op.operands[0].op
    if inner is None:
        return None
    if inner.name == "not":
        return [inner.operands[0]]
    inverse = _INVERSE.get(inner.name)
    if inverse is None or (_kind(inner.operands[0]) == "float" and inner.name not in ("eq", "ne")):
        return None
    return [builder.emit(inverse, *inner.operands)]


@_rule("shl", "shr", "shl_raw", "shr_raw")
def _shift(op: Op, _builder: Builder) -> list[Value] | None:
    return [op.operands[0]] if same_constant(op.operands[1], 0) else None


# -- comparisons and selects


@_rule("eq", "ne", "lt", "le", "gt", "ge")
def _compare(op: Op, builder: Builder) -> list[Value] | None:
    x, y = op.operands
    kind = _kind(x)
    if kind == "float":
        return None
    if x is y:
        return [builder.const(op.name in ("eq", "le", "ge"), op.result.type)]
    if kind == "uint" and same_constant(y, 0) and op.name in ("lt", "ge"):
        return [builder.const(op.name == "ge", op.result.type)]
    if kind == "bool" and is_constant(y) and op.name in ("eq", "ne"):
        # x == true and x != false are x; x == false and x != true are not x.
        return [x] if constant_of(y) is (op.name == "eq") else [builder.emit("not", x)]
    return None


@_rule("select")
def _select(op: Op, builder: Builder) -> list[Value] | None:
    condition, x, y = op.operands
    if is_constant(condition):
        return [x if constant_of(condition) else y]
    if x is y or _defined_by(y, "poison"):  # poison may be any value, so it may be the other one
        return [x]
    if _defined_by(x, "poison"):
        return [y]
    if _kind(x) == "bool" and is_constant(x) and is_constant(y):  # before CSE, equal constants may be distinct values
        if constant_of(x) == constant_of(y):
            return [x]
        return [condition] if constant_of(x) else [builder.emit("not", condition)]
    inner = _defined_by(condition, "not")
    return None if inner is None else [builder.emit("select", inner.operands[0], y, x)]


# -- conversions and vectors


def exact_conversion(source: DType, target: DType) -> bool:
    """True if each value of `source` is exactly representable in `target`."""
    if source.kind == "bool" or source is target:
        return True
    if target.kind == "bool" or (source.is_float and not target.is_float):
        return False
    if source.is_float:
        return target.bits > source.bits
    if target.is_float:
        digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[target.name]  # significant bits
        return source.bits - source.is_signed <= digits  # the sign needs none of them
    if source.is_signed and not target.is_signed:
        return False
    return target.bits > source.bits or (target.bits == source.bits and source.is_signed == target.is_signed)


@_rule("cast")
def _cast(op: Op, builder: Builder) -> list[Value] | None:
    """Drop a cast to the same type, and merge two casts in a row (see the module's docstring)."""
    x = op.operands[0]
    if x.type == op.result.type:
        return [x]
    inner = _defined_by(x, "cast")
    if inner is None:
        return None
    source, middle, target = dtype_of(inner.operands[0]), dtype_of(x), dtype_of(op.result)
    integers = source.is_integer and middle.is_integer and target.is_integer
    exact = exact_conversion(source, middle)
    # A cast of a float to an integer saturates, a cast between integers wraps: they agree if no value is out of range.
    if exact and source.is_integer and middle.is_float and target.is_integer:
        exact = exact_conversion(source, target)
    if not (exact or (integers and target.bits <= middle.bits)):
        return None
    origin = inner.operands[0]
    return [origin if origin.type == op.result.type else builder.emit("cast", origin, **op.attrs)]


@_rule("bitcast")
def _bitcast(op: Op, builder: Builder) -> list[Value] | None:
    x = op.operands[0]
    inner = _defined_by(x, "bitcast")
    origin = inner.operands[0] if inner is not None else x
    if origin.type == op.result.type:
        return [origin]
    return None if inner is None else [builder.emit("bitcast", origin, type=op.result.type)]


@_rule("vec_extract")
def _extract(op: Op, builder: Builder) -> list[Value] | None:
    """Simplify the extraction from a splat, from a `vec_make`, or from a `vec_insert`."""
    source, lane = op.operands[0], op.attrs["lane"]
    inner = source.op
    if inner is None:
        return None
    if inner.name == "const":
        return [builder.const(inner.attrs["value"], op.result.type)]
    if inner.name == "vec_make":
        return [inner.operands[lane]]
    if inner.name != "vec_insert":
        return None
    if inner.attrs["lane"] == lane:
        return [inner.operands[1]]
    return [builder.emit("vec_extract", inner.operands[0], lane=lane, type=op.result.type)]


@_rule("vec_make")
def _make(op: Op, builder: Builder) -> list[Value] | None:
    """Fold a vector of equal constants to a splat constant."""
    if not all(is_constant(v) for v in op.operands):
        return None
    # Floats are compared by their bits, so that 0.0 and -0.0 differ, and a NaN equals itself.
    bits = {struct.pack("<d", v) if isinstance(v, float) else v for v in map(constant_of, op.operands)}
    return [builder.const(constant_of(op.operands[0]), op.result.type)] if len(bits) == 1 else None


# -- reports and assumptions


@_rule("assume_uniform")
def _assume_uniform(op: Op, _builder: Builder) -> list[Value] | None:
    """Replace an `assume_uniform` by its operand; the passes that read it run before the first folding."""
    return [op.operands[0]]


@_rule("report")
def _report(op: Op, _builder: Builder) -> list[Value] | None:
    """Drop a report that never fires."""
    return [] if same_constant(op.operands[0], False) else None
