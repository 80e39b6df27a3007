"""Tile products on cooperative matrices, and the transfer of accumulators to registers or memory.

`matmul`, `software_pipeline` and `lower` call these functions. They take operands from shared memory and accumulators
in matrices (`Fragments`, partitioned by their `Plan`), and emit `mat_*` operations. Accumulators are stored to global
memory directly if the tile lies inside an array of their type. Otherwise they are moved to registers through shared
memory (`to_registers`), from where they are stored. In this module, a slice is a section of the K dimension that is as
long as the K dimension of one matrix.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vkjit import dtypes
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.types import Array, Matrix, Scalar, Tile

from .layout import Axis, Layout
from .memory import indices, is_inside, slice_operands
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
    """Return accumulators whose elements are all `value`."""
    context.record_subgroup_use()
    matrix = context.builder.emit("mat_fill", value, type=plan.kind)
    return Fragments(plan, (matrix,) * plan.matrices_per_subgroup)


def _corner(context: LoweringContext, plan: Plan) -> tuple[Value, Value]:
    """Return the first row and the first column of this subgroup's block of the accumulators."""
    context.record_subgroup_use()
    key = ("corner", plan.down, plan.across)
    if key not in context.cached_values:
        context.cached_values[key] = context.entry.emit("subgroup_id")
    b, subgroup = context.builder, context.cached_values[key]
    block_row = b.emit("floordiv", subgroup, b.index(plan.across))
    block_column = b.emit("floormod", subgroup, b.index(plan.across))
    rows, columns = plan.rows * plan.shape.m, plan.columns * plan.shape.n
    return b.emit("mul", block_row, b.index(rows)), b.emit("mul", block_column, b.index(columns))


@dataclass(frozen=True, slots=True)
class KeptInMatrices:
    """Operand A or B held in matrices by each subgroup.

    `slices` has, for each slice along K, the matrices that cover the rows (A) or columns (B) of the subgroup's block.
    """

    slices: tuple[tuple[Value, ...], ...]


Source = Packed | Staged | KeptInMatrices
"""The possible locations of operand A or B of a product on matrices."""


def keep(context: LoweringContext, source: Packed, plan: Plan, operand_number: int, depth: int) -> KeptInMatrices:
    """Load an operand (number 0 for A, 1 for B) into matrices, to be used in several iterations of a loop.

    `depth` is the size of K.
    """
    row, column = _corner(context, plan)
    if operand_number == 0:
        use, first, size, count = "a", row, plan.shape.m, plan.rows
    else:
        use, first, size, count = "b", column, plan.shape.n, plan.columns
    return KeptInMatrices(
        tuple(
            tuple(_load_matrix(context, source, plan, use, context.at(first, i * size), k) for i in range(count))
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
    """Return the subgroup's matrices of A and of B for one slice along K.

    `a` and `b` are pairs of an operand's location and the offset of the slice along K in that location. The offsets may
    differ, as one operand may be staged in parts.
    """
    row, column = _corner(context, plan)

    def side(source: Source, k: int, use: str, first: Value, size: int, count: int) -> list[Value]:
        """Return `count` matrices of one operand, from offset `first` along M or N, where each has `size` elements.

        `k` is the slice's offset along K, and `use` is "a" or "b".
        """
        if isinstance(source, KeptInMatrices):
            return list(source.slices[k // plan.shape.k])
        return [_load_matrix(context, source, plan, use, context.at(first, i * size), k) for i in range(count)]

    return side(*a, "a", row, plan.shape.m, plan.rows), side(*b, "b", column, plan.shape.n, plan.columns)


def add_products(context: LoweringContext, acc: Fragments, left: Sequence[Value], right: Sequence[Value]) -> Fragments:
    """Return the accumulators plus the products of one slice: of each matrix of A (`left`) with each of B (`right`)."""
    plan, sums = acc.plan, list(acc.values)
    for i, j in itertools.product(range(plan.rows), range(plan.columns)):
        number = i * plan.columns + j
        sums[number] = context.builder.emit("mat_mma", left[i], right[j], sums[number], type=plan.kind)
    return Fragments(plan, tuple(sums))


def _load_matrix(
    context: LoweringContext, source: Packed | Staged, plan: Plan, use: str, outer: Value, k: int
) -> Value:
    """Load a matrix of an operand from shared memory, at offset `outer` along M or N and `k` along K, in elements.

    `use` is "a" or "b", the role of the matrix.
    """
    b, shape = context.builder, plan.shape
    size = (shape.m, shape.k) if use == "a" else (shape.k, shape.n)
    matrix_type = Matrix(plan.operand_dtype, *size, use)
    inner = 1 if use == "a" else 0  # the axis of the operand that is K
    along = source.along if isinstance(source, Packed) else 1  # the axis of the operand that runs along memory's rows
    elements_per_entry = VECTOR_BYTES // plan.operand_dtype.itemsize if isinstance(source, Packed) else 1
    memory_row, memory_column = (outer, b.index(k)) if along == inner else (b.index(k), outer)
    memory_column = (
        b.emit("floordiv", memory_column, b.index(elements_per_entry)) if elements_per_entry > 1 else memory_column
    )
    offset = b.emit("add", b.emit("mul", memory_row, b.index(source.pitch)), memory_column)
    layout = "row" if along == 1 else "column"
    return b.emit("mat_load", source.array, offset, b.index(source.pitch), layout=layout, type=matrix_type)


def scale_rows(context: LoweringContext, accumulators: Fragments, factors: Held) -> Fragments:
    """Multiply each row of the accumulators by its factor.

    `factors` is a tile of shape (M, 1). It is stored to shared memory with each factor repeated over the columns of a
    matrix, and loaded from there as matrices, which multiply the accumulators elementwise.
    """
    b, plan, shape = context.builder, accumulators.plan, accumulators.plan.shape
    rows = factors.layout.axes[0]
    array = context.scratch(plan.accumulator_dtype, rows.size * shape.n, "factors")
    row_indices = context.element_indices(rows, factors.layout.scope)
    tests = context.in_bounds(rows, row_indices)
    # Invocations that hold the same factor share the work: each stores it to every `replicas.size`-th column.
    replicas = _replica_axis(context, factors.layout, shape.n)
    owner = context.is_owner(replace(factors.layout, axes=(*factors.layout.axes, replicas)))
    replica = context.coordinate(replicas, factors.layout.scope)
    context.access(array, "w")
    for row_index, test, value in zip(row_indices, tests, factors.values, strict=True):
        condition = context.all_of([owner, test])
        offset = b.emit("add", b.emit("mul", row_index, b.index(shape.n)), replica)

        def write(offset: Value = offset, value: Value = value) -> None:
            for column in range(0, shape.n, replicas.size):
                b.op("store", array, context.at(offset, column), value)

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
        factor_matrix = b.emit("mat_load", array, at, b.index(shape.n), layout="row", type=plan.kind)
        for j in range(plan.columns):
            number = i * plan.columns + j
            values[number] = b.emit("mat_map", values[number], factor_matrix, op="mul", type=plan.kind)
    return Fragments(plan, tuple(values))


def _replica_axis(context: LoweringContext, layout: Layout, limit: int) -> Axis:
    """Return an axis of bits that the layout doesn't use, so that invocations with the same elements can share work.

    The axis starts at the lowest unused bit. Its coordinate numbers up to `limit` of the invocations that hold the same
    elements.
    """
    shift, bits = 0, 0
    while layout.used_mask >> shift & 1:
        shift += 1
    while (
        1 << bits < limit and shift + bits < context.bits(layout.scope) and not layout.used_mask >> (shift + bits) & 1
    ):
        bits += 1
    return Axis(1 << bits, shift, bits)


# -- accumulators to registers and memory
def to_registers(context: LoweringContext, accumulators: Fragments, layout: Layout) -> Held:
    """Convert accumulators from matrices to a register layout, through shared memory.

    To need less shared memory, the exchange may take several steps. The rows are divided into `parts`: one if the
    released memory suffices or the layout requires it, else one for each row of matrices in a subgroup's block. The
    columns are divided into `blocks`: one for each column of subgroups if all columns together would need more shared
    memory than is allocated already, else one.
    """
    b, plan, shape = context.builder, accumulators.plan, accumulators.plan.shape
    rows, columns = layout.axes
    row_invocations = 1 << rows.bits
    block_rows, block_columns = plan.rows * shape.m, plan.columns * shape.n
    # Dividing the rows requires that the rows of each slot, one for each invocation along the axis, are in one part.
    can_divide_rows = rows.group == 1 and shape.m % row_invocations == 0 and rows.exact
    vectors_per_row = columns.size * plan.accumulator_dtype.itemsize // VECTOR_BYTES + 1  # one more as padding
    all_rows_fit = context.largest_released(VECTOR) >= plan.down * block_rows * vectors_per_row
    parts = plan.rows if can_divide_rows and not all_rows_fit else 1
    rows_in_memory = plan.down * (shape.m if parts > 1 else block_rows)
    # True if each column of subgroups holds whole cycles of the layout, so that its slots can be read separately.
    separable = columns.exact and block_columns % columns.cycle == 0
    exchange = _Exchange(context, plan, layout, rows_in_memory, block_columns if separable else columns.size)
    blocks = plan.across if exchange.columns_in_memory < columns.size else 1
    if blocks > 1:
        context.notes.append(
            f"{b.loc}: accumulators go to registers through shared memory, in the memory of factors, {blocks} columns "
            "of subgroups one after the other"
        )
    row, column = _corner(context, plan)
    row_indices = context.element_indices(rows, layout.scope)
    values: dict[tuple[int, int], Value] = {}
    # With several parts, memory has one of the `plan.rows` rows of matrices of each block: the block's first row there
    # is row / plan.rows.
    part_row = b.emit("floordiv", row, b.index(plan.rows)) if parts > 1 else row

    def put(part: int, left: Value) -> None:
        """Store the subgroup's matrices of a part to shared memory, from column `left` of the shared array on."""
        for i in range(part, part + 1) if parts > 1 else range(plan.rows):
            for j in range(plan.columns):
                row_index = part_row if parts > 1 else context.at(row, i * shape.m)
                exchange.put(row_index, context.at(left, j * shape.n), accumulators.values[i * plan.columns + j])

    for part, block in itertools.product(range(parts), range(blocks)):
        context.access(exchange.array, "w")
        if blocks == 1:
            put(part, column)
        else:
            with b.when(b.emit("eq", column, b.index(block * block_columns))):
                put(part, b.index(0))
        context.access(exchange.array, "r")
        for slot, row_index in enumerate(row_indices):
            # Rows of a slot move by the same difference, so its first row in the tile stands for all of them.
            shift = _shift(slot * row_invocations, block_rows, shape.m, part) if parts > 1 else 0
            if shift is None:  # these rows are in another part
                continue
            row_index = b.emit("min", row_index, b.index(rows.size - 1)) if not rows.exact else row_index
            row_values = exchange.read_row(context.at(row_index, shift))
            for column_slot, value in enumerate(row_values, block * exchange.columns_read):
                values[slot, column_slot] = value
    exchange.close()
    return Held(layout, tuple(values[slot] for slot in layout.slots()))  # type: ignore[index]


class _Exchange:
    """A shared array through which accumulators go from matrices to registers.

    If each invocation reads contiguous accumulators that make up whole 32-bit words, the array has 16-byte vectors
    (`packed`) and can reuse the memory of staged operands; else it has single accumulators.

    - `columns_in_memory` is the number of columns that the array holds at a time, and `pitch` the distance between its
      rows in array elements.
    - `per_vector` is the number of accumulators in 16 bytes, and `run` the number of contiguous accumulators that an
      invocation reads from a vector.
    - `columns_read` is the number of accumulators that an invocation reads from a row of the array, and
      `column_indices` has their columns.
    """

    def __init__(self, context: LoweringContext, plan: Plan, layout: Layout, row_count: int, min_columns: int) -> None:
        """Allocate `row_count` rows with all columns of the tile.

        If there is released memory to reuse, but too little for all columns, allocate rows with `min_columns` columns.
        """
        self.context = context
        self.dtype = plan.accumulator_dtype
        columns = layout.axes[1]
        self.columns_in_memory = columns.size
        self.per_vector = max(1, VECTOR_BYTES // self.dtype.itemsize)
        self.run = min(columns.group, self.per_vector)
        runs_fill_words = columns.exact and self.run * self.dtype.itemsize % 4 == 0 and self.dtype.itemsize <= 4
        self.packed = runs_fill_words and columns.size % self.per_vector == 0 and plan.shape.n % self.per_vector == 0
        # In vectors, matrices and rows must begin at vector boundaries. Each row has one vector of padding.
        if self.packed:
            released = context.largest_released(VECTOR)
            needed = row_count * (self.columns_in_memory // self.per_vector + 1)
            if min_columns % self.per_vector == 0 and 0 < released < needed:
                self.columns_in_memory = min_columns
            self.pitch = self.columns_in_memory // self.per_vector + 1
            self.array = context.stage(VECTOR, row_count * self.pitch, "sums", reuse=True)
        else:
            self.pitch = self.columns_in_memory + self.per_vector
            self.array = context.scratch(self.dtype, row_count * self.pitch, "sums")
        self.columns_read = columns.slots_per_invocation * self.columns_in_memory // columns.size
        b = context.builder
        column_indices = context.element_indices(columns, layout.scope)[: self.columns_read]
        tests = context.in_bounds(columns, column_indices)
        # Clamped, as slots past the end of the axis have indices out of range.
        self.column_indices = [
            index if test is None else b.emit("min", index, b.index(columns.size - 1))
            for index, test in zip(column_indices, tests, strict=True)
        ]

    def _at(self, row: Value, column: Value) -> Value:
        """Return the array index of the accumulator at `row` and `column`."""
        b = self.context.builder
        column = b.emit("floordiv", column, b.index(self.per_vector)) if self.packed else column
        return b.emit("add", b.emit("mul", row, b.index(self.pitch)), column)

    def put(self, row: Value, column: Value, matrix: Value) -> None:
        """Store a matrix to the array, with its first element at `row` and `column`."""
        b = self.context.builder
        b.op("mat_store", self.array, self._at(row, column), b.index(self.pitch), matrix, layout="row")

    def read_row(self, row: Value) -> list[Value]:
        """Return the accumulators of a row that the invocation holds in registers, loaded from the array."""
        b = self.context.builder
        if not self.packed:
            return [b.emit("load", self.array, self._at(row, column)) for column in self.column_indices]
        elements: list[Value] = []
        for run_start in self.column_indices[:: self.run]:
            vector = b.emit("load", self.array, self._at(row, run_start))
            words = [b.emit("vec_extract", vector, lane=lane, type=_U32) for lane in range(4)]
            # A run has `count` of the vector's four words: select them by the run's number within the vector.
            count = self.run * self.dtype.itemsize // 4
            run_number = b.emit("floormod", b.emit("floordiv", run_start, b.index(self.run)), b.index(4 // count))
            chosen = words[:count]
            for number in range(1, 4 // count):
                is_run = b.emit("eq", run_number, b.index(number))
                candidates = words[number * count : (number + 1) * count]
                chosen = [b.emit("select", is_run, x, y) for x, y in zip(candidates, chosen, strict=True)]
            elements += [value for word in chosen for value in _from_bits(self.context, word, self.dtype)]
        return elements

    def close(self) -> None:
        """Release the memory."""
        if self.packed:
            self.context.release(self.array)


def _from_bits(context: LoweringContext, word: Value, dtype: dtypes.DType) -> list[Value]:
    """Return the elements of type `dtype` that are packed in a u32, from the lowest bits up."""
    b = context.builder
    unsigned = {1: dtypes.u8, 2: dtypes.u16, 4: dtypes.u32}[dtype.itemsize]
    elements = []
    for number in range(4 // dtype.itemsize):
        bits = b.emit("shr_raw", word, b.const(number * dtype.bits, dtypes.u32)) if number else word
        bits = b.cast(bits, unsigned) if unsigned is not dtypes.u32 else bits
        elements.append(b.emit("bitcast", bits, type=Scalar(dtype)) if dtype is not unsigned else bits)
    return elements


def _shift(row: int, block_rows: int, part_rows: int, part: int) -> int | None:
    """Return the difference between the index of a row in shared memory and its index in the tile; None if the row
    doesn't belong to the part.

    Each subgroup's block has `block_rows` rows. A part has one row of matrices of each block, which are `part_rows`
    rows.
    """
    subgroup, inside = divmod(row, block_rows)
    if inside // part_rows != part:
        return None
    return subgroup * part_rows + inside % part_rows - row


def store(
    context: LoweringContext,
    op: Op,
    operands: Sequence[Value],
    accumulators: Fragments,
    tile: Tile,
    fallback: Callable[[], None],
) -> None:
    """Store matrices directly to global memory if the tile lies entirely inside a contiguous array of their type, and
    each row starts at a multiple of 16 bytes; else call `fallback`, which emits a store from registers.

    Conditions that aren't known at compile time are tested at run time. `op` is the `tile_store`, and `operands` are
    its operands in the lowered code, without the tile.
    """
    array, starts, lengths, _ = slice_operands([*operands, operands[0]])  # operands[0] stands for the missing tile
    b, plan, axes = context.builder, accumulators.plan, op.attrs["axes"]
    array_type = array.type
    assert isinstance(array_type, Array)
    elements_per_vector = VECTOR_BYTES // plan.accumulator_dtype.itemsize
    # The tile's rows and columns run along the last two axes of the array, in this order.
    has_layout = axes[-2:] == (0, 1) and array_type.contiguous and array_type.space == "global"
    if not has_layout or array_type.dtype is not plan.accumulator_dtype or not context.function.attrs.get("aligned"):
        fallback()
        return
    start_is_multiple = context.is_multiple(starts[-1], elements_per_vector)
    starts_at_vector = (  # None: known to be true
        None
        if start_is_multiple
        else b.emit("eq", b.emit("floormod", starts[-1], b.index(elements_per_vector)), b.index(0))
    )
    test = context.all_of([is_inside(context, lengths, tile.shape), starts_at_vector])

    def direct() -> None:
        """Store all matrices of the subgroup to global memory."""
        row, column = _corner(context, plan)
        pitch = b.emit("stride", array, axis=array_type.rank - 2)
        for i in range(plan.rows):
            for j in range(plan.columns):
                tile_index = [context.at(row, i * plan.shape.m), context.at(column, j * plan.shape.n)]
                array_index = indices(context, starts, axes, tile_index)
                b.op("mat_store", array, *array_index, pitch, accumulators.values[i * plan.columns + j], layout="row")

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
    # A barrier in the fallback doesn't end the accesses from before, as the direct path has none.
    context.pending |= pending
    context.assumed |= assumed
