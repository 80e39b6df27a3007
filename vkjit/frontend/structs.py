"""Structs in kernels: construction, fields, methods, assignment to fields.

Enters: calls of a struct, `p.x`, `p.x = v`. Leaves: an `Aggregate` whose kind is the `StructType`; no operation of
its own.
"""

from __future__ import annotations

import ast
import functools
import inspect
from types import FunctionType
from typing import TypeVar

from ..dtypes import DType
from ..ir.core import Value
from ..ir.types import Vector
from ..lang.structs import StructType
from ..lang.vectors import VectorType
from .annotations import Annotation, read_field
from .attributes import attributes
from .calls import bind_arguments, callable_values
from .context import Call, Context
from .conversions import as_exactly, materialize
from .device import call_device
from .function import DeviceFunction
from .resolve import also_capturable
from .values import Aggregate, KernelValue, Method, describe_value

__all__ = ["replace_field"]


def _is_struct_type(value: object) -> bool:
    return isinstance(value, StructType)


also_capturable(_is_struct_type)


@functools.cache
def _fields(kind: StructType) -> dict[str, Annotation]:
    return {name: read_field(kind.cls, name, kind.scope) for name in kind.fields}


@functools.cache
def _signature(kind: StructType) -> inspect.Signature:
    empty, keyword = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(n, keyword, default=kind.defaults.get(n, empty)) for n in kind.fields])


@callable_values(_is_struct_type)
def _make(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    assert isinstance(callee, StructType)
    bound = bind_arguments(ctx, call, _signature(callee), callee.name)
    kinds = _fields(callee)
    return Aggregate(callee, tuple(_fitted(ctx, call.node, callee, n, kinds[n], v) for n, v in bound.arguments.items()))


def _fitted(
    ctx: Context, node: ast.AST, kind: StructType, name: str, annotation: Annotation, value: KernelValue
) -> KernelValue:
    """A value as the field wants it."""
    what = f"{kind.name}.{name}"
    if isinstance(annotation, DType):
        return as_exactly(ctx, node, value, annotation, what)
    if isinstance(annotation, StructType):
        if not (isinstance(value, Aggregate) and value.kind is annotation):
            raise ctx.error(node, f"{what} is {annotation.name}, found {describe_value(value)}")
        return value
    made = materialize(ctx, node, value)
    if isinstance(annotation, VectorType) and repr(annotation) != describe_value(made):
        raise ctx.error(node, f"{what} is {annotation!r}, found {describe_value(made)}")
    if annotation is not None and not isinstance(annotation, VectorType | TypeVar):
        raise ctx.error(node, f"{what}: a field is a dtype, a vector, a struct or a type variable")
    return made


def _is_struct(value: KernelValue) -> bool:
    return isinstance(value, Aggregate) and isinstance(value.kind, StructType)


@attributes(_is_struct)
def _field(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
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
    return call_device(ctx, function, Call(call.node, [owner, *call.args], call.keywords))


def replace_field(ctx: Context, target: ast.Attribute, value: KernelValue) -> tuple[ast.expr, KernelValue]:
    """`base.field = value`: the node of the base, and the base with the field replaced."""
    base = ctx.evaluate(target.value)
    if not (isinstance(base, Aggregate) and isinstance(base.kind, StructType)):
        is_vector = isinstance(base, Value) and isinstance(base.type, Vector)
        hint = "build a new vector" if is_vector else "bind a name or store into an array"
        raise ctx.error(target, f"{ast.unparse(target)} can't be assigned to", hint)
    kind = base.kind
    if target.attr not in kind.fields:
        raise ctx.error(target, f"{kind.name} has no {target.attr}", f"its fields are {', '.join(kind.fields)}")
    fitted = _fitted(ctx, target, kind, target.attr, _fields(kind)[target.attr], value)
    position = kind.fields.index(target.attr)
    items = (*base.items[:position], fitted, *base.items[position + 1 :])
    return target.value, Aggregate(kind, items)
