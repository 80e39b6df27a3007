"""Structs and vectors in property tests: conversion between whole arguments and their parts.

`Kernel.expanded_spec` replaces a parameter of struct or vector type by its parts, one parameter per field or component
(`p.x`, `v[0]`). Cases are drawn, run and shrunk as parts; users see whole values: structured arrays and records. A part
corresponds to a leaf of the element type: a field that isn't a struct itself. In tests each field of an array of
structs has its own memory, with the stride that it would have in the array of structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, FeatureError
from vkjit.frontend import KernelSpec, leaves_of
from vkjit.frontend.signature.composites import Leaf
from vkjit.lang.structs import StructType
from vkjit.launch.struct_arguments import SplitStruct, scalars_of, struct_dtype

from .layouts import Layout

__all__ = [
    "Parameter",
    "assemble",
    "for_launch",
    "leaf_shapes",
    "outputs_by_parameter",
    "parameters_of",
    "parts_of_arrays",
    "plain_layouts",
    "refuse_unknown_types",
    "split_into_parts",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as the user declared it, with the names of its parts in `Kernel.expanded_spec`.

    `element` is the struct or vector type of a parameter that is split into parts. It is None for all other parameters,
    whose `parts` consists of their own name.
    """

    name: str
    kind: str
    mode: str | None
    parts: tuple[str, ...]
    element: Any = None

    @property
    def is_struct(self) -> bool:
        """True if the parameter is a struct or an array of structs."""
        return isinstance(self.element, StructType)

    @property
    def is_single_part(self) -> bool:
        """True if the parameter's only part is the argument itself.

        An array of vectors has one part, with an axis for the components; a vector has one part per component.
        """
        return self.element is None or (self.kind == "array" and not self.is_struct)


def parameters_of(spec: KernelSpec) -> Iterator[Parameter]:
    """Yield the parameters as the user declared them, in order, from an expanded specification."""
    composites = {c.first: c for c in spec.composites}  # by the index of their first part
    index = 0
    while index < len(spec.params):
        param, composite = spec.params[index], composites.get(index)
        if composite is None:
            yield Parameter(param.name, param.kind, param.mode, (param.name,))
            index += 1
            continue
        declared = composite.parameter
        names = tuple(p.name for p in spec.params[index : index + composite.count])
        yield Parameter(declared.name, declared.kind, declared.mode, names, declared.element)
        index += composite.count


def parts_of_arrays(spec: KernelSpec) -> dict[str, tuple[str, ...]]:
    """Return the names of the parts of each array parameter."""
    return {p.name: p.parts for p in parameters_of(spec) if p.kind == "array"}


def outputs_by_parameter(spec: KernelSpec) -> dict[str, Parameter]:
    """Return the user's array parameters that the kernel writes, by name, in order."""
    return {p.name: p for p in parameters_of(spec) if p.kind == "array" and p.mode != "in"}


def _leaves(parameter: Parameter) -> dict[str, Leaf]:
    """Map the names of an array's parts to the leaves of its element type."""
    return dict(zip(parameter.parts, leaves_of(parameter.element), strict=True))


def leaf_shapes(spec: KernelSpec) -> dict[str, tuple[int, ...]]:
    """Return the axes that the leaf adds to the shape of an array part, such as (3,) for a field of 3-vectors.

    Keyed by the part's name; parts without such axes are left out.
    """
    return {
        name: leaf.shape
        for parameter in parameters_of(spec) if parameter.element is not None and parameter.kind == "array"
        for name, leaf in _leaves(parameter).items()
        if leaf.shape
    }  # fmt: skip


def plain_layouts(spec: KernelSpec) -> dict[str, Layout]:
    """Return the default layouts of the parts of arrays of structs by name: their stride is the size of the struct."""
    layouts = {}
    for parameter in parameters_of(spec):
        if parameter.kind == "array" and parameter.is_struct:
            size = struct_dtype(parameter.element).itemsize
            for name, leaf in _leaves(parameter).items():
                if isinstance(leaf.dtype, DType):
                    layouts[name] = Layout(inner=len(leaf.shape), pitch=size // leaf.dtype.storage.itemsize)
    return layouts


def refuse_unknown_types(spec: KernelSpec) -> None:
    """Raise FeatureError if a struct's field has a type variable as its type, since its values can't be drawn."""
    for parameter in parameters_of(spec):
        if parameter.is_struct:
            for leaf in leaves_of(parameter.element):
                if not isinstance(leaf.dtype, DType):
                    field = ".".join((parameter.element.name, *leaf.path))
                    raise FeatureError(
                        f"{spec.name}: {field} takes values of any type, so nothing says what to draw for {parameter.name}: test "
                        f"the kernel with a struct that gives the field a type, such as vk.f32"
                    )


# -- assembly of whole values


def assemble(spec: KernelSpec, values: Mapping[str, Any], *, storage: bool = False) -> dict[str, Any]:
    """Assemble whole values, keyed by the user's parameters, from `values`, keyed by part.

    An array whose parts are None becomes None; parameters with missing parts are left out. With `storage`, structs have
    the NumPy types that a launch takes; otherwise their fields keep the types of the parts.
    """
    assembled: dict[str, Any] = {}
    for parameter in parameters_of(spec):
        values_of_parts = [values[n] for n in parameter.parts if n in values]
        if len(values_of_parts) < len(parameter.parts):
            continue
        if parameter.is_single_part:
            assembled[parameter.name] = values_of_parts[0]
        elif values_of_parts[0] is None:
            assembled[parameter.name] = None
        elif parameter.kind == "array":
            assembled[parameter.name] = _array_of(parameter, values_of_parts, storage)
        else:
            assembled[parameter.name] = _value_of(parameter, values_of_parts)
    return assembled


def _array_of(parameter: Parameter, parts: Sequence[Any], storage: bool) -> Any:
    """Assemble a structured array; without `storage`, its fields keep the types of the parts."""
    leaves = list(_leaves(parameter).values())
    shape = parts[0].shape[: parts[0].ndim - len(leaves[0].shape)]  # without the axes of the field itself
    types = {leaf.path: part.dtype for leaf, part in zip(leaves, parts, strict=True)}
    dtype = struct_dtype(parameter.element) if storage else _dtype_of(types, {leaf.path: leaf.shape for leaf in leaves})
    array = np.zeros(shape, dtype)
    for leaf, part in zip(leaves, parts, strict=True):
        _store_field(array, leaf, part)
    return array


def _store_field(structs: Any, leaf: Leaf, part: Any) -> None:
    """Store a part in the field of a structured array to which the leaf corresponds."""
    view = structs
    for name in leaf.path[:-1]:
        view = view[name]
    view[leaf.path[-1]] = part


def _dtype_of(types: Mapping[tuple[str, ...], Any], shapes: Mapping[tuple[str, ...], tuple[int, ...]]) -> np.dtype[Any]:
    """Return the structured type with the given element types and shapes, keyed by the path of field names."""
    fields: list[Any] = []
    for name in dict.fromkeys(path[0] for path in types):
        types_below = {path[1:]: dtype for path, dtype in types.items() if path[0] == name}
        if () in types_below:  # the path ends here: the field is a leaf
            fields.append((name, types_below[()], shapes[(name,)]))
        else:
            shapes_below = {path[1:]: shape for path, shape in shapes.items() if path[0] == name}
            fields.append((name, _dtype_of(types_below, shapes_below)))
    return np.dtype(fields, align=True)


def _value_of(parameter: Parameter, numbers: Sequence[Any]) -> Any:
    """Assemble a struct (as a NumPy record) or a vector (as an array) from its components, `numbers`, in order."""
    leaves = leaves_of(parameter.element)
    values = []  # one per leaf
    start = 0
    for leaf in leaves:
        count = int(np.prod(leaf.shape, dtype=np.int64))
        element_type = leaf.dtype.numpy if isinstance(leaf.dtype, DType) else None
        values.append(np.array(numbers[start : start + count], element_type).reshape(leaf.shape))
        start += count
    if not parameter.is_struct:  # a vector, which has a single leaf
        return values[0]
    types = {leaf.path: value.dtype for leaf, value in zip(leaves, values, strict=True)}
    record = np.zeros((), _dtype_of(types, {leaf.path: leaf.shape for leaf in leaves}))
    for leaf, value in zip(leaves, values, strict=True):
        _store_field(record, leaf, value)
    return record[()]


def for_launch(spec: KernelSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Assemble launch arguments keyed by the user's parameters from launch arguments keyed by part.

    Structs become `SplitStruct`s, in which launches accept the parts one by one. Arrays need the attribute `shape`.
    """
    arguments: dict[str, Any] = {}
    for parameter in parameters_of(spec):
        parts = tuple(values[n] for n in parameter.parts)
        if parameter.is_single_part:
            arguments[parameter.name] = parts[0]
        elif parameter.kind == "array":
            axes = len(leaves_of(parameter.element)[0].shape)
            arguments[parameter.name] = SplitStruct(parts, parts[0].shape[: len(parts[0].shape) - axes])
        else:
            arguments[parameter.name] = SplitStruct(parts, ())
    return arguments


def split_into_parts(spec: KernelSpec, name: str, value: Any) -> dict[str, Any]:
    """Split one of the user's arguments into parts, keyed by name. Raises ArgumentError for missing struct fields."""
    parameter = next((p for p in parameters_of(spec) if p.name == name), None)
    if parameter is None or parameter.is_single_part:
        return {name: value}
    if parameter.kind == "scalar":
        return dict(zip(parameter.parts, scalars_of(f"argument {name}", parameter.element, value), strict=True))
    array = np.asarray(value)
    views = {}
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
        views[part] = view
    return views
