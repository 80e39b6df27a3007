"""Tiles that change hands: other layouts, single elements, reductions and scans along an axis.

Enters: tiles in registers. Leaves: tiles in registers. A workgroup exchanges through shared memory, a subgroup by shuffles.
Reductions combine an invocation's own slots first, then invocations whose numbers differ in one bit after the other, by
shuffles as long as they are in one subgroup; every invocation does the same additions, so all have the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dtypes import DType
from ...ir.core import Value
from ...ir.types import Scalar
from .held import Held, Workshop
from .keys import keyed, keys_of, numbers_of
from .layout import Axis, Layout

__all__ = ["argument", "get", "moved", "reduce", "reshape", "scan"]

Columns = tuple[Value, ...]
"""What is reduced together: a number, or a number and its position."""
_CHUNK_BYTES = 8192


def neutral(op: str, dtype: DType) -> bool | int | float:
    """The number that leaves others as they are under a reduction (-0 for sums of floats)."""
    if dtype.kind == "bool":
        return op == "and"
    if dtype.is_float:
        return {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}[op]
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = low + (1 << dtype.bits) - 1
    ones = -1 if dtype.is_signed else high
    return {"add": 0, "mul": 1, "min": high, "max": low, "and": ones, "or": 0, "xor": 0}[op]


# -- other layouts
def moved(shop: Workshop, tile: Held, layout: Layout, *, flat: bool = False) -> Held:
    """The tile in another layout of its shape; `flat`: of another shape with as many elements, in C order."""
    if tile.layout == layout:
        return tile
    if layout.scope == "subgroup":
        return _moved_by_shuffles(shop, tile, layout, flat)
    return _moved_through_memory(shop, tile, layout)


def reshape(shop: Workshop, tile: Held, layout: Layout) -> Held:
    """The same elements in C order with the shape of a layout."""
    direct = tile.layout.reshaped(layout.shape)
    if direct is not None:
        return moved(shop, Held(direct, tile.values), layout)
    return moved(shop, tile, layout, flat=True)


def _flat_positions(shop: Workshop, layout: Layout) -> list[Value]:
    """The number in C order of the element in each slot."""
    lines = [shop.positions(axis, layout.scope) for axis in layout.axes]
    return [shop.flat([p[s] for p, s in zip(lines, slot, strict=True)], layout.shape) for slot in layout.slots()]


def _tests(shop: Workshop, layout: Layout) -> list[Value | None]:
    """Whether each slot holds an element."""
    lines = [shop.inside(axis, shop.positions(axis, layout.scope)) for axis in layout.axes]
    return [shop.all_of(line[s] for line, s in zip(lines, slot, strict=True)) for slot in layout.slots()]


def _moved_through_memory(shop: Workshop, tile: Held, layout: Layout) -> Held:
    b, element = shop.builder, tile.values[0].type
    assert isinstance(element, Scalar)
    total = 1
    for axis in layout.axes:
        total *= axis.size
    limit = max(1, min(total, shop.options.shared_bytes // 2 // element.dtype.itemsize))
    source, target = _flat_positions(shop, tile.layout), _flat_positions(shop, layout)
    inside, owner = _tests(shop, tile.layout), shop.owns(tile.layout)
    results: list[Value | None] = [None] * len(target)
    for first in range(0, total, limit):
        parts = total > limit
        array = shop.scratch(element.dtype, min(limit, total))
        shop.access(array, "w")
        for value, at, test in zip(tile.values, source, inside, strict=True):
            place, within = _windowed(shop, at, first, limit, parts)
            condition = shop.all_of([owner, test, within])
            if condition is None:
                b.op("store", array, place, value)
                continue
            with b.when(condition):
                b.op("store", array, place, value)
        shop.access(array, "r")
        for number, at in enumerate(target):
            place, within = _windowed(shop, at, first, limit, parts)
            safe = b.emit("max", b.emit("min", place, b.index(min(limit, total - first) - 1)), b.index(0))
            exact = layout.exact and not parts
            found = b.emit("load", array, place if exact else safe)
            before = results[number]
            results[number] = found if before is None or within is None else b.emit("select", within, found, before)
    return Held(layout, tuple(v for v in results if v is not None))


def _windowed(shop: Workshop, at: Value, first: int, limit: int, parts: bool) -> tuple[Value, Value | None]:
    """A position in the part of a tile that is in shared memory now, and whether it is in that part."""
    if not parts:
        return at, None
    b = shop.builder
    place = b.emit("sub", at, b.index(first)) if first else at
    return place, b.emit("and", b.emit("ge", place, b.index(0)), b.emit("lt", place, b.index(limit)))


def _moved_by_shuffles(shop: Workshop, tile: Held, layout: Layout, flat: bool) -> Held:
    """Each invocation asks the one that holds an element for it; which slot that is may differ between them."""
    lines = [shop.positions(axis, layout.scope) for axis in layout.axes]
    wanted = []
    for slot in layout.slots():
        at = [p[s] for p, s in zip(lines, slot, strict=True)]
        wanted.append(_unflattened(shop, shop.flat(at, layout.shape), tile.layout.shape) if flat else at)
    return Held(layout, tuple(_asked(shop, tile, at) for at in wanted))


def _unflattened(shop: Workshop, number: Value, shape: Sequence[int]) -> list[Value]:
    b, found = shop.builder, []
    for size in reversed(shape[1:]):
        found.append(b.emit("floormod", number, b.index(size)))
        number = b.emit("floordiv", number, b.index(size))
    return [number, *reversed(found)]


def _holder(shop: Workshop, layout: Layout, at: Sequence[Value]) -> tuple[Value, Value]:
    """The first invocation that holds an element, and the number of its slot."""
    b = shop.builder
    lane, slot = b.index(0), b.index(0)
    for axis, position in zip(layout.axes, at, strict=True):
        inside = b.emit("max", b.emit("min", position, b.index(axis.size - 1)), b.index(0))
        group, rest = b.emit("floordiv", inside, b.index(axis.group)), b.emit("floormod", inside, b.index(axis.group))
        place = b.emit("floormod", group, b.index(1 << axis.bits))
        own = b.emit(
            "add", b.emit("mul", b.emit("floordiv", group, b.index(1 << axis.bits)), b.index(axis.group)), rest
        )
        lane = b.emit("add", lane, b.emit("mul", place, b.index(1 << axis.shift)))
        slot = b.emit("add", b.emit("mul", slot, b.index(axis.held)), own)
    return lane, slot


def _asked(shop: Workshop, tile: Held, at: Sequence[Value]) -> Value:
    b = shop.builder
    shop.uses_lanes()
    lane, slot = _holder(shop, tile.layout, at)
    found = b.emit("sg_shuffle", tile.values[0], lane)
    for number, value in enumerate(tile.values[1:], 1):
        other = b.emit("sg_shuffle", value, lane)
        found = b.emit("select", b.emit("eq", slot, b.index(number)), other, found)
    return found


# -- single elements
def get(shop: Workshop, tile: Held, at: Sequence[Value]) -> Value:
    """The element at a position, in every invocation."""
    b, layout = shop.builder, tile.layout
    if len(tile.values) == 1 and layout.used == 0:
        return tile.values[0]
    if layout.scope == "subgroup":
        return _asked(shop, tile, at)
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    array = shop.scratch(element.dtype, 1)
    clamped = [
        b.emit("max", b.emit("min", p, b.index(axis.size - 1)), b.index(0))
        for p, axis in zip(at, layout.axes, strict=True)
    ]
    lines = [shop.positions(axis, layout.scope) for axis in layout.axes]
    owner = shop.owns(layout)
    shop.access(array, "w")
    for slot in layout.slots():
        same = [b.emit("eq", line[s], p) for line, s, p in zip(lines, slot, clamped, strict=True)]
        condition = shop.all_of([owner, *same])
        assert condition is not None
        with b.when(condition):
            b.op("store", array, b.index(0), tile.values[layout.number(slot)])
    shop.access(array, "r")
    return b.emit("load", array, b.index(0))


# -- reductions
def reduce(shop: Workshop, op: str, tile: Held, axis: int) -> Held:
    """The reduction along an axis."""
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    b = shop.builder
    rest = b.const(neutral(op, element.dtype), element)

    def combine(x: Columns, y: Columns) -> Columns:
        return (b.emit(op, x[0], y[0]),)

    values = _within_axis(shop, tile, axis, rest)
    by_keys = keyed(shop, op, element)
    if by_keys:
        shop.notes.append(f"{b.loc}: the {op} of f32 is found by whole numbers that are ordered as floats are")
        values = keys_of(shop, op, values)
    found = [c[0] for c in _reduced(shop, tile.layout, axis, [(v,) for v in values], combine)]
    return Held(tile.layout.without(axis), tuple(numbers_of(shop, op, found) if by_keys else found))


def argument(shop: Workshop, op: str, tile: Held, axis: int) -> Held:
    """The least position of the extremum along an axis."""
    b, layout = shop.builder, tile.layout
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    is_float = element.dtype.is_float

    def combine(x: Columns, y: Columns) -> Columns:
        better = b.emit("lt" if op == "min" else "gt", y[0], x[0])
        same = b.emit("eq", y[0], x[0])
        if is_float:
            nan_x, nan_y = b.emit("isnan", x[0]), b.emit("isnan", y[0])
            better = b.emit("and", b.emit("or", better, nan_y), b.emit("not", nan_x))
            same = b.emit("or", same, b.emit("and", nan_x, nan_y))
        taken = b.emit("or", better, b.emit("and", same, b.emit("lt", y[1], x[1])))
        return b.emit("select", taken, y[0], x[0]), b.emit("select", taken, y[1], x[1])

    line = shop.positions(layout.axes[axis], layout.scope)
    last = layout.axes[axis].size
    inside = shop.inside(layout.axes[axis], line)
    rest = b.const(neutral(op, element.dtype), element)
    columns: list[Columns] = []
    for slot in layout.slots():
        value, at, test = tile.values[layout.number(slot)], line[slot[axis]], inside[slot[axis]]
        if test is not None:
            value, at = b.emit("select", test, value, rest), b.emit("select", test, at, b.index(last))
        columns.append((value, at))
    found = _reduced(shop, layout, axis, columns, combine)
    return Held(layout.without(axis), tuple(c[1] for c in found))


def _within_axis(shop: Workshop, tile: Held, axis: int, rest: Value) -> list[Value]:
    """The values, `rest` in slots beyond the end of the axis."""
    layout = tile.layout
    tests = shop.inside(layout.axes[axis], shop.positions(layout.axes[axis], layout.scope))
    values = []
    for slot in layout.slots():
        value, test = tile.values[layout.number(slot)], tests[slot[axis]]
        values.append(value if test is None else shop.builder.emit("select", test, value, rest))
    return values


def _reduced(
    shop: Workshop, layout: Layout, axis: int, columns: list[Columns], combine: Callable[[Columns, Columns], Columns]
) -> list[Columns]:
    """The reductions over all slots and all invocations along the axis."""
    left = layout.without(axis)
    lines: dict[tuple[int, ...], list[Columns]] = {}
    for slot, column in zip(layout.slots(), columns, strict=True):
        lines.setdefault((*slot[:axis], *slot[axis + 1 :]), []).append(column)
    own = [_tree(line, combine) for line in lines.values()]
    assert len(own) == left.held
    spread = layout.axes[axis]
    low = _shuffled_bits(shop, layout, spread)
    for bit in range(low):
        own = [combine(c, _neighbour(shop, c, 1 << (spread.shift + bit))) for c in own]
    if low < spread.bits:
        own = _through_memory(shop, layout.scope, spread, low, own, combine)
    return own


def _tree(line: list[Columns], combine: Callable[[Columns, Columns], Columns]) -> Columns:
    """Neighbours first, then pairs of them."""
    while len(line) > 1:
        half = [combine(line[n], line[n + 1]) for n in range(0, len(line) - 1, 2)]
        line = [*half, line[-1]] if len(line) % 2 else half
    return line[0]


def _shuffled_bits(shop: Workshop, layout: Layout, axis: Axis) -> int:
    """How many of the axis' bits, from the lowest on, stay within a subgroup."""
    if layout.scope == "subgroup":
        return axis.bits
    size = shop.options.subgroup
    if not shop.options.shuffles or shop.invocations % size:
        return 0
    inside = size.bit_length() - 1
    return max(0, min(axis.bits, inside - axis.shift))


def _neighbour(shop: Workshop, column: Columns, mask: int) -> Columns:
    shop.uses_lanes()
    return tuple(shop.builder.emit("sg_shuffle_xor", value, mask=mask) for value in column)


def _through_memory(
    shop: Workshop,
    scope: str,
    axis: Axis,
    low: int,
    columns: list[Columns],
    combine: Callable[[Columns, Columns], Columns],
) -> list[Columns]:
    """Combines over the axis' bits from `low` on, some at a time; the lower ones are combined already."""
    most = 4
    done = low
    while done < axis.bits:
        bits = min(most, axis.bits - done)
        columns = _round(shop, scope, axis, done, bits, columns, combine)
        done += bits
    return columns


def _round(
    shop: Workshop,
    scope: str,
    axis: Axis,
    done: int,
    bits: int,
    columns: list[Columns],
    combine: Callable[[Columns, Columns], Columns],
) -> list[Columns]:
    """One round: who has combined `done` bits writes, and all read the 2**bits values that they lack."""
    b = shop.builder
    count = 1 << shop.bits(scope)
    rank = b.emit("floormod", shop.rank(scope), b.index(count)) if count != shop.invocations else shop.rank(scope)
    low_shift, high_shift = axis.shift, axis.shift + done
    places = count >> done
    upper = b.emit("floordiv", rank, b.index(1 << high_shift)) if high_shift else rank
    lower = b.emit("floormod", rank, b.index(1 << low_shift)) if low_shift else b.index(0)
    own = b.emit("add", b.emit("mul", upper, b.index(1 << low_shift)), lower)
    among = b.emit("floormod", upper, b.index(1 << bits))
    first = b.emit("sub", own, b.emit("mul", among, b.index(1 << low_shift)))
    writes = _writer(shop, scope, rank, low_shift, done, count)
    widest = max(v.type.dtype.itemsize for v in columns[0])  # type: ignore[attr-defined]
    step = max(1, min(len(columns), _CHUNK_BYTES // (places * widest)))
    results: list[Columns] = []
    for start in range(0, len(columns), step):
        part = columns[start : start + step]
        arrays = []
        for number, value in enumerate(part[0]):
            assert isinstance(value.type, Scalar)
            arrays.append(shop.calm(value.type.dtype, places * len(part), "exchange" if number == 0 else "places"))
        for array in arrays:
            shop.access(array, "w")

        def write(part: list[Columns] = part, arrays: list[Value] = arrays) -> None:
            for place, column in enumerate(part):
                for array, value in zip(arrays, column, strict=True):
                    b.op("store", array, shop.at(own, place * places), value)

        if writes is None:
            write()
        else:
            with b.when(writes):
                write()
        for array in arrays:
            shop.access(array, "r")
        for place in range(len(part)):
            found = [
                tuple(b.emit("load", array, shop.at(first, place * places + (n << low_shift))) for array in arrays)
                for n in range(1 << bits)
            ]
            results.append(_tree(list(found), combine))
    return results


def _writer(shop: Workshop, scope: str, rank: Value, shift: int, done: int, count: int) -> Value | None:
    """Whether the invocation writes for those that have the same values."""
    b = shop.builder
    tests: list[Value | None] = []
    if done:
        part = b.emit("floordiv", rank, b.index(1 << shift)) if shift else rank
        tests.append(b.emit("eq", b.emit("floormod", part, b.index(1 << done)), b.index(0)))
    if scope == "workgroup" and count != shop.invocations:
        tests.append(b.emit("lt", shop.rank(scope), b.index(count)))
    return shop.all_of(tests)


# -- scans
def scan(shop: Workshop, op: str, tile: Held, axis: int) -> Held:
    """The inclusive scan along an axis: each group, then groups across invocations, then round after round."""
    b, layout = shop.builder, tile.layout
    element, spread = tile.values[0].type, layout.axes[axis]
    assert isinstance(element, Scalar)
    rest = b.const(neutral(op, element.dtype), element)
    values = dict(zip(layout.slots(), _within_axis(shop, tile, axis, rest), strict=True))
    others = list(dict.fromkeys((*s[:axis], *s[axis + 1 :]) for s in layout.slots()))
    rounds = spread.held // spread.group

    def slot(other: tuple[int, ...], number: int) -> tuple[int, ...]:
        return (*other[:axis], number, *other[axis:])

    for other in others:
        for start in range(0, spread.held, spread.group):
            for number in range(start + 1, start + spread.group):
                at = slot(other, number)
                values[at] = b.emit(op, values[slot(other, number - 1)], values[at])
    keys = [(other, r) for other in others for r in range(rounds)]
    totals = [values[slot(o, r * spread.group + spread.group - 1)] for o, r in keys]
    before, whole = _across(shop, op, layout.scope, spread, totals, rest)
    for place, (other, r) in enumerate(keys):
        ahead = before[place]
        if r:
            earlier = whole[place - 1]
            ahead = b.emit(op, earlier, ahead)
            whole[place] = b.emit(op, earlier, whole[place])
        for number in range(r * spread.group, (r + 1) * spread.group):
            at = slot(other, number)
            values[at] = b.emit(op, ahead, values[at]) if r or spread.bits else values[at]
    return Held(layout, tuple(values.values()))


def _across(
    shop: Workshop, op: str, scope: str, axis: Axis, totals: list[Value], rest: Value
) -> tuple[list[Value], list[Value]]:
    """For each total: the combination of those of earlier invocations along the axis, and that of all."""
    b = shop.builder
    if axis.bits == 0:
        return [rest] * len(totals), list(totals)
    place, held = shop.place(axis, scope), list(totals)
    for bit in range(axis.bits):  # blocks of doubling size: the right half takes in the last value of the left one
        stride = 1 << bit
        right = b.emit("eq", b.emit("floormod", b.emit("floordiv", place, b.index(stride)), b.index(2)), b.index(1))
        block = b.emit("mul", b.emit("floordiv", place, b.index(2 * stride)), b.index(2 * stride))
        source = b.emit("add", block, b.index(stride - 1))
        others = _from_place(shop, scope, axis, held, source)
        held = [b.emit("select", right, b.emit(op, o, h), h) for o, h in zip(others, held, strict=True)]
    last = b.index((1 << axis.bits) - 1)
    whole = _from_place(shop, scope, axis, held, last)
    previous = b.emit("max", b.emit("sub", place, b.index(1)), b.index(0))
    shifted = _from_place(shop, scope, axis, held, previous)
    first = b.emit("eq", place, b.index(0))
    return [b.emit("select", first, rest, s) for s in shifted], whole


def _from_place(shop: Workshop, scope: str, axis: Axis, values: list[Value], place: Value) -> list[Value]:
    """What the invocation at another place along the axis has."""
    b = shop.builder
    count = 1 << shop.bits(scope)
    rank = shop.rank(scope)
    if count != shop.invocations and scope == "workgroup":
        rank = b.emit("floormod", rank, b.index(count))
    distance = b.emit("sub", place, shop.place(axis, scope))
    source = b.emit("add", rank, b.emit("mul", distance, b.index(1 << axis.shift)))
    if scope == "subgroup" or _shuffled_bits(shop, Layout((axis,), scope), axis) == axis.bits:
        shop.uses_lanes()
        lane = source if scope == "subgroup" else b.emit("floormod", source, b.index(shop.options.subgroup))
        return [b.emit("sg_shuffle", v, lane) for v in values]
    element = values[0].type
    assert isinstance(element, Scalar)
    step = max(1, min(len(values), _CHUNK_BYTES // (count * element.dtype.itemsize)))
    found: list[Value] = []
    writes = _writer(shop, scope, rank, 0, 0, count)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        array = shop.scratch(element.dtype, count * len(part))
        shop.access(array, "w")

        def write(part: list[Value] = part, array: Value = array) -> None:
            for number, value in enumerate(part):
                b.op("store", array, shop.at(rank, number * count), value)

        if writes is None:
            write()
        else:
            with b.when(writes):
                write()
        shop.access(array, "r")
        found += [b.emit("load", array, shop.at(source, number * count)) for number in range(len(part))]
    return found
