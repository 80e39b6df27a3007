"""Attributes of constants: fields, methods, properties and class attributes of frozen dataclasses, named tuples and enums.

A method is the device function with the constant as its first argument; a property is a call of one. The classes are
those of the user: Python's own methods, such as `_asdict`, aren't functions that kernels can call.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import inspect
from collections.abc import Iterable
from types import FunctionType
from typing import Any

import numpy as np

from ..context import Call, Context
from ..intrinsics import bind_arguments, callable_values, lowering_of
from ..kernel_values import IntMember, KernelValue, Method, describe_value, same_constant
from ..resolve import MISSING, captured, constant_fields
from ..signature.function import DeviceFunction, is_helper
from .attributes import attributes
from .bound import bound_method

__all__ = ["class_member", "member_named"]


def _is_constant_object(value: KernelValue) -> bool:
    return isinstance(value, IntMember | enum.Enum) or bool(constant_fields(value))


@attributes(_is_constant_object)
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower an attribute of a constant."""
    value = base.member if isinstance(base, IntMember) else base
    if isinstance(value, enum.Enum) and node.attr in ("value", "name"):
        return captured(ctx, node, ast.unparse(node), getattr(value, node.attr))
    names = constant_fields(value)
    if node.attr in names:
        field = getattr(value, node.attr)
        return field if isinstance(value, tuple) else captured(ctx, node, ast.unparse(node), field)
    if isinstance(value, tuple) and node.attr == "_replace":
        return Method(base, node.attr, _replaced)
    member = inspect.getattr_static(type(value), node.attr, MISSING)
    if isinstance(member, property | functools.cached_property):
        function = member.fget if isinstance(member, property) else member.func
        if is_helper(function):
            lower = lowering_of(function)
            assert lower is not None
            return lower(ctx, Call(ast.copy_location(ast.Call(node, [], []), node), [base], {}))
    if isinstance(member, DeviceFunction) or is_helper(member):
        return bound_method(member, base)
    if node.attr.startswith("__") or member is MISSING or isinstance(member, FunctionType | property):
        hint = f"its fields are {', '.join(names)}" if names else "it has value, name, and what its class defines"
        what = "no field" if names else "no"
        raise ctx.error(node, f"{describe_value(value)} has {what} {node.attr}", hint)
    return class_member(ctx, node, type(value))


def class_member(ctx: Context, node: ast.Attribute, owner: type) -> KernelValue:
    """Lower an attribute of a class: a method, or a constant."""
    member = inspect.getattr_static(owner, node.attr, MISSING)
    if isinstance(member, classmethod):
        return bound_method(member.__func__, owner)
    return captured(ctx, node, ast.unparse(node), getattr(owner, node.attr))


def _replaced(ctx: Context, call: Call, owner: KernelValue) -> KernelValue:
    """Lower `t._replace(a=1)` of a named tuple."""
    names = constant_fields(owner)
    unknown = [name for name in call.keywords if name not in names]
    if call.args or unknown:
        raise ctx.error(call.node, "_replace takes fields by name", f"its fields are {', '.join(names)}")
    return owner._replace(**call.keywords)  # type: ignore[attr-defined]


# -- classes
def member_named(ctx: Context, node: ast.Subscript, owner: enum.EnumMeta) -> KernelValue:
    """Lower `Color["RED"]`."""
    name = ctx.evaluate(node.slice)
    if not isinstance(name, str) or name not in owner.__members__:
        names = ", ".join(owner.__members__)
        raise ctx.error(
            node.slice, f"{owner.__name__} has no member {describe_value(name)}", f"its members are {names}"
        )
    return captured(ctx, node, ast.unparse(node), owner.__members__[name])


@callable_values(lambda value: isinstance(value, enum.EnumMeta))
def _member_of_value(ctx: Context, call: Call, owner: KernelValue) -> KernelValue:
    """Lower `Color(1)`."""
    assert isinstance(owner, enum.EnumMeta)
    value = call.args[0] if len(call.args) == 1 and not call.keywords else MISSING
    constant = value.member if isinstance(value, IntMember) else value
    members: Iterable[Any] = owner.__members__.values()
    for member in members:
        if constant is member or (constant is not MISSING and same_constant(constant, member.value)):
            return captured(ctx, call.node, "the member", member)
    if isinstance(constant, int) and issubclass(owner, enum.Flag):
        with contextlib.suppress(ValueError):
            return captured(ctx, call.node, "the member", owner(constant))
    found = "nothing" if value is MISSING else describe_value(value)
    hint = f"its values are {', '.join(repr(member.value) for member in members)}"
    raise ctx.error(call.node, f"{owner.__name__} takes a value known at compile time, found {found}", hint)


def _is_named_tuple(value: KernelValue) -> bool:
    """True for the class of a named tuple that doesn't change how it is made."""
    is_made_by_fields = str(getattr(getattr(value, "__new__", None), "__module__", "")).startswith("namedtuple_")
    return isinstance(value, type) and issubclass(value, tuple) and is_made_by_fields


@callable_values(_is_named_tuple)
def _make(ctx: Context, call: Call, owner: KernelValue) -> KernelValue:
    """Lower `Point(x, y=1)` of a named tuple."""
    assert isinstance(owner, type)
    bound = bind_arguments(ctx, call, inspect.signature(owner), owner.__name__)
    values = (
        captured(ctx, call.node, name, v) if isinstance(v, np.generic) else v for name, v in bound.arguments.items()
    )
    return owner._make(values)  # type: ignore[attr-defined]
