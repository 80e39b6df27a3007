"""Staging of operands in shared memory as 16-byte vectors: for all products on matrices, and for others with 32-bit
elements.

Slices are loaded as 16-byte vectors and stored to rows in shared memory, which are padded by one vector to avoid bank
conflicts between the elements of a column.

Multiply-add in registers reads contiguous elements along the M or N axis. An operand whose rows in memory run along K
instead is transposed while it is staged: an invocation loads blocks of four vectors and stores the four vectors across
them.
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
from .memory import indices, slice_operands, whole
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
_SIDE = 4
"""The number of 32-bit elements in a vector, and of vectors in a block that is transposed."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An operand in shared memory as rows of `pitch` vectors. Axis `along` of the tile runs along a row: the one that
    is contiguous in global memory, or, if `transposed`, the other one.
    """

    array: Value
    pitch: int
    along: int
    element: dtypes.DType
    transposed: bool = False


VectorSlot = tuple[Value, Value, "Value | None"]
"""A vector's row and column, and the condition that it exists; None where it always does."""


def stage(
    context: LoweringContext,
    slices: Sequence[tuple[Op, Sequence[Value], str]],
    transposed: Sequence[bool] | None = None,
) -> list[Packed]:
    """Stage slices in shared memory; all are loaded before any is stored.

    `transposed` has, for each slice, True if it is transposed while it is staged; None stands for all False.
    """
    ready: list[tuple[Packed, list[VectorSlot], list[Value]]] = []
    for (op, operands, label), turn in zip(slices, transposed or [False] * len(slices), strict=True):
        context.access(operands[0], "r")
        packed, spots = reserve(context, op, label, transpose=turn)
        ready.append((packed, spots, vectors(context, op, operands, spots)))
    for packed, _, _ in ready:
        context.access(packed.array, "w")
    for packed, spots, loaded in ready:
        write(context, packed, spots, loaded)
    return [packed for packed, _, _ in ready]


def write(context: LoweringContext, packed: Packed, slots: Sequence[VectorSlot], loaded: Sequence[Value]) -> None:
    """Store an invocation's vectors to shared memory."""
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
    """Transpose blocks of four vectors; return the rows and columns of the results, and the results."""
    b, places, vectors = context.builder, [], []
    for start in range(0, len(spots), _SIDE):
        line, column, test = spots[start]
        words = [
            [b.emit("vec_extract", vector, lane=n, type=Scalar(dtypes.u32)) for n in range(_SIDE)]
            for vector in loaded[start : start + _SIDE]
        ]
        first, block = b.emit("mul", column, b.index(_SIDE)), b.emit("floordiv", line, b.index(_SIDE))
        for number in range(_SIDE):
            places.append((context.at(first, number), block, test))
            vectors.append(b.emit("vec_make", *[row[number] for row in words], type=VECTOR))
    return places, vectors


def can_pack(op: Op, plan: Plan) -> bool:
    """True if a slice, and each matrix of it, divides into whole vectors along the last axis of its array."""
    kind, along, shape = tile_of(op.result), op.attrs["axes"][-1], plan.shape
    each = VECTOR_BYTES // kind.dtype.itemsize
    if along is None or len(kind.shape) != 2 or kind.shape[along] % each:
        return False
    return not any(size % each for size in (shape.m, shape.n, shape.k))


def suits_accumulators(context: LoweringContext, op: Op, number: int, accumulators: Layout) -> bool:
    """True if multiply-add in registers can read an operand (0 for A, 1 for B) in whole vectors: along the axis that it
    shares with the accumulators, transposed if its rows in memory run along K, or, for A, along K.
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
    """True if an operand that suits the accumulators is transposed while it is staged."""
    return op.attrs["axes"][-1] == 1 - number and accumulators.axes[number].group % _SIDE == 0


def _contiguous_axis(op: Op) -> int:
    """Return the axis of a slice along which its elements are contiguous in memory."""
    axis = op.attrs["axes"][-1]
    assert axis is not None
    return axis


def _lines(op: Op, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the rows in shared memory of a slice, or a part of one, and the vectors in each."""
    along = _contiguous_axis(op)
    return shape[1 - along], shape[along] * tile_of(op.result).dtype.itemsize // VECTOR_BYTES


def bytes_of(op: Op, shape: tuple[int, int]) -> int:
    """Return the shared memory of a slice of that shape, in bytes."""
    lines, wide = _lines(op, shape)
    return lines * (wide + 1) * VECTOR_BYTES


def reserve(
    context: LoweringContext, op: Op, label: str, shape: tuple[int, int] | None = None, *, transpose: bool = False
) -> tuple[Packed, list[VectorSlot]]:
    """Allocate shared memory for a slice, or a part of one with that shape; return it with the vectors that the
    invocation loads.
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
    """Variant of `reserve` for a transposed slice: the vectors come in blocks of four."""
    b, along, kind = context.builder, _contiguous_axis(op), tile_of(op.result)
    shape = kind.shape
    wide, blocks = shape[1 - along] // _SIDE, shape[along] // _SIDE
    pitch = wide + 1
    array = context.stage(VECTOR, shape[along] * pitch, label)
    context.notes.append(
        f"{b.loc}: {label} staged in lines of {wide} vectors of 16 bytes, {pitch} apart: other banks; turned on the way, "
        "as products read neighbours across memory's rows"
    )
    spots: list[VectorSlot] = []
    for line, column, test in _spread(context, wide * blocks, blocks):
        first = b.emit("mul", line, b.index(_SIDE))
        spots += [(context.at(first, number), column, test) for number in range(_SIDE)]
    return Packed(array, pitch, 1 - along, kind.dtype, transposed=True), spots


def _spread(context: LoweringContext, total: int, wide: int) -> list[VectorSlot]:
    """Distribute `total` items in rows of `wide` over the invocations."""
    b, count = context.builder, context.invocations
    places: list[VectorSlot] = []
    for step in range(-(-total // count)):
        number = context.at(context.rank("workgroup"), step * count)
        test = None if (step + 1) * count <= total else b.emit("lt", number, b.index(total))
        number = number if test is None else b.emit("min", number, b.index(total - 1))
        places.append((b.emit("floordiv", number, b.index(wide)), b.emit("floormod", number, b.index(wide)), test))
    return places


def vectors(
    context: LoweringContext,
    op: Op,
    operands: Sequence[Value],
    slots: Sequence[VectorSlot],
    shift: tuple[int, int] = (0, 0),
) -> list[Value]:
    """Load the vectors of a slice at these places, moved by `shift` rows and columns.

    They are loaded whole if the slice starts at a vector boundary, as each of them is then either inside or outside of
    it; else element by element.
    """
    array, starts, lengths, _ = slice_operands(operands)
    b, kind, along = context.builder, tile_of(op.result), _contiguous_axis(op)
    each = VECTOR_BYTES // kind.dtype.itemsize
    slots = [(context.at(line, shift[0]), context.at(column, shift[1]), test) for line, column, test in slots]

    def packed() -> list[Value]:
        return [_assemble_vector(context, op, operands, line, column, each) for line, column, _ in slots]

    assert isinstance(array.type, Array)
    if not (context.function.attrs.get("aligned") and array.type.contiguous and array.type.space == "global"):
        return packed()
    is_multiple = context.is_multiple(starts[-1], each)
    aligned = None if is_multiple else b.emit("eq", b.emit("floormod", starts[-1], b.index(each)), b.index(0))
    test = context.all_of([whole(context, lengths, kind.shape), aligned])
    types: list[Type] = [VECTOR] * len(slots)

    def direct() -> list[Value]:
        return _load_vectors(context, op, operands, slots, clipped=False)

    def clipped() -> list[Value]:
        return _load_vectors(context, op, operands, slots, clipped=True)

    if test is None:
        return direct()
    regions = [Region(), Region()]
    guarded = clipped if is_multiple and context.is_multiple(lengths[along], each) else packed
    for region, make in zip(regions, (direct, guarded), strict=True):
        with b.at(region):
            b.op("yield", *make())
    return context.choose(test, types, *regions)


def _load_vectors(
    context: LoweringContext, op: Op, operands: Sequence[Value], places: Sequence[VectorSlot], *, clipped: bool
) -> list[Value]:
    """Load whole vectors; if `clipped`, those outside of the slice are padding."""
    array, starts, lengths, pad = slice_operands(operands)
    b, kind, along = context.builder, tile_of(op.result), _contiguous_axis(op)
    each, kind_of_array = VECTOR_BYTES // kind.dtype.itemsize, array.type
    assert isinstance(kind_of_array, Array)
    view = b.emit(
        "linear",
        array,
        type=Array(VECTOR, 1, access=kind_of_array.access, restrict=kind_of_array.restrict, linear=True),
    )
    base, stride = _base(context, array, starts, op.attrs["axes"], each)
    lines = [b.emit("add", base, b.emit("mul", line, stride)) for line, _, _ in places]
    spots = [b.emit("add", at, column) for at, (_, column, _) in zip(lines, places, strict=True)]
    if not clipped:
        return [b.emit("load", view, spot) for spot in spots]
    outside, wide = _padding(context, pad, each), b.emit("floordiv", lengths[along], b.index(each))
    values = []
    for spot, (line, column, _) in zip(spots, places, strict=True):
        inside = b.emit("and", b.emit("lt", line, lengths[1 - along]), b.emit("lt", column, wide))
        regions = [Region(), Region()]
        with b.at(regions[0]):
            b.op("yield", b.emit("load", view, spot))
        with b.at(regions[1]):
            b.op("yield", outside)
        values += context.choose(inside, [VECTOR], *regions)
    return values


def _padding(context: LoweringContext, pad: Value, each: int) -> Value:
    """Return a vector of `each` elements that are all the padding value."""
    b = context.builder
    if constant_of(pad) == 0:
        return b.const(0, VECTOR)
    word = _bits(context, pad)
    for place in range(1, each // 4):
        word = b.emit("or", word, b.emit("shl_raw", _bits(context, pad), b.const(place * 128 // each, dtypes.u32)))
    return b.emit("vec_make", word, word, word, word, type=VECTOR)


def _base(
    context: LoweringContext, array: Value, starts: Sequence[Value], axes: Sequence[int | None], each: int
) -> tuple[Value, Value]:
    """Return the start of a slice and the distance between its rows, in vectors."""
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
    """Assemble a vector from single elements, with padding for those outside of the array."""
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
    """Return the bits of an element as a u32."""
    b = context.builder
    assert isinstance(element.type, Scalar)
    dtype = element.type.dtype
    if dtype is dtypes.bf16:
        wide = b.emit("bitcast", b.cast(element, dtypes.f32), type=Scalar(dtypes.u32))
        return b.emit("shr_raw", wide, b.const(16, dtypes.u32))
    plain = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}[dtype.bits]
    return b.cast(element if dtype is plain else b.emit("bitcast", element, type=Scalar(plain)), dtypes.u32)
