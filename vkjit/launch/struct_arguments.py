"""Structs on the host: NumPy dtypes, records, and the conversion from arrays of structs to struct-of-arrays arguments.

Splits structured arrays, records and tuples into one NumPy array or scalar for each component that
`frontend.signature.composites` gives a struct or vector. Arrays are views of the caller's memory, so kernels write it
in place. Errors name the field and the expected type.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType, from_numpy
from ..errors import ArgumentError, DTypeError, ShapeError
from ..frontend import Composite, ElementArray, KernelSpec, fields_of, leaves_of
from ..lang.packed import PackedFloat
from ..lang.structs import StructType, on_host
from ..lang.vectors import VectorType
from . import bind
from .bind import MISSING

__all__ = [
    "SplitStruct",
    "expand_values",
    "make_record",
    "results_of_launch",
    "scalars_of",
    "struct_dtype",
    "user_values",
]


@dataclass(frozen=True, slots=True)
class SplitStruct:
    """A struct, vector or array of structs split into components, in the order of `frontend.signature.composites`.
    `shape` is the shape of the array of structs.
    """

    parts: tuple[Any, ...]
    shape: tuple[int, ...]


def struct_dtype(kind: Any) -> np.dtype[Any]:
    """Implementation of `lang.structs.struct_dtype`: return the aligned NumPy dtype of a struct."""
    if not isinstance(kind, StructType):
        raise ArgumentError(f"vk.struct_dtype takes a struct, found {kind!r}: decorate the class with @vk.struct")
    return np.dtype([(name, *_field(kind, name)) for name in kind.fields], align=True)


def _field(kind: StructType, name: str) -> tuple[Any, ...]:
    """Return the NumPy type of a field and, for arrays, its shape."""
    field_type = fields_of(kind)[name]
    if isinstance(field_type, StructType):
        return (struct_dtype(field_type),)
    if isinstance(field_type, VectorType) and isinstance(field_type.dtype, DType):
        return field_type.dtype.storage, (field_type.size,)
    if isinstance(field_type, PackedFloat):
        return (np.dtype(np.uint8),)
    if isinstance(field_type, ElementArray) and isinstance(field_type.dtype, DType):
        return field_type.dtype.storage, field_type.shape
    if isinstance(field_type, DType):
        return (field_type.storage,)
    raise ArgumentError(
        f"{kind.name}.{name} has no type of its own: its NumPy type is yours to choose, "
        f"np.dtype([...], align=True) with the fields {', '.join(kind.fields)}"
    )


def make_record(kind: StructType, fields: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return a record of the struct's NumPy type from its fields, in order or by name, with the struct's defaults."""
    values = dict(zip(kind.fields, fields, strict=False))
    unknown = [name for name in named if name not in kind.fields or name in values]
    if len(fields) > len(kind.fields) or unknown:
        what = f"no field {unknown[0]!r} left" if unknown else f"{len(kind.fields)} fields, found {len(fields)} values"
        raise ArgumentError(f"{kind.name}() has {what}: its fields are {', '.join(kind.fields)}")
    values |= named
    missing = [name for name in kind.fields if name not in values and name not in kind.defaults]
    if missing:
        raise ArgumentError(f"{kind.name}() misses the field {missing[0]!r}: its fields are {', '.join(kind.fields)}")
    record = np.zeros((), struct_dtype(kind)).view(np.recarray)
    for name in kind.fields:
        record[name] = values[name] if name in values else kind.defaults[name]
    return record[()]


on_host(dtype=struct_dtype, make=make_record)


def expand_values(spec: KernelSpec, original: KernelSpec, values: list[Any]) -> tuple[list[Any], dict[int, Any]]:
    """Return the values of the expanded parameters, and the structured arrays allocated for omitted Outs, by index."""
    by_name = {p.name: v for p, v in zip(original.params, values, strict=True)}
    expanded: list[Any] = [by_name.get(p.name) for p in spec.params]
    waiting: list[Composite] = []
    for composite in spec.composites:
        value = by_name[composite.parameter.name]
        if value is MISSING and isinstance(composite.parameter.element, StructType):
            waiting.append(composite)
            parts: list[Any] = [MISSING] * composite.count
        else:
            parts = _parts(spec, composite, value)
        expanded[composite.first : composite.first + composite.count] = parts
    allocated: dict[int, Any] = {}
    for composite in waiting:
        array = np.zeros(_shape_of(spec, composite, expanded), struct_dtype(composite.parameter.element))
        expanded[composite.first : composite.first + composite.count] = _parts(spec, composite, array)
        allocated[composite.first] = array
    return expanded, allocated


def _shape_of(spec: KernelSpec, composite: Composite, values: list[Any]) -> tuple[int, ...]:
    """Return the shape of an omitted Out of structs, from the dimension names that the other arrays bind."""
    shapes = {i: np.shape(v) for i, v in enumerate(values) if spec.params[i].kind == "array" and v is not MISSING}
    dims = composite.parameter.dims
    shape = None if dims is None else dims.evaluate(bind.bind_dims(spec, shapes, values))
    if shape is None:
        name = composite.parameter.name
        raise ArgumentError(
            f"{spec.name}(): can't tell the shape of {name} from the other arguments: pass an array for it"
        )
    return shape


def _parts(spec: KernelSpec, composite: Composite, value: Any) -> list[Any]:
    """Return the kernel arguments for one struct, vector, or array of them."""
    parameter, element = composite.parameter, composite.parameter.element
    what = f"argument {parameter.name} of {spec.name}()"
    if isinstance(value, SplitStruct):
        return list(value.parts)
    if parameter.kind == "scalar":
        return scalars_of(what, element, value)
    if isinstance(element, VectorType):
        if value is not MISSING and tuple(getattr(value, "shape", ()))[-1:] != (element.size,):
            shape = getattr(value, "shape", type(value).__name__)
            raise ShapeError(f"{what} has shape {shape}, expected a last axis of {element.size} for {element!r}")
        return [value]
    if isinstance(element, PackedFloat):
        return [_bits(what, element, value)]
    if not isinstance(value, np.ndarray) or value.dtype.names is None:
        found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise DTypeError(
            f"{what} is {found}, expected a structured NumPy array: make it as "
            f"np.zeros(shape, vk.struct_dtype({element!r}))"
        )
    _check(what, element, value.dtype, "")
    return [_view(value, leaf.path) for leaf in leaves_of(element)]


def _bits(what: str, kind: PackedFloat, value: Any) -> Any:
    """Return an array of packed floats as a uint8 view of its bits."""
    if not isinstance(value, np.ndarray) or value.dtype == np.uint8:
        return value
    if value.dtype.name != kind.numpy:
        raise DTypeError(f"{what} has elements of {value.dtype}, expected ml_dtypes.{kind.numpy}, or its bits as uint8")
    return value.view(np.uint8)


def _view(array: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        array = array[name]
    return array.view(np.ndarray) if isinstance(array, np.ndarray) else array


def _check(what: str, kind: object, found: np.dtype[Any], path: str) -> None:
    """Raise DTypeError if a structured dtype doesn't match the struct's layout."""
    assert isinstance(kind, StructType)
    names = found.names or ()
    if names != kind.fields:
        raise DTypeError(
            f"{what} has the fields {', '.join(names) or 'none'}{f' in {path}' if path else ''}, expected those of "
            f"{kind.name}: {', '.join(kind.fields)}"
        )
    for name, expected in fields_of(kind).items():
        assert found.fields is not None
        own, name_path = found.fields[name][0], f"{path}.{name}" if path else name
        if isinstance(expected, StructType):
            _check(what, expected, own, name_path)
            continue
        base, shape = own.subdtype or (own, ())
        leaf = leaves_of(expected)[0]
        dtype = leaf.dtype if isinstance(leaf.dtype, DType) else from_numpy(base)
        if base != dtype.storage or shape != leaf.shape:
            size = f" with shape {leaf.shape}" if leaf.shape else ""
            raise DTypeError(f"{what}: its field {name_path} is {own}, expected {dtype.storage}{size}")
    aligned = np.dtype([(n, found.fields[n][0]) for n in names], align=True)  # type: ignore[index]
    if aligned != found:
        raise DTypeError(
            f"{what} has a layout that isn't aligned: make it as np.zeros(shape, vk.struct_dtype({kind!r})), or with "
            "np.dtype(..., align=True)"
        )


def scalars_of(what: str, element: object, value: Any) -> list[Any]:
    """Return the scalar components of a struct or vector that is passed by value."""
    if isinstance(element, StructType):
        names = value.dtype.names if isinstance(value, (np.void, np.ndarray)) and np.ndim(value) == 0 else None
        if names is not None and names != element.fields:
            raise DTypeError(f"{what} has the fields {', '.join(names)}, expected {', '.join(element.fields)}")
        items = [value[n] for n in element.fields] if names else value
        if not isinstance(items, (list, tuple)) or len(items) != len(element.fields):
            raise ArgumentError(
                f"{what} is {value!r}, expected a {element!r}: make it as {element!r}({', '.join(element.fields)})"
            )
        kinds = fields_of(element)
        return [
            n for name, item in zip(kinds, items, strict=True) for n in scalars_of(f"{what}, {name}", kinds[name], item)
        ]
    shape = leaves_of(element)[0].shape
    if not shape:
        return [value]
    if np.shape(value) != shape:
        raise ShapeError(f"{what} has shape {np.shape(value)}, expected {shape}")
    return [_item(value, place) for place in itertools.product(*map(range, shape))]


def _item(value: Any, place: tuple[int, ...]) -> Any:
    """Return an element of an array or of nested sequences, unconverted."""
    for number in place:
        value = value[number]
    return value


def user_values(
    spec: KernelSpec, original: KernelSpec, values: list[Any], given: list[Any], structs: dict[int, Any]
) -> list[Any]:
    """Return a value for each of the user's parameters, with structs and arrays of structs as passed or allocated."""
    by_name = dict(zip((p.name for p in spec.params), values, strict=True))
    by_name |= {c.parameter.name: structs.get(c.first) for c in spec.composites if c.first in structs}
    return [by_name.get(p.name, own) for p, own in zip(original.params, given, strict=True)]


def results_of_launch(spec: KernelSpec, results: dict[int, Any]) -> Any:
    """Return the results of a launch in parameter order: a tuple, the value itself if there is one, None if there is
    none. Packed floats are viewed as their ml_dtypes type if that package is loaded.
    """
    if not results:
        return None
    package = sys.modules.get("ml_dtypes")
    for composite in spec.composites if package is not None else ():
        kind, made = composite.parameter.element, results.get(composite.first)
        if isinstance(kind, PackedFloat) and isinstance(made, np.ndarray):
            results[composite.first] = made.view(getattr(package, kind.numpy))
    ordered = [results[position] for position in sorted(results)]
    return ordered[0] if len(ordered) == 1 else tuple(ordered)
