"""Layout conversion, element access, reductions and scans of tiles in registers.

A workgroup exchanges values through shared memory, a subgroup by shuffles. A reduction first combines the slots of an
invocation, then invocations whose numbers differ in one bit, bit by bit: by shuffles as long as they are in one
subgroup, then through shared memory. All invocations perform the same additions, so all get the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkjit.dtypes import DType
from vkjit.ir.core import Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar

from .layout import Axis, Layout
from .ordered_keys import floats_of, keys_of, uses_keys
from .tile_state import Held, LoweringContext

__all__ = ["argument", "convert_layout", "element_at", "reduce", "reshape", "scan"]

Columns = tuple[Value, ...]
"""The values that are reduced together: an element, or an element and its index (`argument`)."""
_CHUNK_BYTES = 8192
"""Shared memory for one step of an exchange; more values are exchanged in several steps."""


def identity_of(op: str, dtype: DType) -> bool | int | float:
    """Return the identity of a reduction; -0.0 for sums of floats, which keeps the sign of zeros."""
    if dtype.kind == "bool":
        return op == "and"
    if dtype.is_float:
        return {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}[op]
    lowest = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    highest = lowest + (1 << dtype.bits) - 1
    ones = -1 if dtype.is_signed else highest
    return {"add": 0, "mul": 1, "min": highest, "max": lowest, "and": ones, "or": 0, "xor": 0}[op]


# -- layout conversion
def convert_layout(context: LoweringContext, tile: Held, layout: Layout, *, flat: bool = False) -> Held:
    """Convert a tile to another layout of its shape. With `flat`, the layout may have any shape with as many elements,
    which keep their order (C order).
    """
    if tile.layout == layout:
        return tile
    if layout.scope == "subgroup":
        return _moved_by_shuffles(context, tile, layout, flat)
    return _moved_through_memory(context, tile, layout)


def reshape(context: LoweringContext, tile: Held, layout: Layout) -> Held:
    """Return the same elements in C order, with the shape of a layout."""
    direct = tile.layout.reshaped(layout.shape)
    if direct is not None:
        return convert_layout(context, Held(direct, tile.values), layout)
    return convert_layout(context, tile, layout, flat=True)


def _flat_positions(context: LoweringContext, layout: Layout) -> list[Value]:
    """Return the index in C order of the element in each slot."""
    lines = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    return [context.flat([p[s] for p, s in zip(lines, slot, strict=True)], layout.shape) for slot in layout.slots()]


def _tests(context: LoweringContext, layout: Layout) -> list[Value | None]:
    """Return for each slot the condition that it holds an element; None where it always does."""
    lines = [context.in_bounds(axis, context.element_indices(axis, layout.scope)) for axis in layout.axes]
    return [context.all_of(line[s] for line, s in zip(lines, slot, strict=True)) for slot in layout.slots()]


def _moved_through_memory(context: LoweringContext, tile: Held, layout: Layout) -> Held:
    """Convert a layout through shared memory, in several steps where the tile takes more than half of it."""
    b, element = context.builder, tile.values[0].type
    assert isinstance(element, Scalar)
    total = 1
    for axis in layout.axes:
        total *= axis.size
    limit = max(1, min(total, context.options.shared_bytes // 2 // element.dtype.itemsize))
    source, target = _flat_positions(context, tile.layout), _flat_positions(context, layout)
    inside, owner = _tests(context, tile.layout), context.is_owner(tile.layout)
    results: list[Value | None] = [None] * len(target)
    for first in range(0, total, limit):
        parts = total > limit
        array = context.scratch(element.dtype, min(limit, total))
        context.access(array, "w")
        for value, at, test in zip(tile.values, source, inside, strict=True):
            place, within = _windowed(context, at, first, limit, parts)
            condition = context.all_of([owner, test, within])
            if condition is None:
                b.op("store", array, place, value)
                continue
            with b.when(condition):
                b.op("store", array, place, value)
        context.access(array, "r")
        for number, at in enumerate(target):
            place, within = _windowed(context, at, first, limit, parts)
            safe = b.emit("max", b.emit("min", place, b.index(min(limit, total - first) - 1)), b.index(0))
            exact = layout.exact and not parts
            element_read = b.emit("load", array, place if exact else safe)
            before = results[number]
            results[number] = (
                element_read if before is None or within is None else b.emit("select", within, element_read, before)
            )
    return Held(layout, tuple(v for v in results if v is not None))


def _windowed(context: LoweringContext, at: Value, first: int, limit: int, parts: bool) -> tuple[Value, Value | None]:
    """Return an element's offset in the part of the tile that is in shared memory, and the condition that it is in that
    part.
    """
    if not parts:
        return at, None
    b = context.builder
    place = b.emit("sub", at, b.index(first)) if first else at
    return place, b.emit("and", b.emit("ge", place, b.index(0)), b.emit("lt", place, b.index(limit)))


def _moved_by_shuffles(context: LoweringContext, tile: Held, layout: Layout, flat: bool) -> Held:
    """Convert a layout by shuffles: each invocation reads the one that holds an element, from a slot that may differ
    between invocations.
    """
    lines = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    indices = []
    for slot in layout.slots():
        at = [p[s] for p, s in zip(lines, slot, strict=True)]
        indices.append(_unflattened(context, context.flat(at, layout.shape), tile.layout.shape) if flat else at)
    return Held(layout, tuple(_shuffled_element(context, tile, at) for at in indices))


def _unflattened(context: LoweringContext, number: Value, shape: Sequence[int]) -> list[Value]:
    b, indices = context.builder, []
    for size in reversed(shape[1:]):
        indices.append(b.emit("floormod", number, b.index(size)))
        number = b.emit("floordiv", number, b.index(size))
    return [number, *reversed(indices)]


def _holder(context: LoweringContext, layout: Layout, at: Sequence[Value]) -> tuple[Value, Value]:
    """Return the lowest invocation that holds the element at `at`, and the number of its slot."""
    b = context.builder
    lane, slot = b.index(0), b.index(0)
    for axis, position in zip(layout.axes, at, strict=True):
        inside = b.emit("max", b.emit("min", position, b.index(axis.size - 1)), b.index(0))
        group, offset = b.emit("floordiv", inside, b.index(axis.group)), b.emit("floormod", inside, b.index(axis.group))
        place = b.emit("floormod", group, b.index(1 << axis.bits))
        own = b.emit(
            "add", b.emit("mul", b.emit("floordiv", group, b.index(1 << axis.bits)), b.index(axis.group)), offset
        )
        lane = b.emit("add", lane, b.emit("mul", place, b.index(1 << axis.shift)))
        slot = b.emit("add", b.emit("mul", slot, b.index(axis.slots_per_invocation)), own)
    return lane, slot


def _shuffled_element(context: LoweringContext, tile: Held, at: Sequence[Value]) -> Value:
    """Return the element at `at`, shuffled from its holder: each slot is shuffled, then the right one selected."""
    b = context.builder
    context.uses_lanes()
    lane, slot = _holder(context, tile.layout, at)
    result = b.emit("sg_shuffle", tile.values[0], lane)
    for number, value in enumerate(tile.values[1:], 1):
        other = b.emit("sg_shuffle", value, lane)
        result = b.emit("select", b.emit("eq", slot, b.index(number)), other, result)
    return result


# -- single elements
def element_at(context: LoweringContext, tile: Held, at: Sequence[Value]) -> Value:
    """Return the element at an index, in every invocation."""
    b, layout = context.builder, tile.layout
    if len(tile.values) == 1 and layout.used == 0:
        return tile.values[0]
    if layout.scope == "subgroup":
        return _shuffled_element(context, tile, at)
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    array = context.scratch(element.dtype, 1)
    clamped = [
        b.emit("max", b.emit("min", p, b.index(axis.size - 1)), b.index(0))
        for p, axis in zip(at, layout.axes, strict=True)
    ]
    lines = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    owner = context.is_owner(layout)
    context.access(array, "w")
    for slot in layout.slots():
        same = [b.emit("eq", line[s], p) for line, s, p in zip(lines, slot, clamped, strict=True)]
        condition = context.all_of([owner, *same])
        assert condition is not None
        with b.when(condition):
            b.op("store", array, b.index(0), tile.values[layout.number(slot)])
    context.access(array, "r")
    return b.emit("load", array, b.index(0))


# -- reductions
def reduce(context: LoweringContext, op: OpName, tile: Held, axis: int) -> Held:
    """Return the reduction along an axis."""
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    b = context.builder
    identity = b.const(identity_of(op, element.dtype), element)

    def combine(x: Columns, y: Columns) -> Columns:
        return (b.emit(op, x[0], y[0]),)

    values = _masked_values(context, tile, axis, identity)
    by_keys = uses_keys(context, op, element)
    if by_keys:
        context.notes.append(f"{b.loc}: the {op} of f32 is found by whole numbers that are ordered as floats are")
        values = keys_of(context, op, values)
    reduced = [c[0] for c in _reduce_axis(context, tile.layout, axis, [(v,) for v in values], combine)]
    return Held(tile.layout.without(axis), tuple(floats_of(context, op, reduced) if by_keys else reduced))


def argument(context: LoweringContext, op: OpName, tile: Held, axis: int) -> Held:
    """Return the least index of the minimum or maximum along an axis. NaN counts as the extremum."""
    b, layout = context.builder, tile.layout
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

    line = context.element_indices(layout.axes[axis], layout.scope)
    last = layout.axes[axis].size
    inside = context.in_bounds(layout.axes[axis], line)
    identity = b.const(identity_of(op, element.dtype), element)
    columns: list[Columns] = []
    for slot in layout.slots():
        value, at, test = tile.values[layout.number(slot)], line[slot[axis]], inside[slot[axis]]
        if test is not None:
            value, at = b.emit("select", test, value, identity), b.emit("select", test, at, b.index(last))
        columns.append((value, at))
    reduced = _reduce_axis(context, layout, axis, columns, combine)
    return Held(layout.without(axis), tuple(c[1] for c in reduced))


def _masked_values(context: LoweringContext, tile: Held, axis: int, identity: Value) -> list[Value]:
    """Return the values of all slots, with the identity of the reduction in slots past the end of the axis."""
    layout = tile.layout
    tests = context.in_bounds(layout.axes[axis], context.element_indices(layout.axes[axis], layout.scope))
    values = []
    for slot in layout.slots():
        value, test = tile.values[layout.number(slot)], tests[slot[axis]]
        values.append(value if test is None else context.builder.emit("select", test, value, identity))
    return values


def _reduce_axis(
    context: LoweringContext,
    layout: Layout,
    axis: int,
    columns: list[Columns],
    combine: Callable[[Columns, Columns], Columns],
) -> list[Columns]:
    """Reduce over all slots and all invocations along the axis."""
    left = layout.without(axis)
    lines: dict[tuple[int, ...], list[Columns]] = {}
    for slot, column in zip(layout.slots(), columns, strict=True):
        lines.setdefault((*slot[:axis], *slot[axis + 1 :]), []).append(column)
    own = [_tree(line, combine) for line in lines.values()]
    assert len(own) == left.slots_per_invocation
    spread = layout.axes[axis]
    shuffled = _shuffled_bits(context, layout, spread)
    for bit in range(shuffled):
        own = [combine(c, _xor_partner(context, c, 1 << (spread.shift + bit))) for c in own]
    if shuffled < spread.bits:
        own = _reduce_through_memory(context, layout.scope, spread, shuffled, own, combine)
    return own


def _tree(line: list[Columns], combine: Callable[[Columns, Columns], Columns]) -> Columns:
    """Combine adjacent values pairwise, then the results, as a balanced tree."""
    while len(line) > 1:
        half = [combine(line[n], line[n + 1]) for n in range(0, len(line) - 1, 2)]
        line = [*half, line[-1]] if len(line) % 2 else half
    return line[0]


def _shuffled_bits(context: LoweringContext, layout: Layout, axis: Axis) -> int:
    """Return how many of the axis' bits, from the lowest, can be exchanged by shuffles within a subgroup."""
    if layout.scope == "subgroup":
        return axis.bits
    size = context.options.subgroup
    if not context.options.shuffles or context.invocations % size:
        return 0
    inside = size.bit_length() - 1
    return max(0, min(axis.bits, inside - axis.shift))


def _xor_partner(context: LoweringContext, column: Columns, mask: int) -> Columns:
    """Return the values of the invocation whose number differs by xor with `mask`."""
    context.uses_lanes()
    return tuple(context.builder.emit("sg_shuffle_xor", value, mask=mask) for value in column)


def _reduce_through_memory(
    context: LoweringContext,
    scope: str,
    axis: Axis,
    first_bit: int,
    columns: list[Columns],
    combine: Callable[[Columns, Columns], Columns],
) -> list[Columns]:
    """Combine through shared memory over the axis' bits from `first_bit` up, up to four bits at a time; the lower ones
    are combined already.
    """
    max_bits = 4
    done = first_bit
    while done < axis.bits:
        bits = min(max_bits, axis.bits - done)
        columns = _combine_step(context, scope, axis, done, bits, columns, combine)
        done += bits
    return columns


def _combine_step(
    context: LoweringContext,
    scope: str,
    axis: Axis,
    done: int,
    bits: int,
    columns: list[Columns],
    combine: Callable[[Columns, Columns], Columns],
) -> list[Columns]:
    """Combine over bits `done` to `done + bits` of the axis: one invocation of each that share a partial result stores
    it, and each invocation loads the 2**bits partial results that it needs.
    """
    b = context.builder
    count = 1 << context.bits(scope)
    rank = (
        b.emit("floormod", context.rank(scope), b.index(count)) if count != context.invocations else context.rank(scope)
    )
    low_shift, high_shift = axis.shift, axis.shift + done
    places = count >> done
    upper = b.emit("floordiv", rank, b.index(1 << high_shift)) if high_shift else rank
    lower = b.emit("floormod", rank, b.index(1 << low_shift)) if low_shift else b.index(0)
    own = b.emit("add", b.emit("mul", upper, b.index(1 << low_shift)), lower)
    among = b.emit("floormod", upper, b.index(1 << bits))
    first = b.emit("sub", own, b.emit("mul", among, b.index(1 << low_shift)))
    writes = _writer(context, scope, rank, low_shift, done, count)
    widest = max(v.type.dtype.itemsize for v in columns[0])  # type: ignore[attr-defined]
    step = max(1, min(len(columns), _CHUNK_BYTES // (places * widest)))
    results: list[Columns] = []
    for start in range(0, len(columns), step):
        part = columns[start : start + step]
        arrays = []
        for number, value in enumerate(part[0]):
            assert isinstance(value.type, Scalar)
            arrays.append(
                context.alternating_scratch(
                    value.type.dtype, places * len(part), "exchange" if number == 0 else "places"
                )
            )
        for array in arrays:
            context.access(array, "w")

        def write(part: list[Columns] = part, arrays: list[Value] = arrays) -> None:
            for place, column in enumerate(part):
                for array, value in zip(arrays, column, strict=True):
                    b.op("store", array, context.at(own, place * places), value)

        if writes is None:
            write()
        else:
            with b.when(writes):
                write()
        for array in arrays:
            context.access(array, "r")
        for place in range(len(part)):
            partials = [
                tuple(b.emit("load", array, context.at(first, place * places + (n << low_shift))) for array in arrays)
                for n in range(1 << bits)
            ]
            results.append(_tree(list(partials), combine))
    return results


def _writer(context: LoweringContext, scope: str, rank: Value, shift: int, done: int, count: int) -> Value | None:
    """Return the condition that the invocation writes on behalf of those with the same values; None if all write."""
    b = context.builder
    tests: list[Value | None] = []
    if done:
        part = b.emit("floordiv", rank, b.index(1 << shift)) if shift else rank
        tests.append(b.emit("eq", b.emit("floormod", part, b.index(1 << done)), b.index(0)))
    if scope == "workgroup" and count != context.invocations:
        tests.append(b.emit("lt", context.rank(scope), b.index(count)))
    return context.all_of(tests)


# -- scans
def scan(context: LoweringContext, op: OpName, tile: Held, axis: int) -> Held:
    """Return the inclusive scan along an axis: within each group, then across invocations, then from group to group."""
    b, layout = context.builder, tile.layout
    element, spread = tile.values[0].type, layout.axes[axis]
    assert isinstance(element, Scalar)
    identity = b.const(identity_of(op, element.dtype), element)
    values = dict(zip(layout.slots(), _masked_values(context, tile, axis, identity), strict=True))
    others = list(dict.fromkeys((*s[:axis], *s[axis + 1 :]) for s in layout.slots()))
    groups = spread.slots_per_invocation // spread.group

    def slot(other: tuple[int, ...], number: int) -> tuple[int, ...]:
        return (*other[:axis], number, *other[axis:])

    for other in others:
        for start in range(0, spread.slots_per_invocation, spread.group):
            for number in range(start + 1, start + spread.group):
                at = slot(other, number)
                values[at] = b.emit(op, values[slot(other, number - 1)], values[at])
    keys = [(other, r) for other in others for r in range(groups)]
    totals = [values[slot(o, r * spread.group + spread.group - 1)] for o, r in keys]
    totals_before, totals_of_all = _across(context, op, layout.scope, spread, totals, identity)
    for place, (other, r) in enumerate(keys):
        ahead = totals_before[place]
        if r:
            earlier = totals_of_all[place - 1]
            ahead = b.emit(op, earlier, ahead)
            totals_of_all[place] = b.emit(op, earlier, totals_of_all[place])
        for number in range(r * spread.group, (r + 1) * spread.group):
            at = slot(other, number)
            values[at] = b.emit(op, ahead, values[at]) if r or spread.bits else values[at]
    return Held(layout, tuple(values.values()))


def _across(
    context: LoweringContext, op: OpName, scope: str, axis: Axis, totals: list[Value], identity: Value
) -> tuple[list[Value], list[Value]]:
    """Scan the groups' totals across the invocations of an axis.

    Return for each total the combination of those of the invocations before this one, and the combination of all.
    """
    b = context.builder
    if axis.bits == 0:
        return [identity] * len(totals), list(totals)
    place, totals_so_far = context.coordinate(axis, scope), list(totals)
    for bit in range(axis.bits):  # blocks of doubling size: the right half adds the last value of the left one
        stride = 1 << bit
        right = b.emit("eq", b.emit("floormod", b.emit("floordiv", place, b.index(stride)), b.index(2)), b.index(1))
        block = b.emit("mul", b.emit("floordiv", place, b.index(2 * stride)), b.index(2 * stride))
        source = b.emit("add", block, b.index(stride - 1))
        others = _from_place(context, scope, axis, totals_so_far, source)
        totals_so_far = [
            b.emit("select", right, b.emit(op, o, h), h) for o, h in zip(others, totals_so_far, strict=True)
        ]
    last = b.index((1 << axis.bits) - 1)
    totals_of_all = _from_place(context, scope, axis, totals_so_far, last)
    previous = b.emit("max", b.emit("sub", place, b.index(1)), b.index(0))
    shifted = _from_place(context, scope, axis, totals_so_far, previous)
    first = b.emit("eq", place, b.index(0))
    return [b.emit("select", first, identity, s) for s in shifted], totals_of_all


def _from_place(context: LoweringContext, scope: str, axis: Axis, values: list[Value], place: Value) -> list[Value]:
    """Return the values that the invocation at another coordinate along the axis holds."""
    b = context.builder
    count = 1 << context.bits(scope)
    rank = context.rank(scope)
    if count != context.invocations and scope == "workgroup":
        rank = b.emit("floormod", rank, b.index(count))
    distance = b.emit("sub", place, context.coordinate(axis, scope))
    source = b.emit("add", rank, b.emit("mul", distance, b.index(1 << axis.shift)))
    if scope == "subgroup" or _shuffled_bits(context, Layout((axis,), scope), axis) == axis.bits:
        context.uses_lanes()
        lane = source if scope == "subgroup" else b.emit("floormod", source, b.index(context.options.subgroup))
        return [b.emit("sg_shuffle", v, lane) for v in values]
    element = values[0].type
    assert isinstance(element, Scalar)
    step = max(1, min(len(values), _CHUNK_BYTES // (count * element.dtype.itemsize)))
    results: list[Value] = []
    writes = _writer(context, scope, rank, 0, 0, count)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        array = context.scratch(element.dtype, count * len(part))
        context.access(array, "w")

        def write(part: list[Value] = part, array: Value = array) -> None:
            for number, value in enumerate(part):
                b.op("store", array, context.at(rank, number * count), value)

        if writes is None:
            write()
        else:
            with b.when(writes):
                write()
        context.access(array, "r")
        results += [b.emit("load", array, context.at(source, number * count)) for number in range(len(part))]
    return results
