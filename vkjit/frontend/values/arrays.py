"""Arrays in kernels: indexing, the methods `get` and `put`, shape and strides.

Loads and stores take one value of type `index` per dimension. A constant negative index counts from the end; a constant
index outside a static shape is an error. The frontend emits bounds checks of run-time indices for `get` and `put` only;
the optional pass `passes.transforms.bounds_checks` adds them to all accesses.
"""

from __future__ import annotations

import ast
import math

from vkjit.ir import types
from vkjit.ir.core import Region, Value
from vkjit.ir.types import Array, Scalar, Vector

from ..context import Call, Context
from ..kernel_values import KernelValue, Method, is_array, literal_text
from .attributes import attributes
from .conversions import as_index, as_stored, static_value
from .lazy import note_write

__all__ = [
    "array_type",
    "check_keywords",
    "extent",
    "index_inside",
    "indices",
    "inside_bounds",
    "load",
    "pad_of",
    "size_of",
    "store",
]


def array_type(array: Value) -> Array:
    """Return the type of an array value."""
    assert isinstance(array.type, Array)
    return array.type


def extent(ctx: Context, array: Value, axis: int) -> KernelValue:
    """Return the extent along an axis; a literal if it is static."""
    shape = array_type(array).shape
    return shape[axis] if shape is not None else ctx.builder.emit("extent", array, axis=axis)


def size_of(ctx: Context, array: Value, rank: int) -> int | Value:
    """Return the number of elements along the first `rank` axes; a literal if it is static."""
    shape = array_type(array).shape
    if shape is not None:
        return math.prod(shape[:rank])
    total: int | Value = 1
    for axis in range(rank):
        size = ctx.builder.emit("extent", array, axis=axis)
        total = ctx.builder.emit("mul", total, size) if isinstance(total, Value) else size
    return total


def _shape(ctx: Context, array: Value) -> tuple[KernelValue, ...]:
    return tuple(extent(ctx, array, axis) for axis in range(array_type(array).rank))


def _strides(ctx: Context, array: Value) -> tuple[KernelValue, ...]:
    """Return the strides in elements."""
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
    """Lower an attribute of an array: `x.shape`, `x.dtype`, the methods `x.get` and `x.put`."""
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
        return size_of(ctx, base, kind.rank)
    if node.attr == "get":
        return Method(base, "get", _get)
    if node.attr == "put":
        return Method(base, "put", _put)
    hint = _ATTRIBUTE_HINTS.get(node.attr, "it has shape, strides, dtype, ndim, size, get, put")
    raise ctx.error(node, f"an array has no attribute {node.attr} in a kernel", hint)


_ATTRIBUTE_HINTS = {
    "T": "index it the other way round: x[j, i]",
    "copy": "copy in a loop",
    "fill": "store in a loop",
}
"""What to write instead of attributes that NumPy's arrays have, but arrays in kernels don't."""


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
    """Convert the indices of a subscript or a `get` to values of type `index`, one for each of the first `rank` axes.

    By default, `rank` is the rank of the array. With `checked`, negative constants count from the end, and constants
    are checked against static extents.
    """
    rank = array_type(array).rank if rank is None else rank
    if len(values) != rank:
        noun = "index" if rank == 1 else "indices"
        hint = "rows are not values: index each dimension, as in x[i, j]" if len(values) < rank else ""
        raise ctx.error(node, f"expected {rank} {noun}, found {len(values)}", hint)
    nodes = _index_nodes(node, len(values))
    if not checked:
        return [as_index(ctx, index_node, v) for index_node, v in zip(nodes, values, strict=True)]
    pairs = zip(nodes, values, strict=True)
    return [_convert_index(ctx, index_node, array, axis, v) for axis, (index_node, v) in enumerate(pairs)]


def _index_nodes(node: ast.AST, count: int) -> list[ast.AST]:
    """Return the syntax nodes of the indices if each of the `count` indices has its own, else `node` for each."""
    if isinstance(node, ast.Subscript):
        nodes = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.Call):
        nodes = list(node.args[:count])
    else:
        nodes = []
    return list(nodes) if len(nodes) == count else [node] * count


def _convert_index(ctx: Context, node: ast.AST, array: Value, axis: int, value: KernelValue) -> Value:
    """Convert the index along one axis; constants are checked as in `indices`."""
    number = static_value(value)
    if number is None or isinstance(number, bool | float):
        return as_index(ctx, node, value)  # raises the error for bools and floats
    # The extent is needed for a bounds check, or to add it to a negative index.
    size = extent(ctx, array, axis) if number < 0 or array_type(array).shape is not None else None
    if isinstance(size, int):
        return index_inside(ctx, node, value, size, axis)
    if isinstance(size, Value):
        return ctx.builder.emit("add", size, as_index(ctx, node, number))
    return as_index(ctx, node, value)


def index_inside(ctx: Context, node: ast.AST, value: KernelValue, size: int, axis: int) -> Value:
    """Convert an index along an axis of static size; a constant is bounds-checked and may be negative."""
    number = static_value(value)
    if number is None or isinstance(number, bool | float):
        return as_index(ctx, node, value)
    if not -size <= number < size:
        hint = f"the first is 0, the last {size - 1} or -1"
        raise ctx.error(node, f"index {literal_text(number)} is outside the {size} elements of dimension {axis}", hint)
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
    ctx: Context, node: ast.AST, array: Value, at: list[Value], value: KernelValue, value_node: ast.AST | None = None
) -> None:
    """Emit a store of a value, converted by the rules for stores (see `conversions`).

    `node` is the syntax node of the store, and `value_node` that of the value, for errors. Raises CompileError if the
    array is an input.
    """
    kind = array_type(array)
    if kind.access == "in" and kind.space == "global":
        raise ctx.error(node, "this array is an input: it can't be written", "annotate it as vk.Out or vk.InOut")
    ctx.builder.op("store", array, *at, as_stored(ctx, value_node or node, value, kind.element))
    note_write(ctx, array)


# -- get and put
def inside_bounds(ctx: Context, array: Value, at: list[Value]) -> Value:
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
    """Lower `x.get(i, j, pad=0)`: the element, or the pad if the indices are outside the array."""
    check_keywords(ctx, call, {"pad"})
    kind = array_type(array)
    at = indices(ctx, call.node, array, call.args, checked=False)
    pad = pad_of(ctx, call, kind.element)
    inside, outside = Region(), Region()
    condition = inside_bounds(ctx, array, at)
    with ctx.builder.at(inside):
        ctx.builder.op("yield", load(ctx, array, at))
    with ctx.builder.at(outside):
        ctx.builder.op("yield", pad)
    return ctx.builder.op("if", condition, types=[kind.element], regions=[inside, outside]).result


def pad_of(ctx: Context, call: Call, element: Scalar | Vector) -> Value:
    """Return the `pad` argument of a `get` (default: 0), converted to the array's element type `element`.

    For bool arrays, 0 and 1 stand for False and True.
    """
    pad = call.keywords.get("pad", 0)
    if element.dtype.kind == "bool" and isinstance(pad, int) and pad in (0, 1):
        pad = bool(pad)
    return as_stored(ctx, call.node, pad, element)


def _put(ctx: Context, call: Call, array: Value) -> KernelValue:
    """Lower `x.put(i, j, value)`: a store that does nothing if the indices are outside the array."""
    check_keywords(ctx, call, {"value"})
    values = [*call.args, *call.keywords.values()]
    if not values:
        raise ctx.error(call.node, "put takes the indices and then the value, as in x.put(i, j, v)")
    at = indices(ctx, call.node, array, values[:-1], checked=False)
    with ctx.builder.when(inside_bounds(ctx, array, at)):
        store(ctx, call.node, array, at, values[-1])
    return None


def check_keywords(ctx: Context, call: Call, allowed: set[str]) -> None:
    """Raise CompileError for keyword arguments that aren't allowed."""
    for name in call.keywords:
        if name not in allowed:
            raise ctx.error(call.node, f"unknown keyword {name}", f"it takes {', '.join(sorted(allowed))}")
