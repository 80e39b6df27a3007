"""Tiles: blocks of elements that a workgroup, or a subgroup, holds together.

Enters: `wg.zeros((BM, BN), dtype)`, `wg.load(a[i:i+BM, k:k+BK])`, `wg.mma(a, b, acc)`, elementwise expressions of tiles,
`wg.store(c[i:i+BM, j:j+BN], acc)`. Leaves: the operations `tile_*`. A tile is one run-time value, so that loops carry it
and branches choose it; which invocation holds which element is decided later, by the passes of `passes.tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from .. import dtypes
from ..dtypes import DType
from ..ir import types
from ..ir.core import Region, Value
from ..ir.tiles import HIGHEST_RANK, broadcast_shape
from ..ir.types import Array, Scalar, Tile
from .annotations import dtype_of
from .collectives import ScopeValue, method
from .context import Call, Context, Place
from .conversions import as_exactly, as_stored, convert, dtype_of_value, materialize, static_value, strict_join
from .elementwise import is_tile
from .lazy import SliceTarget, check_sources, note_write
from .values import KernelValue, Lazy, describe_value, parts_of, with_parts

__all__ = ["built", "described", "map_tiles", "shape_of", "store_tile", "tile_kind", "tile_operand"]

MOST_ELEMENTS = 1 << 20
"""Elements of a tile: far more than the registers of a workgroup hold."""


def tile_kind(value: Value) -> Tile:
    """The type of a tile."""
    assert isinstance(value.type, Tile)
    return value.type


def described(shape: tuple[int, ...]) -> str:
    """A shape in words."""
    return " x ".join(map(str, shape))


def shape_of(ctx: Context, node: Place, shape: KernelValue, example: str) -> tuple[int, ...]:
    """The sizes that a kernel gives for a tile."""
    sizes = [static_value(s) for s in shape] if isinstance(shape, tuple) else [static_value(shape)]
    if not sizes or any(s is None or isinstance(s, bool | float) or s < 1 for s in sizes):
        raise ctx.error(node, "the shape of a tile is sizes known at compile time, from 1 on", example)
    found = tuple(int(s or 0) for s in sizes)
    if len(found) > HIGHEST_RANK:
        raise ctx.error(node, f"a tile has up to {HIGHEST_RANK} axes, found {len(found)}", example)
    if math.prod(found) > MOST_ELEMENTS:
        raise ctx.error(node, f"a tile of {described(found)} is more than a workgroup can hold", "use smaller sizes")
    return found


def built(
    ctx: Context,
    operands: list[Value],
    shape: tuple[int, ...],
    scope: str,
    element: Callable[[tuple[Value, ...], list[Value]], Value],
) -> Value:
    """The tile whose elements `element(position, elements of the operands)` gives."""
    kinds = [tile_kind(v) for v in operands]
    region = Region([*[types.INDEX] * len(shape), *[Scalar(k.dtype) for k in kinds]])
    with ctx.builder.at(region):
        result = element(tuple(region.args[: len(shape)]), region.args[len(shape) :])
        ctx.builder.op("yield", result)
    kind = Tile(dtype_of_value(result), shape, scope)
    return ctx.builder.op("tile_map", *operands, types=[kind], regions=[region], type=kind).result


# -- making tiles
@method("zeros")
def _zeros(ctx: Context, call: Call, scope: ScopeValue, shape: KernelValue, dtype: KernelValue) -> KernelValue:
    return _full(ctx, call, scope, shape, 0, dtype)


@method("full")
def _full(
    ctx: Context, call: Call, scope: ScopeValue, shape: KernelValue, value: KernelValue, dtype: KernelValue
) -> KernelValue:
    found = dtype_of(dtype)
    if found is None:
        raise ctx.error(call.node, f"expected a dtype, found {describe_value(dtype)}", "write e.g. vk.f32")
    sizes = shape_of(ctx, call.node, shape, f"vk.{scope.kind}().zeros((BM, BN), vk.f32)")
    if value == 0 and not isinstance(value, Value):
        value = False if found.kind == "bool" else 0
    made = as_exactly(ctx, call.node, value, found, "the value")
    return built(ctx, [], sizes, scope.kind, lambda _at, _elements: made)


@method("arange")
def _arange(ctx: Context, call: Call, scope: ScopeValue, size: KernelValue, dtype: KernelValue) -> KernelValue:
    found = dtypes.i32 if dtype is None else dtype_of(dtype)
    if found is None or not (found.is_integer or found.is_float):
        raise ctx.error(call.node, f"expected a dtype of numbers, found {describe_value(dtype)}", "write e.g. vk.i32")
    shape = shape_of(ctx, call.node, size, "wg.arange(BN)")
    if len(shape) != 1:
        raise ctx.error(call.node, "arange takes one size", "wg.arange(BN)[:, None] is a column")
    return built(ctx, [], shape, scope.kind, lambda at, _elements: convert(ctx, call.node, at[0], found))


@method("load", "workgroup")
def _load(ctx: Context, call: Call, scope: ScopeValue, source: KernelValue, pad: KernelValue) -> KernelValue:
    return load_tile(ctx, call, scope, source, pad)


def load_tile(ctx: Context, call: Call, scope: ScopeValue, source: KernelValue, pad: KernelValue) -> KernelValue:
    """The elements of a slice of known size, held from now on."""
    if isinstance(source, Value) and is_tile(source):
        raise ctx.error(call.node, "this is a tile already", "load takes a slice of an array")
    if not isinstance(source, Lazy):
        raise ctx.error(call.node, f"load takes a slice, found {describe_value(source)}", "wg.load(a[i:i+BM, j:j+BN])")
    return _taken(ctx, call.node, scope.kind, source, pad)


def _sizes(ctx: Context, node: Place, lazy: Lazy) -> tuple[int, ...]:
    """The sizes of a slice before it is clipped to its array."""
    if not lazy.sizes or None in lazy.sizes:
        raise ctx.error(
            node,
            "the sizes of the slice must be known at compile time",
            "write each dimension as start:start+SIZE, with a vk.Const[int] SIZE",
        )
    return shape_of(ctx, node, tuple(lazy.sizes), "wg.load(a[i:i+BM, j:j+BN])")


def _taken(ctx: Context, node: Place, scope: str, lazy: Lazy, pad: KernelValue = 0) -> Value:
    """A tile of the elements of a slice or an expression of slices, `pad` outside the array."""
    shape = _sizes(ctx, node, lazy)
    check_sources(ctx, node, lazy)
    place = lazy.target
    if isinstance(place, SliceTarget) and isinstance(place.array.type, Array):
        kind = place.array.type
        if isinstance(kind.element, Scalar) and kind.space != "local":
            filler = _filler(ctx, node, pad, kind.dtype)
            operands = [place.array, *place.starts, *lazy.shape, filler]
            return ctx.builder.emit("tile_load", *operands, axes=place.axes, type=Tile(kind.dtype, shape, scope))
    return built(ctx, [], shape, scope, lambda at, _elements: _padded(ctx, node, lazy, at, pad))


def _filler(ctx: Context, node: Place, pad: KernelValue, dtype: DType) -> Value:
    if dtype.kind == "bool" and pad == 0 and not isinstance(pad, Value):
        pad = False
    return as_exactly(ctx, node, pad, dtype, "the pad")


def _padded(ctx: Context, node: Place, lazy: Lazy, at: tuple[Value, ...], pad: KernelValue) -> Value:
    """An element of a lazy value, `pad` outside its shape."""
    b = ctx.builder
    inside, outside = Region(), Region()
    with b.at(inside):
        element = materialize(ctx, node, lazy.element(ctx, at))
        b.op("yield", element)
    with b.at(outside):
        b.op("yield", _filler(ctx, node, pad, dtype_of_value(element)))
    return b.op("if", _within(ctx, at, lazy.shape), types=[element.type], regions=[inside, outside]).result


def _within(ctx: Context, at: tuple[Value, ...], shape: tuple[Value, ...]) -> Value:
    b = ctx.builder
    tests = [b.emit("lt", i, size) for i, size in zip(at, shape, strict=True)]
    found = tests[0]
    for test in tests[1:]:
        found = b.emit("and", found, test)
    return found


def tile_operand(ctx: Context, node: Place, scope: str, value: KernelValue) -> Value:
    """A tile, or the tile of a slice."""
    if isinstance(value, Lazy):
        return _taken(ctx, node, scope, value)
    assert isinstance(value, Value)
    if tile_kind(value).scope != scope:
        raise ctx.error(node, f"this is a tile of the {tile_kind(value).scope}, expected one of the {scope}")
    return value


# -- elementwise
def map_tiles(
    ctx: Context, node: Place, function: Callable[..., KernelValue], values: list[KernelValue]
) -> KernelValue:
    """The tile of an elementwise function of tiles, lazy slices and scalars, by NumPy's broadcasting."""
    first = next(v for v in values if isinstance(v, Value) and is_tile(v))
    scope = tile_kind(first).scope
    spread = [isinstance(v, Lazy) or is_tile(v) for v in values]
    tiles = [tile_operand(ctx, node, scope, v) for v, one in zip(values, spread, strict=True) if one]
    shapes = [tile_kind(t).shape for t in tiles]
    shape = broadcast_shape(shapes)
    if shape is None:
        found = " and ".join(f"a tile of {described(s)}" for s in shapes)
        raise ctx.error(node, f"{found} can't be combined", "t[:, None] and t[None, :] add an axis of size 1")

    def call(elements: list[Value]) -> KernelValue:
        rest = iter(elements)
        return function(ctx, *(next(rest) if one else v for v, one in zip(values, spread, strict=True)))

    with ctx.builder.at(Region()):  # to see what the function gives
        poison = [ctx.builder.emit("poison", type=Scalar(tile_kind(t).dtype)) for t in tiles]
        structure = call(poison)
    return _mapped(ctx, node, tiles, shape, scope, structure, call)


def _mapped(
    ctx: Context,
    node: Place,
    tiles: list[Value],
    shape: tuple[int, ...],
    scope: str,
    structure: KernelValue,
    call: Callable[[list[Value]], KernelValue],
) -> KernelValue:
    """One tile for each number that the function gives."""
    parts = parts_of(structure)
    if parts is None:
        return built(ctx, tiles, shape, scope, lambda _at, elements: materialize(ctx, node, call(elements)))

    def item(number: int) -> Callable[[list[Value]], KernelValue]:
        return lambda elements: (parts_of(call(elements)) or ())[number]

    made = [_mapped(ctx, node, tiles, shape, scope, part, item(n)) for n, part in enumerate(parts)]
    return with_parts(structure, made)


# -- storing
ATOMICS = ("add", "min", "max", "and", "or", "xor")


def store_tile(ctx: Context, call: Call, scope: ScopeValue, target: Lazy, tile: Value, atomic: str) -> None:
    """Writes the elements that lie inside the array."""
    place, kind = target.target, tile_kind(tile_operand(ctx, call.node, scope.kind, tile))
    assert isinstance(place, SliceTarget)
    array = place.array.type
    assert isinstance(array, Array)
    sizes = target.sizes
    if len(sizes) != len(kind.shape) or any(s is not None and s != t for s, t in zip(sizes, kind.shape, strict=True)):
        hint = "the target is a slice of the tile's size, as in c[i:i+BM, j:j+BN]"
        raise ctx.error(call.node, f"the target isn't as large as the tile of {described(kind.shape)}", hint)
    if isinstance(array.element, Scalar) and not atomic:
        stored = _stored(ctx, call, tile, array.element)
        ctx.builder.op("tile_store", place.array, *place.starts, *target.shape, stored, axes=place.axes)
    else:
        _store_each(ctx, call, target, tile, atomic)
    note_write(ctx, place.array)


def _stored(ctx: Context, call: Call, tile: Value, element: Scalar) -> Value:
    """The tile in the type of the array's elements."""
    kind = tile_kind(tile)
    if kind.dtype is element.dtype:
        return tile
    return built(ctx, [tile], kind.shape, kind.scope, lambda _at, items: as_stored(ctx, call.node, items[0], element))


def _store_each(ctx: Context, call: Call, target: Lazy, tile: Value, atomic: str) -> None:
    """The store of each element that lies inside."""
    place = target.target
    assert isinstance(place, SliceTarget)
    array = place.array.type
    assert isinstance(array, Array)

    def write(at: tuple[Value, ...], items: list[Value]) -> None:
        with ctx.builder.when(_within(ctx, at, target.shape)):
            stored = as_stored(ctx, call.node, items[0], array.element)
            write_element(ctx, place.array, place.at(ctx, at), stored, atomic)

    each(ctx, [tile], write)


def each(ctx: Context, operands: list[Value], body: Callable[[tuple[Value, ...], list[Value]], None]) -> None:
    """`body(position, elements)` for each element of the first operand, which the others broadcast to."""
    kinds = [tile_kind(v) for v in operands]
    rank = len(kinds[0].shape)
    region = Region([*[types.INDEX] * rank, *[Scalar(k.dtype) for k in kinds]])
    with ctx.builder.at(region):
        body(tuple(region.args[:rank]), region.args[rank:])
        ctx.builder.op("yield")
    ctx.builder.op("tile_each", *operands, types=[], regions=[region])


def write_element(ctx: Context, array: Value, at: list[Value], value: Value, atomic: str) -> None:
    """A store, or an atomic operation."""
    if atomic:
        ctx.builder.op("atomic", array, *at, value, op=atomic, order="relaxed", scope="device")
    else:
        ctx.builder.op("store", array, *at, value)


# -- products
PREFETCHES = ("", "early", "late", "overlap", "overlap late")
"""What a product may be asked to load ahead, and when: see `passes.tiles.prefetch` and `passes.tiles.overlap`."""


@method("mma", "workgroup")
def _mma(
    ctx: Context,
    call: Call,
    scope: ScopeValue,
    a: KernelValue,
    b: KernelValue,
    acc: KernelValue,
    prefetch: KernelValue,
) -> KernelValue:
    if prefetch not in PREFETCHES:
        known = ", ".join(PREFETCHES[1:])
        raise ctx.error(call.node, f"prefetch is one of {known}, found {describe_value(prefetch)}", 'prefetch="early"')
    return product(ctx, call, scope, a, b, acc, {"prefetch": prefetch} if prefetch else {})


def product(
    ctx: Context,
    call: Call,
    scope: ScopeValue,
    a: KernelValue,
    b: KernelValue,
    acc: KernelValue,
    wishes: Mapping[str, KernelValue] = MappingProxyType({}),
) -> KernelValue:
    """acc + a @ b; products and sums are in the type of `acc`."""
    if not (isinstance(acc, Value) and is_tile(acc)):
        raise ctx.error(
            call.node, f"acc is a tile, found {describe_value(acc)}", "start from wg.zeros((BM, BN), vk.f32)"
        )
    for name, value in (("a", a), ("b", b)):
        if not (isinstance(value, Lazy) or is_tile(value)):
            hint = "a[i:i+BM, k:k+BK], or a tile"
            raise ctx.error(call.node, f"{name} is a slice or a tile, found {describe_value(value)}", hint)
    left, right = tile_operand(ctx, call.node, scope.kind, a), tile_operand(ctx, call.node, scope.kind, b)
    total = tile_operand(ctx, call.node, scope.kind, acc)
    shapes = [tile_kind(v).shape for v in (left, right, total)]
    if any(len(s) != 2 for s in shapes) or (shapes[0][0], shapes[1][1], shapes[0][1]) != (*shapes[2], shapes[1][0]):
        found = f"a is {described(shapes[0])}, b {described(shapes[1])}, acc a tile of {described(shapes[2])}"
        raise ctx.error(call.node, f"{found}: they don't go together", "m x k, k x n and m x n elements")
    kind = tile_kind(total)
    for name, value in (("a", left), ("b", right)):
        _check_product(ctx, call, name, tile_kind(value).dtype, kind.dtype)
    return ctx.builder.emit("tile_mma", left, right, total, type=kind, **wishes)


def _check_product(ctx: Context, call: Call, name: str, found: DType, total: DType) -> None:
    """Operands have a type that the accumulator's can stand for."""
    if found.kind == "bool" or strict_join(found, total) is not total:
        hint = "accumulate in vk.f32 (vk.i32 for integers), or convert the operand: vk.f16(a[i:i+BM, k:k+BK])"
        raise ctx.error(call.node, f"{name} holds {found!r}, which isn't summed in {total!r}", hint)
