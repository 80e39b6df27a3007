"""Tile attributes, subscripts, transposition and reshaping; gather and scatter with tiles of indices.

Lowers `t.T`, `t[:, None]`, `wg.reshape(t, (8, 4))`, `wg.gather(x, index)` and the like (with wg = `vk.workgroup()`) to
`tile_*` operations. `.T` and `transpose` also work on lazy slices, which stay lazy.
"""

from __future__ import annotations

import ast
import math

from vkjit.ir.core import Region, Value
from vkjit.ir.tiles import MAX_RANK, broadcast_shape
from vkjit.ir.types import Array, Scalar, Tile

from ..context import Call, Context, Place
from ..intrinsics import one_of
from ..kernel_values import KernelValue, Lazy, describe_value, is_array, is_scalar, is_tile, literal_text
from ..values.arrays import array_type, inside_bounds
from ..values.attributes import attributes
from ..values.conversions import as_index, as_stored, static_value
from ..values.lazy import SliceTarget, note_write
from ..values.scopes import ScopeValue, method
from .tiles import (
    ATOMICS,
    build_tile,
    for_each_element,
    pad_value,
    reshaped,
    shape_of,
    shape_text,
    tile_kind,
    tile_operand,
    write_element,
)

__all__ = ["subscript_tile"]


@attributes(is_tile)
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower an attribute of a tile: `t.T`, `t.shape` and so on."""
    assert isinstance(base, Value)
    kind = tile_kind(base)
    if node.attr == "T":
        return _transposed(ctx, base, tuple(reversed(range(len(kind.shape)))))
    values: dict[str, KernelValue] = {
        "shape": kind.shape, "dtype": kind.dtype, "ndim": len(kind.shape), "size": kind.size,
    }  # fmt: skip
    if node.attr in values:
        return values[node.attr]
    hint = "it has shape, dtype, ndim, size, T; the rest are methods of the scope, as in wg.sum(t, axis=1)"
    raise ctx.error(node, f"a tile has no attribute {node.attr}", hint)


@attributes(lambda value: isinstance(value, Lazy))
def _lazy_attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower an attribute of a lazy slice: `x[i:j].T`, `x[i:j].shape`."""
    assert isinstance(base, Lazy)
    if node.attr == "T":
        return _lazy_transposed(base, tuple(reversed(range(len(base.shape)))))
    if node.attr == "shape":
        return base.shape
    raise ctx.error(node, f"a slice has no attribute {node.attr}", "it has T and shape; wg.load makes a tile of it")


# -- shapes
def _transposed(ctx: Context, tile: Value, axes: tuple[int, ...]) -> Value:
    """Return the tile whose axis n is axis axes[n] of `tile`."""
    kind = tile_kind(tile)
    if axes == tuple(range(len(axes))):
        return tile
    target = Tile(kind.dtype, tuple(kind.shape[a] for a in axes), kind.scope)
    return ctx.builder.emit("tile_transpose", tile, axes=axes, type=target)


def _lazy_transposed(lazy: Lazy, axes: tuple[int, ...]) -> Lazy:
    """Return the lazy value whose axis n is axis axes[n] of `lazy`."""
    inverse = [axes.index(a) for a in range(len(axes))]  # axis n of `lazy` is axis inverse[n] of the result

    def element(inner: Context, index: tuple[Value, ...]) -> KernelValue:
        return lazy.element(inner, tuple(index[n] for n in inverse))

    target = lazy.target
    if isinstance(target, SliceTarget):
        target = SliceTarget(target.array, target.starts, tuple(None if a is None else inverse[a] for a in target.axes))
    sizes = tuple(lazy.sizes[a] for a in axes) if lazy.sizes else ()
    return Lazy(tuple(lazy.shape[a] for a in axes), element, lazy.sources, target, sizes)


@method("transpose")
def _transpose(ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axes: KernelValue) -> KernelValue:
    """Lower `wg.transpose(t, axes)` of a tile or a lazy slice; without `axes`, the order of the axes is reversed."""
    if not (isinstance(value, Lazy) or is_tile(value)):
        raise ctx.error(call.node, f"transpose takes a tile or a slice, found {describe_value(value)}", "t.T")
    rank = len(value.shape) if isinstance(value, Lazy) else len(tile_kind(value).shape)
    order = tuple(reversed(range(rank))) if axes is None else axes
    numbers = [static_value(a) for a in order] if isinstance(order, tuple) else []
    if sorted(n for n in numbers if n is not None and not isinstance(n, bool)) != list(range(rank)):
        raise ctx.error(call.node, f"axes names each of the {rank} axes once", "wg.transpose(t, (1, 0))")
    permutation = tuple(int(n or 0) for n in numbers)  # no number is None; `or 0` is for the type checker
    if isinstance(value, Lazy):
        return _lazy_transposed(value, permutation)
    return _transposed(ctx, tile_operand(ctx, call.node, scope.kind, value), permutation)


@method("reshape")
def _reshape(ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, shape: KernelValue) -> KernelValue:
    """Lower `wg.reshape(t, shape)`; one size may be -1, and is then inferred from the others."""
    if not (isinstance(value, Lazy) or is_tile(value)):
        raise ctx.error(call.node, f"reshape takes a tile or a slice, found {describe_value(value)}")
    tile = tile_operand(ctx, call.node, scope.kind, value)
    size = tile_kind(tile).size
    requested = shape if isinstance(shape, tuple) else (shape,)
    known_product = math.prod(int(s) for s in requested if isinstance(s, int) and s > 0)
    unknown_count = sum(s == -1 for s in requested if isinstance(s, int))
    if unknown_count == 1 and size % known_product == 0:
        requested = tuple(size // known_product if s == -1 else s for s in requested)
    new_shape = shape_of(ctx, call.node, requested, "wg.reshape(t, (BM * BN,))")
    if math.prod(new_shape) != size:
        raise ctx.error(call.node, f"a tile of {size} elements can't have the shape {shape_text(new_shape)}")
    return reshaped(ctx, tile, new_shape)


# -- subscripts
def subscript_tile(ctx: Context, node: ast.Subscript, tile: Value) -> KernelValue:
    """Lower `t[:, None]`, `t[None, :]` (new axes) or `t[i, j]` (one element, available in every invocation)."""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    kind = tile_kind(tile)
    if not any(isinstance(item, ast.Slice) or _is_none(item) for item in items):
        return _element(ctx, node, tile, items)
    shape: list[int] = []
    sizes = iter(kind.shape)
    for item in items:
        if _is_none(item):
            shape.append(1)
            continue
        size = next(sizes, None)
        is_full_slice = isinstance(item, ast.Slice) and item.lower is None and item.upper is None and item.step is None
        if not is_full_slice or size is None:
            hint = "parts of a tile are loaded as tiles of their own: wg.load(x[i:i+SIZE])"
            raise ctx.error(
                item, "a tile takes `:` for each of its axes, None for a new one, or an index for each", hint
            )
        shape.append(size)
    shape += list(sizes)  # the axes that the subscript doesn't mention
    if len(shape) > MAX_RANK:
        raise ctx.error(node, f"a tile has up to {MAX_RANK} axes, found {len(shape)}")
    return reshaped(ctx, tile, tuple(shape))


def _is_none(item: ast.expr) -> bool:
    return isinstance(item, ast.Constant) and item.value is None


def _element(ctx: Context, node: ast.Subscript, tile: Value, items: list[ast.expr]) -> Value:
    """Lower `t[i, j]` to a scalar; constant indices may be negative and are bounds-checked."""
    kind = tile_kind(tile)
    if len(items) != len(kind.shape):
        raise ctx.error(node, f"expected {len(kind.shape)} indices, found {len(items)}", "write `:` for a whole axis")
    at = []
    for item, size in zip(items, kind.shape, strict=True):
        value = ctx.evaluate(item)
        number = static_value(value)
        if isinstance(number, int) and not -size <= number < size:
            raise ctx.error(item, f"index {literal_text(number)} is outside an axis of {size} elements")
        at.append(ctx.builder.index(number % size) if isinstance(number, int) else as_index(ctx, item, value))
    return ctx.builder.emit("tile_get", tile, *at, type=Scalar(kind.dtype))


# -- gather and scatter
def _index_operands(
    ctx: Context, call: Call, scope: ScopeValue, array: KernelValue, index: KernelValue
) -> tuple[Value, list[KernelValue], list[Value]]:
    """Check the operands of a gather or scatter.

    Returns the array, the index along each axis (a tile, a lazy slice or a scalar), and the tiles among the indices,
    with slices loaded.
    """
    if not is_array(array):
        raise ctx.error(call.node, f"expected an array first, found {describe_value(array)}", "wg.gather(x, index)")
    items = list(index) if isinstance(index, tuple) else [index]
    kind = array_type(array)
    if len(items) != kind.rank:
        raise ctx.error(call.node, f"expected {kind.rank} tiles of indices, found {len(items)}", "give a tuple")
    if not isinstance(kind.element, Scalar):
        raise ctx.error(call.node, "the array's elements must be numbers", "loop over the elements")
    tiles = []
    for item in items:
        if isinstance(item, Lazy) or is_tile(item):
            tiles.append(tile_operand(ctx, call.node, scope.kind, item))
            if not tile_kind(tiles[-1]).dtype.is_integer:
                raise ctx.error(call.node, f"indices are integers, found {tile_kind(tiles[-1]).dtype!r}")
        elif static_value(item) is None and not is_scalar(item):
            raise ctx.error(call.node, f"an index is a tile or a number, found {describe_value(item)}")
    if not tiles:
        raise ctx.error(call.node, "none of the indices is a tile", "index the array: x[i]")
    return array, items, tiles


def _element_indices(ctx: Context, node: Place, items: list[KernelValue], elements: list[Value]) -> list[Value]:
    """Return the array index along each axis for one element of a gather or scatter.

    `items` has, for each axis, the index that the call gives: a tile, a lazy slice or a scalar. `elements` has one
    element of each tile and slice in `items`, in order.
    """
    remaining = iter(elements)
    per_axis = [next(remaining) if isinstance(item, Lazy) or is_tile(item) else item for item in items]
    return [as_index(ctx, node, value) for value in per_axis]


@method("gather")
def _gather(
    ctx: Context, call: Call, scope: ScopeValue, array: KernelValue, index: KernelValue, pad: KernelValue
) -> KernelValue:
    """Lower `wg.gather(x, index, pad=0)` to a tile of the elements of x at the indices.

    An index outside the array gives `pad`.
    """
    memory, items, tiles = _index_operands(ctx, call, scope, array, index)
    shape = _common_shape(ctx, call, tiles)
    filler = pad_value(ctx, call.node, pad, array_type(memory).dtype)

    def element(_index: tuple[Value, ...], elements: list[Value]) -> Value:
        at = _element_indices(ctx, call.node, items, elements)
        inside, outside = Region(), Region()
        with ctx.builder.at(inside):
            ctx.builder.op("yield", ctx.builder.emit("load", memory, *at))
        with ctx.builder.at(outside):
            ctx.builder.op("yield", filler)
        test = inside_bounds(ctx, memory, at)
        return ctx.builder.op("if", test, types=[filler.type], regions=[inside, outside]).result

    return build_tile(ctx, tiles, shape, scope.kind, element)


def _common_shape(ctx: Context, call: Call, tiles: list[Value]) -> tuple[int, ...]:
    """Return the shape to which the tiles broadcast. Raises CompileError if there is none."""
    shape = broadcast_shape([tile_kind(t).shape for t in tiles])
    if shape is None:
        texts = " and ".join(shape_text(tile_kind(t).shape) for t in tiles)
        raise ctx.error(call.node, f"tiles of {texts} can't be combined", "t[:, None] and t[None, :] add an axis")
    return shape


@method("scatter")
def _scatter(
    ctx: Context,
    call: Call,
    scope: ScopeValue,
    array: KernelValue,
    index: KernelValue,
    value: KernelValue,
    atomic: KernelValue,
) -> KernelValue:
    """Lower `wg.scatter(x, index, value)`: store `value` to the elements of x at the indices.

    Indices outside x are skipped. If `atomic` names an operation, it atomically combines the value with the element.
    """
    memory, items, tiles = _index_operands(ctx, call, scope, array, index)
    kind = array_type(memory)
    if kind.access == "in" and kind.space == "global":
        raise ctx.error(call.node, "this array is an input: it can't be written", "annotate it as vk.InOut")
    atomic_op = atomic_of(ctx, call, atomic, kind, (*ATOMICS, "exchange"))
    has_elements = isinstance(value, Lazy) or is_tile(value)
    values = [tile_operand(ctx, call.node, scope.kind, value)] if has_elements else []
    shape = _common_shape(ctx, call, [*tiles, *values])
    if tile_kind(tiles[0]).shape != shape:  # `tile_each` runs over the shape of its first operand
        tiles[0] = build_tile(ctx, [tiles[0]], shape, scope.kind, lambda _index, elements: elements[0])

    def write(_index: tuple[Value, ...], elements: list[Value]) -> None:
        at = _element_indices(ctx, call.node, items, elements[: len(tiles)])
        with ctx.builder.when(inside_bounds(ctx, memory, at)):
            stored = as_stored(ctx, call.node, elements[-1] if has_elements else value, kind.element)
            write_element(ctx, memory, at, stored, atomic_op)

    for_each_element(ctx, [*tiles, *values], write)
    note_write(ctx, memory)
    return None


def atomic_of(ctx: Context, call: Call, atomic: KernelValue, kind: Array, allowed: tuple[str, ...]) -> str:
    """Return the atomic operation that the argument `atomic` names, or "" for a plain store.

    `kind` is the array's type, `allowed` the names that the call accepts.
    """
    if atomic == "":
        return ""
    name = one_of(ctx, call, "atomic", atomic, allowed)
    if kind.dtype.kind == "bool" or (kind.dtype.is_float and name in ("and", "or", "xor")):
        raise ctx.error(call.node, f"atomic {name} isn't defined for {kind.dtype!r}")
    return name
