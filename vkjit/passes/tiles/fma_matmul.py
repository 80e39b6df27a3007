"""Tile products by multiply-add in registers: each invocation holds a block of the accumulators.

`matmul` calls `multiply` for each `tile_mma` that doesn't run on cooperative matrices. The code is a loop over K. Each
step reads one column of A and one row of B, as far as the invocation needs them, and adds their outer product to the
accumulators. Products and sums are computed in the accumulators' type, in the order of K.

Operands are staged in shared memory (`Staged`, or as 16-byte vectors `Packed`), held in registers (`Held`), or read
from global memory (`Deferred`); see `engines`. Rows in shared memory are padded so that the elements of a column are in
different banks. `lower`, `matmul` and `prefetch` call the staging functions, for products on matrices, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vkjit import dtypes
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.rewrite import constant_of
from vkjit.ir.types import INDEX, Scalar, Tile

from .assign_layouts import tile_of
from .layout import Axis, Layout, staging
from .layout_conversion import convert_layout
from .memory import indices, is_inside, load, slice_operands
from .shared_operands import Packed
from .tile_state import Deferred, Held, LoweringContext, Staged

__all__ = ["multiply", "reserve", "stage_held", "stage_slices", "write"]

Operand = Held | Staged | Deferred | Packed
"""The possible locations of operand A or B of a product by multiply-add."""
PADDING_BYTES = 16
"""The padding of each row, in bytes, of a tile that is written to shared memory row by row."""
LANES = 4
"""The number of 32-bit elements in a vector, for operands that are staged as vectors. If the vectors run along K, one
read serves this many steps along K.
"""
MAX_UNROLLED_PREFETCHED = 2048
"""The limit of multiply-adds in an unrolled iteration if both operands are prefetched as vectors.

It is high, as kernels that ask for prefetching have large tiles and accept the compile time. Reads of shared memory can
then overlap the multiply-adds of all earlier steps.
"""
CPU_ACCUMULATORS = 16
"""The number of accumulators that a CPU can keep in vector registers, besides the operands of a step.

If an invocation has more, they are computed in blocks of rows, one loop over K for each block. It also limits
unrolling: in a longer body, LLVM would load operands too far ahead of their use.
"""


# -- staging in shared memory
def _pitch(shape: tuple[int, ...], itemsize: int, transposed: bool) -> int:
    """Return the distance between rows of a tile in shared memory, in elements.

    This is the length of a row plus padding of at least one element: 4 bytes if the shared array is written by columns
    (`transposed`), 16 bytes if it is written by rows.
    """
    return shape[1] + (max(1, 4 // itemsize) if transposed else max(1, PADDING_BYTES // itemsize))


def _allocate(context: LoweringContext, kind: Tile, label: str, *, transposed: bool) -> Staged:
    """Allocate shared memory for a tile; `transposed` is True if it is written by columns, and `label` is for notes."""
    pitch = _pitch(kind.shape, kind.dtype.itemsize, transposed)
    why = "one bank further, as columns are written" if transposed else "16 bytes further, as rows are written"
    context.notes.append(f"{context.builder.loc}: {label} staged in rows of {kind.shape[1]}, {pitch} apart: {why}")
    array = context.stage(Scalar(kind.dtype), kind.shape[0] * pitch, label)
    return Staged(array, (kind.shape[0], kind.shape[1]), pitch)


def stage_slices(
    context: LoweringContext, slices: Sequence[tuple[Op, Sequence[Value], str]], *, pad_rows: bool = False
) -> list[Staged]:
    """Stage slices of arrays in shared memory; all are loaded before any is stored.

    Each slice is given as its `tile_load`, the operands of the `tile_load` in the lowered code, and a label that names
    the slice in notes. With `pad_rows`, rows are padded by 16 bytes, as matrices require, regardless of how they are
    written.
    """
    ready: list[tuple[Staged, Held]] = []
    for op, operands, label in slices:
        context.access(operands[0], "r")
        location, layout = reserve(context, op, label, pad_rows=pad_rows)
        ready.append((location, load(context, op, operands, layout)))
    for staged, _ in ready:
        context.access(staged.array, "w")
    for staged, tile in ready:
        write(context, staged, tile)
    return [staged for staged, _ in ready]


def reserve(context: LoweringContext, op: Op, label: str, *, pad_rows: bool) -> tuple[Staged, Layout]:
    """Allocate shared memory for the slice of the `tile_load` `op`; return it with the layout for loading the slice.

    `label` is used in notes. With `pad_rows`, rows are padded by 16 bytes regardless of how they are written.
    """
    kind, axes = tile_of(op.result), op.attrs["axes"]
    fastest = next(a for a in reversed(axes) if a is not None)
    layout = staging(kind.shape, fastest, context.bits("workgroup"), "workgroup", context.options.vector)
    return _allocate(context, kind, label, transposed=fastest == 0 and not pad_rows), layout


def stage_held(context: LoweringContext, tile: Held, kind: Tile, label: str) -> Staged:
    """Stage a tile of type `kind` from registers in shared memory."""
    staged = _allocate(context, kind, label, transposed=False)
    context.access(staged.array, "w")
    write(context, staged, tile)
    return staged


def write(context: LoweringContext, staged: Staged, tile: Held) -> None:
    """Store a tile from registers to shared memory that was allocated for it."""
    b, layout = context.builder, tile.layout
    rows, columns = (context.element_indices(axis, layout.scope) for axis in layout.axes)
    row_tests, column_tests = (
        context.in_bounds(axis, values) for axis, values in zip(layout.axes, (rows, columns), strict=True)
    )
    owner = context.is_owner(layout)
    row_offsets = [b.emit("mul", row, b.index(staged.pitch)) for row in rows]

    def element(i: int, j: int) -> None:
        b.op("store", staged.array, b.emit("add", row_offsets[i], columns[j]), tile.values[layout.number((i, j))])

    def store_all() -> None:
        """Store the elements of all slots."""
        for i, j in layout.slots():
            test = context.all_of((row_tests[i], column_tests[j]))
            if test is None:
                element(i, j)
                continue
            with b.when(test):
                element(i, j)

    if owner is None:
        store_all()
        return
    with b.when(owner):
        store_all()


# -- the loop over K
def multiply(
    context: LoweringContext, a: Operand, b: Operand, acc: Held, depth: int, *, prefetched: bool = False
) -> Held:
    """Return acc + a @ b; `depth` is the size of K.

    `prefetched` is True if the operands of the next iteration of the enclosing loop are prefetched during this product,
    and this product is the only prefetched one of that loop.
    """
    rows, columns = acc.layout.axes
    sides = (_Side(context, a, rows, 0, acc.layout.scope), _Side(context, b, columns, 1, acc.layout.scope))
    if any(isinstance(side.source, Held) for side in sides):
        return _fully_unrolled(context, sides, acc, depth)
    test = context.all_of(side.whole() for side in sides)
    both_packed = prefetched and isinstance(a, Packed) and isinstance(b, Packed)
    unroll = _unrolled(
        depth, acc.layout.slots_per_invocation, MAX_UNROLLED_PREFETCHED if both_packed else _max_multiply_adds(context)
    )
    # Vectors along K must be read by one unrolled iteration.
    unroll = max(unroll, LANES) if any(side.vectors_along_k for side in sides) else unroll
    # Emit a loop without bounds tests if all elements are known to exist, a loop with tests if some slots have no
    # element, else both loops, between which a run-time test selects.
    if test is None and all(side.exact for side in sides):
        return Held(acc.layout, tuple(_loop(context, sides, acc, context.builder.index(depth), unroll, clipped=False)))
    limit = _depth_inside(context, sides, depth)
    if not all(side.exact for side in sides):
        return Held(acc.layout, tuple(_loop(context, sides, acc, limit, 1, clipped=True)))
    assert test is not None
    regions = [Region(), Region()]
    with context.builder.at(regions[0]):
        full = _loop(context, sides, acc, context.builder.index(depth), unroll, clipped=False)
        context.builder.op("yield", *full)
    with context.builder.at(regions[1]):
        context.builder.op("yield", *_loop(context, sides, acc, limit, 1, clipped=True))
    return Held(acc.layout, tuple(context.choose(test, [v.type for v in acc.values], *regions)))


def _max_multiply_adds(context: LoweringContext) -> int:
    """Return the limit of multiply-adds in an unrolled iteration of the loop over K."""
    return CPU_ACCUMULATORS if context.options.reads_global_memory else context.options.unroll


def _unrolled(depth: int, accumulators: int, limit: int) -> int:
    """Return the largest unroll factor that divides `depth` and gives at most `limit` multiply-adds per iteration.

    The factor is a power of two up to 32. `accumulators` is the number of multiply-adds of one step along K.
    """
    return max(u for u in (1, 2, 4, 8, 16, 32) if depth % u == 0 and (u == 1 or u * accumulators <= limit))


class _Side:
    """Operand A (`which` 0) or B (`which` 1) as the loop over K reads it. K is axis `1 - which` of the operand.

    `outer` is the axis that the operand shares with the accumulators (M for A, N for B), and `positions` has for each
    slot along this axis the index of its element. For operands in global memory, `tests` has for each slot the
    condition that its element lies inside the array. For operands staged as single elements, `safe` has the indices
    clamped to the tile. `vectors` caches the elements of vectors that were loaded in an unrolled iteration.
    """

    def __init__(self, context: LoweringContext, source: Operand, outer: Axis, which: int, scope: str) -> None:
        self.context = context
        self.source = source
        self.outer = outer
        self.which = which
        self.positions = context.element_indices(outer, scope)
        self.tests: list[Value] = []
        self.vectors: dict[tuple[int, int], list[Value]] = {}
        if isinstance(source, Deferred):
            self.array, self.starts, self.lengths, self.pad = slice_operands(source.operands)
            self.tests = [context.builder.emit("lt", p, self.lengths[which]) for p in self.positions]
        elif isinstance(source, Staged):
            last = context.builder.index(outer.size - 1)
            pairs = zip(self.positions, context.in_bounds(outer, self.positions), strict=True)
            self.safe = [p if t is None else context.builder.emit("min", p, last) for p, t in pairs]

    @property
    def exact(self) -> bool:
        """True if every slot along `outer` can be read without a test.

        That holds if each slot has an element. Staged operands can always be read, as their indices are clamped.
        """
        return self.outer.exact or not isinstance(self.source, Deferred)

    @property
    def vectors_along_k(self) -> bool:
        """True if the operand is staged as vectors along K."""
        return isinstance(self.source, Packed) and self.source.along == 1 - self.which

    def whole(self) -> Value | None:
        """Return the condition that the slice lies entirely inside its array; None if that is known to be true."""
        if not isinstance(self.source, Deferred):
            return None
        return is_inside(self.context, self.lengths, tile_of(self.source.op.result).shape)

    def inner_length(self) -> Value | None:
        """Return the number of the operand's elements along K that lie inside its array; None if all do."""
        return self.lengths[1 - self.which] if isinstance(self.source, Deferred) else None

    def read_vector_element(self, slot: int, first: Value, step: int) -> Value:
        """Return the element for a slot along `outer` from an operand staged as vectors.

        Its index along K is `first + step`, where `first` is the first index of the unrolled iteration. Each vector is
        loaded once per iteration.
        """
        assert isinstance(self.source, Packed)
        b, along_k = self.context.builder, self.vectors_along_k
        if along_k:  # a vector covers LANES steps of one slot
            key, lane = (slot, step // LANES), step % LANES
        else:  # a vector covers LANES contiguous slots of one step
            key, lane = (slot // LANES, step), slot % LANES
        if key not in self.vectors:
            if along_k:
                row = self.positions[slot]
                column = self.context.at(b.emit("floordiv", first, b.index(LANES)), step // LANES)
            else:
                row = self.context.at(first, step)
                column = b.emit("floordiv", self.positions[slot - lane], b.index(LANES))
            offset = b.emit("add", b.emit("mul", row, b.index(self.source.pitch)), column)
            vector = b.emit("load", self.source.array, offset)
            dtype = self.source.element
            words = [b.emit("vec_extract", vector, lane=n, type=Scalar(dtypes.u32)) for n in range(LANES)]
            is_u32 = dtype is dtypes.u32
            self.vectors[key] = words if is_u32 else [b.emit("bitcast", w, type=Scalar(dtype)) for w in words]
        return self.vectors[key][lane]

    def read(self, slot: int, k: Value, clipped: bool) -> Value:
        """Return the element for a slot along `outer` and index `k` of K, from shared or global memory.

        If `clipped`, elements outside of the array are replaced by the padding.
        """
        b = self.context.builder
        if isinstance(self.source, Staged):
            row, column = (self.safe[slot], k) if self.which == 0 else (k, self.safe[slot])
            first = b.emit("mul", row, b.index(self.source.pitch))
            return b.emit("load", self.source.array, b.emit("add", first, column))
        assert isinstance(self.source, Deferred)
        at = (self.positions[slot], k) if self.which == 0 else (k, self.positions[slot])
        array_indices = indices(self.context, self.starts, self.source.op.attrs["axes"], at)
        if not clipped:
            return b.emit("load", self.array, *array_indices)
        inside, outside = Region(), Region()
        with b.at(inside):
            b.op("yield", b.emit("load", self.array, *array_indices))
        with b.at(outside):
            b.op("yield", self.pad)
        return self.context.choose(self.tests[slot], [self.pad.type], inside, outside)[0]


def _depth_inside(context: LoweringContext, sides: Sequence[_Side], depth: int) -> Value:
    """Return the number of steps along K to compute. In later steps, an operand has only padding, which is zero."""
    limit = context.builder.index(depth)
    for side in sides:
        length = side.inner_length()
        known_length = 0 if length is None else constant_of(length) or 0  # 0 if it isn't a constant
        if length is not None and known_length < depth:
            limit = context.builder.emit("min", limit, length)
    return limit


def _loop(
    context: LoweringContext, sides: Sequence[_Side], acc: Held, limit: Value, unroll: int, *, clipped: bool
) -> list[Value]:
    """Emit the loop over K, up to `limit`, and return the accumulators; on CPUs, one loop for each block of rows.

    If `clipped`, reads of operands in global memory are tested along M and N.
    """
    b = context.builder
    rows, columns = (axis.slots_per_invocation for axis in acc.layout.axes)
    block_rows = max(1, CPU_ACCUMULATORS // columns) if context.options.reads_global_memory else rows
    accumulators: list[Value] = []
    for first in range(0, rows, block_rows):
        block = range(first, min(first + block_rows, rows))
        initial = acc.values[block.start * columns : block.stop * columns]
        types = [v.type for v in initial]
        region = Region([INDEX, *types])
        with b.at(region):
            k, *sums = region.args
            for side in sides:
                side.vectors.clear()
            for step in range(unroll):
                sums = _step(context, sides, block, (k, step), sums, clipped)
            b.op("continue", *sums)
        accumulators += b.op("for", b.index(0), limit, b.index(unroll), *initial, types=types, regions=[region]).results
    return accumulators


def _step(
    context: LoweringContext,
    sides: Sequence[_Side],
    rows: range,
    step: tuple[Value, int],
    sums: Sequence[Value],
    clipped: bool,
) -> list[Value]:
    """Emit the multiply-adds of one index of K for the row slots `rows`, and return the accumulators.

    `step` is a pair whose sum is the index: the first index of the unrolled iteration, and the offset from it.
    """
    assert isinstance(sums[0].type, Scalar)
    dtype, k = sums[0].type.dtype, context.at(*step)

    def read(side: _Side, slot: int) -> Value:
        return side.read_vector_element(slot, *step) if isinstance(side.source, Packed) else side.read(slot, k, clipped)

    left, right = (
        [context.convert(read(side, slot), dtype) for slot in slots]
        for side, slots in zip(sides, (rows, range(sides[1].outer.slots_per_invocation)), strict=True)
    )
    return _add(context, left, right, sums)


def _add(context: LoweringContext, left: Sequence[Value], right: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
    """Return the accumulators plus the outer product of two lists of elements."""
    b = context.builder
    pairs = [(x, y) for x in left for y in right]
    return [b.emit("add", s, b.emit("mul", x, y)) for s, (x, y) in zip(sums, pairs, strict=True)]


# -- operands in registers
def outer_layouts(acc: Layout, depth: int) -> tuple[Layout, Layout]:
    """Return the layouts that operands A and B need in registers.

    Along M and N they are distributed as the accumulators are; along K, each invocation holds all elements.
    """
    rows, columns = acc.axes
    return replace(acc, axes=(rows, Axis(depth))), replace(acc, axes=(Axis(depth), columns))


def _fully_unrolled(context: LoweringContext, sides: Sequence[_Side], acc: Held, depth: int) -> Held:
    """Return the accumulators after all steps along K, which are unrolled: registers can't be indexed at run time."""
    left, right = (_in_registers(context, side, acc.layout, depth) for side in sides)
    assert isinstance(acc.values[0].type, Scalar)
    dtype = acc.values[0].type.dtype
    sums = list(acc.values)
    for k in range(depth):
        x = [
            context.convert(left.values[left.layout.number((r, k))], dtype)
            for r in range(left.layout.axes[0].slots_per_invocation)
        ]
        y = [
            context.convert(right.values[right.layout.number((k, c))], dtype)
            for c in range(right.layout.axes[1].slots_per_invocation)
        ]
        sums = _add(context, x, y, sums)
    return Held(acc.layout, tuple(sums))


def _in_registers(context: LoweringContext, side: _Side, acc: Layout, depth: int) -> Held:
    """Return an operand in registers, in the layout that `outer_layouts` returns for it."""
    layout = outer_layouts(acc, depth)[side.which]
    if isinstance(side.source, Held):
        return convert_layout(context, side.source, layout)
    assert isinstance(side.source, Deferred)
    return load(context, side.source.op, side.source.operands, layout)
