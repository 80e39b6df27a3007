"""Short vectors: construction `vk.vec(T, n)(...)`, lanes and swizzles `v.xy`, dot products."""

from __future__ import annotations

import ast

from .. import lang
from ..ir.core import Value
from ..ir.types import Scalar, Vector
from ..lang.vectors import VectorType
from . import operators
from .annotations import dtype_of
from .attributes import attributes
from .calls import callable_values, cast_value, lowers
from .context import Call, Context
from .conversions import as_exactly, dtype_of_value, numeric, splat, static_value
from .resolve import also_capturable
from .values import KernelValue, describe_value, is_literal

__all__ = ["lane", "lanes_named"]

_LANES = ("xyzw", "rgba")


def lane(ctx: Context, vector: Value, number: int) -> Value:
    """Emit the extraction of one lane."""
    return ctx.builder.emit("vec_extract", vector, lane=number, type=Scalar(dtype_of_value(vector)))


@lowers(lang.vec)
def _vec(ctx: Context, call: Call, dtype: KernelValue, size: KernelValue) -> KernelValue:
    element_type, lanes = dtype_of(dtype), static_value(size)
    if element_type is None:
        raise ctx.error(call.node, f"expected a dtype, found {describe_value(dtype)}", "write e.g. vk.vec(vk.f32, 4)")
    if lanes not in (2, 3, 4):
        raise ctx.error(call.node, "a vector has 2, 3 or 4 elements, known at compile time")
    return VectorType(element_type, int(lanes))


def _is_vector_type(value: object) -> bool:
    return isinstance(value, VectorType)


also_capturable(_is_vector_type)


@callable_values(_is_vector_type)
def _make(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    assert isinstance(callee, VectorType)
    if call.keywords:
        raise ctx.error(call.node, "a vector takes its components in order, without keywords")
    vector_type = Vector(callee.element, callee.size)
    if len(call.args) == 1:
        return _from_one(ctx, call, call.args[0], vector_type)
    lanes = [part for value in call.args for part in _parts(ctx, call, value)]
    if len(lanes) != callee.size:
        raise ctx.error(call.node, f"{callee!r} takes {callee.size} components, found {len(lanes)}")
    exact = [as_exactly(ctx, call.node, part, callee.element, "a component") for part in lanes]
    return ctx.builder.emit("vec_make", *exact, type=vector_type)


def _from_one(ctx: Context, call: Call, value: KernelValue, vector_type: Vector) -> Value:
    """Splat a scalar to all lanes, or convert a vector."""
    numeric(ctx, call.node, value)
    if isinstance(value, Value) and isinstance(value.type, Vector):
        if value.type.size != vector_type.size:
            raise ctx.error(
                call.node, f"expected a vector of {vector_type.size}, found {describe_value(value)}", "v.xy takes lanes"
            )
        return cast_value(ctx, call.node, value, vector_type.dtype)
    return splat(ctx, as_exactly(ctx, call.node, value, vector_type.dtype, "a component"), vector_type.size)


def _parts(ctx: Context, call: Call, value: KernelValue) -> list[KernelValue]:
    numeric(ctx, call.node, value)
    if isinstance(value, Value) and isinstance(value.type, Vector):
        return [lane(ctx, value, i) for i in range(value.type.size)]
    return [value]


def lanes_named(ctx: Context, node: ast.AST, what: str, name: str, size: int) -> list[int]:
    """Return the lane indices of a swizzle of a vector with `size` lanes; `what` describes the vector in messages."""
    letters = next((s for s in _LANES if set(name) <= set(s)), None)
    lanes = [letters.index(c) for c in name] if letters is not None else []
    if not lanes or len(lanes) > 4 or max(lanes) >= size:
        raise ctx.error(node, f"{what} has no lane {name}", f"its lanes are {' '.join(_LANES[0][:size])}, as in v.xy")
    return lanes


def _is_vector(value: KernelValue) -> bool:
    return isinstance(value, Value) and isinstance(value.type, Vector)


@attributes(_is_vector)
def _swizzle(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    assert isinstance(base, Value)
    assert isinstance(base.type, Vector)
    if node.attr == "dtype":
        return base.type.dtype
    parts = [
        lane(ctx, base, number) for number in lanes_named(ctx, node, describe_value(base), node.attr, base.type.size)
    ]
    if len(parts) == 1:
        return parts[0]
    return ctx.builder.emit("vec_make", *parts, type=Vector(base.type.dtype, len(parts)))


@lowers(lang.dot)
def _dot(ctx: Context, call: Call, x: KernelValue, y: KernelValue) -> KernelValue:
    product = operators.binary(ctx, call.node, "mul", x, y)
    if is_literal(product) or not _is_vector(product):
        raise ctx.error(call.node, f"dot takes two vectors, found {describe_value(x)} and {describe_value(y)}")
    assert isinstance(product, Value)
    assert isinstance(product.type, Vector)
    total: KernelValue = lane(ctx, product, 0)
    for number in range(1, product.type.size):
        total = operators.binary(ctx, call.node, "add", total, lane(ctx, product, number))
    return total
