"""Typing rules: weak and strong values, type promotion, implicit conversions, truth values.

Literals, loop-carried variables initialized from literals, and results computed from these alone are weak: in an
operation they adapt to the type of the other operand. All other values are strong.

These conversions are implicit: a literal to any type that it fits, the operands of an operation to their common type,
and an integer to `index` (the 64-bit type of indices). A store also converts to a wider type, from `index` to the
array's integer type, and from a float to a narrower float. Everything else raises a CompileError that suggests the
cast.

In all functions, `node` is the syntax node that errors point to.
"""

from __future__ import annotations

import ast
import enum
import math
import sys

from vkjit import dtypes
from vkjit.dtypes import DType, promote
from vkjit.errors import CompileError, DTypeError, Loc
from vkjit.ir import types
from vkjit.ir.core import Value
from vkjit.ir.types import Scalar, Tile, Vector

from ..context import Context, Place
from ..kernel_values import (
    Aggregate,
    KernelValue,
    Lazy,
    MappingKind,
    describe_value,
    is_literal,
    is_matrix,
    is_runtime,
    is_scalar,
    is_tile,
)

__all__ = [
    "as_index",
    "as_stored",
    "common_dtype",
    "conversion_text",
    "convert",
    "default_dtype",
    "dtype_of_value",
    "fit",
    "index_hint",
    "materialize",
    "numeric",
    "operand_places",
    "static_value",
    "strict_join",
    "truth",
    "unify",
    "weak_join",
]


def dtype_of_value(value: Value) -> DType:
    """Return the element type of a scalar, vector or tile."""
    assert isinstance(value.type, Scalar | Vector | Tile)
    return value.type.dtype


def default_dtype(literal: float) -> DType:
    """Return the type that a literal has if nothing else determines it: bool, i32 or f32."""
    if isinstance(literal, bool):
        return dtypes.boolean
    return dtypes.i32 if isinstance(literal, int) else dtypes.f32


def static_value(value: KernelValue) -> int | float | None:
    """Return the number if the value is a compile-time constant, else None."""
    if is_literal(value):
        return value
    if isinstance(value, Value) and value.op is not None and value.op.name == "const":
        number = value.op.attrs["value"]
        return number if isinstance(number, bool | int | float) else None
    return None


def fit(ctx: Context, node: Place, literal: float, dtype: DType) -> bool | int | float:
    """Return the literal as a value of `dtype`. Raises CompileError if it doesn't fit."""
    if dtype.kind == "bool":
        if isinstance(literal, bool):
            return literal
        raise ctx.error(node, f"{describe_value(literal)} is no bool", "compare: write `x != 0`")
    if dtype.is_float:
        return _fit_float(ctx, node, literal, dtype)
    if isinstance(literal, float):
        raise ctx.error(node, f"the literal {literal!r} doesn't fit {dtype!r}", f"convert: {dtype!r}({literal!r})")
    low, high = _range(dtype)
    if not low <= literal <= high:
        hint = f"{dtype!r}({literal!r}) wraps" if -(2**63) <= literal < 2**64 else "no type holds it"
        if -(2**63) <= literal < -(2**31) or 2**31 <= literal < 2**64:  # it doesn't fit i32, the default of integers
            hint = f"give it a type that holds it: {'vk.i64' if literal < 2**63 else 'vk.u64'}({literal!r})"
        raise ctx.error(node, f"{describe_value(literal)} doesn't fit {dtype!r} ({low} to {high})", hint)
    return int(literal)


def _range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


_MAX_FINITE = {
    "f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": sys.float_info.max
}  # fmt: skip
"""The largest finite number of each float type."""


def _fit_float(ctx: Context, node: Place, literal: float, dtype: DType) -> float:
    """Return the literal as a float. Raises CompileError if a finite literal would become infinite in `dtype`."""
    try:
        value = float(literal)
    except OverflowError:  # an integer beyond the range of f64
        value = math.inf
    largest = _MAX_FINITE.get(dtype.name, math.inf)
    if abs(value) > largest and not (isinstance(literal, float) and math.isinf(literal)):
        hint = "use a wider type" if dtype is not dtypes.f64 else 'no type is wider; infinity is float("inf")'
        raise ctx.error(node, f"{describe_value(literal)} doesn't fit {dtype!r} (up to {largest:g})", hint)
    return value


def numeric(ctx: Context, node: Place, value: KernelValue, what: str = "a number") -> KernelValue:
    """Return the value unchanged. Raises CompileError unless it is a literal, a scalar or a vector.

    `what` names the expected value in the message.
    """
    if is_literal(value) or is_runtime(value):
        return value
    raise ctx.error(node, f"expected {what}, found {describe_value(value)}", _instead_of_number(value))


def _instead_of_number(value: KernelValue) -> str:
    """Return the hint for a value that stands where a number is expected."""
    if is_matrix(value):
        return "a subgroup's matrix has no elements to name: store it, and load them"
    if is_tile(value):
        return "take an element: t[i, j]; or make one number of all, such as vk.workgroup().sum(t)"
    if isinstance(value, Value):
        return "index it: x[i]"
    if isinstance(value, str):
        return 'text is for print and the message of an assert, as in print(f"x is {x[0]}")'
    if isinstance(value, Lazy):
        return "index an element: x[i, j]; or make one number of all, such as vk.workgroup().sum(x[i, :])"
    if isinstance(value, tuple):
        return "take an item: t[0]"
    if value is None:
        return "a function that gives a value returns it on every way"
    return ""


def conversion_text(node: Place, dtype: DType) -> str:
    """Return source text that converts an expression to `dtype`, for hints.

    An expression of more than 40 characters is shown as `x`.
    """
    if isinstance(node, ast.AugAssign):
        result = ast.BinOp(node.target, node.op, node.value)
        return f"{ast.unparse(node.target)} = {dtype!r}({ast.unparse(result)})"
    text = ast.unparse(node) if isinstance(node, ast.expr) else "x"
    return f"{dtype!r}({text if len(text) <= 40 else 'x'})"


def materialize(ctx: Context, node: Place, value: KernelValue, dtype: DType | None = None) -> Value:
    """Return a run-time value; a literal becomes a constant of `dtype` or its default type."""
    numeric(ctx, node, value)
    if is_literal(value):
        target = dtype or default_dtype(value)
        return ctx.builder.const(fit(ctx, node, value, target), target)
    assert isinstance(value, Value)
    return value


def convert(ctx: Context, node: Place, value: KernelValue, dtype: DType) -> Value:
    """Convert a value to another element type: fit a literal, cast a scalar or (lane by lane) a vector."""
    if is_literal(value):
        return ctx.builder.const(fit(ctx, node, value, dtype), dtype)
    operand = materialize(ctx, node, value)
    if isinstance(operand.type, Vector):
        return ctx.builder.cast(operand, Vector(dtype, operand.type.size))
    return ctx.builder.cast(operand, dtype)


def common_dtype(ctx: Context, node: Place, a: KernelValue, b: KernelValue) -> DType:
    """Return the common element type of two operands; a weak one adapts to a strong one.

    The origins of a weak operand record the strong type that it was combined with (see `context.Origin`).
    """
    weak_a, weak_b = _is_weak(ctx, a), _is_weak(ctx, b)
    dtype_a, dtype_b = _own_dtype(a), _own_dtype(b)
    if weak_a == weak_b:
        return _combined(ctx, node, dtype_a, dtype_b)
    weak, strong = (dtype_a, dtype_b) if weak_a else (dtype_b, dtype_a)
    _record_strong_type(ctx, a if weak_a else b, strong)
    return weak_join(weak, strong)


def _is_weak(ctx: Context, value: KernelValue) -> bool:
    """True if an operand (a literal or run-time value) is weak."""
    return not isinstance(value, Value) or value in ctx.weak


def _own_dtype(value: KernelValue) -> DType:
    """Return the element type of an operand considered alone; a literal has its default type."""
    if isinstance(value, Value):
        return dtype_of_value(value)
    assert is_literal(value)
    return default_dtype(value)


def weak_join(weak: DType, strong: DType) -> DType:
    """Return the common type of a weak and a strong operand.

    This is the strong type, with two exceptions: a weak float and a strong integer give f32, and a weak number keeps
    its own type if the strong operand is a bool.
    """
    if weak.is_float and not strong.is_float:
        return dtypes.f32
    if strong.kind == "bool":
        return weak
    return strong


def strict_join(a: DType, b: DType) -> DType | None:
    """Return the common type of two strong operands, or None if they don't promote."""
    try:
        return promote(a, b)
    except DTypeError:
        return None


def _record_strong_type(ctx: Context, weak: KernelValue, strong: DType) -> None:
    """Record in the origins of a weak value that it was combined with a strong type."""
    for origin in ctx.origins(weak) or ():
        origin.strong_types.append(strong)


def _combined(ctx: Context, node: Place, a: DType, b: DType) -> DType:
    """Promote two types. Raises CompileError with the casts to choose from if they have no common type."""
    try:
        return promote(a, b)
    except DTypeError as error:
        reason, _, hint = str(error).partition(": ")
        left, right = operand_places(node)
        if left is not right:
            hint = f"cast one of them: {conversion_text(left, b)} or {conversion_text(right, a)}"
        raise ctx.error(node, reason, hint) from None


def operand_places(node: Place) -> tuple[Place, Place]:
    """Return the nodes of an operator's two operands; for other nodes, the node itself twice."""
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        return node.left, node.comparators[0]
    if isinstance(node, ast.AugAssign):
        return node.target, node.value
    return node, node


def unify(ctx: Context, node: Place, a: KernelValue, b: KernelValue, dtype: DType | None = None) -> tuple[Value, Value]:
    """Convert two operands to their common type (or to `dtype`), and splat a scalar if the other one is a vector."""
    target = dtype or common_dtype(ctx, node, a, b)
    left, right = operand_places(node)
    x, y = convert(ctx, left, a, target), convert(ctx, right, b, target)
    if isinstance(x.type, Vector) and isinstance(y.type, Vector) and x.type.size != y.type.size:
        raise ctx.error(
            node, f"vectors of {x.type.size} and {y.type.size} lanes can't be combined", "take as many of each: v.xy"
        )
    if isinstance(x.type, Vector) and not isinstance(y.type, Vector):
        y = splat(ctx, y, x.type.size)
    if isinstance(y.type, Vector) and not isinstance(x.type, Vector):
        x = splat(ctx, x, y.type.size)
    return x, y


def splat(ctx: Context, value: Value, size: int) -> Value:
    """Emit a vector with the scalar in all lanes."""
    return ctx.builder.emit("vec_make", *[value] * size, type=Vector(dtype_of_value(value), size))


def as_index(ctx: Context, node: Place, value: KernelValue, what: str = "an index") -> Value:
    """Convert an integer to `index`. Raises CompileError for anything else; `what` names the value in the message."""
    if isinstance(value, bool) or (is_scalar(value) and dtype_of_value(value).kind == "bool"):
        hint = f"convert: {conversion_text(node, dtypes.i32)}"
        raise ctx.error(node, f"{what} must be an integer, found a bool", hint)
    if isinstance(value, float) or (is_scalar(value) and dtype_of_value(value).is_float):
        hint = f"convert: {conversion_text(node, dtypes.i32)}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            hint = f"divide integers with //: {ast.unparse(node.left)} // {ast.unparse(node.right)}"
        raise ctx.error(node, f"{what} must be an integer, found {describe_value(value)}", hint)
    if is_literal(value):
        return ctx.builder.index(int(fit(ctx, node, value, dtypes.index)))
    if not is_scalar(value):
        raise ctx.error(node, f"{what} must be an integer, found {describe_value(value)}")
    return ctx.builder.cast(value, types.INDEX)


def as_exactly(ctx: Context, node: Place, value: KernelValue, dtype: DType, what: str) -> Value:
    """Return the value as a scalar of type `dtype`. A literal or weak value is converted.

    Raises CompileError if a strong value has another type; `what` names the value in the message.
    """
    if is_literal(value):
        return ctx.builder.const(fit(ctx, node, value, dtype), dtype)
    numeric(ctx, node, value)
    assert isinstance(value, Value)
    if value in ctx.weak and weak_join(dtype_of_value(value), dtype) is dtype:
        _record_strong_type(ctx, value, dtype)
        return convert(ctx, node, value, dtype)
    if value.type != Scalar(dtype):
        raise ctx.error(
            node,
            f"{what} is {dtype!r}, found {describe_value(value)}",
            f"convert it where you mean it: {conversion_text(_argument(node), dtype)}",
        )
    return value


def _argument(node: Place) -> Place:
    """Return the node of the value to convert, for a hint: the only argument of a call, or a node that isn't a call.

    For a call with another number of arguments, this is an empty `Loc`, which `conversion_text` shows as `x`.
    """
    if not isinstance(node, ast.Call):
        return node
    values = [*node.args, *(k.value for k in node.keywords)]
    return values[0] if len(values) == 1 else Loc("", 0)


def as_stored(ctx: Context, node: Place, value: KernelValue, element: Scalar | Vector) -> Value:
    """Convert a value to the element type of an array that it is stored to, by the rules in the module docstring.

    A scalar that is stored to a vector element fills all its lanes.
    """
    dtype = element.dtype
    if is_literal(value):
        stored = ctx.builder.const(fit(ctx, node, value, dtype), dtype)
    else:
        numeric(ctx, node, value)
        assert isinstance(value, Value)
        if not _storable(ctx, value, dtype):
            raise _not_storable(ctx, node, value, dtype)
        stored = convert(ctx, node, value, dtype)
    if isinstance(element, Vector) and not isinstance(stored.type, Vector):
        return splat(ctx, stored, element.size)
    if stored.type != element:
        raise ctx.error(node, f"an element is {element}, found {describe_value(value)}", "store one lane: v.x, v[0]")
    return stored


def _storable(ctx: Context, value: Value, dtype: DType) -> bool:
    """True if a store may convert the value to `dtype` implicitly. The origins of a weak value record the type."""
    source = dtype_of_value(value)
    if value in ctx.weak and weak_join(source, dtype) is dtype:
        _record_strong_type(ctx, value, dtype)
        return True
    if source.is_float and dtype.is_float and dtype.bits < source.bits:
        return True
    if source is dtypes.index and dtype.is_integer:
        return True
    return strict_join(source, dtype) is dtype


def _not_storable(ctx: Context, node: Place, value: Value, dtype: DType) -> CompileError:
    """Return the error for a value that a store doesn't convert implicitly."""
    return ctx.error(
        node,
        f"{describe_value(value)} isn't stored into an array of {dtype!r} silently",
        f"convert it where you mean it: {conversion_text(node, dtype)}",
    )


def truth(ctx: Context, node: Place, value: KernelValue) -> Value | bool:
    """Return the truth value of a condition.

    A run-time number is compared with 0. For compile-time values the result is a Python bool, by Python's rules.
    """
    if isinstance(value, Value):
        if isinstance(value.type, Tile):
            raise ctx.error(node, f"{describe_value(value)} is neither true nor false", _instead_of_truth(value))
        if not isinstance(value.type, Scalar):
            raise ctx.error(node, f"{describe_value(value)} is neither true nor false", "compare a single element")
        if value.type.dtype.kind == "bool":
            return value
        return ctx.builder.emit("ne", value, ctx.builder.const(0, value.type.dtype))
    if is_literal(value) or value is None or isinstance(value, str | tuple | enum.Enum):
        return bool(value)
    if isinstance(value, Aggregate) and isinstance(value.kind, MappingKind):
        return bool(value.items)
    raise ctx.error(node, f"{describe_value(value)} is neither true nor false", _instead_of_truth(value))


def index_hint(value: KernelValue) -> str:
    """Return the hint for an attempt to index a value that has no elements."""
    if isinstance(value, Lazy):
        return "its elements are spread over the workgroup: index the array, combine with wg.sum, or wg.store it first"
    if isinstance(value, Aggregate):
        return "its fields have names: v.field"
    if is_matrix(value):
        return _instead_of_number(value)
    return "arrays, tuples and vectors have elements"


def _instead_of_truth(value: KernelValue) -> str:
    """Return the hint for a value that stands where a condition is expected."""
    if isinstance(value, Lazy | Aggregate) or is_tile(value):
        return (
            "combine conditions on its elements with & and |, choose with vk.where(condition, a, b), or make one bool "
            "of them with vk.workgroup().any(condition)"
        )
    return "compare it with `==` or `is`"
