"""Staging of product operands in shared memory as 16-byte vectors.

`matmul` and `prefetch` use this for products on cooperative matrices and for multiply-add with 32-bit elements, if the
operands divide into whole vectors; otherwise `fma_matmul` stages single elements.

An operand is a slice of a global array, given as its `tile_load`. It is loaded as 16-byte vectors along the last axis
of the array, where its elements are contiguous, and stored to rows in shared memory. These are padded by one vector to
avoid bank conflicts between the elements of a column. Rows and columns are counted in that arrangement: `line` is a
row, `column` a vector in it.

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
    """An operand in shared memory, in rows that begin `pitch` vectors apart.

    Axis `along` of the tile runs along a row: the axis that is contiguous in global memory, or, if `transposed`, the
    other axis of the tile. `element` is the type of the elements.
    """

    array: Value
    pitch: int
    along: int
    element: dtypes.DType
    transposed: bool = False


VectorSlot = tuple[Value, Value, "Value | None"]
"""The row and column of a vector that an invocation loads, and the condition that it has such a vector; None if it
does.
"""


def stage(
    context: LoweringContext,
    slices: Sequence[tuple[Op, Sequence[Value], str]],
    transposed: Sequence[bool] | None = None,
) -> list[Packed]:
    """Stage slices in shared memory; all are loaded before any is stored.

    A slice is given as its `tile_load`, the operands of that after replacement, and a label for notes. `transposed` has
    True for each slice that is transposed while it is staged; None stands for all False.
    """
    ready: list[tuple[Packed, list[VectorSlot], list[Value]]] = []
    for (op, operands, label), turn in zip(slices, transposed or [False] * len(slices), strict=True):
        context.access(operands[0], "r")
        packed, slots = reserve(context, op, label, transpose=turn)
        ready.append((packed, slots, vectors(context, op, operands, slots)))
    for packed, _, _ in ready:
        context.access(packed.array, "w")
    for packed, slots, loaded in ready:
        write(context, packed, slots, loaded)
    return [packed for packed, _, _ in ready]


def write(context: LoweringContext, packed: Packed, slots: Sequence[VectorSlot], loaded: Sequence[Value]) -> None:
    """Store the vectors that an invocation loaded to shared memory, transposed if `packed` is.

    `slots` are the positions from `reserve`, and `loaded` the vectors that `vectors` loaded for them.
    """
    b = context.builder
    if packed.transposed:
        slots, loaded = _transposed(context, slots, loaded)
    for (line, column, test), vector in zip(slots, loaded, strict=True):
        place = b.emit("add", b.emit("mul", line, b.index(packed.pitch)), column)
        if test is None:
            b.op("store", packed.array, place, vector)
            continue
        with b.when(test):
            b.op("store", packed.array, place, vector)


def _transposed(
    context: LoweringContext, spots: Sequence[VectorSlot], loaded: Sequence[Value]
) -> tuple[list[VectorSlot], list[Value]]:
    """Transpose blocks of four vectors; return the positions of the results in shared memory, and the results."""
    b, slots_of_results, vectors = context.builder, [], []
    for start in range(0, len(spots), _SIDE):
        line, column, test = spots[start]
        words = [
            [b.emit("vec_extract", vector, lane=n, type=Scalar(dtypes.u32)) for n in range(_SIDE)]
            for vector in loaded[start : start + _SIDE]
        ]
        # Rows of the array become columns in shared memory: row and column of a block are swapped.
        first, block = b.emit("mul", column, b.index(_SIDE)), b.emit("floordiv", line, b.index(_SIDE))
        for number in range(_SIDE):
            slots_of_results.append((context.at(first, number), block, test))
            vectors.append(b.emit("vec_make", *[row[number] for row in words], type=VECTOR))
    return slots_of_results, vectors


def can_pack(op: Op, plan: Plan) -> bool:
    """True if a slice, and each cooperative matrix of it, divides into whole vectors along the last axis of its array.

    `op` is the slice's `tile_load`, `plan` the plan of the product that uses it.
    """
    kind, along, shape = tile_of(op.result), op.attrs["axes"][-1], plan.shape
    each = VECTOR_BYTES // kind.dtype.itemsize
    if along is None or len(kind.shape) != 2 or kind.shape[along] % each:
        return False
    return not any(size % each for size in (shape.m, shape.n, shape.k))


def suits_accumulators(context: LoweringContext, op: Op, number: int, accumulators: Layout) -> bool:
    """True if multiply-add in registers can read operand `number` (0 for A, 1 for B) from shared memory in whole
    vectors.

    If each invocation holds contiguous accumulators along the axis that the operand shares with them, the vectors run
    along this axis; the operand is transposed for that if its rows in global memory run along K. If not, the vectors of
    A may run along K, if its rows in global memory do.
    """
    kind, array = tile_of(op.result), op.operands[0].type
    assert isinstance(array, Array)
    if not (context.function.attrs.get("aligned") and array.contiguous and array.space == "global"):
        return False
    axis, along = accumulators.axes[number], op.attrs["axes"][-1]
    if kind.dtype.bits != 32 or along is None or any(size % _SIDE for size in kind.shape) or not axis.exact:
        return False
    return axis.group % _SIDE == 0 or (number == 0 and along == 1)


def is_transposed(op: Op, number: int, accumulators: Layout) -> bool:
    """True if an operand for which `suits_accumulators` holds is transposed while it is staged."""
    return op.attrs["axes"][-1] == 1 - number and accumulators.axes[number].group % _SIDE == 0


def _contiguous_axis(op: Op) -> int:
    """Return the axis of a slice along which its elements are contiguous in memory."""
    axis = op.attrs["axes"][-1]
    assert axis is not None
    return axis


def _lines(op: Op, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of rows, and of vectors in a row, of a slice (or a part) of this shape in shared memory."""
    along = _contiguous_axis(op)
    return shape[1 - along], shape[along] * tile_of(op.result).dtype.itemsize // VECTOR_BYTES


def bytes_of(op: Op, shape: tuple[int, int]) -> int:
    """Return the size in shared memory of a slice, or part of one, of that shape, in bytes."""
    lines, wide = _lines(op, shape)
    return lines * (wide + 1) * VECTOR_BYTES


def reserve(
    context: LoweringContext, op: Op, label: str, shape: tuple[int, int] | None = None, *, transpose: bool = False
) -> tuple[Packed, list[VectorSlot]]:
    """Allocate shared memory for a slice, or a part of one with that shape; return it with the positions of the vectors
    that the invocation loads. `transpose` is True if the slice is transposed while it is staged.
    """
    if transpose:
        return _reserve_turned(context, op, label)
    b, along, kind = context.builder, _contiguous_axis(op), tile_of(op.result)
    lines, wide = _lines(op, shape or (kind.shape[0], kind.shape[1]))
    pitch, total = wide + 1, lines * wide
    array = context.stage(VECTOR, lines * pitch, label)
    context.notes.append(f"{b.loc}: {label} staged in lines of {wide} vectors of 16 bytes, {pitch} apart: other banks")
    return Packed(array, pitch, along, kind.dtype), _spread(context, total, wide)


def _reserve_turned(context: LoweringContext, op: Op, label: str) -> tuple[Packed, list[VectorSlot]]:
    """Like `reserve`, for a slice that is transposed: the invocation loads blocks of four vectors in adjacent rows."""
    b, along, kind = context.builder, _contiguous_axis(op), tile_of(op.result)
    shape = kind.shape
    wide, blocks = shape[1 - along] // _SIDE, shape[along] // _SIDE
    pitch = wide + 1
    array = context.stage(VECTOR, shape[along] * pitch, label)
    context.notes.append(
        f"{b.loc}: {label} staged in lines of {wide} vectors of 16 bytes, {pitch} apart: other banks; turned on the way, "
        "as products read neighbours across memory's rows"
    )
    slots: list[VectorSlot] = []
    for line, column, test in _spread(context, wide * blocks, blocks):
        first = b.emit("mul", line, b.index(_SIDE))
        slots += [(context.at(first, number), column, test) for number in range(_SIDE)]
    return Packed(array, pitch, 1 - along, kind.dtype, transposed=True), slots


def _spread(context: LoweringContext, total: int, wide: int) -> list[VectorSlot]:
    """Return the row and column of each item that the invocation gets of `total` items in rows of `wide`.

    The condition is that the item exists; where it doesn't, row and column are those of the last item.
    """
    b, count = context.builder, context.invocations
    items: list[VectorSlot] = []
    for step in range(-(-total // count)):
        item = context.at(context.rank("workgroup"), step * count)
        test = None if (step + 1) * count <= total else b.emit("lt", item, b.index(total))
        item = item if test is None else b.emit("min", item, b.index(total - 1))
        items.append((b.emit("floordiv", item, b.index(wide)), b.emit("floormod", item, b.index(wide)), test))
    return items


def vectors(
    context: LoweringContext,
    op: Op,
    operands: Sequence[Value],
    slots: Sequence[VectorSlot],
    shift: tuple[int, int] = (0, 0),
) -> list[Value]:
    """Load the vectors of a slice at `slots`, moved by `shift` rows and columns.

    `op` is the slice's `tile_load`, and `operands` are its operands after replacement. A run-time test selects whole
    loads if the slice lies entirely inside its array and starts at a vector boundary. Otherwise, vectors are loaded
    whole under a test each, if start and length are known to be multiples of a vector, or else assembled from single
    elements.
    """
    array, starts, lengths, _ = slice_operands(operands)
    b, kind, along = context.builder, tile_of(op.result), _contiguous_axis(op)
    elements_per_vector = VECTOR_BYTES // kind.dtype.itemsize
    slots = [(context.at(line, shift[0]), context.at(column, shift[1]), test) for line, column, test in slots]

    def packed() -> list[Value]:
        """Assemble the vectors from single elements."""
        return [_assemble_vector(context, op, operands, line, column, elements_per_vector) for line, column, _ in slots]

    assert isinstance(array.type, Array)
    if not (context.function.attrs.get("aligned") and array.type.contiguous and array.type.space == "global"):
        return packed()
    is_multiple = context.is_multiple(starts[-1], elements_per_vector)
    aligned = (
        None if is_multiple else b.emit("eq", b.emit("floormod", starts[-1], b.index(elements_per_vector)), b.index(0))
    )
    test = context.all_of([is_inside(context, lengths, kind.shape), aligned])
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
    guarded = clipped if is_multiple and context.is_multiple(lengths[along], elements_per_vector) else packed
    for region, make in zip(regions, (direct, guarded), strict=True):
        with b.at(region):
            b.op("yield", *make())
    return context.choose(test, types, *regions)


def _load_vectors(
    context: LoweringContext, op: Op, operands: Sequence[Value], places: Sequence[VectorSlot], *, clipped: bool
) -> list[Value]:
    """Load whole vectors; if `clipped`, those outside of the array are padding."""
    array, starts, lengths, pad = slice_operands(operands)
    b, kind, along = context.builder, tile_of(op.result), _contiguous_axis(op)
    elements_per_vector, kind_of_array = VECTOR_BYTES // kind.dtype.itemsize, array.type
    assert isinstance(kind_of_array, Array)
    view = b.emit(
        "linear",
        array,
        type=Array(VECTOR, 1, access=kind_of_array.access, restrict=kind_of_array.restrict, linear=True),
    )
    base, stride = _base(context, array, starts, op.attrs["axes"], elements_per_vector)
    row_offsets = [b.emit("add", base, b.emit("mul", line, stride)) for line, _, _ in places]
    offsets = [b.emit("add", at, column) for at, (_, column, _) in zip(row_offsets, places, strict=True)]
    if not clipped:
        return [b.emit("load", view, spot) for spot in offsets]
    outside, vectors_in_row = (
        _padding(context, pad, elements_per_vector),
        b.emit("floordiv", lengths[along], b.index(elements_per_vector)),
    )
    values = []
    for spot, (line, column, _) in zip(offsets, places, strict=True):
        inside = b.emit("and", b.emit("lt", line, lengths[1 - along]), b.emit("lt", column, vectors_in_row))
        regions = [Region(), Region()]
        with b.at(regions[0]):
            b.op("yield", b.emit("load", view, spot))
        with b.at(regions[1]):
            b.op("yield", outside)
        values += context.choose(inside, [VECTOR], *regions)
    return values


def _padding(context: LoweringContext, pad: Value, each: int) -> Value:
    """Return a vector of `each` elements that are all the padding value `pad`."""
    b = context.builder
    if constant_of(pad) == 0:
        return b.const(0, VECTOR)
    word = _bits(context, pad)  # repeated to fill 32 bits
    for place in range(1, each // 4):
        word = b.emit("or", word, b.emit("shl_raw", _bits(context, pad), b.const(place * 128 // each, dtypes.u32)))
    return b.emit("vec_make", word, word, word, word, type=VECTOR)


def _base(
    context: LoweringContext, array: Value, starts: Sequence[Value], axes: Sequence[int | None], each: int
) -> tuple[Value, Value]:
    """Return a slice's offset in its array and the distance between its rows, both in vectors of `each` elements."""
    b = context.builder
    base = b.emit("floordiv", starts[-1], b.index(each))
    row_stride = b.index(0)
    for axis, (start, which) in enumerate(zip(starts[:-1], axes[:-1], strict=True)):
        stride = b.emit("floordiv", b.emit("stride", array, axis=axis), b.index(each))
        base = b.emit("add", base, b.emit("mul", start, stride))
        row_stride = stride if which is not None else row_stride
    return base, row_stride


def _assemble_vector(
    context: LoweringContext, op: Op, operands: Sequence[Value], line: Value, column: Value, each: int
) -> Value:
    """Assemble the vector at a row and column from `each` single elements; those outside of the array are padding."""
    array, starts, lengths, pad = slice_operands(operands)
    b, along = context.builder, _contiguous_axis(op)
    first = b.emit("mul", column, b.index(each))
    words: list[Value | None] = [None] * 4
    per_word = each // 4
    for number in range(each):
        at: list[Value] = [line, line]
        at[along] = context.at(first, number)
        inside = context.all_of(b.emit("lt", p, n) for p, n in zip(at, lengths, strict=True))
        assert inside is not None
        taken, other = Region(), Region()
        with b.at(taken):
            b.op("yield", b.emit("load", array, *indices(context, starts, op.attrs["axes"], at)))
        with b.at(other):
            b.op("yield", pad)
        (element,) = context.choose(inside, [pad.type], taken, other)
        word, place = _bits(context, element), number % per_word
        if place:
            word = b.emit("shl_raw", word, b.const(place * 32 // per_word, dtypes.u32))
        before = words[number // per_word]
        words[number // per_word] = word if before is None else b.emit("or", before, word)
    return b.emit("vec_make", *[w for w in words if w is not None], type=VECTOR)


def _bits(context: LoweringContext, element: Value) -> Value:
    """Return the bits of an element, zero-extended to a u32."""
    b = context.builder
    assert isinstance(element.type, Scalar)
    dtype = element.type.dtype
    if dtype is dtypes.bf16:
        wide = b.emit("bitcast", b.cast(element, dtypes.f32), type=Scalar(dtypes.u32))
        return b.emit("shr_raw", wide, b.const(16, dtypes.u32))
    plain = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}[dtype.bits]
    return b.cast(element if dtype is plain else b.emit("bitcast", element, type=Scalar(plain)), dtypes.u32)
