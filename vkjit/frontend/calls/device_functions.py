"""Instantiation of device functions (`@vk.func`): one `ir.Function`, called an instance, per call signature.

A call signature consists of the types of the arguments that are run-time values, and of the compile-time arguments
themselves (literals included). Only the run-time values become parameters of the instance: each scalar, vector and
array, also those inside tuples and structs. Instances are cached by call signature in `Session.instances`. See
`values.joins` for structures and slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

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
from ..kernel_values import Aggregate, Binding, KernelValue, StructArrayKind, describe_value, parts_of, with_parts
from ..resolve import also_capturable, captured
from ..scope import analyze
from ..signature.free_names import size_fault
from ..signature.function import DeviceFunction
from ..source import source_of
from ..values.conversions import as_exactly
from ..values.joins import JoinFailure, Slot, common_structure, rebuild, to_type
from ..values.lazy import note_write

__all__: list[str] = []


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
    name = callee.fn.__name__
    if callee.fn in ctx.session.active:
        raise ctx.error(call.node, f"{name} calls itself", "device functions can't recur: write a loop")
    bound = bind_arguments(ctx, call, callee.signature, name)
    typevars: dict[str, DType] = {}
    for parameter, value in bound.arguments.items():
        fault = size_fault(value)  # of a default: others were checked when they were made or captured
        if fault:
            raise ctx.error(call.node, f"the argument {parameter} of {name} {fault}", "take an array instead")
        _bind_type(ctx, call, callee, parameter, value, typevars)
    resolved = {  # NumPy scalars, which may be defaults of parameters, become constants
        p: captured(ctx, call.node, p, v) if isinstance(v, np.generic) else v for p, v in bound.arguments.items()
    }
    arguments = {p: _fit_argument(ctx, call, callee, p, v, typevars) for p, v in resolved.items()}
    instance = _instance_for(ctx, call, callee, arguments, typevars)
    operands = [leaf for value in arguments.values() for leaf in _leaves(value)]
    for value in operands:
        if isinstance(value.type, Array) and value.type.access != "in":  # the function may store to this array
            note_write(ctx, value)
    op = ctx.builder.op("call", *operands, types=instance.function.result_types, callee=instance.function.name)
    return rebuild(instance.result, op.results)


def _leaves(value: KernelValue) -> list[Value]:
    """Return the run-time values in a value, in order."""
    parts = parts_of(value)
    if parts is not None:
        return [leaf for item in parts for leaf in _leaves(item)]
    return [value] if isinstance(value, Value) else []


def _bind_type(
    ctx: Context, call: Call, callee: DeviceFunction, name: str, value: KernelValue, typevars: dict[str, DType]
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
            f"{callee.fn.__name__}: {variable.__name__} is {bound!r} by one argument, but {name} is {element_type!r}",
            f"convert one of them: {bound!r}(x)",
        )


def _fit_argument(
    ctx: Context, call: Call, callee: DeviceFunction, name: str, value: KernelValue, typevars: dict[str, DType]
) -> KernelValue:
    """Convert the argument for parameter `name` to the annotated type. Raises CompileError if it doesn't fit."""
    annotation = callee.annotations[name]
    what = f"{name} of {callee.fn.__name__}"
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
        return (value.kind if isinstance(value, Aggregate) else tuple, *map(_key, parts))
    if isinstance(value, float):
        return (float, value.hex())  # distinguishes 0.0 and -0.0
    return (type(value), value)


def _instance_for(
    ctx: Context, call: Call, callee: DeviceFunction, arguments: dict[str, KernelValue], typevars: dict[str, DType]
) -> Instance:
    """Return the instance of a device function for these arguments, lowered on first use."""
    key = (callee, tuple(_key(v) for v in arguments.values()), tuple(sorted(typevars.items(), key=lambda i: i[0])))
    cached = ctx.session.instances.get(key)
    if cached is not None:
        return cast(Instance, cached)
    try:
        instance = _lower_instance(ctx, callee, arguments, typevars)
    except CompileError as error:
        raise error.with_note(ctx.loc(call.node), f"in {callee.fn.__name__}, called from here") from None
    ctx.session.instances[key] = instance
    return instance


def _lower_instance(
    caller: Context, callee: DeviceFunction, arguments: dict[str, KernelValue], typevars: dict[str, DType]
) -> Instance:
    """Lower a device function to a new function of the module; `caller` is the context of its first call."""
    session = caller.session
    source = source_of(callee.fn)
    types: list[Type] = []
    names: list[str] = []
    structures = {name: _parameter(name, value, types, names) for name, value in arguments.items()}
    name = session.unique_name(callee.fn.__name__)
    function = Function(name, Region(types, names), [], {"param_names": tuple(names)}, source.name_loc())
    session.module.functions[name] = function
    inner = Context(session, callee.fn, source, analyze(source.node), function, typevars)
    inner.is_always_called = caller.is_certainly_reached()
    for parameter, structure in structures.items():
        inner.env[parameter] = Binding(rebuild(structure, function.params), source.name_loc())
    session.active.append(callee.fn)
    try:
        if not inner.block(source.node.body):
            inner.builder.loc = source.name_loc()
            inner.returns.append(Return(inner.builder.region, inner.builder.op("return"), None, source.name_loc()))
    finally:
        session.active.pop()
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
