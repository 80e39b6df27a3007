"""Arrays of structs and vectors: one array for each part, seen as one array of elements.

Enters: `p[i]`, `p[i].x`, `p.x`, `p.get(i)`, `vk.shared(S, n)`. Leaves: loads and stores of the parts. An element stays an
`Element`, not read yet, until its value is asked for, so that `p[i].x` reads x alone. `p.x` is the array of one field.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..dtypes import DType
from ..ir.core import Region, Value
from ..ir.types import Array, Scalar, Vector
from ..lang.packed import PackedFloat
from ..lang.structs import StructType
from ..lang.vectors import VectorType
from .attributes import attribute_of, attributes
from .composites import fields_of
from .context import Call, Context, expression, place
from .conversions import as_stored, dtype_of_value, instead_of_index, static_value
from .elements import ElementArray
from .elementwise import is_tile
from .joins import Plan, merge, rebuild, to_type
from .lazy import slice_of
from .memory import array_type, bounds, extent, has_slice, index_inside, indices, load, pad_of, store, subscript_values
from .packed import decoded, encoded
from .tiles_shape import subscript_tile
from .values import Aggregate, Element, KernelValue, Method, Records, describe_value, is_array, is_literal
from .vectors import lane, lanes_named

__all__ = [
    "allocate",
    "element_at",
    "first_array",
    "is_records",
    "loaded",
    "part",
    "records",
    "store_element",
    "value_of",
]


def is_records(value: KernelValue) -> bool:
    """Whether the value is an array of structs or vectors."""
    return isinstance(value, Aggregate) and isinstance(value.kind, Records)


def kind_of(array: Aggregate) -> Records:
    """What an array of structs or vectors is."""
    assert isinstance(array.kind, Records)
    return array.kind


def records(element: object, arrays: Iterator[Value], rank: int) -> KernelValue:
    """The array of elements whose parts are the next of `arrays`; for a scalar element the array itself."""
    if isinstance(element, StructType):
        items = tuple(records(kind, arrays, rank) for kind in fields_of(element).values())
        return Aggregate(Records(element, rank), items)
    if isinstance(element, VectorType):
        array = next(arrays)
        return Aggregate(Records(VectorType(array_type(array).dtype, element.size), rank), (array,))
    if isinstance(element, ElementArray | PackedFloat):
        return Aggregate(Records(element, rank), (next(arrays),))
    return next(arrays)


def value_of(ctx: Context, element: object, scalars: Iterator[Value]) -> KernelValue:
    """The struct, vector or scalar whose numbers are the next of `scalars`."""
    if isinstance(element, StructType):
        return Aggregate(element, tuple(value_of(ctx, kind, scalars) for kind in fields_of(element).values()))
    if isinstance(element, VectorType):
        lanes = list(itertools.islice(scalars, element.size))
        return ctx.builder.emit("vec_make", *lanes, type=Vector(dtype_of_value(lanes[0]), element.size))
    if isinstance(element, ElementArray):
        return _nested(element.shape, lambda _: next(scalars))
    if isinstance(element, PackedFloat):
        return decoded(ctx, element, next(scalars))
    return next(scalars)


def _nested(
    shape: tuple[int, ...], make: Callable[[tuple[int, ...]], KernelValue], at: tuple[int, ...] = ()
) -> KernelValue:
    """Tuples of tuples, as deep as the shape, of what `make` gives for each place."""
    if not shape:
        return make(at)
    return tuple(_nested(shape[1:], make, (*at, number)) for number in range(shape[0]))


def first_array(array: KernelValue) -> Value:
    """The array of the first part: its first axes are those of the whole."""
    while isinstance(array, Aggregate):
        array = array.items[0]
    assert isinstance(array, Value)
    return array


def allocate(
    ctx: Context, call: Call, space: str, element: StructType | PackedFloat, shape: tuple[int, ...]
) -> KernelValue:
    """A shared or local array of structs or packed floats."""
    from .composites import leaves_of

    arrays = []
    for leaf in leaves_of(element):
        if not isinstance(leaf.dtype, DType):
            raise ctx.error(call.node, f"{element!r}.{'.'.join(leaf.path)} has no type of its own", "give it a dtype")
        sizes = (*shape, *leaf.shape)
        kind = Array(Scalar(leaf.dtype), len(sizes), space=space, shape=sizes, contiguous=True)
        arrays.append(ctx.entry(call.node, kind, ".".join(leaf.path)))
    return records(element, iter(arrays), len(shape))


# -- places
def element_at(ctx: Context, node: ast.Subscript, array: Aggregate) -> Element:
    """`array[...]`, not read yet."""
    if has_slice(node):
        raise ctx.error(node, f"{describe_value(array)} has no slices", "slice one field: p.x[r, :]")
    values = subscript_values(ctx, node)
    return Element(array, tuple(indices(ctx, node, first_array(array), values, rank=kind_of(array).rank)))


@dataclass(frozen=True, slots=True)
class Number:
    """A place in memory that holds a single number: `array[at]`."""

    array: Value
    at: tuple[Value, ...]


def part(ctx: Context, node: ast.Attribute | ast.Subscript, element: Element) -> Number | Element | None:
    """A part of an element as a place; None for what is none, such as a method or several lanes."""
    kind = kind_of(element.array)
    if isinstance(node, ast.Subscript):
        return _numbered(ctx, node, element, kind.element)
    if isinstance(kind.element, StructType) and node.attr in kind.element.fields:
        inner = element.array.items[kind.element.fields.index(node.attr)]
        return _inside(inner, element.at)
    if isinstance(kind.element, VectorType) and node.attr != "dtype":
        numbers = lanes_named(ctx, node, describe_value(kind.element), node.attr, kind.element.size)
        if len(numbers) == 1:
            return Number(first_array(element.array), (*element.at, ctx.builder.index(numbers[0])))
    return None


def _numbered(ctx: Context, node: ast.Subscript, element: Element, kind: object) -> Number | None:
    """One number of a vector or of an array in a struct; lanes of vectors in memory may be found at run time."""
    shape = (kind.size,) if isinstance(kind, VectorType) else kind.shape if isinstance(kind, ElementArray) else None
    if shape is None:
        return None
    if has_slice(node):
        raise ctx.error(node, "a part of an element has no slices", "loop over its indices")
    values = subscript_values(ctx, node)
    if len(values) != len(shape):
        raise ctx.error(node, f"expected {len(shape)} indices, found {len(values)}")
    more = [index_inside(ctx, node, v, size, axis) for axis, (v, size) in enumerate(zip(values, shape, strict=True))]
    return Number(first_array(element.array), (*element.at, *more))


def _inside(item: KernelValue, at: tuple[Value, ...]) -> Number | Element:
    """The place in one part of an array of structs."""
    if isinstance(item, Aggregate):
        return Element(item, at)
    assert isinstance(item, Value)
    return Number(item, at)


def _read(ctx: Context, found: Number | Element) -> KernelValue:
    """What `part` gave, read if it is a single number."""
    return found if isinstance(found, Element) else load(ctx, found.array, list(found.at))


@place(ast.Subscript)
def _subscript_place(ctx: Context, node: ast.Subscript) -> KernelValue:
    base = ctx.place(node.value)
    if isinstance(base, Aggregate) and is_records(base):
        return element_at(ctx, node, base)
    if isinstance(base, Element):
        found = part(ctx, node, base)
        if found is None:
            raise ctx.error(node, f"{describe_value(loaded(ctx, base))} can't be indexed")
        return _read(ctx, found)
    if is_array(base) and has_slice(node):
        return slice_of(ctx, node, base)
    if is_tile(base):
        return subscript_tile(ctx, node, base)
    if is_array(base):
        return load(ctx, base, indices(ctx, node, base, subscript_values(ctx, node)))
    if isinstance(base, tuple):
        return _item(ctx, node, base)
    if isinstance(base, Value) and isinstance(base.type, Vector):
        return lane(ctx, base, static_position(ctx, node.slice, base.type.size))
    raise ctx.error(node, f"{describe_value(base)} can't be indexed", instead_of_index(base))


@expression(ast.Subscript)
def _subscript(ctx: Context, node: ast.Subscript) -> KernelValue:
    return loaded(ctx, ctx.place(node))


def _item(ctx: Context, node: ast.Subscript, base: tuple[KernelValue, ...]) -> KernelValue:
    """An item of a tuple, a part of it, or an item of the tuples in it: `t[1]`, `t[1:]`, `t[1, 0]`."""
    if isinstance(node.slice, ast.Slice):
        bounds_ = [node.slice.lower, node.slice.upper, node.slice.step]
        numbers = [None if n is None else static_value(ctx.evaluate(n)) for n in bounds_]
        if any(n is not None and (v is None or isinstance(v, float)) for n, v in zip(bounds_, numbers, strict=True)):
            raise ctx.error(node.slice, "the bounds of a tuple's slice must be integers known at compile time")
        return base[slice(*(None if v is None else int(v) for v in numbers))]
    found: KernelValue = base
    for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        if not isinstance(found, tuple):
            raise ctx.error(index, f"{describe_value(found)} can't be indexed")
        found = found[static_position(ctx, index, len(found))]
    return found


def static_position(ctx: Context, node: ast.expr, size: int) -> int:
    """A position among `size` items, known at compile time."""
    number = static_value(ctx.evaluate(node))
    if number is None or not isinstance(number, int):
        raise ctx.error(
            node,
            "the index must be an integer known at compile time",
            "loop with vk.unroll(n), or keep the values in vk.local(dtype, n)",
        )
    if not -size <= number < size:
        raise ctx.error(node, f"index {number} is outside the {size} items")
    return int(number) % size


# -- values
def loaded(ctx: Context, value: KernelValue) -> KernelValue:
    """The value of an element, read now; any other value as it is."""
    if not isinstance(value, Element):
        return value
    kind = kind_of(value.array).element
    if isinstance(kind, StructType):
        return Aggregate(kind, tuple(loaded(ctx, _read(ctx, _inside(i, value.at))) for i in value.array.items))
    array = first_array(value.array)
    if isinstance(kind, VectorType):
        lanes = [load(ctx, array, [*value.at, ctx.builder.index(n)]) for n in range(kind.size)]
        return ctx.builder.emit("vec_make", *lanes, type=Vector(kind.element, kind.size))
    if isinstance(kind, PackedFloat):
        return decoded(ctx, kind, load(ctx, array, list(value.at)))
    assert isinstance(kind, ElementArray)
    return _nested(kind.shape, lambda at: load(ctx, array, [*value.at, *map(ctx.builder.index, at)]))


def store_element(
    ctx: Context, node: ast.AST, element: Element, value: KernelValue, origin: ast.AST | None = None
) -> None:
    """Stores a whole element; the value (from the node `origin`) has its type."""
    kind = kind_of(element.array).element
    if isinstance(kind, StructType):
        if not (isinstance(value, Aggregate) and value.kind is kind):
            raise ctx.error(
                node, f"an element is {kind.name}, found {describe_value(value)}", f"write {kind.name}(...)"
            )
        for inner, item in zip(element.array.items, value.items, strict=True):
            if isinstance(inner, Aggregate):
                store_element(ctx, node, Element(inner, element.at), item, origin)
            else:
                assert isinstance(inner, Value)
                store(ctx, node, inner, list(element.at), item, origin)
        return
    array = first_array(element.array)
    if isinstance(kind, VectorType):
        made = as_stored(ctx, origin or node, value, Vector(kind.element, kind.size))
        for number in range(kind.size):
            store(ctx, node, array, [*element.at, ctx.builder.index(number)], lane(ctx, made, number))
        return
    if isinstance(kind, PackedFloat):
        store(ctx, node, array, list(element.at), encoded(ctx, origin or node, kind, value))
        return
    assert isinstance(kind, ElementArray)
    for place_ in itertools.product(*map(range, kind.shape)):
        item = value
        for number, size in zip(place_, kind.shape, strict=True):
            if not isinstance(item, tuple) or len(item) != size:
                raise ctx.error(node, f"the field is an {kind}, found {describe_value(value)}", "store each element")
            item = item[number]
        store(ctx, node, array, [*element.at, *map(ctx.builder.index, place_)], item, origin)


# -- attributes
@attributes(is_records)
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    assert isinstance(base, Aggregate)
    kind, array = kind_of(base), first_array(base)
    if node.attr == "shape":
        return tuple(extent(ctx, array, axis) for axis in range(kind.rank))
    if node.attr == "ndim":
        return kind.rank
    if node.attr == "size":
        return _size(ctx, node, array, kind.rank)
    if node.attr == "dtype":
        return kind.element
    if node.attr in ("get", "put"):
        return Method(base, node.attr, _get if node.attr == "get" else _put)
    if isinstance(kind.element, StructType) and node.attr in kind.element.fields:
        return base.items[kind.element.fields.index(node.attr)]
    fields = kind.element.fields if isinstance(kind.element, StructType) else ()
    known = ", ".join((*fields, "shape", "ndim", "size", "dtype", "get", "put"))
    raise ctx.error(node, f"{describe_value(base)} has no attribute {node.attr}", f"it has {known}")


def _size(ctx: Context, node: ast.AST, array: Value, rank: int) -> KernelValue:
    from .operators import binary

    total: KernelValue = 1
    for axis in range(rank):
        total = binary(ctx, node, "mul", total, extent(ctx, array, axis)) if axis else extent(ctx, array, axis)
    return total


def _get(ctx: Context, call: Call, base: KernelValue) -> KernelValue:
    """`p.get(i, pad=v)`: the element, or the pad (an element, or a number for all parts) outside the array."""
    assert isinstance(base, Aggregate)
    array = first_array(base)
    at = indices(ctx, call.node, array, call.args, checked=False, rank=kind_of(base).rank)
    inside, outside = Region(), Region()
    condition = bounds(ctx, array, at)
    with ctx.builder.at(inside):
        found = loaded(ctx, Element(base, tuple(at)))
    with ctx.builder.at(outside):
        pad = call.keywords.get("pad", 0)
        padded = _filled(ctx, call, found) if is_literal(pad) else pad
    plan = Plan()
    structure = merge(ctx, found, padded, plan)
    for region, values in ((inside, plan.first), (outside, plan.second)):
        with ctx.builder.at(region):
            ctx.builder.op("yield", *[to_type(ctx, call.node, v, t) for v, t in zip(values, plan.types, strict=True)])
    op = ctx.builder.op("if", condition, types=plan.types, regions=[inside, outside])
    return rebuild(structure, op.results)


def _filled(ctx: Context, call: Call, like: KernelValue) -> KernelValue:
    """The pad in each part of a value."""
    if isinstance(like, tuple):
        return tuple(_filled(ctx, call, item) for item in like)
    if isinstance(like, Aggregate):
        return Aggregate(like.kind, tuple(_filled(ctx, call, item) for item in like.items))
    assert isinstance(like, Value)
    assert isinstance(like.type, Scalar | Vector)
    return pad_of(ctx, call, like.type)


def _put(ctx: Context, call: Call, base: KernelValue) -> KernelValue:
    """`p.put(i, v)`: stores inside the array, else does nothing."""
    assert isinstance(base, Aggregate)
    values = [*call.args, *call.keywords.values()]
    if not values:
        raise ctx.error(call.node, "put takes the indices and then the value, as in p.put(i, v)")
    array = first_array(base)
    at = indices(ctx, call.node, array, values[:-1], checked=False, rank=kind_of(base).rank)
    with ctx.builder.when(bounds(ctx, array, at)):
        store_element(ctx, call.node, Element(base, tuple(at)), values[-1])
    return None


@place(ast.Attribute)
def _attribute_place(ctx: Context, node: ast.Attribute) -> KernelValue:
    from .expressions import attribute

    base = ctx.place(node.value)
    if not isinstance(base, Element):
        return attribute(ctx, node, base)
    found = part(ctx, node, base)
    return attribute_of(ctx, node, loaded(ctx, base)) if found is None else _read(ctx, found)


@expression(ast.Attribute)
def _attribute_value(ctx: Context, node: ast.Attribute) -> KernelValue:
    return loaded(ctx, ctx.place(node))
