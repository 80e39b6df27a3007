"""Structs and vectors in property tests: drawn, run and shrunk in parts, shown to people whole.

Enters: a specification with structs and vectors taken apart (`Kernel.expanded_spec`), values by name of its parameters
(`p.x`, `v[0]`). Leaves: values by name of the user's parameters: structured arrays and records, and the way back for what a
reference returns. Parts of an array of structs lie as far apart as in the array of structs, each in memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentError, FeatureError
from ..frontend import KernelSpec, leaves_of
from ..frontend.composites import Leaf
from ..lang.structs import StructType
from ..records import TakenApart, numbers_of, struct_dtype
from .layouts import Layout

__all__ = [
    "Parameter",
    "for_launch",
    "leaf_shapes",
    "outputs_by_parameter",
    "parameters_of",
    "parts_of_arrays",
    "plain_layouts",
    "refuse_unknown_types",
    "taken_apart",
    "whole",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter as the user wrote it: its name, what kind it is, the names of its parts. `element`: the struct or vector
    where it is taken apart, else None."""

    name: str
    kind: str
    mode: str | None
    parts: tuple[str, ...]
    element: Any = None

    @property
    def is_struct(self) -> bool:
        """Whether it is a struct, or an array of them."""
        return isinstance(self.element, StructType)


def parameters_of(spec: KernelSpec) -> Iterator[Parameter]:
    """The user's parameters in order."""
    composites = {c.first: c for c in spec.composites}
    number = 0
    while number < len(spec.params):
        param, composite = spec.params[number], composites.get(number)
        if composite is None:
            yield Parameter(param.name, param.kind, param.mode, (param.name,))
            number += 1
            continue
        own = composite.parameter
        names = tuple(p.name for p in spec.params[number : number + composite.count])
        yield Parameter(own.name, own.kind, own.mode, names, own.element)
        number += composite.count


def parts_of_arrays(spec: KernelSpec) -> dict[str, tuple[str, ...]]:
    """The parts of each array parameter."""
    return {p.name: p.parts for p in parameters_of(spec) if p.kind == "array"}


def outputs_by_parameter(spec: KernelSpec) -> dict[str, Parameter]:
    """The user's array parameters that the kernel writes, in order."""
    return {p.name: p for p in parameters_of(spec) if p.kind == "array" and p.mode != "in"}


def _leaves(parameter: Parameter) -> dict[str, Leaf]:
    """What each part of an array is inside its element."""
    return dict(zip(parameter.parts, leaves_of(parameter.element), strict=True))


def leaf_shapes(spec: KernelSpec) -> dict[str, tuple[int, ...]]:
    """The axes that parts of arrays have of their own, of those that have any."""
    return {
        name: leaf.shape
        for parameter in parameters_of(spec) if parameter.element is not None and parameter.kind == "array"
        for name, leaf in _leaves(parameter).items()
        if leaf.shape
    }  # fmt: skip


def plain_layouts(spec: KernelSpec) -> dict[str, Layout]:
    """How parts of arrays of structs lie in memory: a struct apart."""
    made = {}
    for parameter in parameters_of(spec):
        if parameter.kind == "array" and parameter.is_struct:
            size = struct_dtype(parameter.element).itemsize
            for name, leaf in _leaves(parameter).items():
                if isinstance(leaf.dtype, DType):
                    made[name] = Layout(inner=len(leaf.shape), pitch=size // leaf.dtype.storage.itemsize)
    return made


def refuse_unknown_types(spec: KernelSpec) -> None:
    """FeatureError for a struct with a field of a type variable: nothing says what to draw for it."""
    for parameter in parameters_of(spec):
        if parameter.is_struct:
            for leaf in leaves_of(parameter.element):
                if not isinstance(leaf.dtype, DType):
                    field = ".".join((parameter.element.name, *leaf.path))
                    raise FeatureError(
                        f"{spec.name}: {field} takes values of any type, so nothing says what to draw for {parameter.name}: test "
                        f"the kernel with a struct that gives the field a type, such as vk.f32"
                    )


# -- whole values


def whole(spec: KernelSpec, values: Mapping[str, Any], *, storage: bool = False) -> dict[str, Any]:
    """Values by name of the user's parameters from those of their parts; None for an array whose parts are None, parts that
    are missing are left out. `storage`: structs have the NumPy type that launches take."""
    made: dict[str, Any] = {}
    for parameter in parameters_of(spec):
        held = [values[n] for n in parameter.parts if n in values]
        if len(held) < len(parameter.parts):
            continue
        if parameter.element is None or (parameter.kind == "array" and not parameter.is_struct):
            made[parameter.name] = held[0]
        elif held[0] is None:
            made[parameter.name] = None
        elif parameter.kind == "array":
            made[parameter.name] = _array_of(parameter, held, storage)
        else:
            made[parameter.name] = _value_of(parameter, held)
    return made


def _array_of(parameter: Parameter, held: Sequence[Any], storage: bool) -> Any:
    """A structured array; floats have the types that they come in."""
    leaves = list(_leaves(parameter).values())
    shape = held[0].shape[: held[0].ndim - len(leaves[0].shape)]
    types = {leaf.path: part.dtype for leaf, part in zip(leaves, held, strict=True)}
    dtype = struct_dtype(parameter.element) if storage else _dtype_of(types, {leaf.path: leaf.shape for leaf in leaves})
    array = np.zeros(shape, dtype)
    for leaf, part in zip(leaves, held, strict=True):
        view = array
        for name in leaf.path[:-1]:
            view = view[name]
        view[leaf.path[-1]] = part
    return array


def _dtype_of(types: Mapping[tuple[str, ...], Any], shapes: Mapping[tuple[str, ...], tuple[int, ...]]) -> np.dtype[Any]:
    """A structured type with fields at these paths."""
    fields: list[Any] = []
    for name in dict.fromkeys(path[0] for path in types):
        below = {path[1:]: kind for path, kind in types.items() if path[0] == name}
        if () in below:
            fields.append((name, below[()], shapes[(name,)]))
        else:
            inner = {path[1:]: shape for path, shape in shapes.items() if path[0] == name}
            fields.append((name, _dtype_of(below, inner)))
    return np.dtype(fields, align=True)


def _value_of(parameter: Parameter, numbers: Sequence[Any]) -> Any:
    """A record, or the array of a vector's numbers, in the types that the kernel gets."""
    leaves, position, parts = leaves_of(parameter.element), 0, []
    for leaf in leaves:
        count = int(np.prod(leaf.shape, dtype=np.int64))
        kind = leaf.dtype.numpy if isinstance(leaf.dtype, DType) else None
        parts.append(np.array(numbers[position : position + count], kind).reshape(leaf.shape))
        position += count
    if not parameter.is_struct:
        return parts[0]
    dtype = _dtype_of({e.path: p.dtype for e, p in zip(leaves, parts, strict=True)}, {e.path: e.shape for e in leaves})
    record = np.zeros((), dtype)
    for leaf, part in zip(leaves, parts, strict=True):
        view = record
        for name in leaf.path[:-1]:
            view = view[name]
        view[leaf.path[-1]] = part
    return record[()]


def for_launch(spec: KernelSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch takes for the user's parameters, from what it takes for their parts; arrays have a `shape`."""
    made: dict[str, Any] = {}
    for parameter in parameters_of(spec):
        parts = tuple(values[n] for n in parameter.parts)
        if parameter.element is None or (parameter.kind == "array" and not parameter.is_struct):
            made[parameter.name] = parts[0]
        elif parameter.kind == "array":
            axes = len(leaves_of(parameter.element)[0].shape)
            made[parameter.name] = TakenApart(parts, parts[0].shape[: len(parts[0].shape) - axes])
        else:
            made[parameter.name] = TakenApart(parts, ())
    return made


def taken_apart(spec: KernelSpec, name: str, value: Any) -> dict[str, Any]:
    """The parts of one of the user's arguments, by name. ArgumentError where a struct's fields are missing."""
    parameter = next((p for p in parameters_of(spec) if p.name == name), None)
    if parameter is None or parameter.element is None or (parameter.kind == "array" and not parameter.is_struct):
        return {name: value}
    if parameter.kind == "scalar":
        return dict(zip(parameter.parts, numbers_of(f"argument {name}", parameter.element, value), strict=True))
    array = np.asarray(value)
    made = {}
    for part, leaf in _leaves(parameter).items():
        view = array
        for field in leaf.path:
            if view.dtype.names is None or field not in view.dtype.names:
                raise ArgumentError(
                    f"{name} holds {parameter.element!r}: expected a structured array with the fields "
                    f"{', '.join(parameter.element.fields)}, or its parts one by one ({', '.join(parameter.parts)}); "
                    f"found an array of {array.dtype}"
                )
            view = view[field]
        made[part] = view
    return made
