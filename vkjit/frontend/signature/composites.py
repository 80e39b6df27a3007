"""Flattening of composite parameters (structs, vectors, packed 8-bit floats) into plain arrays and scalars.

`expand_composites` replaces each parameter whose type, or whose elements' type, is composite. An array of structs
becomes one array per field (`p.x`, `p.position`, strided views of the same memory). A single struct or vector becomes
one scalar per field or lane. `KernelSpec.composites` records the parts of each original parameter; `frontend.kernel`
reassembles them at the start of the kernel.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import CompileError
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.types import ArrayAnnotation
from vkjit.lang.vectors import VectorType

from .annotations import Annotation, read_field
from .dims_parser import parse_dims
from .elements import ElementArray
from .spec import Composite, KernelSpec, ParamSpec

__all__ = ["FieldType", "Leaf", "expand_composites", "fields_of", "leaves_of"]

FieldType = DType | TypeVar | StructType | VectorType | PackedFloat | ElementArray | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a composite type that isn't divided further: a scalar, a vector or an array field.

    - `path`: the names of the nested fields that lead to the part.
    - `dtype`: the type of its scalars; None if it is inferred from the argument.
    - `shape`: () for a scalar, (lanes,) for a vector, or the shape of an array field.
    """

    path: tuple[str, ...]
    dtype: DType | TypeVar | None
    shape: tuple[int, ...] = ()


@functools.cache
def fields_of(kind: StructType) -> dict[str, FieldType]:
    """Return the field types of a struct, by name. Raises CompileError if a field's type isn't allowed."""
    return {name: _field_type(kind, name, read_field(kind.cls, name, kind.scope)) for name in kind.fields}


def _field_type(kind: StructType, name: str, annotation: Annotation) -> FieldType:
    """Return the type of a field from its annotation. Raises CompileError if the type isn't allowed."""
    if not isinstance(annotation, ArrayAnnotation):
        if annotation is None or isinstance(annotation, DType | TypeVar | StructType | VectorType | PackedFloat):
            return annotation
        raise CompileError(
            f"{kind.name}.{name}: a field is a dtype, a vector, a struct, an array or a type variable",
            hint='write e.g. vk.f32, vk.vec(vk.f32, 3) or vk.Array[vk.f32, "3 3"]',
        )
    sizes = parse_dims(annotation.dims or "").evaluate({})  # None if the dimensions have names: no name is bound
    if annotation.mode != "array" or not sizes or not isinstance(annotation.dtype, DType) or 0 in sizes:
        raise CompileError(
            f"{kind.name}.{name}: an array in a struct has an element type and sizes that are numbers",
            hint='write e.g. vk.Array[vk.f32, "3 3"]',
        )
    return ElementArray(annotation.dtype, sizes)


def leaves_of(element: object, path: tuple[str, ...] = ()) -> tuple[Leaf, ...]:
    """Return the leaves of a type in memory order; `path` is the path of the type itself within an enclosing struct."""
    if isinstance(element, StructType):
        return tuple(leaf for name, kind in fields_of(element).items() for leaf in leaves_of(kind, (*path, name)))
    if isinstance(element, VectorType):
        return (Leaf(path, element.dtype, (element.size,)),)
    if isinstance(element, PackedFloat):
        return (Leaf(path, dtypes.u8),)
    if isinstance(element, ElementArray):
        return (Leaf(path, element.dtype if isinstance(element.dtype, DType) else None, element.shape),)
    return (Leaf(path, element if isinstance(element, DType) else None),)


def expand_composites(spec: KernelSpec) -> KernelSpec:
    """Return the specification with composite parameters replaced by their parts."""
    if all(parameter.element is None for parameter in spec.params):
        return spec
    params: list[ParamSpec] = []
    composites: list[Composite] = []
    for parameter in spec.params:
        if parameter.element is None:
            params.append(parameter)
            continue
        parts = list(_parts(parameter))
        part_axes = len(leaves_of(parameter.element)[0].shape)
        composites.append(Composite(parameter, len(params), len(parts), part_axes))
        params += parts
    return dataclasses.replace(spec, params=tuple(params), composites=tuple(composites))


def _parts(parameter: ParamSpec) -> Iterator[ParamSpec]:
    """Yield the parts of a composite parameter: an array for each leaf, or a scalar for each scalar in the leaves."""
    for leaf in leaves_of(parameter.element):
        name = ".".join((parameter.name, *leaf.path))
        if parameter.kind == "array":
            dims = parameter.dims
            if dims is not None:
                dims = parse_dims(" ".join((dims.text, *map(str, leaf.shape))))
            yield ParamSpec(name, "array", parameter.mode, leaf.dtype, dims, parameter.default)
            continue
        for index in itertools.product(*map(range, leaf.shape)):
            suffix = "".join(f"[{i}]" for i in index)
            yield ParamSpec(name + suffix, "scalar", None, leaf.dtype, None, parameter.default)
