"""Arrays of structs, vectors and packed (8-bit) floats in kernels, represented as one array per part.

The parts of a struct are its fields, and the parts of these if they are structs themselves. A vector, a packed float or
an array field is one part, whose array has the lanes or indices as additional last axes. See `StructArrayKind` for the
representation.

Lowers `p[i]`, `p[i].x`, `p.x`, `p.get(i)`, `vk.shared(S, n)` to loads and stores of the parts. An element stays an
unloaded `Element` until its value is needed, so that `p[i].x` loads x alone. `p.x` is the array of one field.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vkjit.dtypes import DType
from vkjit.ir.core import Region, Value
from vkjit.ir.types import Array, Scalar, Vector
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.vectors import VectorType

from ..context import Call, Context
from ..kernel_values import (
    Aggregate,
    Element,
    KernelValue,
    Method,
    StructArrayKind,
    describe_value,
    is_literal,
    is_scalar,
)
from ..signature.composites import fields_of, leaves_of
from ..signature.elements import ElementArray
from .arrays import (
    array_type,
    check_keywords,
    extent,
    has_slice,
    index_inside,
    indices,
    inside_bounds,
    load,
    pad_of,
    size_of,
    store,
    subscript_values,
)
from .attributes import attributes
from .conversions import as_stored, dtype_of_value
from .joins import JoinFailure, Plan, emit_if, merge, rebuild
from .packed import decode, encode
from .vectors import lane, lanes_named

__all__ = [
    "allocate",
    "element_at",
    "first_array",
    "is_struct_array",
    "load_element",
    "load_scalar",
    "locate_part",
    "store_element",
    "struct_array",
    "value_of",
]


def is_struct_array(value: KernelValue) -> bool:
    """True if the value is an array of structs, vectors, packed floats or arrays."""
    return isinstance(value, Aggregate) and isinstance(value.kind, StructArrayKind)


def kind_of(array: Aggregate) -> StructArrayKind:
    """Return the kind (element type and rank) of an array of structs, vectors, packed floats or arrays."""
    assert isinstance(array.kind, StructArrayKind)
    return array.kind


def struct_array(element: object, arrays: Iterator[Value], rank: int) -> KernelValue:
    """Assemble an array of `element` with `rank` axes from its part arrays, the next items of `arrays`.

    For a scalar element, this is the next array itself.
    """
    if isinstance(element, StructType):
        items = tuple(struct_array(kind, arrays, rank) for kind in fields_of(element).values())
        return Aggregate(StructArrayKind(element, rank), items)
    if isinstance(element, VectorType):
        array = next(arrays)
        return Aggregate(StructArrayKind(VectorType(array_type(array).dtype, element.size), rank), (array,))
    if isinstance(element, ElementArray | PackedFloat):
        return Aggregate(StructArrayKind(element, rank), (next(arrays),))
    return next(arrays)


def value_of(ctx: Context, element: object, scalars: Iterator[Value]) -> KernelValue:
    """Assemble a value of type `element`, such as a struct, from its scalars, the next items of `scalars`."""
    if isinstance(element, StructType):
        return Aggregate(element, tuple(value_of(ctx, kind, scalars) for kind in fields_of(element).values()))
    if isinstance(element, VectorType):
        lanes = list(itertools.islice(scalars, element.size))
        return ctx.builder.emit("vec_make", *lanes, type=Vector(dtype_of_value(lanes[0]), element.size))
    if isinstance(element, ElementArray):
        return _nested(element.shape, lambda _: next(scalars))
    if isinstance(element, PackedFloat):
        return decode(ctx, element, next(scalars))
    return next(scalars)


def _nested(
    shape: tuple[int, ...], make: Callable[[tuple[int, ...]], KernelValue], at: tuple[int, ...] = ()
) -> KernelValue:
    """Return nested tuples of the given shape, with `make(index)` as items.

    `at` is for recursive calls: the index of the returned tuple within the outermost one.
    """
    if not shape:
        return make(at)
    return tuple(_nested(shape[1:], make, (*at, number)) for number in range(shape[0]))


def first_array(array: KernelValue) -> Value:
    """Return the array of the first part, or an array of scalars itself.

    Its leading axes are those of the whole array.
    """
    while isinstance(array, Aggregate):
        array = array.items[0]
    assert isinstance(array, Value)
    return array


def allocate(
    ctx: Context, call: Call, space: str, element: StructType | PackedFloat, shape: tuple[int, ...]
) -> KernelValue:
    """Allocate a shared or local array of structs or packed floats."""
    arrays = []
    for leaf in leaves_of(element):
        if not isinstance(leaf.dtype, DType):
            raise ctx.error(call.node, f"{element!r}.{'.'.join(leaf.path)} has no type of its own", "give it a dtype")
        sizes = (*shape, *leaf.shape)
        kind = Array(Scalar(leaf.dtype), len(sizes), space=space, shape=sizes, contiguous=True)
        arrays.append(ctx.entry_array(call.node, kind, ".".join(leaf.path)))
    return struct_array(element, iter(arrays), len(shape))


# -- locations
def element_at(ctx: Context, node: ast.Subscript, array: Aggregate) -> Element:
    """Return the element `array[...]` without loading it."""
    if has_slice(node):
        raise ctx.error(node, f"{describe_value(array)} has no slices", "slice one field: p.x[r, :]")
    values = subscript_values(ctx, node)
    return Element(array, tuple(indices(ctx, node, first_array(array), values, rank=kind_of(array).rank)))


@dataclass(frozen=True, slots=True)
class ScalarLocation:
    """The location of a single scalar in memory: `array[at]`, with one index per axis in `at`."""

    array: Value
    at: tuple[Value, ...]


def locate_part(ctx: Context, node: ast.Attribute | ast.Subscript, element: Element) -> ScalarLocation | Element | None:
    """Return the location that `element.name` or `element[index]` denotes, or None if it is no single location.

    The result is a ScalarLocation for a scalar field, a lane or an item of an array field, and an Element for a field
    that is itself a struct, vector or array. Methods and several lanes (`v.xy`) have no single location.
    """
    kind = kind_of(element.array)
    if isinstance(node, ast.Subscript):
        return _indexed_scalar(ctx, node, element)
    if isinstance(kind.element, StructType) and node.attr in kind.element.fields:
        inner = element.array.items[kind.element.fields.index(node.attr)]
        return _field_location(inner, element.at)
    if isinstance(kind.element, VectorType) and node.attr != "dtype":
        lanes = lanes_named(ctx, node, describe_value(kind.element), node.attr, kind.element.size)
        if len(lanes) == 1:
            return ScalarLocation(first_array(element.array), (*element.at, ctx.builder.index(lanes[0])))
    return None


def _indexed_scalar(ctx: Context, node: ast.Subscript, element: Element) -> ScalarLocation | None:
    """Return the location of the lane or item that a subscript of an unloaded vector or array field denotes.

    The index may be a run-time value. Returns None if the element is neither a vector nor an array.
    """
    element_type = kind_of(element.array).element
    if isinstance(element_type, VectorType):
        shape: tuple[int, ...] = (element_type.size,)
    elif isinstance(element_type, ElementArray):
        shape = element_type.shape
    else:
        return None
    if has_slice(node):
        raise ctx.error(node, "a part of an element has no slices", "loop over its indices")
    values = subscript_values(ctx, node)
    if len(values) != len(shape):
        raise ctx.error(node, f"expected {len(shape)} indices, found {len(values)}")
    inner_indices = [
        index_inside(ctx, node, v, size, axis) for axis, (v, size) in enumerate(zip(values, shape, strict=True))
    ]
    return ScalarLocation(first_array(element.array), (*element.at, *inner_indices))


def _field_location(item: KernelValue, at: tuple[Value, ...]) -> ScalarLocation | Element:
    """Return the location of a field of the element at index `at`; `item` is the array of this field's values."""
    if isinstance(item, Aggregate):
        return Element(item, at)
    assert isinstance(item, Value)
    return ScalarLocation(item, at)


def load_scalar(ctx: Context, location: ScalarLocation | Element) -> KernelValue:
    """Load the scalar at a ScalarLocation; an Element is returned unloaded."""
    return location if isinstance(location, Element) else load(ctx, location.array, list(location.at))


# -- values
def load_element(ctx: Context, value: KernelValue) -> KernelValue:
    """Load all parts of an Element, and return its value; any other value is returned unchanged."""
    if not isinstance(value, Element):
        return value
    element_type = kind_of(value.array).element
    if isinstance(element_type, StructType):
        return Aggregate(
            element_type,
            tuple(load_element(ctx, load_scalar(ctx, _field_location(i, value.at))) for i in value.array.items),
        )
    array = first_array(value.array)
    if isinstance(element_type, VectorType):
        lanes = [load(ctx, array, [*value.at, ctx.builder.index(n)]) for n in range(element_type.size)]
        return ctx.builder.emit("vec_make", *lanes, type=Vector(element_type.element, element_type.size))
    if isinstance(element_type, PackedFloat):
        return decode(ctx, element_type, load(ctx, array, list(value.at)))
    assert isinstance(element_type, ElementArray)
    return _nested(element_type.shape, lambda at: load(ctx, array, [*value.at, *map(ctx.builder.index, at)]))


def store_element(
    ctx: Context, node: ast.AST, element: Element, value: KernelValue, value_node: ast.AST | None = None
) -> None:
    """Store a whole element; the value must have the element's type. `value_node` is the value's node, for errors."""
    element_type = kind_of(element.array).element
    if isinstance(element_type, StructType):
        if not (isinstance(value, Aggregate) and value.kind is element_type):
            raise ctx.error(
                node,
                f"an element is {element_type.name}, found {describe_value(value)}",
                f"write {element_type.name}(...)",
            )
        for inner, item in zip(element.array.items, value.items, strict=True):
            if isinstance(inner, Aggregate):
                store_element(ctx, node, Element(inner, element.at), item, value_node)
            else:
                assert isinstance(inner, Value)
                store(ctx, node, inner, list(element.at), item, value_node)
        return
    array = first_array(element.array)
    if isinstance(element_type, VectorType):
        vector = as_stored(ctx, value_node or node, value, Vector(element_type.element, element_type.size))
        for position in range(element_type.size):
            store(ctx, node, array, [*element.at, ctx.builder.index(position)], lane(ctx, vector, position))
        return
    if isinstance(element_type, PackedFloat):
        store(ctx, node, array, list(element.at), encode(ctx, value_node or node, element_type, value))
        return
    assert isinstance(element_type, ElementArray)
    for inner_index in itertools.product(*map(range, element_type.shape)):
        item = value
        for position, size in zip(inner_index, element_type.shape, strict=True):
            if not isinstance(item, tuple) or len(item) != size:
                raise ctx.error(
                    node, f"the field is an {element_type}, found {describe_value(value)}", "store each element"
                )
            item = item[position]
        store(ctx, node, array, [*element.at, *map(ctx.builder.index, inner_index)], item, value_node)


# -- attributes
@attributes(is_struct_array)
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower an attribute of an array of structs: `p.shape` and so on, or `p.x`, the array of one field."""
    assert isinstance(base, Aggregate)
    kind, array = kind_of(base), first_array(base)
    if node.attr == "shape":
        return tuple(extent(ctx, array, axis) for axis in range(kind.rank))
    if node.attr == "ndim":
        return kind.rank
    if node.attr == "size":
        return size_of(ctx, array, kind.rank)
    if node.attr == "dtype":
        return kind.element
    if node.attr in ("get", "put"):
        return Method(base, node.attr, _get if node.attr == "get" else _put)
    if isinstance(kind.element, StructType) and node.attr in kind.element.fields:
        return base.items[kind.element.fields.index(node.attr)]
    fields = kind.element.fields if isinstance(kind.element, StructType) else ()
    names = ", ".join((*fields, "shape", "ndim", "size", "dtype", "get", "put"))
    raise ctx.error(node, f"{describe_value(base)} has no attribute {node.attr}", f"it has {names}")


def _get(ctx: Context, call: Call, base: KernelValue) -> KernelValue:
    """Lower `p.get(i, pad=v)`: the element at i, or the pad if i is outside the array.

    The pad is a value of the element type, or a number, to which all scalars in the element are set.
    """
    assert isinstance(base, Aggregate)
    check_keywords(ctx, call, {"pad"})
    array = first_array(base)
    at = indices(ctx, call.node, array, call.args, checked=False, rank=kind_of(base).rank)
    inside, outside = Region(), Region()
    condition = inside_bounds(ctx, array, at)
    with ctx.builder.at(inside):
        element = load_element(ctx, Element(base, tuple(at)))
    with ctx.builder.at(outside):
        pad = call.keywords.get("pad", 0)
        padded = _pad_like(ctx, call, element) if is_literal(pad) or is_scalar(pad) else pad
    plan = Plan()
    try:
        structure = merge(ctx, element, padded, plan)
    except JoinFailure:
        found = f"an element is {kind_of(base).element}, found the pad {describe_value(pad)}"
        raise ctx.error(call.node, found, "pad with an element, or with a number for all its parts") from None
    return rebuild(structure, emit_if(ctx, call.node, condition, [inside, outside], plan))


def _pad_like(ctx: Context, call: Call, like: KernelValue) -> KernelValue:
    """Return a value with the structure of `like` in which each scalar is the `pad` argument of the call."""
    if isinstance(like, tuple):
        return tuple(_pad_like(ctx, call, item) for item in like)
    if isinstance(like, Aggregate):
        return Aggregate(like.kind, tuple(_pad_like(ctx, call, item) for item in like.items))
    assert isinstance(like, Value)
    assert isinstance(like.type, Scalar | Vector)
    return pad_of(ctx, call, like.type)


def _put(ctx: Context, call: Call, base: KernelValue) -> KernelValue:
    """Lower `p.put(i, v)`: a store that does nothing if i is outside the array."""
    assert isinstance(base, Aggregate)
    check_keywords(ctx, call, {"value"})
    values = [*call.args, *call.keywords.values()]
    if not values:
        raise ctx.error(call.node, "put takes the indices and then the value, as in p.put(i, v)")
    array = first_array(base)
    at = indices(ctx, call.node, array, values[:-1], checked=False, rank=kind_of(base).rank)
    with ctx.builder.when(inside_bounds(ctx, array, at)):
        store_element(ctx, call.node, Element(base, tuple(at)), values[-1])
    return None
