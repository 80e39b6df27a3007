"""Products of tiles by multiply-add in registers: each invocation holds a block of the sums.

Enters: `tile_mma`, its operands staged in shared memory, held in registers, or left where they are in global memory.
Leaves: a loop over the inner dimension that, for each step, reads one column of the left operand and one row of the right
one as far as the invocation needs them, and adds all products. Products and sums are in the accumulator's type, summed in
the order of the inner dimension.

Operands are read directly from global memory where shared memory is memory like any other (processors), or where a
subgroup works alone; elsewhere the workgroup stages them. Rows in shared memory are padded, so that neighbours in one
column lie in different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ... import dtypes
from ...ir.core import Op, Region, Value
from ...ir.rewrite import constant_of
from ...ir.types import INDEX, Scalar, Tile
from .access import indices, load, slice_operands, whole
from .exchange import moved
from .held import Deferred, Held, Staged, Workshop
from .layout import Axis, Layout, staging
from .packing import Packed

__all__ = ["multiply", "reserve", "stage_held", "stage_slices", "write"]

Operand = Held | Staged | Deferred | Packed
Read = Callable[[int, Value, int], Value]
"""The element of an operand for a slot of its outer axis, at position `k` (a value, and what to add to it)."""
PADDING_BYTES = 16
LANES = 4
"""Elements of a vector of a factor that is staged in such: steps of the inner dimension that one read is enough for."""
AHEAD = 2048
"""Additions of a round that are written out where both factors are loaded ahead, in vectors: whoever asks for that wants large
tiles to be fast, and waits for the compiler. Reads of shared memory then overlap the additions of all steps before.
"""
SUMS_OF_A_PROCESSOR = 16
"""Sums that a processor keeps in vector registers besides the operands of a step. More of them are taken in blocks of rows; a
compiler that sees several steps at once would load too much ahead.
"""


# -- into shared memory
def _pitch(shape: tuple[int, ...], itemsize: int, transposed: bool) -> int:
    """The distance between rows: one element more where columns are written, 16 bytes where rows are."""
    return shape[1] + (max(1, 4 // itemsize) if transposed else max(1, PADDING_BYTES // itemsize))


def _place(shop: Workshop, kind: Tile, label: str, *, transposed: bool) -> Staged:
    pitch = _pitch(kind.shape, kind.dtype.itemsize, transposed)
    why = "one bank further, as columns are written" if transposed else "16 bytes further, as rows are written"
    shop.notes.append(f"{shop.builder.loc}: {label} staged in rows of {kind.shape[1]}, {pitch} apart: {why}")
    array = shop.stage(Scalar(kind.dtype), kind.shape[0] * pitch, label)
    return Staged(array, (kind.shape[0], kind.shape[1]), pitch)


def stage_slices(
    shop: Workshop, slices: Sequence[tuple[Op, Sequence[Value], str]], *, lines: bool = False
) -> list[Staged]:
    """Slices of arrays in shared memory: everything is read before anything is written. With `lines`, rows are padded by
    16 bytes, as matrices want them, however they are written.
    """
    ready: list[tuple[Staged, Held]] = []
    for op, operands, label in slices:
        shop.access(operands[0], "r")
        place, layout = reserve(shop, op, label, lines=lines)
        ready.append((place, load(shop, op, operands, layout)))
    for staged, _ in ready:
        shop.access(staged.array, "w")
    for staged, held in ready:
        write(shop, staged, held)
    return [staged for staged, _ in ready]


def reserve(shop: Workshop, op: Op, label: str, *, lines: bool) -> tuple[Staged, Layout]:
    """Shared memory for a slice, and the layout in which its elements are read."""
    kind, axes = op.attrs["type"], op.attrs["axes"]
    fastest = next(a for a in reversed(axes) if a is not None)
    layout = staging(kind.shape, fastest, shop.bits("workgroup"), "workgroup", shop.options.vector)
    return _place(shop, kind, label, transposed=fastest == 0 and not lines), layout


def stage_held(shop: Workshop, tile: Held, kind: Tile, label: str) -> Staged:
    """A tile in registers, put into shared memory."""
    staged = _place(shop, kind, label, transposed=False)
    shop.access(staged.array, "w")
    write(shop, staged, tile)
    return staged


def write(shop: Workshop, staged: Staged, tile: Held) -> None:
    """Puts a tile in registers into its place in shared memory."""
    b, layout = shop.builder, tile.layout
    rows, columns = (shop.positions(axis, layout.scope) for axis in layout.axes)
    tests = [shop.inside(axis, line) for axis, line in zip(layout.axes, (rows, columns), strict=True)]
    owner = shop.owns(layout)
    firsts = [b.emit("mul", row, b.index(staged.pitch)) for row in rows]

    def element(i: int, j: int) -> None:
        b.op("store", staged.array, b.emit("add", firsts[i], columns[j]), tile.values[layout.number((i, j))])

    def every() -> None:
        for i, j in layout.slots():
            test = shop.all_of((tests[0][i], tests[1][j]))
            if test is None:
                element(i, j)
                continue
            with b.when(test):
                element(i, j)

    if owner is None:
        every()
        return
    with b.when(owner):
        every()


# -- the loop
def multiply(shop: Workshop, a: Operand, b: Operand, acc: Held, depth: int, *, ahead: bool = False) -> Held:
    """acc + a @ b; operands in registers have to be in the layouts that `outer_layouts` gives. `ahead`: the next round's are on
    their way meanwhile, and those of no other product.
    """
    rows, columns = acc.layout.axes
    sides = (_Side(shop, a, rows, 0, acc.layout.scope), _Side(shop, b, columns, 1, acc.layout.scope))
    if any(isinstance(side.source, Held) for side in sides):
        return _written_out(shop, sides, acc, depth)
    test = shop.all_of(side.whole() for side in sides)
    written_out = ahead and isinstance(a, Packed) and isinstance(b, Packed)
    unroll = _unrolled(depth, acc.layout.held, AHEAD if written_out else _most(shop))
    unroll = max(unroll, LANES) if any(side.inner for side in sides) else unroll
    if test is None and all(side.exact for side in sides):
        return Held(acc.layout, tuple(_loop(shop, sides, acc, shop.builder.index(depth), unroll, clipped=False)))
    limit = _depth_inside(shop, sides, depth)
    if not all(side.exact for side in sides):
        return Held(acc.layout, tuple(_loop(shop, sides, acc, limit, 1, clipped=True)))
    assert test is not None
    regions = [Region(), Region()]
    with shop.builder.at(regions[0]):
        full = _loop(shop, sides, acc, shop.builder.index(depth), unroll, clipped=False)
        shop.builder.op("yield", *full)
    with shop.builder.at(regions[1]):
        shop.builder.op("yield", *_loop(shop, sides, acc, limit, 1, clipped=True))
    return Held(acc.layout, tuple(shop.choose(test, [v.type for v in acc.values], *regions)))


def _most(shop: Workshop) -> int:
    return SUMS_OF_A_PROCESSOR if shop.options.direct else shop.options.unroll


def _unrolled(depth: int, held: int, most: int) -> int:
    return max(u for u in (1, 2, 4, 8, 16, 32) if depth % u == 0 and (u == 1 or u * held <= most))


class _Side:
    """One operand as the loop reads it: `outer` is the axis of the sums along which it goes, `which` 0 for the left one."""

    def __init__(self, shop: Workshop, source: Operand, outer: Axis, which: int, scope: str) -> None:
        self.shop = shop
        self.source = source
        self.outer = outer
        self.which = which
        self.positions = shop.positions(outer, scope)
        self.tests: list[Value] = []
        self.vectors: dict[tuple[int, int], list[Value]] = {}
        if isinstance(source, Deferred):
            self.array, self.starts, self.lengths, self.pad = slice_operands(source.operands)
            self.tests = [shop.builder.emit("lt", p, self.lengths[which]) for p in self.positions]
        elif isinstance(source, Staged):
            last = shop.builder.index(outer.size - 1)
            line = zip(self.positions, shop.inside(outer, self.positions), strict=True)
            self.safe = [p if t is None else shop.builder.emit("min", p, last) for p, t in line]

    @property
    def exact(self) -> bool:
        """Whether every position is one of the operand, so that it can be read without a test."""
        return self.outer.exact or not isinstance(self.source, Deferred)

    @property
    def inner(self) -> bool:
        """Whether the vectors that it is staged in run along the inner dimension."""
        return isinstance(self.source, Packed) and self.source.along == 1 - self.which

    def whole(self) -> Value | None:
        """Whether no element lies outside the array."""
        if not isinstance(self.source, Deferred):
            return None
        return whole(self.shop, self.lengths, self.source.op.attrs["type"].shape)

    def inner_length(self) -> Value | None:
        """How far the operand goes along the inner dimension; None for all of it."""
        return self.lengths[1 - self.which] if isinstance(self.source, Deferred) else None

    def lane(self, slot: int, first: Value, step: int) -> Value:
        """The element for a slot at a step after the first one of a round, where the factor is staged in vectors."""
        assert isinstance(self.source, Packed)
        b, along = self.shop.builder, self.inner
        key, lane = ((slot, step // LANES), step % LANES) if along else ((slot // LANES, step), slot % LANES)
        if key not in self.vectors:
            position = self.positions[slot - (0 if along else lane)]
            line = position if along else self.shop.at(first, step)
            column = b.emit("floordiv", first if along else position, b.index(LANES))
            column = self.shop.at(column, step // LANES) if along else column
            place = b.emit("add", b.emit("mul", line, b.index(self.source.pitch)), column)
            vector, kind = b.emit("load", self.source.array, place), self.source.element
            words = [b.emit("vec_extract", vector, lane=n, type=Scalar(dtypes.u32)) for n in range(LANES)]
            plain = kind is dtypes.u32
            self.vectors[key] = words if plain else [b.emit("bitcast", w, type=Scalar(kind)) for w in words]
        return self.vectors[key][lane]

    def read(self, slot: int, k: Value, clipped: bool) -> Value:
        """The element for a slot at position `k` of the inner dimension."""
        b = self.shop.builder
        if isinstance(self.source, Staged):
            row, column = (self.safe[slot], k) if self.which == 0 else (k, self.safe[slot])
            first = b.emit("mul", row, b.index(self.source.pitch))
            return b.emit("load", self.source.array, b.emit("add", first, column))
        assert isinstance(self.source, Deferred)
        at = (self.positions[slot], k) if self.which == 0 else (k, self.positions[slot])
        place = indices(self.shop, self.starts, self.source.op.attrs["axes"], at)
        if not clipped:
            return b.emit("load", self.array, *place)
        inside, outside = Region(), Region()
        with b.at(inside):
            b.op("yield", b.emit("load", self.array, *place))
        with b.at(outside):
            b.op("yield", self.pad)
        return self.shop.choose(self.tests[slot], [self.pad.type], inside, outside)[0]


def _depth_inside(shop: Workshop, sides: Sequence[_Side], depth: int) -> Value:
    """The rounds after which all that is left is padding with zeros."""
    limit = shop.builder.index(depth)
    for side in sides:
        length = side.inner_length()
        if length is not None and not (constant_of(length) or 0) >= depth:
            limit = shop.builder.emit("min", limit, length)
    return limit


def _loop(
    shop: Workshop, sides: Sequence[_Side], acc: Held, limit: Value, unroll: int, *, clipped: bool
) -> list[Value]:
    """The sums after all steps; on processors a block of rows after the other."""
    b = shop.builder
    rows, columns = (axis.held for axis in acc.layout.axes)
    each = max(1, SUMS_OF_A_PROCESSOR // columns) if shop.options.direct else rows
    found: list[Value] = []
    for first in range(0, rows, each):
        block = range(first, min(first + each, rows))
        given = acc.values[block.start * columns : block.stop * columns]
        types = [v.type for v in given]
        region = Region([INDEX, *types])
        with b.at(region):
            k, *sums = region.args
            for side in sides:
                side.vectors.clear()
            for step in range(unroll):
                sums = _step(shop, sides, block, (k, step), sums, clipped)
            b.op("continue", *sums)
        found += b.op("for", b.index(0), limit, b.index(unroll), *given, types=types, regions=[region]).results
    return found


def _step(
    shop: Workshop, sides: Sequence[_Side], rows: range, step: tuple[Value, int], sums: Sequence[Value], clipped: bool
) -> list[Value]:
    """All products of one position of the inner dimension, so many after the first of a round, for some slots of the rows."""
    assert isinstance(sums[0].type, Scalar)
    dtype, k = sums[0].type.dtype, shop.at(*step)

    def read(side: _Side, slot: int) -> Value:
        return side.lane(slot, *step) if isinstance(side.source, Packed) else side.read(slot, k, clipped)

    left, right = (
        [shop.convert(read(side, slot), dtype) for slot in slots]
        for side, slots in zip(sides, (rows, range(sides[1].outer.held)), strict=True)
    )
    return _add(shop, left, right, sums)


def _add(shop: Workshop, left: Sequence[Value], right: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
    b = shop.builder
    pairs = [(x, y) for x in left for y in right]
    return [b.emit("add", s, b.emit("mul", x, y)) for s, (x, y) in zip(sums, pairs, strict=True)]


# -- operands in registers
def outer_layouts(acc: Layout, depth: int) -> tuple[Layout, Layout]:
    """The layouts of operands in registers: along the sums' axes as those, all of the inner dimension."""
    rows, columns = acc.axes
    return replace(acc, axes=(rows, Axis(depth))), replace(acc, axes=(Axis(depth), columns))


def _written_out(shop: Workshop, sides: Sequence[_Side], acc: Held, depth: int) -> Held:
    """Each step written out, since registers have no run-time index."""
    left, right = (_in_registers(shop, side, acc.layout, depth) for side in sides)
    assert isinstance(acc.values[0].type, Scalar)
    dtype = acc.values[0].type.dtype
    sums = list(acc.values)
    for k in range(depth):
        x = [shop.convert(left.values[left.layout.number((r, k))], dtype) for r in range(left.layout.axes[0].held)]
        y = [shop.convert(right.values[right.layout.number((k, c))], dtype) for c in range(right.layout.axes[1].held)]
        sums = _add(shop, x, y, sums)
    return Held(acc.layout, tuple(sums))


def _in_registers(shop: Workshop, side: _Side, acc: Layout, depth: int) -> Held:
    layout = outer_layouts(acc, depth)[side.which]
    if isinstance(side.source, Held):
        return moved(shop, side.source, layout)
    assert isinstance(side.source, Deferred)
    return load(shop, side.source.op, side.source.operands, layout)
