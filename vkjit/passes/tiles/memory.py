"""Lowering of tile memory operations: loads, stores, and regions that run for each element.

`tile_load`, `tile_store`, `tile_map` and `tile_each` become code that loads, computes and stores single elements.
`lower` calls these functions.

A uniform test selects a path without bounds tests for slices that lie entirely inside their array. Elements that are
contiguous in an invocation's registers are accessed one after the other, so that `widen_access` can merge the accesses
into vector accesses.

Operands of a `tile_load` or `tile_store`: the array, the start of the slice along each axis of the array, the number of
elements inside the array ("length") along each axis of the tile, and last the padding value or the stored tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.rewrite import clone_op, constant_of
from vkjit.ir.types import Array, Scalar

from .layout import Layout
from .reciprocals import SharedDivisions, shared_divisions
from .tile_state import Held, LoweringContext

__all__ = ["load", "map_region", "run_each", "slice_operands", "store"]


def slice_operands(operands: Sequence[Value]) -> tuple[Value, list[Value], list[Value], Value]:
    """Return the operands of a `tile_load` or `tile_store` as (array, starts, lengths, last operand).

    The module's docstring describes them.
    """
    array = operands[0]
    assert isinstance(array.type, Array)
    rank = array.type.rank
    return array, list(operands[1 : 1 + rank]), list(operands[1 + rank : -1]), operands[-1]


def indices(
    context: LoweringContext, starts: Sequence[Value], axes: Sequence[int | None], at: Sequence[Value]
) -> list[Value]:
    """Return the array index of a tile element, one value for each axis of the array.

    `at` is the index of the element in the tile, `starts` the start of the slice in the array. `axes` has for each axis
    of the array its axis in the tile, None for an axis along which the slice has a single index.
    """
    b = context.builder
    return [
        start if axis is None else at[axis] if constant_of(start) == 0 else b.emit("add", start, at[axis])
        for start, axis in zip(starts, axes, strict=True)
    ]


def is_inside(context: LoweringContext, lengths: Sequence[Value], shape: Sequence[int]) -> Value | None:
    """Return the condition that a slice lies entirely inside its array; None if that is known to be true.

    `lengths` are the numbers of elements inside the array along each axis of the tile, `shape` is the tile's shape.
    """
    b = context.builder
    tests = []
    for length, size in zip(lengths, shape, strict=True):
        constant = constant_of(length)
        tests.append(None if constant is not None and constant >= size else b.emit("ge", length, b.index(size)))
    return context.all_of(tests)


def load(context: LoweringContext, op: Op, operands: Sequence[Value], layout: Layout) -> Held:
    """Load a slice into registers in the given layout. Elements outside of the array get the padding value.

    `op` is the `tile_load`, and `operands` are its operands in the lowered code.
    """
    array, starts, lengths, pad = slice_operands(operands)
    axes, b = op.attrs["axes"], context.builder
    positions = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    slots = list(layout.slots())
    types = [pad.type] * len(slots)

    def plain() -> list[Value]:
        """Load the element of each slot, without bounds tests."""
        tile_indices = ([p[s] for p, s in zip(positions, slot, strict=True)] for slot in slots)
        return [b.emit("load", array, *indices(context, starts, axes, at)) for at in tile_indices]

    def clipped() -> list[Value]:
        """Load with each index clamped to the array, then replace the elements outside of it by the padding."""
        tests = [[b.emit("lt", p, n) for p in axis_values] for axis_values, n in zip(positions, lengths, strict=True)]
        last = [b.emit("sub", n, b.index(1)) for n in lengths]
        safe = [[b.emit("min", p, end) for p in axis_values] for axis_values, end in zip(positions, last, strict=True)]
        elements = []
        for slot in slots:
            at = [axis_values[s] for axis_values, s in zip(safe, slot, strict=True)]
            element = b.emit("load", array, *indices(context, starts, axes, at))
            inside = context.all_of(axis_values[s] for axis_values, s in zip(tests, slot, strict=True))
            elements.append(element if inside is None else b.emit("select", inside, element, pad))
        return elements

    test = is_inside(context, lengths, layout.shape)
    if layout.exact and test is None:
        return Held(layout, tuple(plain()))
    # If no index along some axis is inside the array, there is none to clamp to; the whole tile is padding then.
    nonempty = context.all_of(b.emit("gt", n, b.index(0)) for n in lengths if not (constant_of(n) or 0) > 0)
    guarded = _guarded(context, nonempty, types, clipped, lambda: [pad] * len(slots))
    # In a layout that isn't exact, slots past the end of an axis have no element, and their indices may be outside the
    # array even if the slice is inside. So the path without bounds tests can't be used.
    values = guarded() if not layout.exact or test is None else _branch(context, test, types, plain, guarded)
    return Held(layout, tuple(values))


def _guarded(
    context: LoweringContext,
    test: Value | None,
    types: list[Scalar] | list,  # type: ignore[type-arg]
    first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> Callable[[], list[Value]]:
    """Return a function that emits a branch on `test` to `first` or `second`; `first` itself if `test` is None."""
    return first if test is None else lambda: _branch(context, test, types, first, second)


def _branch(
    context: LoweringContext,
    test: Value,
    types: list,  # type: ignore[type-arg]
    first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> list[Value]:
    """Emit an `if` on a uniform condition, with regions that `first` and `second` build; return its results."""
    regions = [Region(), Region()]
    for region, make in zip(regions, (first, second), strict=True):
        with context.builder.at(region):
            context.builder.op("yield", *make())
    return context.choose(test, types, *regions)


def store(context: LoweringContext, op: Op, operands: Sequence[Value], tile: Held) -> None:
    """Store the elements of a tile that lie inside the array.

    `op` is the `tile_store`, and `operands` are its operands in the lowered code, without the tile. If several
    invocations hold replicas of an element, only its owner (see `layout`) stores it.
    """
    array, starts, lengths, _ = slice_operands([*operands, operands[0]])  # operands[0] stands for the missing tile
    axes, b, layout = op.attrs["axes"], context.builder, tile.layout
    positions = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    slots = list(layout.slots())
    owner = context.is_owner(layout)

    def write(slot: tuple[int, ...]) -> None:
        """Store the element of one slot."""
        at = [axis_values[s] for axis_values, s in zip(positions, slot, strict=True)]
        b.op("store", array, *indices(context, starts, axes, at), tile.values[layout.number(slot)])

    def plain() -> list[Value]:
        """Store the element of each slot, without bounds tests."""
        if owner is None:
            for slot in slots:
                write(slot)
            return []
        with b.when(owner):
            for slot in slots:
                write(slot)
        return []

    def clipped() -> list[Value]:
        """Store each element under the test that it lies inside the array."""
        tests = [[b.emit("lt", p, n) for p in axis_values] for axis_values, n in zip(positions, lengths, strict=True)]
        for slot in slots:
            inside = context.all_of([owner, *(axis_values[s] for axis_values, s in zip(tests, slot, strict=True))])
            assert inside is not None
            with b.when(inside):
                write(slot)
        return []

    test = is_inside(context, lengths, layout.shape)
    if not layout.exact:
        clipped()
    elif test is None:
        plain()
    else:
        _branch(context, test, [], plain, clipped)


# -- regions of `tile_map` and `tile_each`
def map_region(context: LoweringContext, op: Op, layout: Layout, operands: Sequence[Held]) -> Held:
    """Inline the region of a `tile_map` for each slot of the layout; return the results as a tile.

    `operands` have the layouts from `layout.operand`, so that the operands of each slot are in the same invocation.
    """
    positions = _used_positions(context, op, layout)
    quotients = shared_divisions(context, op, layout.slots_per_invocation, operands)
    if quotients.divisions:
        context.notes.append(f"{op.loc}: elements are multiplied by the reciprocals of divisors that they share")
    values = (_inlined(context, op, layout, s, positions, operands, quotients)[0] for s in layout.slots())
    return Held(layout, tuple(values))


def run_each(context: LoweringContext, op: Op, layout: Layout, operands: Sequence[Held]) -> None:
    """Inline the region of a `tile_each` for each slot, guarded so that it runs exactly once for each tile element."""
    positions = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    tests = [context.in_bounds(axis, axis_values) for axis, axis_values in zip(layout.axes, positions, strict=True)]
    owner = context.is_owner(layout)
    for slot in layout.slots():
        inside = context.all_of([owner, *(axis_values[s] for axis_values, s in zip(tests, slot, strict=True))])
        if inside is None:
            _inlined(context, op, layout, slot, positions, operands)
        else:
            with context.builder.when(inside):
                _inlined(context, op, layout, slot, positions, operands)


def _used_positions(context: LoweringContext, op: Op, layout: Layout) -> list[list[Value]]:
    """Return the element index of each slot along each axis; placeholders along axes whose index the region ignores."""
    used = {value for inner in op.regions[0].walk() for value in inner.operands}
    per_axis = []
    # The region's first arguments are the element's index along each axis; the elements of the operands follow.
    for axis, argument in zip(layout.axes, op.regions[0].args, strict=False):
        per_axis.append(
            context.element_indices(axis, layout.scope) if argument in used else [argument] * axis.slots_per_invocation
        )
    return per_axis


def _inlined(
    context: LoweringContext,
    op: Op,
    layout: Layout,
    slot: tuple[int, ...],
    positions: Sequence[Sequence[Value]],
    operands: Sequence[Held],
    quotients: SharedDivisions | None = None,
) -> list[Value]:
    """Inline the region for one slot and return the values that it yields.

    `positions` has the element index of each slot along each axis. `quotients` has the divisions that become
    multiplications (see `reciprocals`); None if there are none.
    """
    region = op.regions[0]
    rank = len(layout.axes)
    mapping: dict[Value, Value] = {}
    for argument, axis_indices, axis_slot in zip(region.args[:rank], positions, slot, strict=True):
        mapping[argument] = axis_indices[axis_slot]
    for argument, operand in zip(region.args[rank:], operands, strict=True):
        # As in NumPy's broadcasting, operands with fewer axes are aligned with the last axes of the result.
        aligned_slot = slot[rank - len(operand.layout.axes) :]
        operand_slot = tuple(
            0 if axis.size == 1 else s for axis, s in zip(operand.layout.axes, aligned_slot, strict=True)
        )
        mapping[argument] = operand.values[operand.layout.number(operand_slot)]
    for inner in region.ops[:-1]:
        if quotients is not None and inner in quotients.divisions:
            mapping[inner.result] = quotients.quotient(*(mapping.get(v, v) for v in inner.operands))
            continue
        context.builder.region.ops.append(clone_op(inner, mapping))
    return [mapping.get(value, value) for value in region.terminator.operands]
