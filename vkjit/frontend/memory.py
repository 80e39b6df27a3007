"""Arrays: indexing, `get` and `put`, shape and strides, allocation, barriers.

Loads and stores take one `index` per dimension. A constant negative index counts from the end; a constant index outside
a static shape is an error. `get` and `put` are bounds-checked.
"""

from __future__ import annotations

import ast
from typing import Any

from .. import lang
from ..dtypes import DType
from ..ir import types
from ..ir.core import Region, Value
from ..ir.types import Array, Scalar, Vector
from ..lang.packed import PackedFloat
from ..lang.structs import StructType
from ..lang.vectors import VectorType
from .annotations import dtype_of
from .attributes import attributes
from .calls import lowers
from .context import Call, Context
from .conversions import as_index, as_stored, static_value
from .lazy import note_write
from .values import KernelValue, Method, describe_value, is_array

__all__ = ["array_type", "bounds", "extent", "index_inside", "indices", "load", "pad_of", "static_shape", "store"]


def array_type(array: Value) -> Array:
    """Return the type of an array value."""
    assert isinstance(array.type, Array)
    return array.type


def extent(ctx: Context, array: Value, axis: int) -> KernelValue:
    """Return the extent along an axis; a literal if it is static."""
    shape = array_type(array).shape
    return shape[axis] if shape is not None else ctx.builder.emit("extent", array, axis=axis)


def _shape(ctx: Context, array: Value) -> tuple[KernelValue, ...]:
    return tuple(extent(ctx, array, axis) for axis in range(array_type(array).rank))


def _strides(ctx: Context, array: Value) -> tuple[KernelValue, ...]:
    shape = array_type(array).shape
    if shape is None:
        return tuple(ctx.builder.emit("stride", array, axis=axis) for axis in range(array_type(array).rank))
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@attributes(is_array)
def _array_attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    assert isinstance(base, Value)
    kind = array_type(base)
    if node.attr == "shape":
        return _shape(ctx, base)
    if node.attr == "strides":
        return _strides(ctx, base)
    if node.attr == "dtype":
        return kind.dtype
    if node.attr == "ndim":
        return kind.rank
    if node.attr == "size":
        return _size(ctx, base)
    if node.attr == "get":
        return Method(base, "get", _get)
    if node.attr == "put":
        return Method(base, "put", _put)
    hint = {"T": "index it the other way round: x[j, i]", "copy": "copy in a loop", "fill": "store in a loop"}.get(
        node.attr, ""
    )
    raise ctx.error(
        node,
        f"an array has no attribute {node.attr} in a kernel",
        hint or "it has shape, strides, dtype, ndim, size, get, put",
    )


def _size(ctx: Context, array: Value) -> KernelValue:
    from .operators import binary

    total: KernelValue = 1
    for axis in range(array_type(array).rank):
        size = extent(ctx, array, axis)
        total = size if axis == 0 else binary(ctx, ast.Constant(0), "mul", total, size)
    return total


# -- indexing
def indices(
    ctx: Context,
    node: ast.AST,
    array: Value,
    values: list[KernelValue],
    *,
    checked: bool = True,
    rank: int | None = None,
) -> list[Value]:
    """Convert the indices of a subscript, one per dimension (or for the first `rank` ones).

    With `checked`, negative constants count from the end, and constants are checked against static extents.
    """
    rank = array_type(array).rank if rank is None else rank
    if len(values) != rank:
        noun = "index" if rank == 1 else "indices"
        hint = "rows are not values: index each dimension, as in x[i, j]" if len(values) < rank else ""
        raise ctx.error(node, f"expected {rank} {noun}, found {len(values)}", hint)
    nodes = _index_places(node, len(values))
    if not checked:
        return [as_index(ctx, index_node, v) for index_node, v in zip(nodes, values, strict=True)]
    pairs = zip(nodes, values, strict=True)
    return [_one_index(ctx, index_node, array, axis, v) for axis, (index_node, v) in enumerate(pairs)]


def _index_places(node: ast.AST, count: int) -> list[ast.AST]:
    """Return the nodes of the indices if each has its own, else the whole node for each."""
    if isinstance(node, ast.Subscript):
        nodes = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.Call):
        nodes = list(node.args[:count])
    else:
        nodes = []
    return list(nodes) if len(nodes) == count else [node] * count


def _one_index(ctx: Context, node: ast.AST, array: Value, axis: int, value: KernelValue) -> Value:
    number = static_value(value)
    if number is None or isinstance(number, bool | float):
        return as_index(ctx, node, value)
    size = extent(ctx, array, axis) if number < 0 or array_type(array).shape is not None else None
    if isinstance(size, int):
        return index_inside(ctx, node, value, size, axis)
    if isinstance(size, Value):
        return ctx.builder.emit("add", size, ctx.builder.index(int(number)))
    return ctx.builder.index(int(number))


def index_inside(ctx: Context, node: ast.AST, value: KernelValue, size: int, axis: int) -> Value:
    """Convert an index along an axis of static size; a constant is bounds-checked and may be negative."""
    number = static_value(value)
    if number is None or isinstance(number, bool | float):
        return as_index(ctx, node, value)
    if not -size <= number < size:
        hint = f"the first is 0, the last {size - 1} or -1"
        raise ctx.error(node, f"index {number} is outside the {size} elements of dimension {axis}", hint)
    return ctx.builder.index(int(number) % size)


def subscript_values(ctx: Context, node: ast.Subscript) -> list[KernelValue]:
    """Return the values of a subscript's indices."""
    if isinstance(node.slice, ast.Tuple):
        return [ctx.evaluate(item) for item in node.slice.elts]
    value = ctx.evaluate(node.slice)
    return list(value) if isinstance(value, tuple) else [value]


def has_slice(node: ast.Subscript) -> bool:
    """True if the subscript contains a slice."""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(item, ast.Slice) for item in items)


def load(ctx: Context, array: Value, at: list[Value]) -> Value:
    """Emit a load of one element."""
    return ctx.builder.emit("load", array, *at)


def store(
    ctx: Context, node: ast.AST, array: Value, at: list[Value], value: KernelValue, place: ast.AST | None = None
) -> None:
    """Emit a store of a value (from the node `place`), converted under the rules for stores. Raises CompileError for an
    input array.
    """
    kind = array_type(array)
    if kind.access == "in" and kind.space == "global":
        raise ctx.error(node, "this array is an input: it can't be written", "annotate it as vk.Out or vk.InOut")
    ctx.builder.op("store", array, *at, as_stored(ctx, place or node, value, kind.element))
    note_write(ctx, array)


# -- get and put
def bounds(ctx: Context, array: Value, at: list[Value]) -> Value:
    """Emit the condition that all indices are within bounds."""
    inside: Value | None = None
    zero = ctx.builder.index(0)
    for axis, i in enumerate(at):
        size = extent(ctx, array, axis)
        upper = size if isinstance(size, Value) else ctx.builder.index(int(size))  # type: ignore[call-overload]
        inside_axis = ctx.builder.emit("and", ctx.builder.emit("ge", i, zero), ctx.builder.emit("lt", i, upper))
        inside = inside_axis if inside is None else ctx.builder.emit("and", inside, inside_axis)
    return inside if inside is not None else ctx.builder.const(True, types.BOOL)


def _get(ctx: Context, call: Call, array: Value) -> KernelValue:
    """Lower `x.get(i, j, pad=0)`: the element, or the pad outside the array."""
    _check_keywords(ctx, call, {"pad"})
    kind = array_type(array)
    at = indices(ctx, call.node, array, call.args, checked=False)
    pad = pad_of(ctx, call, kind.element)
    inside, outside = Region(), Region()
    condition = bounds(ctx, array, at)
    with ctx.builder.at(inside):
        ctx.builder.op("yield", load(ctx, array, at))
    with ctx.builder.at(outside):
        ctx.builder.op("yield", pad)
    return ctx.builder.op("if", condition, types=[kind.element], regions=[inside, outside]).result


def pad_of(ctx: Context, call: Call, element: Scalar | Vector) -> Value:
    """Return the pad of a `get` as an element; for bool arrays 0 and 1 mean False and True."""
    pad = call.keywords.get("pad", 0)
    if element.dtype.kind == "bool" and isinstance(pad, int) and pad in (0, 1):
        pad = bool(pad)
    return as_stored(ctx, call.node, pad, element)


def _put(ctx: Context, call: Call, array: Value) -> KernelValue:
    """Lower `x.put(i, j, value)`: a store that does nothing outside the array."""
    _check_keywords(ctx, call, {"value"})
    values = [*call.args, *call.keywords.values()]
    if not values:
        raise ctx.error(call.node, "put takes the indices and then the value, as in x.put(i, j, v)")
    at = indices(ctx, call.node, array, values[:-1], checked=False)
    with ctx.builder.when(bounds(ctx, array, at)):
        store(ctx, call.node, array, at, values[-1])
    return None


def _check_keywords(ctx: Context, call: Call, allowed: set[str]) -> None:
    for name in call.keywords:
        if name not in allowed:
            raise ctx.error(call.node, f"unknown keyword {name}", f"it takes {', '.join(sorted(allowed))}")


# -- allocation and barriers
def static_shape(ctx: Context, call: Call, shape: KernelValue) -> tuple[int, ...]:
    """Return a compile-time shape given as a number or a tuple."""
    items = shape if isinstance(shape, tuple) else (shape,)
    sizes: list[int] = []
    for item in items:
        number = static_value(item)
        if number is None or isinstance(number, bool | float):
            hint = "make the size a vk.Const[int] parameter or a constant of the module"
            raise ctx.error(call.node, f"the shape must be known at compile time, found {describe_value(item)}", hint)
        if number < 1:
            hint = "where there may be none, allocate one and don't use it"
            raise ctx.error(call.node, f"each dimension needs one element or more, found {number}", hint)
        sizes.append(int(number))
    return tuple(sizes)


def _element(ctx: Context, call: Call, dtype: KernelValue) -> Scalar | Vector:
    if isinstance(dtype, VectorType):
        return Vector(dtype.element, dtype.size)
    element_type: DType | None = dtype_of(dtype)
    if element_type is None:
        raise ctx.error(call.node, f"expected a dtype, found {describe_value(dtype)}", "write e.g. vk.f32")
    return Scalar(element_type)


def _allocate(ctx: Context, call: Call, space: str, dtype: KernelValue, shape: KernelValue) -> KernelValue:
    sizes = static_shape(ctx, call, shape)
    if isinstance(dtype, StructType | PackedFloat):
        from .records import allocate

        return allocate(ctx, call, space, dtype, sizes)
    element = _element(ctx, call, dtype)
    return ctx.entry(call.node, Array(element, len(sizes), space=space, shape=sizes, contiguous=True))


def not_in_over(ctx: Context, call: Call, what: str) -> None:
    """Raise CompileError in an `over=` kernel, where invocations outside the array don't run the body."""
    over = ctx.session.over
    if over is not None:
        raise ctx.error(
            call.node,
            f"{what} can't be used in a kernel with over={over!r}: invocations past its end don't run",
            "launch with groups= and local=, and guard reads and writes with .get and .put",
        )


@lowers(lang.shared)
def _shared(ctx: Context, call: Call, dtype: KernelValue, shape: KernelValue) -> KernelValue:
    not_in_over(ctx, call, "shared memory")
    return _allocate(ctx, call, "shared", dtype, shape)


@lowers(lang.local)
def _local(ctx: Context, call: Call, dtype: KernelValue, shape: KernelValue) -> KernelValue:
    return _allocate(ctx, call, "local", dtype, shape)


@lowers(lang.barrier)
def _barrier(ctx: Context, call: Call) -> KernelValue:
    not_in_over(ctx, call, "a barrier")
    ctx.builder.op("barrier")
    return None


@lowers(lang.fence)
def _fence(ctx: Context, call: Call, scope: KernelValue) -> KernelValue:
    ctx.builder.op("fence", scope=one_of(ctx, call, "scope", scope, ("workgroup", "device")))
    return None


def one_of(ctx: Context, call: Call, name: str, value: KernelValue, known: tuple[str, ...]) -> str:
    """Return a string argument after checking that it is one of the known words."""
    if value not in known:
        actual = repr(value) if isinstance(value, str) else describe_value(value)
        raise ctx.error(call.node, f"{name} is one of {', '.join(map(repr, known))}, found {actual}")
    return str(value)


ORDERS: tuple[Any, ...] = ("relaxed", "acquire", "release", "acq_rel")
