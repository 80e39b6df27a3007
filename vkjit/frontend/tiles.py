"""Tiles: matrices whose elements are spread over the invocations of a workgroup, in registers.

Enters: `wg.zeros((BM, BN), dtype)`, `wg.mma(a[i:i+BM, k:k+BK], b[k:k+BK, j:j+BN], acc)`, elementwise expressions of
tiles, and `wg.store(c[i:i+BM, j:j+BN], acc)`. Leaves: scalar operations: each invocation holds a few rows and
columns, interleaved with those of the others so that neighbours read neighbouring columns; products go through shared
memory. Edges are padded with zeros and clipped at stores. A tile is an `Aggregate`, so that loops carry it and
branches choose it as they do tuples.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ..dtypes import DType
from ..ir import types
from ..ir.core import Region, Value
from ..ir.types import Array, Scalar
from .annotations import dtype_of
from .collectives import ScopeValue, invocations, method, rank_of, when
from .context import Call, Context, Place
from .conversions import as_exactly, as_stored, convert, dtype_of_value, materialize, static_value
from .elementwise import is_tile
from .lazy import SliceTarget, check_sources, note_write
from .values import Aggregate, KernelValue, Lazy, Tile, describe_value

__all__ = ["TileLayout", "map_tiles", "store_tile"]

ELEMENT_LIMIT = 256
"""Elements of a tile that one invocation may hold."""
UNROLLED_PRODUCTS = 256
"""Products written out in one round of the inner loop."""


@dataclass(frozen=True, slots=True)
class TileLayout(Tile):
    """`grid` of the invocations: element (r, c) of invocation (y, x) is (r * grid[0] + y, c * grid[1] + x) of the
    tile.
    """

    grid: tuple[int, int]

    @property
    def per_invocation(self) -> tuple[int, int]:
        """Rows and columns that an invocation holds."""
        return -(-self.shape[0] // self.grid[0]), -(-self.shape[1] // self.grid[1])

    def __str__(self) -> str:
        return f"tile of {self.shape[0]} x {self.shape[1]}"


def _layout(shape: tuple[int, int], count: int) -> TileLayout:
    """Spreads the invocations so that each holds about as many rows as columns."""
    best: tuple[int, int] | None = None
    score = (0, 0)
    for width in (w for w in range(1, count + 1) if count % w == 0):
        layout = TileLayout(shape, (count // width, width))
        rows, columns = layout.per_invocation
        found = (rows * columns, rows + columns)
        if best is None or found < score or (found == score and width > best[1]):
            best, score = layout.grid, found
    return TileLayout(shape, best or (1, 1))


def _place(ctx: Context, layout: TileLayout) -> tuple[Value, Value]:
    """Row and column of the invocation in the grid of invocations."""
    rank, width = rank_of(ctx, "workgroup"), ctx.builder.index(layout.grid[1])
    return ctx.builder.emit("floordiv", rank, width), ctx.builder.emit("floormod", rank, width)


def _positions(ctx: Context, layout: TileLayout) -> list[tuple[Value, Value]]:
    """Row and column in the tile of each element that the invocation holds."""
    b = ctx.builder
    y, x = _place(ctx, layout)
    rows, columns = layout.per_invocation
    ys = [b.emit("add", y, b.index(r * layout.grid[0])) for r in range(rows)]
    xs = [b.emit("add", x, b.index(c * layout.grid[1])) for c in range(columns)]
    return [(row, column) for row in ys for column in xs]


# -- making tiles
@method("zeros", "workgroup")
def _zeros(ctx: Context, call: Call, scope: ScopeValue, shape: KernelValue, dtype: KernelValue) -> KernelValue:
    return _full(ctx, call, scope, shape, 0, dtype)


@method("full", "workgroup")
def _full(
    ctx: Context, call: Call, _scope: ScopeValue, shape: KernelValue, value: KernelValue, dtype: KernelValue
) -> KernelValue:
    found = dtype_of(dtype)
    if found is None:
        raise ctx.error(call.node, f"expected a dtype, found {describe_value(dtype)}", "write e.g. vk.f32")
    sizes = [static_value(s) for s in shape] if isinstance(shape, tuple) else []
    if len(sizes) != 2 or any(s is None or isinstance(s, bool | float) or s < 1 for s in sizes):
        raise ctx.error(
            call.node, "the shape of a tile is two sizes known at compile time", "wg.zeros((BM, BN), vk.f32)"
        )
    layout = _checked(ctx, call.node, _layout((int(sizes[0] or 0), int(sizes[1] or 0)), invocations(ctx)))
    rows, columns = layout.per_invocation
    made = as_exactly(ctx, call.node, value, found, "the value")
    return Aggregate(layout, (made,) * (rows * columns))


def _checked(ctx: Context, node: Place, layout: TileLayout) -> TileLayout:
    rows, columns = layout.per_invocation
    if rows * columns > ELEMENT_LIMIT:
        raise ctx.error(
            node,
            f"each of the {invocations(ctx)} invocations would hold {rows * columns} elements (up to {ELEMENT_LIMIT})",
            "use a smaller tile or a larger workgroup",
        )
    return layout


@method("load", "workgroup")
def _load(ctx: Context, call: Call, _scope: ScopeValue, source: KernelValue) -> KernelValue:
    """The elements of a slice of known size, held from now on."""
    if not isinstance(source, Lazy):
        raise ctx.error(call.node, f"load takes a slice, found {describe_value(source)}", "wg.load(a[i:i+BM, j:j+BN])")
    layout = _checked(ctx, call.node, _layout(_sizes(ctx, call.node, source), invocations(ctx)))
    return _taken(ctx, call.node, layout, source)


def _sizes(ctx: Context, node: Place, lazy: Lazy) -> tuple[int, int]:
    """The sizes of a slice before it is clipped to its array."""
    if len(lazy.sizes) != 2 or None in lazy.sizes:
        raise ctx.error(
            node,
            "the sizes of the slice must be known at compile time",
            "write both dimensions as start:start+SIZE, with a vk.Const[int] SIZE",
        )
    return int(lazy.sizes[0] or 0), int(lazy.sizes[1] or 0)


def _taken(ctx: Context, node: Place, layout: TileLayout, lazy: Lazy) -> Aggregate:
    """A tile of the elements of a slice, zeros outside its array."""
    check_sources(ctx, node, lazy)
    return Aggregate(layout, tuple(_padded(ctx, node, lazy, at) for at in _positions(ctx, layout)))


def _padded(ctx: Context, node: Place, lazy: Lazy, at: tuple[Value, Value]) -> Value:
    """An element of a lazy matrix, zero outside its shape."""
    b = ctx.builder
    inside, outside = Region(), Region()
    with b.at(inside):
        element = materialize(ctx, node, lazy.element(ctx, at))
        b.op("yield", element)
    dtype = dtype_of_value(element)
    with b.at(outside):
        b.op("yield", b.const(False if dtype.kind == "bool" else 0, dtype))
    return b.op("if", _within(ctx, at, lazy.shape), types=[element.type], regions=[inside, outside]).result


def _within(ctx: Context, at: tuple[Value, ...], shape: tuple[Value, ...]) -> Value:
    b = ctx.builder
    first, second = (b.emit("lt", i, size) for i, size in zip(at, shape, strict=True))
    return b.emit("and", first, second)


# -- elementwise
def map_tiles(
    ctx: Context, node: Place, function: Callable[..., KernelValue], values: list[KernelValue]
) -> KernelValue:
    """The tile of an elementwise function of tiles, lazy matrices and scalars."""
    tiles = [v for v in values if isinstance(v, Aggregate) and is_tile(v)]
    layout = tiles[0].kind
    assert isinstance(layout, TileLayout)
    columns: list[tuple[KernelValue, ...]] = []
    for value in values:
        if isinstance(value, Lazy):
            value = _taken(ctx, node, layout, value)
        if not (isinstance(value, Aggregate) and is_tile(value)):
            columns.append((value,) * len(tiles[0].items))
            continue
        if value.kind != layout:
            raise ctx.error(node, f"a {value.kind} and a {layout} can't be combined")
        columns.append(value.items)
    return Aggregate(layout, tuple(function(ctx, *row) for row in zip(*columns, strict=True)))


# -- storing
def store_tile(ctx: Context, call: Call, target: Lazy, tile: Aggregate) -> None:
    """Writes the elements that lie inside the array."""
    place, layout = target.target, tile.kind
    assert isinstance(place, SliceTarget)
    assert isinstance(layout, TileLayout)
    kind = place.array.type
    assert isinstance(kind, Array)
    if len(target.shape) != 2 or any(s is not None and s != t for s, t in zip(target.sizes, layout.shape, strict=True)):
        raise ctx.error(call.node, f"the target isn't as large as the {layout}", "write c[i:i+BM, j:j+BN]")
    for at, item in zip(_positions(ctx, layout), tile.items, strict=True):
        inside = ctx.builder.emit("and", _within(ctx, at, target.shape), _within_tile(ctx, at, layout))

        def write(at: tuple[Value, Value] = at, item: KernelValue = item) -> None:
            stored = as_stored(ctx, call.node, item, kind.element)
            ctx.builder.op("store", place.array, *place.at(ctx, at), stored)

        when(ctx, inside, write)
    note_write(ctx, place.array)


def _within_tile(ctx: Context, at: tuple[Value, Value], layout: TileLayout) -> Value:
    """Whether an element is one of the tile: invocations may hold more than there are."""
    if all(size % count == 0 for size, count in zip(layout.shape, layout.grid, strict=True)):
        return ctx.builder.const(True, types.BOOL)
    return _within(ctx, at, tuple(map(ctx.builder.index, layout.shape)))


# -- products
@method("mma", "workgroup")
def _mma(ctx: Context, call: Call, _scope: ScopeValue, a: KernelValue, b: KernelValue, acc: KernelValue) -> KernelValue:
    """acc + a @ b, through shared memory; products and sums are in the type of `acc`."""
    if not (isinstance(acc, Aggregate) and isinstance(acc.kind, TileLayout)):
        raise ctx.error(
            call.node, f"acc is a tile, found {describe_value(acc)}", "start from wg.zeros((BM, BN), vk.f32)"
        )
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, Lazy):
            raise ctx.error(call.node, f"{name} is a slice, found {describe_value(value)}", "a[i:i+BM, k:k+BK]")
    assert isinstance(a, Lazy)
    assert isinstance(b, Lazy)
    (m, k), (k2, n) = _sizes(ctx, call.node, a), _sizes(ctx, call.node, b)
    if (m, n) != acc.kind.shape or k != k2:
        raise ctx.error(call.node, f"a is {m} x {k}, b {k2} x {n}, acc a {acc.kind}: they don't go together")
    if ctx.loops or not ctx.is_kernel:
        ctx.builder.op("barrier")
    left = _staged(ctx, call.node, a, (m, k), "a")
    right = _staged(ctx, call.node, b, (k, n), "b")
    ctx.builder.op("barrier")
    return Aggregate(acc.kind, tuple(_products(ctx, call.node, acc, left, right, k)))


def _staged(ctx: Context, node: ast.AST, lazy: Lazy, sizes: tuple[int, int], label: str) -> Value:
    """A shared array of the elements of a slice, filled by the whole workgroup."""
    check_sources(ctx, node, lazy)
    b, count = ctx.builder, invocations(ctx)
    rows, columns = sizes
    rank = rank_of(ctx, "workgroup")
    array: Value | None = None
    for step in range(-(-rows * columns // count)):
        number = b.emit("add", rank, b.index(step * count))
        at = (b.emit("floordiv", number, b.index(columns)), b.emit("floormod", number, b.index(columns)))
        element = _padded(ctx, node, lazy, at)
        if array is None:
            made = Array(Scalar(dtype_of_value(element)), 2, space="shared", shape=sizes, contiguous=True)
            array = ctx.entry(node, made, label)
        _store_if(ctx, array, at, element, (step + 1) * count <= rows * columns, number, rows * columns)
    assert array is not None
    return array


def _store_if(
    ctx: Context, array: Value, at: tuple[Value, Value], element: Value, always: bool, number: Value, total: int
) -> None:
    if always:
        ctx.builder.op("store", array, *at, element)
        return
    inside = ctx.builder.emit("lt", number, ctx.builder.index(total))
    when(ctx, inside, lambda: ctx.builder.op("store", array, *at, element))


def _products(ctx: Context, node: Place, acc: Aggregate, left: Value, right: Value, depth: int) -> list[Value]:
    """The loop over the inner dimension: one column of `left` times one row of `right` at a time, several per round."""
    layout = acc.kind
    assert isinstance(layout, TileLayout)
    b = ctx.builder
    held = [materialize(ctx, node, item) for item in acc.items]
    y, x = _place(ctx, layout)
    per_step = len(held)
    unroll = max(u for u in (1, 2, 4, 8) if depth % u == 0 and (u == 1 or u * per_step <= UNROLLED_PRODUCTS))
    region = Region([types.INDEX, *(v.type for v in held)])
    with b.at(region):
        k, *sums = region.args
        for step in range(unroll):
            sums = _step(ctx, layout, left, right, (y, x, b.emit("add", k, b.index(step))), sums)
        b.op("continue", *sums)
    bounds = (b.index(0), b.index(depth), b.index(unroll))
    return b.op("for", *bounds, *held, types=[v.type for v in held], regions=[region]).results


def _step(
    ctx: Context, layout: TileLayout, left: Value, right: Value, at: tuple[Value, Value, Value], sums: list[Value]
) -> list[Value]:
    b, (y, x, k) = ctx.builder, at
    rows, columns = layout.per_invocation
    dtype: DType = dtype_of_value(sums[0])
    place = b.loc

    def element(array: Value, row: Value, column: Value) -> Value:
        return convert(ctx, place, b.emit("load", array, row, column), dtype)

    ys = [_clamped(ctx, y, r * layout.grid[0], layout.shape[0], layout.grid[0]) for r in range(rows)]
    xs = [_clamped(ctx, x, c * layout.grid[1], layout.shape[1], layout.grid[1]) for c in range(columns)]
    lefts, rights = [element(left, i, k) for i in ys], [element(right, k, j) for j in xs]
    pairs = [(p, q) for p in lefts for q in rights]
    return [b.emit("add", s, b.emit("mul", p, q)) for s, (p, q) in zip(sums, pairs, strict=True)]


def _clamped(ctx: Context, own: Value, offset: int, size: int, count: int) -> Value:
    """A row or column of the tile, held inside where the invocations don't divide it."""
    b = ctx.builder
    position = b.emit("add", own, b.index(offset))
    return position if offset + count <= size else b.emit("min", position, b.index(size - 1))
