"""Arithmetic, bitwise, shift and comparison operators on kernel values.

Operators on compile-time values are evaluated by Python. `expressions` lowers the operators of the source through these
functions; lowerings of calls use them for formulas. Operators are named by their IR operation: "add", "floordiv", "eq".
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import DTypeError
from vkjit.ir.core import Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Vector

from ..context import Context, Place, check_items, checked_tuple
from ..kernel_values import (
    Aggregate,
    GridStride,
    IntMember,
    KernelValue,
    Method,
    Range,
    Unrolled,
    describe_value,
    is_literal,
    is_matrix,
    is_scalar,
    literal_text,
    parts_of,
    same_structure,
)
from ..tiles.matrices import map_matrices, unary_matrix
from ..values.conversions import (
    common_dtype,
    convert,
    dtype_of_value,
    numeric,
    operand_places,
    static_value,
    truth,
    unify,
)
from ..values.vectors import lane
from .elementwise import is_mapped, map_elements

__all__ = ["MAX_BITS", "binary", "combine", "compare", "negate", "unary"]

_PYTHON_OPERATORS: dict[OpName, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


MAX_BITS = 65_536
"""The maximum number of bits of an integer that is computed at compile time."""

# Operators as they appear in messages.
_SIGNS: dict[OpName, str] = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "pow": "**", "and": "&",
    "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip


def binary(ctx: Context, node: Place, name: OpName, a: KernelValue, b: KernelValue) -> KernelValue:
    """Lower a binary operator other than a comparison; `name` is its IR operation, such as "add"."""
    if is_mapped(a) or is_mapped(b):
        return map_elements(ctx, node, lambda inner, x, y: binary(inner, node, name, x, y), [a, b])
    if is_matrix(a) or is_matrix(b):
        return map_matrices(ctx, node, name, a, b)
    if not (isinstance(a, Value) or isinstance(b, Value)):
        return _fold(ctx, node, name, a, b)
    _check_operands(ctx, node, name, a, b)
    result = _binary(ctx, node, name, a, b)
    ctx.mark_weak(result, ctx.origins(a, b))
    return result


def _check_operands(ctx: Context, node: Place, name: OpName, a: KernelValue, b: KernelValue) -> None:
    """Raise CompileError unless both operands are literals, scalars or vectors."""
    left, right = operand_places(node)
    numeric(ctx, left, a, f"a number left of {_SIGNS[name]}")
    numeric(ctx, right, b, f"a number right of {_SIGNS[name]}")


def _binary(ctx: Context, node: Place, name: OpName, a: KernelValue, b: KernelValue) -> Value:
    """Emit a binary operator of scalars or vectors in their common type.

    The quotient of integers is computed in f32, and arithmetic of bools in i32.
    """
    if name in ("shl", "shr"):
        return _shift(ctx, node, name, a, b)
    if name == "pow":
        return _power(ctx, node, a, b)
    dtype = common_dtype(ctx, node, a, b)
    if name in ("and", "or", "xor"):
        if dtype.is_float:
            raise ctx.error(node, f"{_SIGNS[name]} is for integers and bools, found {dtype!r}", "convert: vk.i32(x)")
        a, b = (_as_bits(value, dtype) for value in (a, b))
        return ctx.builder.emit(name, *unify(ctx, node, a, b, dtype))
    if name == "div" and not dtype.is_float:
        dtype = dtypes.f32
    elif dtype.kind == "bool":
        dtype = dtypes.i32
    return ctx.builder.emit(name, *unify(ctx, node, a, b, dtype))


def _as_bits(value: KernelValue, dtype: DType) -> KernelValue:
    """Return a negative literal, such as `~3`, as its two's complement in an unsigned type; other values unchanged."""
    if dtype.kind == "uint" and isinstance(value, int) and -(2**dtype.bits) <= value < 0:
        return value % 2**dtype.bits
    return value


def _fold(ctx: Context, node: Place, name: OpName, a: KernelValue, b: KernelValue) -> KernelValue:
    """Evaluate an operator of two compile-time values in Python."""
    if isinstance(a, tuple) and isinstance(b, tuple) and name == "add":
        check_items(ctx, node, len(a) + len(b))
        return checked_tuple(ctx, node, a + b)
    if isinstance(a, str) and isinstance(b, str) and name == "add":
        check_items(ctx, node, len(a) + len(b))
        return a + b
    if name == "mul" and (isinstance(a, tuple) or isinstance(b, tuple)):
        items, count = (a, b) if isinstance(a, tuple) else (b, a)
        if isinstance(items, tuple) and isinstance(count, int) and not isinstance(count, bool):
            check_items(ctx, node, len(items) * count)
            return checked_tuple(ctx, node, items * count)
    if (member := _combined_flags(name, a, b)) is not None:
        return member
    _check_operands(ctx, node, name, a, b)
    try:
        if isinstance(a, int) and isinstance(b, int) and _bits_at_least(name, a, b) > MAX_BITS:
            raise OverflowError(f"the result has more than {MAX_BITS} bits")
        result = _PYTHON_OPERATORS[name](a, b)
    except (ArithmeticError, ValueError, TypeError) as error:
        if isinstance(error, ZeroDivisionError):
            hint = "a divisor that is known only at run time may be 0: integers give 0 then, floats what IEEE says"
        else:
            hint = "Python itself computes these constants: change one"
        formula = f"{literal_text(a)} {_SIGNS[name]} {literal_text(b)}"
        raise ctx.error(node, f"{formula}: {error}", hint) from None
    if not is_literal(result):
        raise ctx.error(node, f"{a!r} {_SIGNS[name]} {b!r} is {result!r}, which kernels don't know")
    return result


def _combined_flags(name: OpName, a: KernelValue, b: KernelValue) -> KernelValue | None:
    """Return `a | b`, `a & b` or `a ^ b` of members of one flag class, else None."""
    first, second = (value.member if isinstance(value, IntMember) else value for value in (a, b))
    if not isinstance(first, enum.Flag) or type(first) is not type(second) or name not in ("and", "or", "xor"):
        return None
    member = _PYTHON_OPERATORS[name](first, second)
    return IntMember.of(member) if isinstance(member, int) else member  # type: ignore[arg-type]  # a flag, too


def _bits_at_least(name: OpName, a: int, b: int) -> int:
    """Return a lower bound of the number of bits of an integer result, without computing it: at most one bit less."""
    if name == "pow" and b > 0:
        return (a.bit_length() - 1) * b + 1 if abs(a) > 1 else 1
    if name == "shl" and a:
        return a.bit_length() + b
    if name == "mul":
        return a.bit_length() + b.bit_length() - 1
    return max(a.bit_length(), b.bit_length())


def _shift(ctx: Context, node: Place, name: OpName, a: KernelValue, b: KernelValue) -> Value:
    """Emit a shift. The result has the left operand's type or, if the left operand is a literal, the common type."""
    dtype = common_dtype(ctx, node, a, b) if is_literal(a) else _dtype(a)
    for side, value in (("left", a), ("right", b)):
        if isinstance(value, float) or (isinstance(value, Value) and not dtype_of_value(value).is_integer):
            raise ctx.error(
                node, f"shifts are for integers, found {describe_value(value)} on the {side}", "convert: vk.i32(x)"
            )
    amount = static_value(b)
    if amount is not None and not 0 <= amount < dtype.bits:
        hint = "convert to a wider type first, such as vk.u64(x); run-time amounts count modulo the width"
        raise ctx.error(node, f"shift of {dtype!r} by {literal_text(amount)}: expected 0 to {dtype.bits - 1}", hint)
    if amount is not None:
        b = int(amount)  # a literal, which adapts to the left operand's type
    return ctx.builder.emit(name, *unify(ctx, node, a, b, dtype))


def _dtype(value: KernelValue) -> DType:
    """Return the element type of a run-time value."""
    assert isinstance(value, Value)
    return dtype_of_value(value)


_MAX_UNROLLED_EXPONENT = 16
"""The largest constant integer exponent (by magnitude) that is expanded to multiplications."""


def _power(ctx: Context, node: Place, a: KernelValue, b: KernelValue) -> Value:
    """Emit `a ** b`; small constant integer exponents are expanded to multiplications."""
    exponent = static_value(b)
    dtype = common_dtype(ctx, node, a, b)
    dtype = dtypes.i32 if dtype.kind == "bool" else dtype
    if exponent is not None and abs(exponent) <= _MAX_UNROLLED_EXPONENT and float(exponent).is_integer():
        if exponent < 0 and not dtype.is_float:
            raise ctx.error(
                node, f"{dtype!r} to the power {exponent} is no integer", f"convert the base: vk.f32(x) ** {exponent}"
            )
        return _power_by_squaring(ctx, node, convert(ctx, node, a, dtype), int(exponent), dtype)
    return ctx.builder.emit("pow", *unify(ctx, node, a, b, dtype))


def _power_by_squaring(ctx: Context, node: Place, base: Value, exponent: int, dtype: DType) -> Value:
    """Emit base ** exponent by repeated squaring.

    `dtype` is the type of the result; the exponent may be negative for floats.
    """
    result: Value | None = None
    power, remaining = base, abs(exponent)
    while remaining:
        if remaining & 1:
            result = power if result is None else ctx.builder.emit("mul", result, power)
        remaining >>= 1
        if remaining:
            power = ctx.builder.emit("mul", power, power)
    one = unify(ctx, node, base, 1, dtype)[1]  # in all lanes if the base is a vector
    if result is None:
        return one
    return ctx.builder.emit("div", one, result) if exponent < 0 else result


def compare(ctx: Context, node: Place, name: OpName, a: KernelValue, b: KernelValue) -> KernelValue:
    """Lower a comparison. Compile-time values of any class can be compared by "eq" and "ne", tuples and structs part by
    part, and element types with NumPy's.
    """
    if is_mapped(a) or is_mapped(b):
        return map_elements(ctx, node, lambda inner, x, y: compare(inner, node, name, x, y), [a, b])
    if name in ("eq", "ne") and same_structure(a, b):
        pairs = zip(parts_of(a) or (), parts_of(b) or (), strict=True)
        junction: Literal["and", "or"] = "and" if name == "eq" else "or"
        parts = (_truth_of_part(ctx, node, junction, compare(ctx, node, name, x, y)) for x, y in pairs)
        return combine(ctx, junction, parts)
    if not (isinstance(a, Value) or isinstance(b, Value)):
        if name in ("eq", "ne"):
            for value in (a, b):
                if isinstance(value, Range | Unrolled | GridStride | Method):  # may hold run-time values
                    raise ctx.error(node, f"{describe_value(value)} can't be compared", "compare numbers or tuples")
            if isinstance(a, DType) or isinstance(b, DType):
                a, b = (_as_element_type(ctx, node, value) for value in (a, b))
            return bool(_PYTHON_OPERATORS[name](a, b))
        return _fold(ctx, node, name, a, b)
    if name in ("eq", "ne") and (_is_never_equal(a, b) or _is_never_equal(b, a)):
        return name == "ne"
    _check_operands(ctx, node, name, a, b)
    dtype = common_dtype(ctx, node, a, b)
    if dtype.kind == "bool" and name not in ("eq", "ne"):
        dtype = dtypes.i32
    return ctx.builder.emit(name, *unify(ctx, node, a, b, dtype))


def _is_never_equal(a: KernelValue, b: KernelValue) -> bool:
    """True if `a` is a run-time number and `b` is of a kind that Python never finds equal to a number."""
    return is_scalar(a) and (b is None or isinstance(b, tuple | str | Aggregate))


def _truth_of_part(ctx: Context, node: Place, name: Literal["and", "or"], value: KernelValue) -> Value | bool:
    """Return the truth value of a comparison of parts; those of the lanes of vectors are combined by `name`."""
    if isinstance(value, Value) and isinstance(value.type, Vector):
        return combine(ctx, name, (lane(ctx, value, number) for number in range(value.type.size)))
    return truth(ctx, node, value)


def _as_element_type(ctx: Context, node: Place, value: KernelValue) -> KernelValue:
    """Return the element type of a NumPy dtype or scalar class. Values that equal no element type are unchanged.

    Raises CompileError for what NumPy would take for a dtype: strings, Python's types and abstract classes.
    """
    if dtypes.is_numpy_type(value):
        try:
            return dtypes.from_numpy(value)
        except DTypeError:
            return value
    if isinstance(value, str) or (isinstance(value, type) and issubclass(value, (bool, int, float, np.generic))):
        found = repr(value) if isinstance(value, str) else value.__name__
        hint = "compare with an element type, such as vk.f32 or np.float32"
        raise ctx.error(node, f"an element type is compared with {found}", hint)
    return value


def combine(ctx: Context, name: Literal["and", "or"], conditions: Iterable[Value | bool]) -> Value | bool:
    """Return the conjunction or disjunction of conditions; it is a Python bool if compile-time conditions decide it."""
    undecided = name == "and"
    result: Value | bool = undecided
    for condition in conditions:
        if isinstance(condition, Value) and isinstance(result, Value):
            result = ctx.builder.emit(name, result, condition)
        elif result is undecided or condition is (not undecided):
            result = condition
    return result


def negate(ctx: Context, node: Place, value: KernelValue) -> KernelValue:
    """Lower `not value`."""
    test = truth(ctx, node, value)
    return (not test) if isinstance(test, bool) else ctx.builder.emit("not", test)


def unary(ctx: Context, node: Place, name: OpName | Literal["pos"], value: KernelValue) -> KernelValue:
    """Lower `-x`, `+x`, `~x`; `name` is "neg", "pos" or "not"."""
    if is_mapped(value):
        return map_elements(ctx, node, lambda inner, x: unary(inner, node, name, x), [value])
    if is_matrix(value):
        return unary_matrix(ctx, node, name, value)
    member = value.member if isinstance(value, IntMember) else value
    if isinstance(member, enum.Flag) and name == "not":
        return IntMember.of(~member) if isinstance(member, int) else ~member
    numeric(ctx, node, value)
    if is_literal(value):
        return _fold_unary(ctx, node, name, value)
    assert isinstance(value, Value)
    dtype = dtype_of_value(value)
    if name == "not" and dtype.is_float:
        raise ctx.error(node, f"~ is for integers and bools, found {dtype!r}")
    if name != "not" and dtype.kind == "bool":
        value = convert(ctx, node, value, dtypes.i32)
    if name == "pos":
        return value
    result = ctx.builder.emit(name, value)
    ctx.mark_weak(result, ctx.origins(value))
    return result


def _fold_unary(ctx: Context, node: Place, name: OpName | Literal["pos"], value: float) -> KernelValue:
    """Evaluate a unary operator of a literal."""
    if name == "neg":
        return -value
    if name == "pos":
        return +value
    if isinstance(value, float):
        raise ctx.error(node, f"~ is for integers and bools, found {value!r}")
    return (not value) if isinstance(value, bool) else ~value
