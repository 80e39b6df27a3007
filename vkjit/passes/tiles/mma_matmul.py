"""Tile products on cooperative matrices, and the transfer of accumulators to registers or memory.

Takes operands from shared memory and accumulators in matrices, and emits `mat_*` operations. Accumulators are stored to
global memory directly if the tile lies inside an array of their type; else they go through shared memory, one row of
matrices of each subgroup at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vkjit import dtypes
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.types import Array, Matrix, Scalar, Tile

from .layout import Axis, Layout
from .memory import indices, slice_operands, whole
from .mma_fragments import Fragments, Plan
from .shared_operands import VECTOR, VECTOR_BYTES, Packed
from .tile_state import Held, LoweringContext, Staged

__all__ = [
    "KeptInMatrices",
    "add_products",
    "fill",
    "keep",
    "load_slice",
    "multiply",
    "scale_rows",
    "store",
    "to_registers",
]

_U32 = Scalar(dtypes.u32)


def fill(context: LoweringContext, plan: Plan, value: Value) -> Fragments:
    """Return accumulators that are all `value`."""
    context.uses_lanes()
    matrix = context.builder.emit("mat_fill", value, type=plan.kind)
    return Fragments(plan, (matrix,) * plan.matrices_per_subgroup)


def _corner(context: LoweringContext, plan: Plan) -> tuple[Value, Value]:
    """Return the first row and column of the subgroup's block."""
    context.uses_lanes()
    key = ("corner", plan.down, plan.across)
    if key not in context.cached_values:
        context.cached_values[key] = context.entry.emit("subgroup_id")
    b, own = context.builder, context.cached_values[key]
    down, across = b.emit("floordiv", own, b.index(plan.across)), b.emit("floormod", own, b.index(plan.across))
    rows, columns = plan.rows * plan.shape.m, plan.columns * plan.shape.n
    return b.emit("mul", down, b.index(rows)), b.emit("mul", across, b.index(columns))


@dataclass(frozen=True, slots=True)
class KeptInMatrices:
    """An operand held in matrices by each subgroup: for each slice along K, the matrices of the subgroup's rows or
    columns.
    """

    slices: tuple[tuple[Value, ...], ...]


Source = Packed | Staged | KeptInMatrices
"""Where an operand is."""


def keep(context: LoweringContext, source: Packed, plan: Plan, operand_number: int, depth: int) -> KeptInMatrices:
    """Load an operand, 0 for A and 1 for B, into matrices that stay there."""
    row, column = _corner(context, plan)
    first, size, count = (column, plan.shape.n, plan.columns) if operand_number else (row, plan.shape.m, plan.rows)
    use = "b" if operand_number else "a"
    return KeptInMatrices(
        tuple(
            tuple(_factor(context, source, plan, use, context.at(first, i * size), k) for i in range(count))
            for k in range(0, depth, plan.shape.k)
        )
    )


def multiply(context: LoweringContext, a: Source, b: Source, acc: Fragments, depth: int) -> Fragments:
    """Return acc + a @ b; `depth` is the size of K."""
    for k in range(0, depth, acc.plan.shape.k):
        acc = add_products(context, acc, *load_slice(context, acc.plan, (a, k), (b, k)))
    return acc


def load_slice(
    context: LoweringContext, plan: Plan, a: tuple[Source, int], b: tuple[Source, int]
) -> tuple[list[Value], list[Value]]:
    """Return the subgroup's matrices of both operands for one slice, each at its offset along K."""
    row, column = _corner(context, plan)

    def side(source: Source, k: int, use: str, first: Value, size: int, count: int) -> list[Value]:
        if isinstance(source, KeptInMatrices):
            return list(source.slices[k // plan.shape.k])
        return [_factor(context, source, plan, use, context.at(first, i * size), k) for i in range(count)]

    return side(*a, "a", row, plan.shape.m, plan.rows), side(*b, "b", column, plan.shape.n, plan.columns)


def add_products(context: LoweringContext, acc: Fragments, left: Sequence[Value], right: Sequence[Value]) -> Fragments:
    """Return acc plus the product of each A matrix with each B matrix."""
    plan, sums = acc.plan, list(acc.values)
    for i, j in itertools.product(range(plan.rows), range(plan.columns)):
        place = i * plan.columns + j
        sums[place] = context.builder.emit("mat_mma", left[i], right[j], sums[place], type=plan.kind)
    return Fragments(plan, tuple(sums))


def _factor(context: LoweringContext, source: Packed | Staged, plan: Plan, use: str, outer: Value, k: int) -> Value:
    """Load the matrix of an operand at `outer` along the M or N axis and `k` along K."""
    b, shape = context.builder, plan.shape
    size = (shape.m, shape.k) if use == "a" else (shape.k, shape.n)
    kind = Matrix(plan.operand_dtype, *size, use)
    inner = 1 if use == "a" else 0
    along = source.along if isinstance(source, Packed) else 1
    each = VECTOR_BYTES // plan.operand_dtype.itemsize if isinstance(source, Packed) else 1
    line, place = (outer, b.index(k)) if along == inner else (b.index(k), outer)
    place = b.emit("floordiv", place, b.index(each)) if each > 1 else place
    at = b.emit("add", b.emit("mul", line, b.index(source.pitch)), place)
    layout = "row" if along == 1 else "column"
    return b.emit("mat_load", source.array, at, b.index(source.pitch), layout=layout, type=kind)


def scale_rows(context: LoweringContext, accumulators: Fragments, factors: Held) -> Fragments:
    """Multiply each row of the accumulators by a factor. Matrices with the factors in all columns are loaded from
    shared memory and multiplied elementwise.
    """
    b, plan, shape = context.builder, accumulators.plan, accumulators.plan.shape
    rows = factors.layout.axes[0]
    array = context.scratch(plan.accumulator_dtype, rows.size * shape.n, "factors")
    lines = context.element_indices(rows, factors.layout.scope)
    tests = context.in_bounds(rows, lines)
    across = _replica_axis(context, factors.layout, shape.n)
    owner = context.is_owner(replace(factors.layout, axes=(*factors.layout.axes, across)))
    own = context.coordinate(across, factors.layout.scope)
    context.access(array, "w")
    for line, test, value in zip(lines, tests, factors.values, strict=True):
        condition = context.all_of([owner, test])
        first = b.emit("add", b.emit("mul", line, b.index(shape.n)), own)

        def write(first: Value = first, value: Value = value) -> None:
            for column in range(0, shape.n, across.size):
                b.op("store", array, context.at(first, column), value)

        if condition is None:
            write()
            continue
        with b.when(condition):
            write()
    context.access(array, "r")
    row, _ = _corner(context, plan)
    values = list(accumulators.values)
    for i in range(plan.rows):
        at = b.emit("mul", context.at(row, i * shape.m), b.index(shape.n))
        same = b.emit("mat_load", array, at, b.index(shape.n), layout="row", type=plan.kind)
        for j in range(plan.columns):
            place = i * plan.columns + j
            values[place] = b.emit("mat_map", values[place], same, op="mul", type=plan.kind)
    return Fragments(plan, tuple(values))


def _replica_axis(context: LoweringContext, layout: Layout, limit: int) -> Axis:
    """Return an axis that numbers up to `limit` of the invocations that hold replicas of the same elements."""
    shift, bits = 0, 0
    while layout.used >> shift & 1:
        shift += 1
    while 1 << bits < limit and shift + bits < context.bits(layout.scope) and not layout.used >> (shift + bits) & 1:
        bits += 1
    return Axis(1 << bits, shift, bits)


# -- accumulators to registers and memory
def to_registers(context: LoweringContext, accumulators: Fragments, layout: Layout) -> Held:
    """Convert accumulators from matrices to a register layout, through shared memory.

    All are exchanged at once if released memory suffices, else one row of matrices of each subgroup at a time; and only
    those of one column of subgroups at a time if all columns would need more shared memory than is allocated already.
    """
    b, plan, shape = context.builder, accumulators.plan, accumulators.plan.shape
    rows, columns = layout.axes
    row_invocations = 1 << rows.bits
    whole_rows, whole_columns = plan.rows * shape.m, plan.columns * shape.n
    parts = plan.rows if rows.group == 1 and shape.m % row_invocations == 0 and rows.exact else 1
    vectors = columns.size * plan.accumulator_dtype.itemsize // VECTOR_BYTES + 1
    parts = 1 if context.largest_released(VECTOR) >= plan.down * whole_rows * vectors else parts
    high = plan.down * (shape.m if parts > 1 else whole_rows)
    separable = columns.exact and whole_columns % columns.cycle == 0
    exchange = _Exchange(context, plan, layout, high, whole_columns if separable else columns.size)
    blocks = plan.across if exchange.wide < columns.size else 1
    if blocks > 1:
        context.notes.append(
            f"{b.loc}: sums go to registers in the memory of factors, {blocks} columns of subgroups one after the other"
        )
    row, column = _corner(context, plan)
    row_indices = context.element_indices(rows, layout.scope)
    values: dict[tuple[int, int], Value] = {}
    own = b.emit("floordiv", row, b.index(plan.rows)) if parts > 1 else row

    def put(part: int, left: Value) -> None:
        for i in range(part, part + 1) if parts > 1 else range(plan.rows):
            for j in range(plan.columns):
                line = own if parts > 1 else context.at(row, i * shape.m)
                exchange.put(line, context.at(left, j * shape.n), accumulators.values[i * plan.columns + j])

    for part, block in itertools.product(range(parts), range(blocks)):
        context.access(exchange.array, "w")
        if blocks == 1:
            put(part, column)
        else:
            with b.when(b.emit("eq", column, b.index(block * whole_columns))):
                put(part, b.index(0))
        context.access(exchange.array, "r")
        for slot, line in enumerate(row_indices):
            shift = _shift(slot * row_invocations, whole_rows, shape.m, part) if parts > 1 else 0
            if shift is None:
                continue
            line = b.emit("min", line, b.index(rows.size - 1)) if not rows.exact else line
            for place, value in enumerate(exchange.line(context.at(line, shift)), block * exchange.held):
                values[slot, place] = value
    exchange.close()
    return Held(layout, tuple(values[slot] for slot in layout.slots()))  # type: ignore[index]


class _Exchange:
    """Shared memory through which accumulators go from matrices to registers.

    Where an invocation reads contiguous elements that make up whole words, it is an array of 16-byte vectors, which can
    reuse the memory of staged operands; else it is an array of elements.
    """

    def __init__(self, context: LoweringContext, plan: Plan, layout: Layout, high: int, least: int) -> None:
        """Allocate `high` rows of all columns, or of `least` columns if released memory doesn't suffice for more."""
        self.context, self.kind, columns = context, plan.accumulator_dtype, layout.axes[1]
        self.wide = columns.size
        self.each = max(1, VECTOR_BYTES // self.kind.itemsize)
        self.run = min(columns.group, self.each)
        fits = columns.exact and self.run * self.kind.itemsize % 4 == 0 and self.kind.itemsize <= 4
        self.packed = fits and columns.size % self.each == 0 and plan.shape.n % self.each == 0
        if self.packed:
            room = context.largest_released(VECTOR)
            if least % self.each == 0 and 0 < room < high * (self.wide // self.each + 1):
                self.wide = least
            self.pitch = self.wide // self.each + 1
            self.array = context.stage(VECTOR, high * self.pitch, "sums", reuse=True)
        else:
            self.pitch = self.wide + self.each
            self.array = context.scratch(self.kind, high * self.pitch, "sums")
        self.held = columns.slots_per_invocation * self.wide // columns.size
        b, across = context.builder, context.element_indices(columns, layout.scope)[: self.held]
        ends = zip(across, context.in_bounds(columns, across), strict=True)
        self.across = [p if t is None else b.emit("min", p, b.index(columns.size - 1)) for p, t in ends]

    def _at(self, line: Value, column: Value) -> Value:
        b = self.context.builder
        column = b.emit("floordiv", column, b.index(self.each)) if self.packed else column
        return b.emit("add", b.emit("mul", line, b.index(self.pitch)), column)

    def put(self, line: Value, column: Value, matrix: Value) -> None:
        """Store a matrix with its first element at that row and column."""
        b = self.context.builder
        b.op("mat_store", self.array, self._at(line, column), b.index(self.pitch), matrix, layout="row")

    def line(self, line: Value) -> list[Value]:
        """Return the elements of a row that the invocation holds."""
        b = self.context.builder
        if not self.packed:
            return [b.emit("load", self.array, self._at(line, column)) for column in self.across]
        elements: list[Value] = []
        for first in self.across[:: self.run]:
            vector = b.emit("load", self.array, self._at(line, first))
            words = [b.emit("vec_extract", vector, lane=lane, type=_U32) for lane in range(4)]
            count = self.run * self.kind.itemsize // 4
            part = b.emit("floormod", b.emit("floordiv", first, b.index(self.run)), b.index(4 // count))
            chosen = words[:count]
            for number in range(1, 4 // count):
                is_part = b.emit("eq", part, b.index(number))
                others = words[number * count : (number + 1) * count]
                chosen = [b.emit("select", is_part, x, y) for x, y in zip(others, chosen, strict=True)]
            elements += [value for word in chosen for value in _from_bits(self.context, word, self.kind)]
        return elements

    def close(self) -> None:
        """Release the memory."""
        if self.packed:
            self.context.release(self.array)


def _from_bits(context: LoweringContext, word: Value, kind: dtypes.DType) -> list[Value]:
    """Return the elements packed in a u32, the lowest first."""
    b, plain = context.builder, {1: dtypes.u8, 2: dtypes.u16, 4: dtypes.u32}[kind.itemsize]
    elements = []
    for place in range(4 // kind.itemsize):
        bits = b.emit("shr_raw", word, b.const(place * kind.bits, dtypes.u32)) if place else word
        bits = b.cast(bits, plain) if plain is not dtypes.u32 else bits
        elements.append(b.emit("bitcast", bits, type=Scalar(kind)) if kind is not plain else bits)
    return elements


def _shift(row: int, whole_rows: int, high: int, part: int) -> int | None:
    """Return the offset from a row of the tile to its row in shared memory; None if another part holds it."""
    subgroup, inside = divmod(row, whole_rows)
    if inside // high != part:
        return None
    return subgroup * high + inside % high - row


def store(
    context: LoweringContext,
    op: Op,
    operands: Sequence[Value],
    accumulators: Fragments,
    tile: Tile,
    fallback: Callable[[], None],
) -> None:
    """Store matrices directly to memory if the whole tile lies, aligned, inside a contiguous array of their type; else
    call `fallback`.
    """
    array, starts, lengths, _ = slice_operands([*operands, operands[0]])
    b, plan, axes = context.builder, accumulators.plan, op.attrs["axes"]
    kind = array.type
    assert isinstance(kind, Array)
    each = VECTOR_BYTES // plan.accumulator_dtype.itemsize
    in_order = (
        axes[-2:] == (0, 1) and kind.contiguous and kind.dtype is plan.accumulator_dtype and kind.space == "global"
    )
    if not in_order or not context.function.attrs.get("aligned"):
        fallback()
        return
    is_multiple = context.is_multiple(starts[-1], each)
    aligned = None if is_multiple else b.emit("eq", b.emit("floormod", starts[-1], b.index(each)), b.index(0))
    test = context.all_of([whole(context, lengths, tile.shape), aligned])

    def direct() -> None:
        row, column = _corner(context, plan)
        pitch = b.emit("stride", array, axis=kind.rank - 2)
        for i in range(plan.rows):
            for j in range(plan.columns):
                at = [context.at(row, i * plan.shape.m), context.at(column, j * plan.shape.n)]
                place = indices(context, starts, axes, at)
                b.op("mat_store", array, *place, pitch, accumulators.values[i * plan.columns + j], layout="row")

    if test is None:
        direct()
        return
    regions = [Region(), Region()]
    pending, assumed = set(context.pending), set(context.assumed)
    for region, make in zip(regions, (direct, fallback), strict=True):
        with b.at(region):
            make()
            b.op("yield")
    context.choose(test, [], *regions)
    context.pending |= pending  # on either path
    context.assumed |= assumed
