"""Tiles and memory: loads, stores, and regions that run for each element.

Enters: `tile_load`, `tile_store`, `tile_map`, `tile_each`. Leaves: loads and stores of single elements. Where a whole tile
lies inside its array, which one test says for all invocations, nothing else is tested; neighbours in an invocation's
registers are then accesses that `widen_access` joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.core import Op, Region, Value
from ...ir.rewrite import clone_op, constant_of
from ...ir.types import Array, Scalar, Tile
from .held import Held, Workshop
from .layout import Layout
from .quotients import Quotients, quotients_of

__all__ = ["load", "map_region", "run_each", "slice_operands", "store"]


def slice_operands(operands: Sequence[Value]) -> tuple[Value, list[Value], list[Value], Value]:
    """Array, starts, lengths, and the last operand of a `tile_load` or `tile_store`."""
    array = operands[0]
    assert isinstance(array.type, Array)
    rank = array.type.rank
    return array, list(operands[1 : 1 + rank]), list(operands[1 + rank : -1]), operands[-1]


def indices(shop: Workshop, starts: Sequence[Value], axes: Sequence[int | None], at: Sequence[Value]) -> list[Value]:
    """The index along each axis of the array of an element of the tile."""
    b = shop.builder
    return [
        start if axis is None else at[axis] if constant_of(start) == 0 else b.emit("add", start, at[axis])
        for start, axis in zip(starts, axes, strict=True)
    ]


def whole(shop: Workshop, lengths: Sequence[Value], shape: Sequence[int]) -> Value | None:
    """Whether nothing of a slice lies outside its array; None where that is known."""
    b = shop.builder
    tests = []
    for length, size in zip(lengths, shape, strict=True):
        known = constant_of(length)
        tests.append(None if known is not None and known >= size else b.emit("ge", length, b.index(size)))
    return shop.all_of(tests)


def load(shop: Workshop, op: Op, operands: Sequence[Value], layout: Layout) -> Held:
    """The elements of a slice, in a layout."""
    array, starts, lengths, pad = slice_operands(operands)
    axes, b = op.attrs["axes"], shop.builder
    positions = [shop.positions(axis, layout.scope) for axis in layout.axes]
    slots = list(layout.slots())
    types = [pad.type] * len(slots)

    def plain() -> list[Value]:
        places = ([p[s] for p, s in zip(positions, slot, strict=True)] for slot in slots)
        return [b.emit("load", array, *indices(shop, starts, axes, at)) for at in places]

    def clipped() -> list[Value]:
        tests = [[b.emit("lt", p, n) for p in line] for line, n in zip(positions, lengths, strict=True)]
        last = [b.emit("sub", n, b.index(1)) for n in lengths]
        safe = [[b.emit("min", p, end) for p in line] for line, end in zip(positions, last, strict=True)]
        found = []
        for slot in slots:
            at = [line[s] for line, s in zip(safe, slot, strict=True)]
            element = b.emit("load", array, *indices(shop, starts, axes, at))
            inside = shop.all_of(line[s] for line, s in zip(tests, slot, strict=True))
            found.append(element if inside is None else b.emit("select", inside, element, pad))
        return found

    test = whole(shop, lengths, layout.shape)
    if layout.exact and test is None:
        return Held(layout, tuple(plain()))
    some = shop.all_of(b.emit("gt", n, b.index(0)) for n in lengths if not (constant_of(n) or 0) > 0)
    careful = _maybe(shop, some, types, clipped, lambda: [pad] * len(slots))
    values = careful() if not layout.exact or test is None else _branch(shop, test, types, plain, careful)
    return Held(layout, tuple(values))


def _maybe(
    shop: Workshop,
    test: Value | None,
    types: list[Scalar] | list,  # type: ignore[type-arg]
    first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> Callable[[], list[Value]]:
    return first if test is None else lambda: _branch(shop, test, types, first, second)


def _branch(
    shop: Workshop,
    test: Value,
    types: list,  # type: ignore[type-arg]
    first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> list[Value]:
    """The values of one of two ways, by a test that is the same for all invocations."""
    regions = [Region(), Region()]
    for region, make in zip(regions, (first, second), strict=True):
        with shop.builder.at(region):
            shop.builder.op("yield", *make())
    return shop.choose(test, types, *regions)


def store(shop: Workshop, op: Op, operands: Sequence[Value], tile: Held) -> None:
    """Writes what lies inside the array, each element by its owner."""
    array, starts, lengths, _ = slice_operands([*operands, operands[0]])
    axes, b, layout = op.attrs["axes"], shop.builder, tile.layout
    positions = [shop.positions(axis, layout.scope) for axis in layout.axes]
    slots = list(layout.slots())
    owner = shop.owns(layout)

    def write(slot: tuple[int, ...]) -> None:
        at = [line[s] for line, s in zip(positions, slot, strict=True)]
        b.op("store", array, *indices(shop, starts, axes, at), tile.values[layout.number(slot)])

    def plain() -> list[Value]:
        if owner is None:
            for slot in slots:
                write(slot)
            return []
        with b.when(owner):
            for slot in slots:
                write(slot)
        return []

    def clipped() -> list[Value]:
        tests = [[b.emit("lt", p, n) for p in line] for line, n in zip(positions, lengths, strict=True)]
        for slot in slots:
            inside = shop.all_of([owner, *(line[s] for line, s in zip(tests, slot, strict=True))])
            assert inside is not None
            with b.when(inside):
                write(slot)
        return []

    test = whole(shop, lengths, layout.shape)
    if not layout.exact:
        clipped()
    elif test is None:
        plain()
    else:
        _branch(shop, test, [], plain, clipped)


# -- regions
def map_region(shop: Workshop, op: Op, layout: Layout, operands: Sequence[Held]) -> Held:
    """The region's result for each slot of the layout."""
    positions, quotients = _asked_positions(shop, op, layout), quotients_of(shop, op, layout.held, operands)
    if quotients.divisions:
        shop.notes.append(f"{op.loc}: elements are multiplied by the reciprocals of divisors that they share")
    values = (_inlined(shop, op, layout, s, positions, operands, quotients)[0] for s in layout.slots())
    return Held(layout, tuple(values))


def run_each(shop: Workshop, op: Op, layout: Layout, operands: Sequence[Held]) -> None:
    """Runs the region for each element of the tile once."""
    positions = [shop.positions(axis, layout.scope) for axis in layout.axes]
    tests = [shop.inside(axis, line) for axis, line in zip(layout.axes, positions, strict=True)]
    owner = shop.owns(layout)
    for slot in layout.slots():
        inside = shop.all_of([owner, *(line[s] for line, s in zip(tests, slot, strict=True))])
        if inside is None:
            _inlined(shop, op, layout, slot, positions, operands)
        else:
            with shop.builder.when(inside):
                _inlined(shop, op, layout, slot, positions, operands)


def _asked_positions(shop: Workshop, op: Op, layout: Layout) -> list[list[Value]]:
    """The positions along the axes that the region looks at; placeholders along others."""
    used = {value for inner in op.regions[0].walk() for value in inner.operands}
    found = []
    for axis, argument in zip(layout.axes, op.regions[0].args, strict=False):
        found.append(shop.positions(axis, layout.scope) if argument in used else [argument] * axis.held)
    return found


def _inlined(
    shop: Workshop,
    op: Op,
    layout: Layout,
    slot: tuple[int, ...],
    positions: Sequence[Sequence[Value]],
    operands: Sequence[Held],
    quotients: Quotients | None = None,
) -> list[Value]:
    """The region's operations for one slot; gives what it yields."""
    region = op.regions[0]
    rank = len(layout.axes)
    mapping: dict[Value, Value] = {}
    for argument, line, place in zip(region.args[:rank], positions, slot, strict=True):
        mapping[argument] = line[place]
    for argument, held in zip(region.args[rank:], operands, strict=True):
        own = slot[rank - len(held.layout.axes) :]
        at = tuple(0 if axis.size == 1 else s for axis, s in zip(held.layout.axes, own, strict=True))
        mapping[argument] = held.values[held.layout.number(at)]
    for inner in region.ops[:-1]:
        if quotients is not None and inner in quotients.divisions:
            mapping[inner.result] = quotients.quotient(*(mapping.get(v, v) for v in inner.operands))
            continue
        shop.builder.region.ops.append(clone_op(inner, mapping))
    return [mapping.get(value, value) for value in region.terminator.operands]


def kind_of(value: Value) -> Tile:
    """The type of a tile value."""
    assert isinstance(value.type, Tile)
    return value.type
