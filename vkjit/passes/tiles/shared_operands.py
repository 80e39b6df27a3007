"""Staging of product operands in shared memory as 16-byte vectors.

`matmul` and `prefetch` use this for products on cooperative matrices and for multiply-add with 32-bit elements, if the
operands divide into whole vectors; otherwise `fma_matmul` stages single elements.

An operand is a slice of a global array, given as its `tile_load`. The attribute `axes` of the `tile_load` has, for each
axis of the array, the axis of the tile that runs along it, or None. Operand number 0 is A, whose axis 1 is K; operand
number 1 is B, whose axis 0 is K. So K is axis `1 - number` of operand `number`.

A slice is loaded as 16-byte vectors along the last axis of the array, where its elements are contiguous, and stored to
rows in shared memory. Each row is padded by one vector to avoid bank conflicts between the elements of a column. In
this module, `row` is the index of such a row, and `column` the index of a vector in it. A slot is a position of a
vector (`VectorSlot`), not a slot of a `Layout`.

Multiply-add in registers reads contiguous elements along the M or N axis. An operand whose rows in global memory run
along K instead is transposed while it is staged: an invocation loads blocks of four vectors of four elements and stores
the transposed blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vkjit import dtypes
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.rewrite import constant_of
from vkjit.ir.types import Array, Scalar, Type, Vector

from .assign_layouts import tile_of
from .layout import Layout
from .memory import indices, is_inside, slice_operands
from .mma_fragments import Plan
from .tile_state import LoweringContext

__all__ = [
    "VECTOR",
    "VECTOR_BYTES",
    "Packed",
    "VectorSlot",
    "bytes_of",
    "can_pack",
    "is_transposed",
    "reserve",
    "stage",
    "suits_accumulators",
    "vectors",
    "write",
]

VECTOR_BYTES = 16
VECTOR = Vector(dtypes.u32, 4)
"""The type of all vectors in shared memory, which hold the bits of elements of any type."""
_SIDE = 4
"""The number of 32-bit elements in a vector, and of vectors in a block that is transposed."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Operand A or B of a product in shared memory, as 16-byte vectors in rows that begin `pitch` vectors apart.

    Axis `along` of the tile runs along a row: the axis that is contiguous in global memory, or, if `transposed`, the
    other axis of the tile. `element` is the type of the elements.
    """

    array: Value
    pitch: int
    along: int
    element: dtypes.DType
    transposed: bool = False


VectorSlot = tuple[Value, Value, "Value | None"]
"""The row and column of a vector that an invocation loads, and the condition that the vector exists.

The condition is None if the vector always exists.
"""


def stage(
    context: LoweringContext,
    slices: Sequence[tuple[Op, Sequence[Value], str]],
    transposed: Sequence[bool] | None = None,
) -> list[Packed]:
    """Stage slices in shared memory; all are loaded before any is stored.

    Each slice is given as its `tile_load`, the operands of the `tile_load` in the lowered code, and a label that names
    the slice in notes. `transposed` has True for each slice that is transposed while it is staged; None stands for all
    False.
    """
    ready: list[tuple[Packed, list[VectorSlot], list[Value]]] = []
    for (op, operands, label), transpose in zip(slices, transposed or [False] * len(slices), strict=True):
        context.access(operands[0], "r")
        packed, slots = reserve(context, op, label, transpose=transpose)
        ready.append((packed, slots, vectors(context, op, operands, slots)))
    for packed, _, _ in ready:
        context.access(packed.array, "w")
    for packed, slots, loaded in ready:
        write(context, packed, slots, loaded)
    return [packed for packed, _, _ in ready]


def write(context: LoweringContext, packed: Packed, slots: Sequence[VectorSlot], loaded: Sequence[Value]) -> None:
    """Store the vectors that an invocation has loaded to shared memory; transpose them if `packed.transposed`.

    `slots` are the positions from `reserve`, and `loaded` the vectors that `vectors` loaded for them.
    """
    b = context.builder
    if packed.transposed:
        slots, loaded = _transposed(context, slots, loaded)
    for (row, column, test), vector in zip(slots, loaded, strict=True):
        offset = b.emit("add", b.emit("mul", row, b.index(packed.pitch)), column)
        if test is None:
            b.op("store", packed.array, offset, vector)
            continue
        with b.when(test):
            b.op("store", packed.array, offset, vector)


def _transposed(
    context: LoweringContext, slots: Sequence[VectorSlot], loaded: Sequence[Value]
) -> tuple[list[VectorSlot], list[Value]]:
    """Transpose blocks of four vectors; return the positions of the results in shared memory, and the results."""
    b = context.builder
    transposed_slots: list[VectorSlot] = []
    transposed_vectors: list[Value] = []
    for start in range(0, len(slots), _SIDE):
        row, column, test = slots[start]
        block = [  # the four elements of each of the four vectors
            [b.emit("vec_extract", vector, lane=n, type=Scalar(dtypes.u32)) for n in range(_SIDE)]
            for vector in loaded[start : start + _SIDE]
        ]
        # Rows of the array become columns in shared memory. `row` and `column` are those of the block's first vector in
        # the array. Rows are counted in elements and columns in vectors, so swapping them takes a factor of `_SIDE`.
        first_row = b.emit("mul", column, b.index(_SIDE))
        new_column = b.emit("floordiv", row, b.index(_SIDE))
        for number in range(_SIDE):
            transposed_slots.append((context.at(first_row, number), new_column, test))
            transposed_vectors.append(b.emit("vec_make", *[elements[number] for elements in block], type=VECTOR))
    return transposed_slots, transposed_vectors


def can_pack(op: Op, plan: Plan) -> bool:
    """True if a slice, and each cooperative matrix of it, divides into whole vectors along the last axis of its array.

    `op` is the slice's `tile_load`, `plan` the plan of the product that uses it.
    """
    tile, matrix = tile_of(op.result), plan.shape
    along = op.attrs["axes"][-1]
    elements_per_vector = VECTOR_BYTES // tile.dtype.itemsize
    if along is None or len(tile.shape) != 2 or tile.shape[along] % elements_per_vector:
        return False
    return not any(size % elements_per_vector for size in (matrix.m, matrix.n, matrix.k))


def suits_accumulators(context: LoweringContext, op: Op, number: int, accumulators: Layout) -> bool:
    """True if multiply-add in registers can read operand `number` (0 for A, 1 for B) in whole vectors.

    The vectors are in shared memory. If each invocation holds contiguous accumulators along the axis that the operand
    shares with them, the vectors run along this axis, and the operand is transposed if its rows in global memory run
    along K. Otherwise only A can be read in vectors, which run along K, and only if its rows in global memory run along
    K.
    """
    tile, array = tile_of(op.result), op.operands[0].type
    assert isinstance(array, Array)
    # Whole vectors can be loaded only if the rows of the array are contiguous and begin at multiples of 16 bytes.
    if not (context.function.attrs.get("aligned") and array.contiguous and array.space == "global"):
        return False
    shared_axis = accumulators.axes[number]  # M for A, N for B
    along = op.attrs["axes"][-1]
    # The size of each axis must be a multiple of a vector, and each slot must hold an element (`exact`), so that no
    # vector runs past the end.
    if tile.dtype.bits != 32 or along is None or any(size % _SIDE for size in tile.shape) or not shared_axis.exact:
        return False
    is_a_along_k = number == 0 and along == 1
    return shared_axis.group % _SIDE == 0 or is_a_along_k


def is_transposed(op: Op, number: int, accumulators: Layout) -> bool:
    """True if an operand for which `suits_accumulators` holds is transposed while it is staged."""
    runs_along_k = op.attrs["axes"][-1] == 1 - number
    return runs_along_k and accumulators.axes[number].group % _SIDE == 0


def _contiguous_axis(op: Op) -> int:
    """Return the axis of a slice along which its elements are contiguous in memory."""
    axis = op.attrs["axes"][-1]
    assert axis is not None
    return axis


def _rows_and_vectors(op: Op, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the number of rows in shared memory of a slice (or a part) of this shape, and of vectors in each row."""
    along = _contiguous_axis(op)
    return shape[1 - along], shape[along] * tile_of(op.result).dtype.itemsize // VECTOR_BYTES


def bytes_of(op: Op, shape: tuple[int, int]) -> int:
    """Return the size in bytes that a slice, or a part of one, of this shape has in shared memory."""
    rows, vectors_per_row = _rows_and_vectors(op, shape)
    return rows * (vectors_per_row + 1) * VECTOR_BYTES  # each row is padded by one vector


def reserve(
    context: LoweringContext, op: Op, label: str, shape: tuple[int, int] | None = None, *, transpose: bool = False
) -> tuple[Packed, list[VectorSlot]]:
    """Allocate shared memory for a slice, or for a part of one if `shape` is given, the part's shape.

    Return the memory, and the positions of the vectors that the invocation loads. `transpose` is True if the slice is
    transposed while it is staged.
    """
    if transpose:
        return _reserve_transposed(context, op, label)
    b, along, tile = context.builder, _contiguous_axis(op), tile_of(op.result)
    rows, vectors_per_row = _rows_and_vectors(op, shape or (tile.shape[0], tile.shape[1]))
    pitch = vectors_per_row + 1
    array = context.stage(VECTOR, rows * pitch, label)
    context.notes.append(
        f"{b.loc}: {label} staged in lines of {vectors_per_row} vectors of 16 bytes, {pitch} apart: other banks for "
        "the elements of a column"
    )
    return Packed(array, pitch, along, tile.dtype), _spread(context, rows * vectors_per_row, vectors_per_row)


def _reserve_transposed(context: LoweringContext, op: Op, label: str) -> tuple[Packed, list[VectorSlot]]:
    """Like `reserve`, for a slice that is transposed: the invocation loads blocks of four vectors in adjacent rows."""
    b, along, tile = context.builder, _contiguous_axis(op), tile_of(op.result)
    # The slice has `blocks_per_row` blocks along its rows in the array. Across these rows, it has as many blocks as
    # there are vectors in a row of shared memory.
    blocks_per_row = tile.shape[along] // _SIDE
    vectors_per_row = tile.shape[1 - along] // _SIDE
    pitch = vectors_per_row + 1
    array = context.stage(VECTOR, tile.shape[along] * pitch, label)
    context.notes.append(
        f"{b.loc}: {label} staged in lines of {vectors_per_row} vectors of 16 bytes, {pitch} apart: other banks for "
        "the elements of a column; turned on the way (transposed), as its rows in global memory run along K, but "
        "vectors are read along M or N"
    )
    slots: list[VectorSlot] = []
    for block_row, column, test in _spread(context, vectors_per_row * blocks_per_row, blocks_per_row):
        first_row = b.emit("mul", block_row, b.index(_SIDE))
        slots += [(context.at(first_row, number), column, test) for number in range(_SIDE)]
    return Packed(array, pitch, 1 - along, tile.dtype, transposed=True), slots


def _spread(context: LoweringContext, total: int, items_per_row: int) -> list[VectorSlot]:
    """Distribute `total` items, which form rows of `items_per_row`, over the invocations of the workgroup.

    Return the row and column of each item that this invocation gets, and the condition that the item exists; where it
    doesn't, row and column are those of the last item.
    """
    b, count = context.builder, context.invocations
    items: list[VectorSlot] = []
    for step in range(-(-total // count)):  # total / count, rounded up
        item = context.at(context.invocation_number("workgroup"), step * count)
        all_exist = (step + 1) * count <= total  # in this step, for all invocations
        test = None if all_exist else b.emit("lt", item, b.index(total))
        item = item if test is None else b.emit("min", item, b.index(total - 1))
        items.append(
            (b.emit("floordiv", item, b.index(items_per_row)), b.emit("floormod", item, b.index(items_per_row)), test)
        )
    return items


def vectors(
    context: LoweringContext,
    op: Op,
    operands: Sequence[Value],
    slots: Sequence[VectorSlot],
    shift: tuple[int, int] = (0, 0),
) -> list[Value]:
    """Load the vectors of a slice at `slots`, moved by `shift` rows and columns.

    `op` is the slice's `tile_load`, and `operands` are its operands in the lowered code. If the slice lies entirely
    inside its array and starts at a vector boundary, which is tested at run time, whole vectors are loaded without
    further tests. Otherwise each vector is loaded whole under a test of its own if the slice's start and length are
    known to be multiples of a vector; if they aren't, vectors are assembled from single elements.
    """
    array, starts, lengths, _ = slice_operands(operands)
    b, tile, along = context.builder, tile_of(op.result), _contiguous_axis(op)
    elements_per_vector = VECTOR_BYTES // tile.dtype.itemsize
    slots = [(context.at(row, shift[0]), context.at(column, shift[1]), test) for row, column, test in slots]

    def assembled() -> list[Value]:
        """Assemble the vectors from single elements."""
        return [_assemble_vector(context, op, operands, row, column, elements_per_vector) for row, column, _ in slots]

    assert isinstance(array.type, Array)
    if not (context.function.attrs.get("aligned") and array.type.contiguous and array.type.space == "global"):
        return assembled()
    start_is_multiple = context.is_multiple(starts[-1], elements_per_vector)
    starts_at_vector = (  # None: known to be true
        None
        if start_is_multiple
        else b.emit("eq", b.emit("floormod", starts[-1], b.index(elements_per_vector)), b.index(0))
    )
    test = context.all_of([is_inside(context, lengths, tile.shape), starts_at_vector])
    types: list[Type] = [VECTOR] * len(slots)

    def direct() -> list[Value]:
        """Load the vectors whole, without tests."""
        return _load_vectors(context, op, operands, slots, clipped=False)

    def clipped() -> list[Value]:
        """Load each vector whole if it lies inside the array; otherwise it is padding."""
        return _load_vectors(context, op, operands, slots, clipped=True)

    if test is None:
        return direct()
    regions = [Region(), Region()]
    # If the slice's start and length are multiples of a vector, no vector lies partly inside the array.
    vectors_stay_whole = start_is_multiple and context.is_multiple(lengths[along], elements_per_vector)
    guarded = clipped if vectors_stay_whole else assembled
    for region, make in zip(regions, (direct, guarded), strict=True):
        with b.at(region):
            b.op("yield", *make())
    return context.choose(test, types, *regions)


def _load_vectors(
    context: LoweringContext, op: Op, operands: Sequence[Value], slots: Sequence[VectorSlot], *, clipped: bool
) -> list[Value]:
    """Load whole vectors; if `clipped`, those outside of the array are padding."""
    array, starts, lengths, pad = slice_operands(operands)
    b, along = context.builder, _contiguous_axis(op)
    elements_per_vector = VECTOR_BYTES // tile_of(op.result).dtype.itemsize
    assert isinstance(array.type, Array)
    view = b.emit(
        "linear",
        array,
        type=Array(VECTOR, 1, access=array.type.access, restrict=array.type.restrict, linear=True),
    )
    base, row_stride = _base(context, array, starts, op.attrs["axes"], elements_per_vector)
    row_offsets = [b.emit("add", base, b.emit("mul", row, row_stride)) for row, _, _ in slots]
    offsets = [b.emit("add", start, column) for start, (_, column, _) in zip(row_offsets, slots, strict=True)]
    if not clipped:
        return [b.emit("load", view, offset) for offset in offsets]
    padding = _padding(context, pad, elements_per_vector)
    vectors_in_row = b.emit("floordiv", lengths[along], b.index(elements_per_vector))  # those inside the array
    values = []
    for offset, (row, column, _) in zip(offsets, slots, strict=True):
        inside = b.emit("and", b.emit("lt", row, lengths[1 - along]), b.emit("lt", column, vectors_in_row))
        regions = [Region(), Region()]
        with b.at(regions[0]):
            b.op("yield", b.emit("load", view, offset))
        with b.at(regions[1]):
            b.op("yield", padding)
        values += context.choose(inside, [VECTOR], *regions)
    return values


def _padding(context: LoweringContext, pad: Value, elements_per_vector: int) -> Value:
    """Return a vector whose `elements_per_vector` elements are all the padding value `pad`."""
    b = context.builder
    if constant_of(pad) == 0:
        return b.const(0, VECTOR)
    elements_per_word = elements_per_vector // 4
    word = _bits(context, pad)
    for number in range(1, elements_per_word):  # repeat the element to fill 32 bits
        shift = number * 32 // elements_per_word
        word = b.emit("or", word, b.emit("shl_raw", _bits(context, pad), b.const(shift, dtypes.u32)))
    return b.emit("vec_make", word, word, word, word, type=VECTOR)


def _base(
    context: LoweringContext,
    array: Value,
    starts: Sequence[Value],
    axes: Sequence[int | None],
    elements_per_vector: int,
) -> tuple[Value, Value]:
    """Return a slice's offset in its array and the distance between its rows, both in vectors.

    `axes` is the attribute of the `tile_load`: of the array's axes before the last, the one with a tile axis runs
    across the slice's rows, and the others have a single index.
    """
    b = context.builder
    base = b.emit("floordiv", starts[-1], b.index(elements_per_vector))
    row_stride = b.index(0)
    for axis, (start, tile_axis) in enumerate(zip(starts[:-1], axes[:-1], strict=True)):
        stride = b.emit("floordiv", b.emit("stride", array, axis=axis), b.index(elements_per_vector))
        base = b.emit("add", base, b.emit("mul", start, stride))
        row_stride = stride if tile_axis is not None else row_stride
    return base, row_stride


def _assemble_vector(
    context: LoweringContext, op: Op, operands: Sequence[Value], row: Value, column: Value, elements_per_vector: int
) -> Value:
    """Assemble the vector at a row and column from single elements; those outside of the array are padding."""
    array, starts, lengths, pad = slice_operands(operands)
    b, along = context.builder, _contiguous_axis(op)
    first = b.emit("mul", column, b.index(elements_per_vector))
    words: list[Value | None] = [None] * 4  # filled with elements from the lowest bits up
    elements_per_word = elements_per_vector // 4
    for number in range(elements_per_vector):
        tile_index: list[Value] = [row, row]
        tile_index[along] = context.at(first, number)
        inside = context.all_of(b.emit("lt", p, n) for p, n in zip(tile_index, lengths, strict=True))
        assert inside is not None
        taken, other = Region(), Region()
        with b.at(taken):
            b.op("yield", b.emit("load", array, *indices(context, starts, op.attrs["axes"], tile_index)))
        with b.at(other):
            b.op("yield", pad)
        (element,) = context.choose(inside, [pad.type], taken, other)
        bits = _bits(context, element)
        shift = number % elements_per_word * 32 // elements_per_word
        if shift:
            bits = b.emit("shl_raw", bits, b.const(shift, dtypes.u32))
        word = words[number // elements_per_word]
        words[number // elements_per_word] = bits if word is None else b.emit("or", word, bits)
    return b.emit("vec_make", *[w for w in words if w is not None], type=VECTOR)


def _bits(context: LoweringContext, element: Value) -> Value:
    """Return the bits of an element, zero-extended to a u32."""
    b = context.builder
    assert isinstance(element.type, Scalar)
    dtype = element.type.dtype
    if dtype is dtypes.bf16:  # the upper half of the f32 with the same value
        wide = b.emit("bitcast", b.cast(element, dtypes.f32), type=Scalar(dtypes.u32))
        return b.emit("shr_raw", wide, b.const(16, dtypes.u32))
    unsigned = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}[dtype.bits]
    return b.cast(element if dtype is unsigned else b.emit("bitcast", element, type=Scalar(unsigned)), dtypes.u32)
