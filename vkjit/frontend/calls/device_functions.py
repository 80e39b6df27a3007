"""Instantiation of device functions: one `ir.Function`, called an instance, per call signature.

A device function is a `@vk.func`, a plain Python function of the user, or a function nested in one that is compiled
(`local_functions`).

A call signature consists of the types of the arguments that are run-time values, and of the compile-time arguments
themselves (literals included). Only the run-time values become parameters of the instance: each scalar, vector and
array, also those inside tuples and structs. Instances are cached by call signature in `Session.instances`. See
`values.joins` for structures and slots.

A function may call itself with another call signature: the recursion ends where a compile-time condition decides it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from vkjit.dtypes import DType
from vkjit.errors import CompileError, Note
from vkjit.ir.core import Function, Region, Value
from vkjit.ir.types import Array, Scalar, Type, Vector
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.types import ArrayAnnotation, ConstAnnotation
from vkjit.lang.vectors import VectorType

from ..context import Call, Context, Return
from ..intrinsics import bind_arguments, callable_values
from ..kernel_values import (
    Aggregate,
    Binding,
    Conflict,
    KernelValue,
    MappingKind,
    StructArrayKind,
    Unbound,
    describe_value,
    parts_of,
    with_parts,
)
from ..resolve import also_capturable, captured
from ..scope import analyze
from ..signature.annotations import Annotation
from ..signature.free_names import size_fault
from ..signature.function import DeviceFunction, is_helper
from ..source import FunctionSource
from ..values.closures import attached, leaving
from ..values.conversions import as_exactly
from ..values.joins import JoinFailure, Slot, common_structure, rebuild, to_type
from ..values.lazy import note_write

__all__ = ["Callee", "call_function"]

MAX_DEPTH = 40
"""The maximum number of calls of one function within each other: Python's stack has room for them."""


class Callee(Protocol):
    """A device function, as its calls see it.

    `fn` is the Python function in whose closure and globals its names are looked up, `captured` has the entries of names
    of an enclosing function that is being compiled, `typevars` the type variables bound there, and `key` identifies it
    in the keys of instances.
    """

    @property
    def fn(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> object: ...
    @property
    def source(self) -> FunctionSource: ...
    @property
    def signature(self) -> inspect.Signature: ...
    @property
    def annotations(self) -> Mapping[str, Annotation]: ...
    @property
    def captured(self) -> Mapping[str, Binding | Unbound | Conflict]: ...
    @property
    def typevars(self) -> Mapping[str, DType]: ...


@dataclass(frozen=True, slots=True)
class Instance:
    """A device function lowered for one call signature.

    `result` is the structure of the returned value, with a Slot for each result of the IR function.
    """

    function: Function
    result: KernelValue


def _is_device_function(value: object) -> bool:
    return isinstance(value, DeviceFunction)


also_capturable(_is_device_function)


@callable_values(_is_device_function)
def _call(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """Emit a call of a device function and return its result."""
    assert isinstance(callee, DeviceFunction)
    return call_function(ctx, call, callee)


@callable_values(is_helper)
def _call_helper(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """Emit a call of a plain Python function and return its result."""
    assert isinstance(callee, FunctionType)
    return call_function(ctx, call, DeviceFunction(callee, is_helper=True))


def call_function(ctx: Context, call: Call, callee: Callee) -> KernelValue:
    """Emit a call of a device function and return its result."""
    bound = bind_arguments(ctx, call, callee.signature, callee.name)
    typevars = dict(callee.typevars)
    arguments: dict[str, KernelValue] = {}
    for parameter, value in bound.arguments.items():
        fault = size_fault(value)  # of a default: others were checked when they were made or captured
        if fault:
            raise ctx.error(call.node, f"the argument {parameter} of {callee.name} {fault}", "take an array instead")
        kind = callee.signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments[parameter] = tuple(leaving(ctx, call.node, item) for item in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            items = tuple(leaving(ctx, call.node, item) for item in value.values())
            arguments[parameter] = Aggregate(MappingKind(tuple(value)), items)
        else:  # NumPy scalars, which may be defaults of parameters, become constants
            resolved = captured(ctx, call.node, parameter, value) if isinstance(value, np.generic) else value
            arguments[parameter] = leaving(ctx, call.node, resolved)
            _bind_type(ctx, call, callee, parameter, resolved, typevars)
    arguments = {p: _fit_argument(ctx, call, callee, p, v, typevars) for p, v in arguments.items()}
    instance = _instance_for(ctx, call, callee, arguments, typevars)
    taken = [entry.value for entry in callee.captured.values() if isinstance(entry, Binding)]
    operands = [leaf for value in (*arguments.values(), *taken) for leaf in _leaves(value)]
    for value in operands:
        if isinstance(value.type, Array) and value.type.access != "in":  # the function may store to this array
            note_write(ctx, value)
    op = ctx.builder.op("call", *operands, types=instance.function.result_types, callee=instance.function.name)
    return attached(ctx, rebuild(instance.result, op.results))


def _leaves(value: KernelValue) -> list[Value]:
    """Return the run-time values in a value, in order."""
    parts = parts_of(value)
    if parts is not None:
        return [leaf for item in parts for leaf in _leaves(item)]
    return [value] if isinstance(value, Value) else []


def _bind_type(
    ctx: Context, call: Call, callee: Callee, name: str, value: KernelValue, typevars: dict[str, DType]
) -> None:
    """Bind the type variable in the annotation of parameter `name`, if there is one, to the argument's element type.

    Raises CompileError if another argument has bound it to another type.
    """
    annotation = callee.annotations[name]
    variable = annotation.dtype if isinstance(annotation, ArrayAnnotation) else annotation
    variable = variable.dtype if isinstance(variable, VectorType) else variable
    if (
        isinstance(value, Aggregate)
        and isinstance(value.kind, StructArrayKind)
        and isinstance(value.kind.element, VectorType)
    ):
        value = value.items[0]  # the array of all lanes
    if not isinstance(variable, TypeVar) or not isinstance(value, Value):
        return
    assert isinstance(value.type, Scalar | Vector | Array)
    element_type = value.type.dtype
    bound = typevars.setdefault(variable.__name__, element_type)
    if bound is not element_type:
        raise ctx.error(
            call.node,
            f"{callee.name}: {variable.__name__} is {bound!r} by one argument, but {name} is {element_type!r}",
            f"convert one of them: {bound!r}(x)",
        )


def _fit_argument(
    ctx: Context, call: Call, callee: Callee, name: str, value: KernelValue, typevars: dict[str, DType]
) -> KernelValue:
    """Convert the argument for parameter `name` to the annotated type. Raises CompileError if it doesn't fit."""
    annotation = callee.annotations[name]
    what = f"{name} of {callee.name}"
    kind = callee.signature.parameters[name].kind
    if annotation is not None and kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        parts = [_fit(ctx, call, annotation, what, item, typevars) for item in parts_of(value) or ()]
        return with_parts(value, parts)
    return _fit(ctx, call, annotation, what, value, typevars)


def _fit(
    ctx: Context, call: Call, annotation: Annotation, what: str, value: KernelValue, typevars: dict[str, DType]
) -> KernelValue:
    """Convert an argument to an annotated type; `what` names the parameter in messages."""
    if isinstance(annotation, ConstAnnotation):
        if _leaves(value):
            hint = "give it a number, a constant of the module, or a parameter of the kernel annotated as vk.Const[int]"
            raise ctx.error(call.node, f"{what} must be known at compile time, found {describe_value(value)}", hint)
        return value
    if isinstance(annotation, ArrayAnnotation):
        return _check_array(ctx, call, annotation, value, what, typevars)
    if isinstance(annotation, StructType) and not (isinstance(value, Aggregate) and value.kind is annotation):
        raise ctx.error(call.node, f"{what} is {annotation!r}, found {describe_value(value)}")
    # `describe_value` formats a vector as its type, as in "vk.vec(vk.f32, 3)".
    if isinstance(annotation, VectorType) and describe_value(value) != repr(_with_bound_type(annotation, typevars)):
        raise ctx.error(call.node, f"{what} is {annotation!r}, found {describe_value(value)}", "convert it: V(v)")
    if isinstance(annotation, TypeVar):
        annotation = typevars.get(annotation.__name__)
    if isinstance(annotation, DType):
        if isinstance(value, Value) and isinstance(value.type, Vector) and value.type.dtype is annotation:
            return value
        return as_exactly(ctx, call.node, value, annotation, what)
    return value


def _with_bound_type(kind: object, typevars: dict[str, DType]) -> object:
    """Replace the type variable of a vector type by the dtype bound to it; return any other type unchanged."""
    if isinstance(kind, VectorType) and isinstance(kind.dtype, TypeVar):
        return VectorType(typevars.get(kind.dtype.__name__, kind.dtype), kind.size)
    return kind


def _check_array(
    ctx: Context, call: Call, annotation: ArrayAnnotation, value: KernelValue, what: str, typevars: dict[str, DType]
) -> KernelValue:
    """Check an array argument against its annotation; `what` names the parameter in messages."""
    if isinstance(annotation.dtype, StructType | VectorType | PackedFloat):
        kind = value.kind if isinstance(value, Aggregate) else None
        if not isinstance(kind, StructArrayKind) or kind.element != _with_bound_type(annotation.dtype, typevars):
            raise ctx.error(call.node, f"{what} is an array of {annotation.dtype!r}, found {describe_value(value)}")
        return value
    if not isinstance(value, Value) or not isinstance(value.type, Array):
        raise ctx.error(call.node, f"{what} is an array, found {describe_value(value)}")
    if isinstance(annotation.dtype, DType) and value.type.dtype is not annotation.dtype:
        raise ctx.error(call.node, f"{what} is an array of {annotation.dtype!r}, found {describe_value(value)}")
    return value


def _key(value: KernelValue) -> object:
    """Return an argument's part of the call signature: a run-time value's type, or a compile-time value itself."""
    if isinstance(value, Value):
        return value.type
    parts = parts_of(value)
    if parts is not None:
        return (value.kind if isinstance(value, Aggregate) else type(value), *map(_key, parts))
    if isinstance(value, float):
        return (float, value.hex())  # distinguishes 0.0 and -0.0
    return (type(value), value)


def _instance_for(
    ctx: Context, call: Call, callee: Callee, arguments: dict[str, KernelValue], typevars: dict[str, DType]
) -> Instance:
    """Return the instance of a device function for these arguments, lowered on first use."""
    taken = tuple((n, _key(e.value) if isinstance(e, Binding) else e) for n, e in callee.captured.items())
    types = (tuple(map(_key, arguments.values())), taken, tuple(sorted(typevars.items(), key=lambda item: item[0])))
    key, session = (callee.key, types), ctx.session
    cached = session.instances.get(key)
    if cached is not None:
        return cast(Instance, cached)
    if key in session.active:
        raise ctx.error(call.node, f"{callee.name} calls itself", "device functions can't recur: write a loop")
    if sum(function == callee.key for function, _ in session.active) >= MAX_DEPTH:
        reason = f"{callee.name} calls itself {MAX_DEPTH} levels deep: recursion must end, at a compile-time condition"
        raise ctx.error(call.node, reason, "count down a constant, as in f(x, n - 1) if n > 0 else x, or write a loop")
    session.active.append(key)
    try:
        instance = _lower_instance(ctx, callee, arguments, typevars)
    except CompileError as error:
        note = Note(ctx.loc(call.node), f"in {callee.name}, called from here")
        raise (error if error.notes[-1:] == (note,) else error.with_note(note.loc, note.text)) from None
    finally:
        session.active.pop()
    ctx.session.instances[key] = instance
    return instance


def _lower_instance(
    caller: Context, callee: Callee, arguments: dict[str, KernelValue], typevars: dict[str, DType]
) -> Instance:
    """Lower a device function to a new function of the module; `caller` is the context of its first call."""
    session = caller.session
    source = callee.source
    types: list[Type] = []
    names: list[str] = []
    structures = {name: _parameter(name, value, types, names) for name, value in arguments.items()}
    entries = dict(callee.captured)
    for taken, entry in entries.items():
        if isinstance(entry, Binding):
            entries[taken] = Binding(_parameter(taken, entry.value, types, names), entry.loc)
    name = session.unique_name(callee.name.strip("<>"))  # "lambda" of a lambda
    function = Function(name, Region(types, names), [], {"param_names": tuple(names)}, source.name_loc())
    session.module.functions[name] = function
    scope = analyze(source.node)
    scope.local_names |= entries.keys()
    inner = Context(session, callee.fn, source, scope, function, typevars)
    inner.is_always_called = caller.is_certainly_reached()
    for parameter, structure in structures.items():
        inner.env[parameter] = Binding(rebuild(structure, function.params), source.name_loc())
    for taken, entry in entries.items():
        if isinstance(entry, Binding):
            entry = Binding(rebuild(entry.value, function.params), entry.loc)
        inner.env[taken] = entry
    inner.captured = frozenset(entries)
    if not inner.block(source.node.body):
        inner.builder.loc = source.name_loc()
        inner.returns.append(Return(inner.builder.region, inner.builder.op("return"), None, source.name_loc()))
    inner.finish_entry()
    # Move it to the end: the module lists callees before callers.
    session.module.functions[name] = session.module.functions.pop(name)
    return Instance(function, _results(inner, function))


def _parameter(name: str, value: KernelValue, types: list[Type], names: list[str]) -> KernelValue:
    """Return the structure of an argument, and append the types and names of its slots to the lists.

    Each slot becomes a parameter of the IR function.
    """
    parts = parts_of(value)
    if parts is not None:
        return with_parts(value, [_parameter(f"{name}.{i}", item, types, names) for i, item in enumerate(parts)])
    if not isinstance(value, Value):
        return value
    types.append(value.type)
    names.append(name)
    return Slot(len(types) - 1, value.type)


def _results(ctx: Context, function: Function) -> KernelValue:
    """Return the common structure of the values of all `return`s, and set the operands of the `return` operations."""
    if not ctx.returns:
        return None
    types: list[Type] = []
    try:
        structure = common_structure(ctx, [r.value for r in ctx.returns], types)
    except JoinFailure:
        first = ctx.returns[0]
        other = next(r for r in ctx.returns if not _agree(ctx, first.value, r.value))
        part, here, elsewhere = _difference(ctx, other.value, first.value, "")
        raise ctx.error(
            other.loc,
            f"the function returns {describe_value(here)}{part} here and {describe_value(elsewhere)} elsewhere",
            "return values of one type, and a value on every way",
            (Note(first.loc, f"here it returns {describe_value(elsewhere)}{part}"),),
        ) from None
    function.result_types = types
    for return_ in ctx.returns:
        _fill_operands(ctx, return_, structure)
    return structure


def _difference(ctx: Context, a: KernelValue, b: KernelValue, place: str) -> tuple[str, KernelValue, KernelValue]:
    """Return (place, part of a, part of b) of the first parts that have no common structure, such as " as item 1"."""
    items, others = parts_of(a), parts_of(b)
    if items is not None and others is not None and len(items) == len(others) and type(a) is type(b):
        for index, (x, y) in enumerate(zip(items, others, strict=True)):
            if not _agree(ctx, x, y):
                return _difference(ctx, x, y, f"{place}[{index}]" if place else f" as item [{index}]")
    return place, a, b


def _agree(ctx: Context, a: KernelValue, b: KernelValue) -> bool:
    """True if two returned values have a common structure."""
    try:
        common_structure(ctx, [a, b], [])
    except JoinFailure:
        return False
    return True


def _fill_operands(ctx: Context, return_: Return, structure: KernelValue) -> None:
    """Set the operands of a `return` operation. Conversions of the values are emitted before the operation."""
    region = return_.region
    last_op = region.ops.pop()  # removed for now: the conversions go before it
    assert last_op is return_.op
    typed_values: list[tuple[KernelValue, Type]] = []
    _match_slots(structure, return_.value, typed_values)
    ctx.builder.loc = return_.loc
    with ctx.builder.at(region):
        return_.op.operands = [to_type(ctx, return_.loc, value, type_) for value, type_ in typed_values]
    region.ops.append(return_.op)


def _match_slots(structure: KernelValue, value: KernelValue, typed_values: list[tuple[KernelValue, Type]]) -> None:
    """Append to `typed_values`, for each slot of the structure, the item of `value` in its place and its slot type."""
    if isinstance(structure, Slot):
        typed_values.append((value, structure.type))
    else:
        for s, v in zip(parts_of(structure) or (), parts_of(value) or (), strict=True):
            _match_slots(s, v, typed_values)
