"""Lowering of vector types `vk.vec(T, n)`, of the construction of vectors `vk.vec(T, n)(...)`, and of `vk.dot`."""

from __future__ import annotations

from vkjit import lang
from vkjit.ir.core import Value
from vkjit.ir.types import Vector
from vkjit.lang.vectors import VectorType

from ..context import Call, Context
from ..expressions import operators
from ..intrinsics import callable_values, lowers
from ..kernel_values import KernelValue, describe_value, is_literal, is_vector
from ..resolve import also_capturable
from ..signature.annotations import dtype_of
from ..values.conversions import as_exactly, numeric, splat, static_value
from ..values.vectors import lane
from .casts import cast_value

__all__: list[str] = []


@lowers(lang.vec)
def _vec(ctx: Context, call: Call, dtype: KernelValue, size: KernelValue) -> KernelValue:
    """Lower `vk.vec(dtype, size)` to a vector type, which is a compile-time value."""
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
    """Lower the construction of a vector from its components, which may be vectors, too, or from a single value."""
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
    """Construct a vector from one value: splat a scalar to all lanes, or convert a vector of the same size."""
    numeric(ctx, call.node, value)
    if isinstance(value, Value) and isinstance(value.type, Vector):
        if value.type.size != vector_type.size:
            raise ctx.error(
                call.node, f"expected a vector of {vector_type.size}, found {describe_value(value)}", "v.xy takes lanes"
            )
        return cast_value(ctx, call.node, value, vector_type.dtype)
    return splat(ctx, as_exactly(ctx, call.node, value, vector_type.dtype, "a component"), vector_type.size)


def _parts(ctx: Context, call: Call, value: KernelValue) -> list[KernelValue]:
    """Return the components that an argument contributes: the lanes of a vector, or a scalar itself."""
    numeric(ctx, call.node, value)
    if isinstance(value, Value) and isinstance(value.type, Vector):
        return [lane(ctx, value, i) for i in range(value.type.size)]
    return [value]


@lowers(lang.dot)
def _dot(ctx: Context, call: Call, x: KernelValue, y: KernelValue) -> KernelValue:
    """Lower `vk.dot(x, y)`: the products of the lanes are added in order, from the first lane to the last."""
    product = operators.binary(ctx, call.node, "mul", x, y)
    if is_literal(product) or not is_vector(product):
        raise ctx.error(call.node, f"dot takes two vectors, found {describe_value(x)} and {describe_value(y)}")
    assert isinstance(product, Value)
    assert isinstance(product.type, Vector)
    total: KernelValue = lane(ctx, product, 0)
    for number in range(1, product.type.size):
        total = operators.binary(ctx, call.node, "add", total, lane(ctx, product, number))
    return total
