"""Products of tiles on cooperative matrices: each subgroup holds a block of the sums in matrices of the device's size.

Enters: chains of `tile_mma` whose sums begin as one number and are handed on by loops alone. Leaves: `mat_*` operations.
Factors are staged in shared memory as they lie in global memory, in vectors of 16 bytes, rows padded by one: everything is
read before a barrier, written, and multiplied after another one. Sums leave the matrices by a store to global memory where
the tile lies inside an array of their type, or through shared memory, a row of matrices of each subgroup at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ... import dtypes
from ...ir.core import Function, Op, Region, Value
from ...ir.rewrite import constant_of, exits_of
from ...ir.types import Array, Matrix, Scalar, Tile, Type, Vector
from ...runtime.interface import DeviceCaps, MatrixShape
from .access import indices, slice_operands, whole
from .held import Held, Staged, Workshop
from .layout import Layout

__all__ = ["Fragments", "Packed", "Plan", "Splat", "multiply", "plans_of", "splat_of", "stage", "store", "to_registers"]

_VECTOR_BYTES = 16
_MOST_BYTES = 16 * 16 * 16 * 4
"""Of the sums of one subgroup: 16 matrices of 16 x 16 f32."""
_VECTOR = Vector(dtypes.u32, 4)
_WORD = Scalar(dtypes.u32)


@dataclass(frozen=True, slots=True)
class Plan:
    """`down` x `across` subgroups, each with `rows` x `columns` matrices of `shape`."""

    shape: MatrixShape
    down: int
    across: int
    rows: int
    columns: int
    factor: dtypes.DType
    total: dtypes.DType

    @property
    def kind(self) -> Matrix:
        """The type of the sums' matrices."""
        return Matrix(self.total, self.shape.m, self.shape.n, "acc")

    @property
    def held(self) -> int:
        """Matrices of one subgroup."""
        return self.rows * self.columns

    def __str__(self) -> str:
        s = self.shape
        return f"{self.down} x {self.across} subgroups of {self.rows} x {self.columns} matrices {s.m}x{s.n}x{s.k}"


@dataclass(frozen=True, slots=True)
class Fragments:
    """Sums in matrices, row by row."""

    plan: Plan
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Splat:
    """A tile that holds one number everywhere."""

    value: Value


@dataclass(frozen=True, slots=True)
class Packed:
    """A factor in shared memory as it lies in global memory: `lines` of `pitch` vectors; axis `along` of the tile runs along
    a line.
    """

    array: Value
    pitch: int
    along: int


Spot = tuple[Value, Value, "Value | None"]
"""A vector's line and column, and whether there is one."""


# -- what may be in matrices
def plans_of(function: Function, caps: DeviceCaps, invocations: int) -> dict[Value, Plan]:
    """The values that are held in matrices: results of products, and what loops make of them."""
    if not caps.matrices or invocations % caps.subgroup_size:
        return {}
    found: dict[Value, Plan] = {}
    loops = [op for op in function.body.walk() if op.name == "for"]
    for op in function.body.walk():
        if op.name == "tile_mma":
            plan = _plan(op, caps, invocations // caps.subgroup_size)
            if plan is not None:
                found[op.result] = plan
    scaled = [op for op in function.body.walk() if _row_factor(op) is not None]
    for op in reversed(loops):  # inner ones before those around them
        _carried(op, found)
    for op in scaled:
        plan = found.get(op.operands[0])
        if plan is not None:
            found[op.result] = plan
    while _without_ground(function, loops, found):
        pass
    return found


def _carried(loop: Op, found: dict[Value, Plan]) -> None:
    """What a loop carries is in matrices if what its rounds give is."""
    for place, (argument, result) in enumerate(zip(loop.regions[0].args[1:], loop.results, strict=True)):
        for end in exits_of(loop.regions[0]):
            plan = found.get(end.operands[place])
            if plan is not None:
                found[argument] = found[result] = plan


def _without_ground(function: Function, loops: Sequence[Op], found: dict[Value, Plan]) -> bool:
    """Takes out what gets something that isn't in matrices; whether there was any."""
    before = len(found)

    def grounded(value: Value, plan: Plan) -> bool:
        return found.get(value) == plan or splat_of(value) is not None

    for op in function.body.walk():
        if op.name not in ("tile_mma", "tile_map") or op.result not in found:
            continue
        before_it = op.operands[2] if op.name == "tile_mma" else op.operands[0]
        if not grounded(before_it, found[op.result]) or (op.name == "tile_map" and splat_of(before_it) is not None):
            del found[op.result]
    for loop in loops:
        ends = list(exits_of(loop.regions[0]))
        for place, (argument, result) in enumerate(zip(loop.regions[0].args[1:], loop.results, strict=True)):
            plan = found.get(argument)
            if plan is None:
                found.pop(result, None)
                continue
            inner = all(e.name == "continue" and found.get(e.operands[place]) == plan for e in ends)
            if not inner or not grounded(loop.operands[3 + place], plan):
                del found[argument]
                found.pop(result, None)
    return len(found) < before


def _row_factor(op: Op) -> Value | None:
    """What an operation multiplies each row of its first operand by, if that is all that it does."""
    if op.name != "tile_map" or len(op.operands) != 2 or len(op.regions[0].ops) != 2:
        return None
    first, second = (v.type for v in op.operands)
    assert isinstance(first, Tile)
    assert isinstance(second, Tile)
    product, end = op.regions[0].ops
    fits = (
        product.name == "mul"
        and set(product.operands) == set(op.regions[0].args[2:])
        and end.operands == product.results
    )
    return op.operands[1] if fits and second.shape == (first.shape[0], 1) and first.dtype is second.dtype else None


def splat_of(value: Value) -> Value | None:
    """The number that a tile holds everywhere, where that comes from outside of its region or is a constant."""
    op = value.op
    if op is None or op.name != "tile_map" or op.operands:
        return None
    region = op.regions[0]
    inside = [o for o in region.ops[:-1] if o.name != "const"]
    given = region.terminator.operands[0]
    return None if inside or given in region.args else given


def _plan(op: Op, caps: DeviceCaps, subgroups: int) -> Plan | None:
    a, b, total = (v.type for v in op.operands)
    assert isinstance(a, Tile)
    assert isinstance(b, Tile)
    assert isinstance(total, Tile)
    if a.dtype is not b.dtype or total.scope != "workgroup":
        return None
    best: tuple[int, Plan] | None = None
    for shape in caps.matrices:
        names = (shape.a, shape.b, shape.c, shape.result)
        if shape.flexible or shape.saturating or shape.scope != "subgroup":
            continue
        if names != (a.dtype.name, a.dtype.name, total.dtype.name, total.dtype.name):
            continue
        if total.shape[0] % shape.m or total.shape[1] % shape.n or a.shape[1] % shape.k:
            continue
        plan = _divided(shape, total, a.dtype, subgroups)
        if plan is not None and (best is None or shape.m * shape.n * shape.k > best[0]):
            best = shape.m * shape.n * shape.k, plan
    return best[1] if best is not None else None


def _divided(shape: MatrixShape, total: Tile, factor: dtypes.DType, subgroups: int) -> Plan | None:
    """The cut into subgroups whose blocks are nearest to squares."""
    rows, columns = total.shape[0] // shape.m, total.shape[1] // shape.n
    best: Plan | None = None
    for down in (d for d in range(1, subgroups + 1) if subgroups % d == 0):
        across = subgroups // down
        if rows % down or columns % across:
            continue
        plan = Plan(shape, down, across, rows // down, columns // across, factor, total.dtype)
        if plan.held * shape.m * shape.n * total.dtype.itemsize > _MOST_BYTES:
            continue
        if best is None or plan.rows + plan.columns < best.rows + best.columns:
            best = plan
    return best


# -- factors
def stage(shop: Workshop, slices: Sequence[tuple[Op, Sequence[Value], str]]) -> list[Packed]:
    """Slices in shared memory: everything is read before anything is written."""
    ready: list[tuple[Packed, list[Spot], list[Value]]] = []
    for op, operands, label in slices:
        shop.access(operands[0], "r")
        packed, spots = reserve(shop, op, label)
        ready.append((packed, spots, vectors(shop, op, operands, spots)))
    for packed, _, _ in ready:
        shop.access(packed.array, "w")
    for packed, spots, found in ready:
        write(shop, packed, spots, found)
    return [packed for packed, _, _ in ready]


def write(shop: Workshop, packed: Packed, spots: Sequence[Spot], found: Sequence[Value]) -> None:
    """Puts the vectors of an invocation into their places in shared memory."""
    b = shop.builder
    for (line, column, test), vector in zip(spots, found, strict=True):
        place = b.emit("add", b.emit("mul", line, b.index(packed.pitch)), column)
        if test is None:
            b.op("store", packed.array, place, vector)
            continue
        with b.when(test):
            b.op("store", packed.array, place, vector)


def can_pack(op: Op, plan: Plan) -> bool:
    """Whether a slice, and each matrix of it, is cut into whole vectors along the last axis of its array."""
    kind, along, shape = op.attrs["type"], op.attrs["axes"][-1], plan.shape
    each = _VECTOR_BYTES // kind.dtype.itemsize
    if along is None or len(kind.shape) != 2 or kind.shape[along] % each:
        return False
    return not any(size % each for size in (shape.m, shape.n, shape.k))


def reserve(shop: Workshop, op: Op, label: str) -> tuple[Packed, list[Spot]]:
    """Shared memory for a slice, and which vectors of it the invocation brings."""
    b, kind = shop.builder, op.attrs["type"]
    along = op.attrs["axes"][-1]
    each = _VECTOR_BYTES // kind.dtype.itemsize
    lines, wide = kind.shape[1 - along], kind.shape[along] // each
    pitch, count, total = wide + 1, shop.invocations, lines * wide
    array = shop.stage(_VECTOR, lines * pitch, label)
    shop.notes.append(f"{b.loc}: {label} staged in lines of {wide} vectors of 16 bytes, {pitch} apart: other banks")
    places: list[Spot] = []
    for step in range(-(-total // count)):
        number = shop.at(shop.rank("workgroup"), step * count)
        test = None if (step + 1) * count <= total else b.emit("lt", number, b.index(total))
        number = number if test is None else b.emit("min", number, b.index(total - 1))
        places.append((b.emit("floordiv", number, b.index(wide)), b.emit("floormod", number, b.index(wide)), test))
    return Packed(array, pitch, along), places


def vectors(shop: Workshop, op: Op, operands: Sequence[Value], places: Sequence[Spot]) -> list[Value]:
    """The vectors of a slice at these places: whole ones where the slice begins with one, for then each of them lies inside or
    outside as a whole, else element by element.
    """
    array, starts, lengths, _ = slice_operands(operands)
    b, kind, along = shop.builder, op.attrs["type"], op.attrs["axes"][-1]
    each = _VECTOR_BYTES // kind.dtype.itemsize

    def packed() -> list[Value]:
        return [_elements(shop, op, operands, line, column, each) for line, column, _ in places]

    assert isinstance(array.type, Array)
    if not (shop.function.attrs.get("aligned") and array.type.contiguous and array.type.space == "global"):
        return packed()
    known = shop.multiple(starts[-1], each)
    aligned = None if known else b.emit("eq", b.emit("floormod", starts[-1], b.index(each)), b.index(0))
    test = shop.all_of([whole(shop, lengths, kind.shape), aligned])
    types: list[Type] = [_VECTOR] * len(places)

    def direct() -> list[Value]:
        return _loaded(shop, op, operands, places, clipped=False)

    def clipped() -> list[Value]:
        return _loaded(shop, op, operands, places, clipped=True)

    if test is None:
        return direct()
    regions = [Region(), Region()]
    careful = clipped if known and shop.multiple(lengths[along], each) else packed
    for region, make in zip(regions, (direct, careful), strict=True):
        with b.at(region):
            b.op("yield", *make())
    return shop.choose(test, types, *regions)


def _loaded(shop: Workshop, op: Op, operands: Sequence[Value], places: Sequence[Spot], *, clipped: bool) -> list[Value]:
    """Vectors as they lie in memory; `clipped`: padding where they lie outside of the slice."""
    array, starts, lengths, pad = slice_operands(operands)
    b, kind, along = shop.builder, op.attrs["type"], op.attrs["axes"][-1]
    each, found = _VECTOR_BYTES // kind.dtype.itemsize, array.type
    assert isinstance(found, Array)
    view = b.emit("linear", array, type=Array(_VECTOR, 1, access=found.access, restrict=found.restrict, linear=True))
    base, stride = _base(shop, array, starts, op.attrs["axes"], each)
    lines = [b.emit("add", base, b.emit("mul", line, stride)) for line, _, _ in places]
    spots = [b.emit("add", at, column) for at, (_, column, _) in zip(lines, places, strict=True)]
    if not clipped:
        return [b.emit("load", view, spot) for spot in spots]
    outside, wide = _padding(shop, pad, each), b.emit("floordiv", lengths[along], b.index(each))
    values = []
    for spot, (line, column, _) in zip(spots, places, strict=True):
        inside = b.emit("and", b.emit("lt", line, lengths[1 - along]), b.emit("lt", column, wide))
        regions = [Region(), Region()]
        with b.at(regions[0]):
            b.op("yield", b.emit("load", view, spot))
        with b.at(regions[1]):
            b.op("yield", outside)
        values += shop.choose(inside, [_VECTOR], *regions)
    return values


def _padding(shop: Workshop, pad: Value, each: int) -> Value:
    """A vector of `each` elements that are all the same."""
    b = shop.builder
    if constant_of(pad) == 0:
        return b.const(0, _VECTOR)
    word = _bits(shop, pad)
    for place in range(1, each // 4):
        word = b.emit("or", word, b.emit("shl_raw", _bits(shop, pad), b.const(place * 128 // each, dtypes.u32)))
    return b.emit("vec_make", word, word, word, word, type=_VECTOR)


def _base(
    shop: Workshop, array: Value, starts: Sequence[Value], axes: Sequence[int | None], each: int
) -> tuple[Value, Value]:
    """Where a slice begins and how far its lines are apart, in vectors."""
    b = shop.builder
    base = b.emit("floordiv", starts[-1], b.index(each))
    between = b.index(0)
    for axis, (start, which) in enumerate(zip(starts[:-1], axes[:-1], strict=True)):
        stride = b.emit("floordiv", b.emit("stride", array, axis=axis), b.index(each))
        base = b.emit("add", base, b.emit("mul", start, stride))
        between = stride if which is not None else between
    return base, between


def _elements(shop: Workshop, op: Op, operands: Sequence[Value], line: Value, column: Value, each: int) -> Value:
    """A vector put together from single elements, as far as they lie inside the array."""
    array, starts, lengths, pad = slice_operands(operands)
    b, along = shop.builder, op.attrs["axes"][-1]
    first = b.emit("mul", column, b.index(each))
    words: list[Value | None] = [None] * 4
    per_word = each // 4
    for number in range(each):
        at: list[Value] = [line, line]
        at[along] = shop.at(first, number)
        inside = shop.all_of(b.emit("lt", p, n) for p, n in zip(at, lengths, strict=True))
        assert inside is not None
        taken, other = Region(), Region()
        with b.at(taken):
            b.op("yield", b.emit("load", array, *indices(shop, starts, op.attrs["axes"], at)))
        with b.at(other):
            b.op("yield", pad)
        (element,) = shop.choose(inside, [pad.type], taken, other)
        word, place = _bits(shop, element), number % per_word
        if place:
            word = b.emit("shl_raw", word, b.const(place * 32 // per_word, dtypes.u32))
        before = words[number // per_word]
        words[number // per_word] = word if before is None else b.emit("or", before, word)
    return b.emit("vec_make", *[w for w in words if w is not None], type=_VECTOR)


def _bits(shop: Workshop, element: Value) -> Value:
    """The bits of an element as a u32."""
    b = shop.builder
    assert isinstance(element.type, Scalar)
    dtype = element.type.dtype
    if dtype is dtypes.bf16:
        wide = b.emit("bitcast", b.cast(element, dtypes.f32), type=Scalar(dtypes.u32))
        return b.emit("shr_raw", wide, b.const(16, dtypes.u32))
    plain = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}[dtype.bits]
    return b.cast(element if dtype is plain else b.emit("bitcast", element, type=Scalar(plain)), dtypes.u32)


# -- products
def fill(shop: Workshop, plan: Plan, value: Value) -> Fragments:
    """Sums that begin with one number."""
    shop.uses_lanes()
    made = shop.builder.emit("mat_fill", value, type=plan.kind)
    return Fragments(plan, (made,) * plan.held)


def _corner(shop: Workshop, plan: Plan) -> tuple[Value, Value]:
    """The first row and column of the subgroup's block."""
    shop.uses_lanes()
    key = ("corner", plan.down, plan.across)
    if key not in shop.numbers:
        shop.numbers[key] = shop.entry.emit("subgroup_id")
    b, own = shop.builder, shop.numbers[key]
    down, across = b.emit("floordiv", own, b.index(plan.across)), b.emit("floormod", own, b.index(plan.across))
    rows, columns = plan.rows * plan.shape.m, plan.columns * plan.shape.n
    return b.emit("mul", down, b.index(rows)), b.emit("mul", across, b.index(columns))


def multiply(shop: Workshop, a: Packed | Staged, b: Packed | Staged, acc: Fragments, depth: int) -> Fragments:
    """acc + a @ b."""
    plan, sums = acc.plan, list(acc.values)
    row, column = _corner(shop, plan)
    shape = plan.shape
    for k in range(0, depth, shape.k):
        left = [_factor(shop, a, plan, "a", shop.at(row, i * shape.m), k) for i in range(plan.rows)]
        right = [_factor(shop, b, plan, "b", shop.at(column, j * shape.n), k) for j in range(plan.columns)]
        for i in range(plan.rows):
            for j in range(plan.columns):
                place = i * plan.columns + j
                sums[place] = shop.builder.emit("mat_mma", left[i], right[j], sums[place], type=plan.kind)
    return Fragments(plan, tuple(sums))


def _factor(shop: Workshop, source: Packed | Staged, plan: Plan, use: str, outer: Value, k: int) -> Value:
    """The matrix of a factor at `outer` along the sums' axis and `k` along the inner dimension."""
    b, shape = shop.builder, plan.shape
    size = (shape.m, shape.k) if use == "a" else (shape.k, shape.n)
    kind = Matrix(plan.factor, *size, use)
    inner = 1 if use == "a" else 0
    along = source.along if isinstance(source, Packed) else 1
    each = _VECTOR_BYTES // plan.factor.itemsize if isinstance(source, Packed) else 1
    line, place = (outer, b.index(k)) if along == inner else (b.index(k), outer)
    place = b.emit("floordiv", place, b.index(each)) if each > 1 else place
    at = b.emit("add", b.emit("mul", line, b.index(source.pitch)), place)
    layout = "row" if along == 1 else "column"
    return b.emit("mat_load", source.array, at, b.index(source.pitch), layout=layout, type=kind)


def scale_rows(shop: Workshop, sums: Fragments, factors: Held) -> Fragments:
    """Each row of the sums times a factor: matrices whose columns are all the same are loaded for it."""
    b, plan, shape = shop.builder, sums.plan, sums.plan.shape
    rows = factors.layout.axes[0]
    array = shop.scratch(plan.total, rows.size * shape.n, "factors")
    lines = shop.positions(rows, factors.layout.scope)
    tests = shop.inside(rows, lines)
    owner = shop.owns(factors.layout)
    shop.access(array, "w")
    for line, test, value in zip(lines, tests, factors.values, strict=True):
        condition = shop.all_of([owner, test])
        first = b.emit("mul", line, b.index(shape.n))

        def write(first: Value = first, value: Value = value) -> None:
            for column in range(shape.n):
                b.op("store", array, shop.at(first, column), value)

        if condition is None:
            write()
            continue
        with b.when(condition):
            write()
    shop.access(array, "r")
    row, _ = _corner(shop, plan)
    values = list(sums.values)
    for i in range(plan.rows):
        at = b.emit("mul", shop.at(row, i * shape.m), b.index(shape.n))
        same = b.emit("mat_load", array, at, b.index(shape.n), layout="row", type=plan.kind)
        for j in range(plan.columns):
            place = i * plan.columns + j
            values[place] = b.emit("mat_map", values[place], same, op="mul", type=plan.kind)
    return Fragments(plan, tuple(values))


# -- out of matrices
def to_registers(shop: Workshop, sums: Fragments, layout: Layout) -> Held:
    """The sums in registers, one row of matrices of each subgroup at a time; only of the subgroups of one column of them where
    all of these would need more shared memory than there is already.
    """
    b, plan, shape = shop.builder, sums.plan, sums.plan.shape
    rows, columns = layout.axes
    around = 1 << rows.bits
    whole_rows, whole_columns = plan.rows * shape.m, plan.columns * shape.n
    parts = plan.rows if rows.group == 1 and shape.m % around == 0 and rows.exact else 1
    high = plan.down * (shape.m if parts > 1 else whole_rows)
    apart = columns.exact and whole_columns % columns.round == 0
    between = _Exchange(shop, plan, layout, high, whole_columns if apart else columns.size)
    blocks = plan.across if between.wide < columns.size else 1
    if blocks > 1:
        shop.notes.append(
            f"{b.loc}: sums go to registers in the memory of factors, {blocks} columns of subgroups one after the other"
        )
    row, column = _corner(shop, plan)
    lines = shop.positions(rows, layout.scope)
    values: dict[tuple[int, int], Value] = {}
    own = b.emit("floordiv", row, b.index(plan.rows)) if parts > 1 else row

    def put(part: int, left: Value) -> None:
        for i in range(part, part + 1) if parts > 1 else range(plan.rows):
            for j in range(plan.columns):
                line = own if parts > 1 else shop.at(row, i * shape.m)
                between.put(line, shop.at(left, j * shape.n), sums.values[i * plan.columns + j])

    for part, block in itertools.product(range(parts), range(blocks)):
        shop.access(between.array, "w")
        if blocks == 1:
            put(part, column)
        else:
            with b.when(b.emit("eq", column, b.index(block * whole_columns))):
                put(part, b.index(0))
        shop.access(between.array, "r")
        for slot, line in enumerate(lines):
            shift = _shift(slot * around, whole_rows, shape.m, part) if parts > 1 else 0
            if shift is None:
                continue
            line = b.emit("min", line, b.index(rows.size - 1)) if not rows.exact else line
            for place, value in enumerate(between.line(shop.at(line, shift)), block * between.held):
                values[slot, place] = value
    between.close()
    return Held(layout, tuple(values[slot] for slot in layout.slots()))  # type: ignore[index]


class _Exchange:
    """Shared memory through which sums go from matrices to registers. Where an invocation reads neighbours that make whole words,
    it is made of vectors of 16 bytes, as that of factors, whose memory it takes if that is free; else of elements.
    """

    def __init__(self, shop: Workshop, plan: Plan, layout: Layout, high: int, least: int) -> None:
        """Of `high` lines and all columns; of `least` columns where memory that is free suffices for no more."""
        self.shop, self.kind, columns = shop, plan.total, layout.axes[1]
        self.wide = columns.size
        self.each = max(1, _VECTOR_BYTES // self.kind.itemsize)
        self.run = min(columns.group, self.each)
        fits = columns.exact and self.run * self.kind.itemsize % 4 == 0 and self.kind.itemsize <= 4
        self.packed = fits and columns.size % self.each == 0 and plan.shape.n % self.each == 0
        if self.packed:
            room = shop.room(_VECTOR)
            if least % self.each == 0 and 0 < room < high * (self.wide // self.each + 1):
                self.wide = least
            self.pitch = self.wide // self.each + 1
            self.array = shop.stage(_VECTOR, high * self.pitch, "sums", again=True)
        else:
            self.pitch = self.wide + self.each
            self.array = shop.scratch(self.kind, high * self.pitch, "sums")
        self.held = columns.held * self.wide // columns.size
        b, across = shop.builder, shop.positions(columns, layout.scope)[: self.held]
        ends = zip(across, shop.inside(columns, across), strict=True)
        self.across = [p if t is None else b.emit("min", p, b.index(columns.size - 1)) for p, t in ends]

    def _at(self, line: Value, column: Value) -> Value:
        b = self.shop.builder
        column = b.emit("floordiv", column, b.index(self.each)) if self.packed else column
        return b.emit("add", b.emit("mul", line, b.index(self.pitch)), column)

    def put(self, line: Value, column: Value, matrix: Value) -> None:
        """Writes a matrix whose first element stands there."""
        b = self.shop.builder
        b.op("mat_store", self.array, self._at(line, column), b.index(self.pitch), matrix, layout="row")

    def line(self, line: Value) -> list[Value]:
        """The elements of a line that the invocation holds."""
        b = self.shop.builder
        if not self.packed:
            return [b.emit("load", self.array, self._at(line, column)) for column in self.across]
        found: list[Value] = []
        for first in self.across[:: self.run]:
            vector = b.emit("load", self.array, self._at(line, first))
            words = [b.emit("vec_extract", vector, lane=lane, type=_WORD) for lane in range(4)]
            count = self.run * self.kind.itemsize // 4
            part = b.emit("floormod", b.emit("floordiv", first, b.index(self.run)), b.index(4 // count))
            chosen = words[:count]
            for number in range(1, 4 // count):
                here = b.emit("eq", part, b.index(number))
                others = words[number * count : (number + 1) * count]
                chosen = [b.emit("select", here, x, y) for x, y in zip(others, chosen, strict=True)]
            found += [value for word in chosen for value in _from_bits(self.shop, word, self.kind)]
        return found

    def close(self) -> None:
        """Gives the memory back."""
        if self.packed:
            self.shop.release(self.array)


def _from_bits(shop: Workshop, word: Value, kind: dtypes.DType) -> list[Value]:
    """The elements of a u32, the lowest first."""
    b, plain = shop.builder, {1: dtypes.u8, 2: dtypes.u16, 4: dtypes.u32}[kind.itemsize]
    found = []
    for place in range(4 // kind.itemsize):
        bits = b.emit("shr_raw", word, b.const(place * kind.bits, dtypes.u32)) if place else word
        bits = b.cast(bits, plain) if plain is not dtypes.u32 else bits
        found.append(b.emit("bitcast", bits, type=Scalar(kind)) if kind is not plain else bits)
    return found


def _shift(row: int, whole_rows: int, high: int, part: int) -> int | None:
    """What takes a row of the tile to its row in shared memory; None where another part holds it."""
    subgroup, inside = divmod(row, whole_rows)
    if inside // high != part:
        return None
    return subgroup * high + inside % high - row


def store(
    shop: Workshop, op: Op, operands: Sequence[Value], sums: Fragments, tile: Tile, otherwise: Callable[[], None]
) -> None:
    """Stores matrices directly where the whole tile lies inside an array of their type, else does something else."""
    array, starts, lengths, _ = slice_operands([*operands, operands[0]])
    b, plan, axes = shop.builder, sums.plan, op.attrs["axes"]
    kind = array.type
    assert isinstance(kind, Array)
    each = _VECTOR_BYTES // plan.total.itemsize
    in_order = axes[-2:] == (0, 1) and kind.contiguous and kind.dtype is plan.total and kind.space == "global"
    if not in_order or not shop.function.attrs.get("aligned"):
        otherwise()
        return
    aligned = b.emit("eq", b.emit("floormod", starts[-1], b.index(each)), b.index(0))
    test = shop.all_of([whole(shop, lengths, tile.shape), aligned])
    assert test is not None

    def direct() -> None:
        row, column = _corner(shop, plan)
        pitch = b.emit("stride", array, axis=kind.rank - 2)
        for i in range(plan.rows):
            for j in range(plan.columns):
                at = [shop.at(row, i * plan.shape.m), shop.at(column, j * plan.shape.n)]
                place = indices(shop, starts, axes, at)
                b.op("mat_store", array, *place, pitch, sums.values[i * plan.columns + j], layout="row")

    regions = [Region(), Region()]
    pending, assumed = set(shop.pending), set(shop.assumed)
    for region, make in zip(regions, (direct, otherwise), strict=True):
        with b.at(region):
            make()
            b.op("yield")
    shop.choose(test, [], *regions)
    shop.pending |= pending  # whichever way was taken
    shop.assumed |= assumed
