"""Structs in kernels: construction, fields, methods, and functional update of fields.

A struct is an `Aggregate` whose kind is the `StructType`, the result of `@vk.struct`; it has no operators but == and !=. Arrays of
structs are in `struct_arrays`, assignment to fields in `statements.assignment`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from types import FunctionType

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.vectors import VectorType

from ..context import Call, Context
from ..intrinsics import bind_arguments, callable_values, lowering_of
from ..kernel_values import Aggregate, KernelValue, Method, describe_value
from ..resolve import also_capturable
from ..signature.composites import FieldType, fields_of
from ..signature.elements import ElementArray
from ..signature.function import DeviceFunction
from .attributes import attributes
from .conversions import as_exactly, materialize

__all__ = ["with_field"]


def _is_struct_type(value: object) -> bool:
    return isinstance(value, StructType)


also_capturable(_is_struct_type)


@functools.cache
def _signature(kind: StructType) -> inspect.Signature:
    """Return the signature of the struct's constructor: its fields in order, with their defaults."""
    empty, keyword = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(n, keyword, default=kind.defaults.get(n, empty)) for n in kind.fields])


@callable_values(_is_struct_type)
def _make(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """Lower the construction of a struct, `S(x, y=1)`."""
    assert isinstance(callee, StructType)
    bound = bind_arguments(ctx, call, _signature(callee), callee.name)
    kinds = fields_of(callee)
    return Aggregate(callee, tuple(_fitted(ctx, call.node, callee, n, kinds[n], v) for n, v in bound.arguments.items()))


def _fitted(
    ctx: Context, node: ast.AST, kind: StructType, name: str, annotation: FieldType, value: KernelValue
) -> KernelValue:
    """Convert a value to the type `annotation` of the field `name`. Raises CompileError if it doesn't fit."""
    what = f"{kind.name}.{name}"
    if isinstance(annotation, DType):
        return as_exactly(ctx, node, value, annotation, what)
    if isinstance(annotation, StructType):
        if not (isinstance(value, Aggregate) and value.kind is annotation):
            raise ctx.error(node, f"{what} is {annotation.name}, found {describe_value(value)}")
        return value
    if isinstance(annotation, ElementArray):
        return _fitted_array(ctx, node, what, annotation, annotation.shape, value)
    if isinstance(annotation, PackedFloat):
        return as_exactly(ctx, node, value, dtypes.f32, what)
    operand = materialize(ctx, node, value)
    # The annotation is a vector type, or the field's type is inferred (None or a TypeVar). Vector types are compared by
    # their text: `describe_value` formats a vector as its type, as in "vk.vec(vk.f32, 3)".
    if isinstance(annotation, VectorType) and repr(annotation) != describe_value(operand):
        raise ctx.error(node, f"{what} is {annotation!r}, found {describe_value(operand)}")
    return operand


def _fitted_array(
    ctx: Context, node: ast.AST, what: str, kind: ElementArray, shape: tuple[int, ...], value: KernelValue
) -> KernelValue:
    """Check that a value is nested tuples of the given shape, and convert their items to the type of an array field.

    `kind` is the field's type, and `what` names the field in messages.
    """
    if not shape:
        return as_exactly(ctx, node, value, kind.dtype, what) if isinstance(kind.dtype, DType) else value
    if not isinstance(value, tuple) or len(value) != shape[0]:
        raise ctx.error(node, f"{what} is an {kind}, found {describe_value(value)}", "give it as a tuple (of tuples)")
    return tuple(_fitted_array(ctx, node, what, kind, shape[1:], item) for item in value)


def _is_struct(value: KernelValue) -> bool:
    return isinstance(value, Aggregate) and isinstance(value.kind, StructType)


@attributes(_is_struct)
def _field(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower `s.name` to the field's value, or to a Method if it is a method of the struct's class."""
    assert isinstance(base, Aggregate)
    kind = base.kind
    assert isinstance(kind, StructType)
    if node.attr in kind.fields:
        return base.items[kind.fields.index(node.attr)]
    function = kind.cls.__dict__.get(node.attr)
    if isinstance(function, FunctionType):
        return Method(base, node.attr, functools.partial(_method, _device_function(function)))
    raise ctx.error(node, f"{kind.name} has no {node.attr}", f"its fields are {', '.join(kind.fields)}")


@functools.cache
def _device_function(function: FunctionType) -> DeviceFunction:
    return DeviceFunction(function)


def _method(function: DeviceFunction, ctx: Context, call: Call, owner: KernelValue) -> KernelValue:
    """Lower a method call as a call of a device function with the struct as its first argument."""
    lower = lowering_of(function)
    assert lower is not None
    return lower(ctx, Call(call.node, [owner, *call.args], call.keywords))


def with_field(ctx: Context, node: ast.AST, struct: Aggregate, name: str, value: KernelValue) -> Aggregate:
    """Return the struct with one field replaced, after conversion to the field's type."""
    kind = struct.kind
    assert isinstance(kind, StructType)
    fitted = _fitted(ctx, node, kind, name, fields_of(kind)[name], value)
    position = kind.fields.index(name)
    return Aggregate(kind, (*struct.items[:position], fitted, *struct.items[position + 1 :]))
