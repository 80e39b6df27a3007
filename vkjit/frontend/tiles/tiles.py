"""Tiles: blocks of elements held collectively by a workgroup or subgroup.

With wg = `vk.workgroup()`, `wg.zeros((BM, BN), dtype)`, `wg.load(a[i:i+BM, k:k+BK])`, `wg.mma(a, b, acc)`, elementwise
expressions of tiles and `wg.store(c[i:i+BM, j:j+BN], acc)` lower to `tile_*` operations. A tile is a single run-time
value that loops can carry and branches can select. The passes in `passes.tiles` decide later which invocation holds
which element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import types
from vkjit.ir.attributes import Attrs
from vkjit.ir.core import Region, Value
from vkjit.ir.tiles import MAX_RANK, broadcast_shape
from vkjit.ir.types import Array, Scalar, Tile

from ..context import Call, Context, Place
from ..kernel_values import KernelValue, Lazy, describe_value, is_tile, parts_of, with_parts
from ..signature.annotations import dtype_of
from ..values.conversions import (
    as_exactly,
    as_stored,
    convert,
    dtype_of_value,
    materialize,
    static_value,
    strict_join,
)
from ..values.lazy import SliceTarget, check_sources, note_write
from ..values.scopes import ScopeValue, method

__all__ = [
    "build_tile",
    "map_tiles",
    "pad_value",
    "reshaped",
    "shape_of",
    "shape_text",
    "store_tile",
    "tile_kind",
    "tile_operand",
]

MAX_TILE_ELEMENTS = 1 << 20
"""The maximum number of elements of a tile, a sanity limit: the registers of a workgroup hold far fewer."""


def tile_kind(value: Value) -> Tile:
    """Return the type of a tile."""
    assert isinstance(value.type, Tile)
    return value.type


def shape_text(shape: tuple[int, ...]) -> str:
    """Format a shape for messages."""
    return " x ".join(map(str, shape))


def shape_of(ctx: Context, node: Place, shape: KernelValue, example: str) -> tuple[int, ...]:
    """Return the compile-time shape given for a tile.

    Raises CompileError, with the hint `example`, if it isn't valid.
    """
    sizes = [static_value(s) for s in shape] if isinstance(shape, tuple) else [static_value(shape)]
    if not sizes or any(s is None or isinstance(s, bool | float) or s < 1 for s in sizes):
        raise ctx.error(node, "the shape of a tile is sizes known at compile time, from 1 on", example)
    dimensions = tuple(int(s or 0) for s in sizes)  # no size is None; `or 0` is for the type checker
    if len(dimensions) > MAX_RANK:
        raise ctx.error(node, f"a tile has up to {MAX_RANK} axes, found {len(dimensions)}", example)
    if math.prod(dimensions) > MAX_TILE_ELEMENTS:
        raise ctx.error(
            node, f"a tile of {shape_text(dimensions)} is more than a workgroup can hold", "use smaller sizes"
        )
    return dimensions


def build_tile(
    ctx: Context,
    operands: list[Value],
    shape: tuple[int, ...],
    scope: str,
    element: Callable[[tuple[Value, ...], list[Value]], Value],
) -> Value:
    """Emit a `tile_map`: a tile of the given shape, held by a scope ("workgroup" or "subgroup").

    `element(index, elements)` emits the tile's element at `index`; `elements` has the element of each operand at this
    index. The operands are tiles that broadcast to the shape.
    """
    kinds = [tile_kind(v) for v in operands]
    region = Region([*[types.INDEX] * len(shape), *[Scalar(k.dtype) for k in kinds]])
    with ctx.builder.at(region):
        result = element(tuple(region.args[: len(shape)]), region.args[len(shape) :])
        ctx.builder.op("yield", result)
    kind = Tile(dtype_of_value(result), shape, scope)
    return ctx.builder.op("tile_map", *operands, types=[kind], regions=[region], type=kind).result


def reshaped(ctx: Context, tile: Value, shape: tuple[int, ...]) -> Value:
    """Return the tile with another shape of the same size."""
    kind = tile_kind(tile)
    if kind.shape == shape:
        return tile
    return ctx.builder.emit("tile_reshape", tile, type=Tile(kind.dtype, shape, kind.scope))


# -- construction and loads
@method("zeros")
def _zeros(ctx: Context, call: Call, scope: ScopeValue, shape: KernelValue, dtype: KernelValue) -> KernelValue:
    return _full(ctx, call, scope, shape, 0, dtype)


@method("full")
def _full(
    ctx: Context, call: Call, scope: ScopeValue, shape: KernelValue, value: KernelValue, dtype: KernelValue
) -> KernelValue:
    """Lower `wg.full(shape, value, dtype)`: a tile with all elements equal to `value`."""
    element_type = dtype_of(dtype)
    if element_type is None:
        raise ctx.error(call.node, f"expected a dtype, found {describe_value(dtype)}", "write e.g. vk.f32")
    sizes = shape_of(ctx, call.node, shape, f"vk.{scope.kind}().zeros((BM, BN), vk.f32)")
    if value == 0 and not isinstance(value, Value):  # 0, 0.0 and False fill tiles of any type
        value = False if element_type.kind == "bool" else 0
    fill = as_exactly(ctx, call.node, value, element_type, "the value")
    return build_tile(ctx, [], sizes, scope.kind, lambda _at, _elements: fill)


@method("arange")
def _arange(ctx: Context, call: Call, scope: ScopeValue, size: KernelValue, dtype: KernelValue) -> KernelValue:
    """Lower `wg.arange(size, dtype)`: the tile 0, 1, ..., size - 1; i32 by default."""
    element_type = dtypes.i32 if dtype is None else dtype_of(dtype)
    if element_type is None or not (element_type.is_integer or element_type.is_float):
        raise ctx.error(call.node, f"expected a dtype of numbers, found {describe_value(dtype)}", "write e.g. vk.i32")
    shape = shape_of(ctx, call.node, size, "wg.arange(BN)")
    if len(shape) != 1:
        raise ctx.error(call.node, "arange takes one size", "wg.arange(BN)[:, None] is a column")
    return build_tile(ctx, [], shape, scope.kind, lambda at, _elements: convert(ctx, call.node, at[0], element_type))


@method("load", "workgroup")
def _load(ctx: Context, call: Call, scope: ScopeValue, source: KernelValue, pad: KernelValue) -> KernelValue:
    return load_tile(ctx, call, scope, source, pad)


def load_tile(ctx: Context, call: Call, scope: ScopeValue, source: KernelValue, pad: KernelValue) -> KernelValue:
    """Load a slice of static size into a tile, with `pad` for elements outside the array."""
    if isinstance(source, Value) and is_tile(source):
        raise ctx.error(call.node, "this is a tile already", "load takes a slice of an array")
    if not isinstance(source, Lazy):
        raise ctx.error(call.node, f"load takes a slice, found {describe_value(source)}", "wg.load(a[i:i+BM, j:j+BN])")
    return _tile_of_slice(ctx, call.node, scope.kind, source, pad)


def _sizes(ctx: Context, node: Place, lazy: Lazy) -> tuple[int, ...]:
    """Return the sizes of a slice before it is clipped to its array. Raises CompileError if they aren't static."""
    if not lazy.sizes or None in lazy.sizes:
        raise ctx.error(
            node,
            "the sizes of the slice must be known at compile time",
            "write each dimension as start:start+SIZE, with a vk.Const[int] SIZE",
        )
    return shape_of(ctx, node, tuple(lazy.sizes), "wg.load(a[i:i+BM, j:j+BN])")


def _tile_of_slice(ctx: Context, node: Place, scope: str, lazy: Lazy, pad: KernelValue = 0) -> Value:
    """Emit a tile of the elements of a slice or lazy expression, with `pad` outside the array.

    A plain slice of a global or shared array of scalars becomes a `tile_load`, anything else a `tile_map` that computes
    each element.
    """
    shape = _sizes(ctx, node, lazy)
    check_sources(ctx, node, lazy)
    slice_ = lazy.target
    if isinstance(slice_, SliceTarget) and isinstance(slice_.array.type, Array):
        kind = slice_.array.type
        if isinstance(kind.element, Scalar) and kind.space != "local":
            operands = [slice_.array, *slice_.starts, *lazy.shape, pad_value(ctx, node, pad, kind.dtype)]
            return ctx.builder.emit("tile_load", *operands, axes=slice_.axes, type=Tile(kind.dtype, shape, scope))
    return build_tile(ctx, [], shape, scope, lambda at, _elements: _padded(ctx, node, lazy, at, pad))


def pad_value(ctx: Context, node: Place, pad: KernelValue, dtype: DType) -> Value:
    """Return the pad as a value of `dtype`; for bools, 0 stands for False."""
    if dtype.kind == "bool" and pad == 0 and not isinstance(pad, Value):
        pad = False
    return as_exactly(ctx, node, pad, dtype, "the pad")


def _padded(ctx: Context, node: Place, lazy: Lazy, at: tuple[Value, ...], pad: KernelValue) -> Value:
    """Emit the element of a lazy value at the index `at`, or `pad` if `at` is outside its shape."""
    b = ctx.builder
    inside, outside = Region(), Region()
    with b.at(inside):
        element = materialize(ctx, node, lazy.element(ctx, at))
        b.op("yield", element)
    with b.at(outside):
        b.op("yield", pad_value(ctx, node, pad, dtype_of_value(element)))
    return b.op("if", _inside_shape(ctx, at, lazy.shape), types=[element.type], regions=[inside, outside]).result


def _inside_shape(ctx: Context, at: tuple[Value, ...], shape: tuple[Value, ...]) -> Value:
    """Emit the condition that a nonnegative index lies inside a shape."""
    b = ctx.builder
    tests = [b.emit("lt", i, size) for i, size in zip(at, shape, strict=True)]
    inside = tests[0]
    for test in tests[1:]:
        inside = b.emit("and", inside, test)
    return inside


def tile_operand(ctx: Context, node: Place, scope: str, value: KernelValue) -> Value:
    """Return a tile, or a lazy slice loaded as a tile. Raises CompileError if the tile belongs to another scope."""
    if isinstance(value, Lazy):
        return _tile_of_slice(ctx, node, scope, value)
    assert isinstance(value, Value)
    if tile_kind(value).scope != scope:
        raise ctx.error(node, f"this is a tile of the {tile_kind(value).scope}, expected one of the {scope}")
    return value


# -- elementwise
def map_tiles(
    ctx: Context, node: Place, function: Callable[..., KernelValue], values: list[KernelValue]
) -> KernelValue:
    """Map `function(context, *elements)` over tiles, lazy slices and scalars with NumPy broadcasting."""
    first_tile = next(v for v in values if isinstance(v, Value) and is_tile(v))
    scope = tile_kind(first_tile).scope
    mapped_mask = [isinstance(v, Lazy) or is_tile(v) for v in values]
    tiles = [tile_operand(ctx, node, scope, v) for v, is_mapped in zip(values, mapped_mask, strict=True) if is_mapped]
    shapes = [tile_kind(t).shape for t in tiles]
    shape = broadcast_shape(shapes)
    if shape is None:
        tile_texts = " and ".join(f"a tile of {shape_text(s)}" for s in shapes)
        raise ctx.error(node, f"{tile_texts} can't be combined", "t[:, None] and t[None, :] add an axis of size 1")

    def call(elements: list[Value]) -> KernelValue:
        remaining = iter(elements)
        return function(
            ctx, *(next(remaining) if is_mapped else v for v, is_mapped in zip(values, mapped_mask, strict=True))
        )

    with ctx.builder.at(Region()):  # lowered once and discarded, to find the structure of the result
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
    """Emit the result of a mapped function: a tile, or a tuple or struct of tiles if the function returns such a value.

    `call(elements)` emits the function's result for one element of each tile. `structure` is its result for placeholder
    elements; only its structure matters.
    """
    parts = parts_of(structure)
    if parts is None:
        return build_tile(ctx, tiles, shape, scope, lambda _at, elements: materialize(ctx, node, call(elements)))

    # The function is emitted again for each part of its result; later passes remove the operations that a part doesn't
    # use.
    def item(number: int) -> Callable[[list[Value]], KernelValue]:
        return lambda elements: (parts_of(call(elements)) or ())[number]

    part_tiles = [_mapped(ctx, node, tiles, shape, scope, part, item(n)) for n, part in enumerate(parts)]
    return with_parts(structure, part_tiles)


# -- stores
ATOMICS = ("add", "min", "max", "and", "or", "xor")
"""The atomic operations by which `wg.store` may combine a tile with memory (`atomic="add"`)."""


def store_tile(ctx: Context, call: Call, scope: ScopeValue, target: Lazy, tile: Value, atomic: str) -> None:
    """Store a tile to the slice `target`, except for elements outside the array.

    `atomic` is the operation that combines each element with memory, or "" for a plain store.
    """
    kind = tile_kind(tile_operand(ctx, call.node, scope.kind, tile))  # raises an error for a tile of another scope
    slice_ = target.target
    assert isinstance(slice_, SliceTarget)
    array = slice_.array.type
    assert isinstance(array, Array)
    sizes = target.sizes
    if len(sizes) != len(kind.shape) or any(s is not None and s != t for s, t in zip(sizes, kind.shape, strict=True)):
        hint = "the target is a slice of the tile's size, as in c[i:i+BM, j:j+BN]"
        raise ctx.error(call.node, f"the target isn't as large as the tile of {shape_text(kind.shape)}", hint)
    if isinstance(array.element, Scalar) and not atomic:
        stored = _stored(ctx, call, tile, array.element)
        ctx.builder.op("tile_store", slice_.array, *slice_.starts, *target.shape, stored, axes=slice_.axes)
    else:
        _store_each(ctx, call, target, tile, atomic)
    note_write(ctx, slice_.array)


def _stored(ctx: Context, call: Call, tile: Value, element: Scalar) -> Value:
    """Convert the tile to the array's element type."""
    kind = tile_kind(tile)
    if kind.dtype is element.dtype:
        return tile
    return build_tile(
        ctx, [tile], kind.shape, kind.scope, lambda _at, items: as_stored(ctx, call.node, items[0], element)
    )


def _store_each(ctx: Context, call: Call, target: Lazy, tile: Value, atomic: str) -> None:
    """Store a tile element by element, for atomics and arrays of vectors. Elements outside the array are skipped."""
    slice_ = target.target
    assert isinstance(slice_, SliceTarget)
    array = slice_.array.type
    assert isinstance(array, Array)

    def write(at: tuple[Value, ...], items: list[Value]) -> None:
        with ctx.builder.when(_inside_shape(ctx, at, target.shape)):
            stored = as_stored(ctx, call.node, items[0], array.element)
            write_element(ctx, slice_.array, slice_.at(ctx, at), stored, atomic)

    for_each_element(ctx, [tile], write)


def for_each_element(
    ctx: Context, operands: list[Value], body: Callable[[tuple[Value, ...], list[Value]], None]
) -> None:
    """Emit a `tile_each`, which runs `body(index, elements)` for each element of the first operand.

    `elements` has the element of each operand at `index`. The other operands broadcast to the shape of the first.
    """
    kinds = [tile_kind(v) for v in operands]
    rank = len(kinds[0].shape)
    region = Region([*[types.INDEX] * rank, *[Scalar(k.dtype) for k in kinds]])
    with ctx.builder.at(region):
        body(tuple(region.args[:rank]), region.args[rank:])
        ctx.builder.op("yield")
    ctx.builder.op("tile_each", *operands, types=[], regions=[region])


def write_element(ctx: Context, array: Value, at: list[Value], value: Value, atomic: str) -> None:
    """Emit a store of one element, or the atomic operation `atomic` if it isn't ""."""
    if atomic:
        ctx.builder.op("atomic", array, *at, value, op=atomic, order="relaxed", scope="device")
    else:
        ctx.builder.op("store", array, *at, value)


# -- products
PREFETCHES = ("", "early", "late", "overlap", "overlap late")
"""Values of the `prefetch` argument of `mma`, described at `lang.tiles`: how loads are overlapped with the product."""


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
    """Lower `wg.mma(a, b, acc)`, acc + a @ b of tiles or slices; `prefetch` must be one of PREFETCHES."""
    if prefetch not in PREFETCHES:
        allowed = ", ".join(PREFETCHES[1:])
        raise ctx.error(
            call.node, f"prefetch is one of {allowed}, found {describe_value(prefetch)}", 'prefetch="early"'
        )
    return emit_mma(ctx, call, scope, a, b, acc, str(prefetch))


def emit_mma(
    ctx: Context,
    call: Call,
    scope: ScopeValue,
    a: KernelValue,
    b: KernelValue,
    acc: KernelValue,
    prefetch: str = "",
) -> KernelValue:
    """Emit acc + a @ b, computed in the type of `acc`. `acc` is a tile; a and b are tiles or slices."""
    if not (isinstance(acc, Value) and is_tile(acc)):
        raise ctx.error(
            call.node, f"acc is a tile, found {describe_value(acc)}", "start from wg.zeros((BM, BN), vk.f32)"
        )
    for name, value in (("a", a), ("b", b)):
        if not (isinstance(value, Lazy) or is_tile(value)):
            hint = "a[i:i+BM, k:k+BK], or a tile"
            raise ctx.error(call.node, f"{name} is a slice or a tile, found {describe_value(value)}", hint)
    a_tile, b_tile = tile_operand(ctx, call.node, scope.kind, a), tile_operand(ctx, call.node, scope.kind, b)
    total = tile_operand(ctx, call.node, scope.kind, acc)
    shapes = [tile_kind(v).shape for v in (a_tile, b_tile, total)]
    if not _shapes_multiply(*shapes):
        texts = f"a is {shape_text(shapes[0])}, b {shape_text(shapes[1])}, acc a tile of {shape_text(shapes[2])}"
        raise ctx.error(call.node, f"{texts}: they don't go together", "m x k, k x n and m x n elements")
    kind = tile_kind(total)
    for name, value in (("a", a_tile), ("b", b_tile)):
        _check_product(ctx, call, name, tile_kind(value).dtype, kind.dtype)
    attrs: Attrs = {"type": kind, "prefetch": prefetch} if prefetch else {"type": kind}
    return ctx.builder.emit("tile_mma", a_tile, b_tile, total, **attrs)


def _shapes_multiply(a: tuple[int, ...], b: tuple[int, ...], acc: tuple[int, ...]) -> bool:
    """True if the shapes are m x k, k x n and m x n."""
    if len(a) != 2 or len(b) != 2 or len(acc) != 2:
        return False
    return a[1] == b[0] and acc == (a[0], b[1])


def _check_product(ctx: Context, call: Call, name: str, operand: DType, accumulator: DType) -> None:
    """Raise CompileError if the operand's type doesn't promote to the accumulator's."""
    if operand.kind == "bool" or strict_join(operand, accumulator) is not accumulator:
        hint = "accumulate in vk.f32 (vk.i32 for integers), or convert the operand: vk.f16(a[i:i+BM, k:k+BK])"
        raise ctx.error(call.node, f"{name} holds {operand!r}, which isn't summed in {accumulator!r}", hint)
