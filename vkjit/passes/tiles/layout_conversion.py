"""Layout conversion, element access, reductions and scans of tiles in registers.

`lower` calls these functions for `tile_reduce`, `tile_argument`, `tile_scan`, `tile_reshape` and `tile_get`, and
wherever a tile is needed in another layout than its own. They take and return tiles in registers (`Held`): one value
for each slot of a `Layout`.

Tiles of a workgroup are exchanged through shared memory, those of a subgroup by shuffles. A reduction first combines
the slots of an invocation, then the partial results of invocations whose numbers differ in one bit, bit by bit: by
shuffles as long as the invocations are in one subgroup, then through shared memory. All invocations combine in the same
order, so all get the same result.
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

Partial = tuple[Value, ...]
"""The values that a reduction combines: (element,), or (element, index) for the index of the extremum (`argument`)."""
_CHUNK_BYTES = 8192
"""The limit of shared memory for one step of an exchange between partial results. More values take several steps."""


def identity_of(op: str, dtype: DType) -> bool | int | float:
    """Return the identity element of a reduction with `op`: -0.0 for sums of floats, as x + -0.0 is x for all x."""
    if dtype.kind == "bool":
        return op == "and"  # True for "and", False for "or" and "xor"
    if dtype.is_float:
        return {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}[op]
    lowest = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    highest = lowest + (1 << dtype.bits) - 1
    ones = -1 if dtype.is_signed else highest
    return {"add": 0, "mul": 1, "min": highest, "max": lowest, "and": ones, "or": 0, "xor": 0}[op]


# -- layout conversion
def convert_layout(context: LoweringContext, tile: Held, layout: Layout, *, flat: bool = False) -> Held:
    """Convert a tile to another layout of the same shape and scope.

    If `flat`, the new layout may have another shape with as many elements; the elements keep their C order.
    """
    if tile.layout == layout:
        return tile
    if layout.scope == "subgroup":
        return _moved_by_shuffles(context, tile, layout, flat)
    return _moved_through_memory(context, tile, layout)  # indexes elements by their C order, whether `flat` or not


def reshape(context: LoweringContext, tile: Held, layout: Layout) -> Held:
    """Reshape a tile to the shape of `layout`, in that layout; the elements keep their C order."""
    direct = tile.layout.reshaped(layout.shape)
    if direct is not None:
        return convert_layout(context, Held(direct, tile.values), layout)
    return convert_layout(context, tile, layout, flat=True)


def _flat_positions(context: LoweringContext, layout: Layout) -> list[Value]:
    """Return for each slot the index of its element among all elements of the tile in C order."""
    axis_indices = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    return [
        context.flat([p[s] for p, s in zip(axis_indices, slot, strict=True)], layout.shape) for slot in layout.slots()
    ]


def _tests(context: LoweringContext, layout: Layout) -> list[Value | None]:
    """Return for each slot the condition that it holds an element; None where it always does."""
    axis_tests = [context.in_bounds(axis, context.element_indices(axis, layout.scope)) for axis in layout.axes]
    return [context.all_of(tests[s] for tests, s in zip(axis_tests, slot, strict=True)) for slot in layout.slots()]


def _moved_through_memory(context: LoweringContext, tile: Held, layout: Layout) -> Held:
    """Convert a tile to another layout through shared memory; a tile larger than half of it takes several steps."""
    b, element = context.builder, tile.values[0].type
    assert isinstance(element, Scalar)
    total = 1
    for axis in layout.axes:
        total *= axis.size
    # The number of elements that are in shared memory at a time.
    limit = max(1, min(total, context.options.shared_bytes // 2 // element.dtype.itemsize))
    source, target = _flat_positions(context, tile.layout), _flat_positions(context, layout)
    inside, owner = _tests(context, tile.layout), context.is_owner(tile.layout)
    results: list[Value | None] = [None] * len(target)
    for first in range(0, total, limit):
        in_parts = total > limit
        array = context.scratch(element.dtype, min(limit, total))
        context.access(array, "w")
        for value, at, test in zip(tile.values, source, inside, strict=True):
            offset, in_part = _windowed(context, at, first, limit, in_parts)
            condition = context.all_of([owner, test, in_part])
            if condition is None:
                b.op("store", array, offset, value)
                continue
            with b.when(condition):
                b.op("store", array, offset, value)
        context.access(array, "r")
        for number, at in enumerate(target):
            offset, in_part = _windowed(context, at, first, limit, in_parts)
            # Clamped, as slots without an element, or with one of another part, have offsets out of range.
            clamped = b.emit("max", b.emit("min", offset, b.index(min(limit, total - first) - 1)), b.index(0))
            always_in_range = layout.exact and not in_parts
            element_read = b.emit("load", array, offset if always_in_range else clamped)
            earlier = results[number]  # from the previous parts; None in the first part
            results[number] = (
                element_read if earlier is None or in_part is None else b.emit("select", in_part, element_read, earlier)
            )
    return Held(layout, tuple(v for v in results if v is not None))


def _windowed(
    context: LoweringContext, at: Value, first: int, limit: int, in_parts: bool
) -> tuple[Value, Value | None]:
    """Return an element's offset in the part of a tile that is in shared memory, and the condition that the element
    belongs to this part.

    `at` is the element's flat index. The part has the `limit` elements from flat index `first` on. Without `in_parts`,
    the whole tile is in shared memory, and the condition is None.
    """
    if not in_parts:
        return at, None
    b = context.builder
    offset = b.emit("sub", at, b.index(first)) if first else at
    return offset, b.emit("and", b.emit("ge", offset, b.index(0)), b.emit("lt", offset, b.index(limit)))


def _moved_by_shuffles(context: LoweringContext, tile: Held, layout: Layout, flat: bool) -> Held:
    """Convert a tile of a subgroup to another layout: each invocation reads each of its elements by shuffles from an
    invocation that holds it. See `convert_layout` for `flat`.
    """
    axis_indices = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    indices = []
    for slot in layout.slots():
        at = [p[s] for p, s in zip(axis_indices, slot, strict=True)]
        indices.append(_unflattened(context, context.flat(at, layout.shape), tile.layout.shape) if flat else at)
    return Held(layout, tuple(_shuffled_element(context, tile, at) for at in indices))


def _unflattened(context: LoweringContext, number: Value, shape: Sequence[int]) -> list[Value]:
    """Return the index along each axis of the element with the flat index `number` in C order."""
    b, indices = context.builder, []
    for size in reversed(shape[1:]):
        indices.append(b.emit("floormod", number, b.index(size)))
        number = b.emit("floordiv", number, b.index(size))
    return [number, *reversed(indices)]


def _holder(context: LoweringContext, layout: Layout, at: Sequence[Value]) -> tuple[Value, Value]:
    """Return the lowest invocation that holds the element at index `at`, and the number of its slot there.

    Indices outside of the tile are clamped.
    """
    b = context.builder
    lane, slot = b.index(0), b.index(0)
    for axis, position in zip(layout.axes, at, strict=True):
        inside = b.emit("max", b.emit("min", position, b.index(axis.size - 1)), b.index(0))
        group = b.emit("floordiv", inside, b.index(axis.group))
        offset = b.emit("floormod", inside, b.index(axis.group))
        coordinate = b.emit("floormod", group, b.index(1 << axis.bits))
        axis_slot = b.emit(
            "add", b.emit("mul", b.emit("floordiv", group, b.index(1 << axis.bits)), b.index(axis.group)), offset
        )
        lane = b.emit("add", lane, b.emit("mul", coordinate, b.index(1 << axis.shift)))
        slot = b.emit("add", b.emit("mul", slot, b.index(axis.slots_per_invocation)), axis_slot)
    return lane, slot


def _shuffled_element(context: LoweringContext, tile: Held, at: Sequence[Value]) -> Value:
    """Return the element at index `at`, shuffled from an invocation that holds it.

    As invocations may need elements of different slots, all slots are shuffled, and each invocation selects its own.
    """
    b = context.builder
    context.record_subgroup_use()
    lane, slot = _holder(context, tile.layout, at)
    result = b.emit("sg_shuffle", tile.values[0], lane)
    for number, value in enumerate(tile.values[1:], 1):
        other = b.emit("sg_shuffle", value, lane)
        result = b.emit("select", b.emit("eq", slot, b.index(number)), other, result)
    return result


# -- single elements
def element_at(context: LoweringContext, tile: Held, at: Sequence[Value]) -> Value:
    """Return the element of a tile at the index `at`, in every invocation; indices outside of the tile are clamped."""
    b, layout = context.builder, tile.layout
    if len(tile.values) == 1 and layout.used_mask == 0:  # the only element, which every invocation holds
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
    axis_indices = [context.element_indices(axis, layout.scope) for axis in layout.axes]
    owner = context.is_owner(layout)
    context.access(array, "w")
    for slot in layout.slots():
        matches = [b.emit("eq", values[s], p) for values, s, p in zip(axis_indices, slot, clamped, strict=True)]
        condition = context.all_of([owner, *matches])
        assert condition is not None
        with b.when(condition):
            b.op("store", array, b.index(0), tile.values[layout.number(slot)])
    context.access(array, "r")
    return b.emit("load", array, b.index(0))


# -- reductions
def reduce(context: LoweringContext, op: OpName, tile: Held, axis: int) -> Held:
    """Return the reduction of a tile with `op` along an axis, in the tile's layout without that axis."""
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    b = context.builder
    identity = b.const(identity_of(op, element.dtype), element)

    def combine(x: Partial, y: Partial) -> Partial:
        return (b.emit(op, x[0], y[0]),)

    values = _masked_values(context, tile, axis, identity)
    by_keys = uses_keys(context, op, element)
    if by_keys:
        context.notes.append(f"{b.loc}: the {op} of f32 is computed on integer keys that have the order of the floats")
        values = keys_of(context, op, values)
    reduced = [c[0] for c in _reduce_axis(context, tile.layout, axis, [(v,) for v in values], combine)]
    return Held(tile.layout.without(axis), tuple(floats_of(context, op, reduced) if by_keys else reduced))


def argument(context: LoweringContext, op: OpName, tile: Held, axis: int) -> Held:
    """Return the first index of the minimum or maximum (`op` "min" or "max") along an axis.

    A NaN counts as the minimum and as the maximum.
    """
    b, layout = context.builder, tile.layout
    element = tile.values[0].type
    assert isinstance(element, Scalar)
    is_float = element.dtype.is_float

    def combine(x: Partial, y: Partial) -> Partial:
        """Return the better of two (element, index) pairs.

        This is `y` if its element is better, or if the elements are tied and its index is lower. A NaN is better than
        any number, and two NaNs are tied.
        """
        (x_element, x_index), (y_element, y_index) = x, y
        y_is_better = b.emit("lt" if op == "min" else "gt", y_element, x_element)
        tied = b.emit("eq", y_element, x_element)
        if is_float:  # comparisons with a NaN are false
            x_is_nan, y_is_nan = b.emit("isnan", x_element), b.emit("isnan", y_element)
            y_is_better = b.emit("and", b.emit("or", y_is_better, y_is_nan), b.emit("not", x_is_nan))
            tied = b.emit("or", tied, b.emit("and", x_is_nan, y_is_nan))
        take_y = b.emit("or", y_is_better, b.emit("and", tied, b.emit("lt", y_index, x_index)))
        return b.emit("select", take_y, y_element, x_element), b.emit("select", take_y, y_index, x_index)

    axis_indices = context.element_indices(layout.axes[axis], layout.scope)
    size = layout.axes[axis].size
    inside = context.in_bounds(layout.axes[axis], axis_indices)
    identity = b.const(identity_of(op, element.dtype), element)
    slot_values: list[Partial] = []
    for slot in layout.slots():
        value, index, test = tile.values[layout.number(slot)], axis_indices[slot[axis]], inside[slot[axis]]
        if test is not None:  # slots past the end of the axis never win: their index is higher than all others
            value = b.emit("select", test, value, identity)
            index = b.emit("select", test, index, b.index(size))
        slot_values.append((value, index))
    reduced = _reduce_axis(context, layout, axis, slot_values, combine)
    return Held(layout.without(axis), tuple(c[1] for c in reduced))


def _masked_values(context: LoweringContext, tile: Held, axis: int, identity: Value) -> list[Value]:
    """Return the values of all slots, with `identity` in those past the end of the axis."""
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
    slot_values: list[Partial],
    combine: Callable[[Partial, Partial], Partial],
) -> list[Partial]:
    """Reduce over all slots and all invocations along the axis.

    `slot_values` has the value of each slot of the layout, and `combine` merges two of them. Return the results for the
    slots of the layout without the axis.
    """
    remaining = layout.without(axis)
    by_result: dict[tuple[int, ...], list[Partial]] = {}
    for slot, slot_value in zip(layout.slots(), slot_values, strict=True):
        by_result.setdefault((*slot[:axis], *slot[axis + 1 :]), []).append(slot_value)
    partials = [_tree(values, combine) for values in by_result.values()]
    assert len(partials) == remaining.slots_per_invocation
    reduced_axis = layout.axes[axis]
    shuffled = _shuffled_bits(context, layout, reduced_axis)
    for bit in range(shuffled):
        partials = [combine(p, _xor_partner(context, p, 1 << (reduced_axis.shift + bit))) for p in partials]
    if shuffled < reduced_axis.bits:
        partials = _reduce_through_memory(context, layout.scope, reduced_axis, shuffled, partials, combine)
    return partials


def _tree(values: list[Partial], combine: Callable[[Partial, Partial], Partial]) -> Partial:
    """Combine a list of values to one by a balanced tree: first adjacent values in pairs, then their results."""
    while len(values) > 1:
        half = [combine(values[n], values[n + 1]) for n in range(0, len(values) - 1, 2)]
        values = [*half, values[-1]] if len(values) % 2 else half
    return values[0]


def _shuffled_bits(context: LoweringContext, layout: Layout, axis: Axis) -> int:
    """Return how many of the axis' bits, from the lowest, distinguish invocations within a subgroup.

    Invocations that differ only in these bits can exchange values by shuffles. Return 0 if the device has no shuffles.
    """
    if layout.scope == "subgroup":
        return axis.bits
    size = context.options.subgroup
    if not context.options.shuffles or context.invocations % size:
        return 0
    lane_bits = size.bit_length() - 1  # the lowest bits of an invocation's number, which number it in its subgroup
    return max(0, min(axis.bits, lane_bits - axis.shift))


def _xor_partner(context: LoweringContext, values: Partial, mask: int) -> Partial:
    """Return the `values` of the invocation whose number is this invocation's number xor `mask`."""
    context.record_subgroup_use()
    return tuple(context.builder.emit("sg_shuffle_xor", value, mask=mask) for value in values)


def _reduce_through_memory(
    context: LoweringContext,
    scope: str,
    axis: Axis,
    first_bit: int,
    partials: list[Partial],
    combine: Callable[[Partial, Partial], Partial],
) -> list[Partial]:
    """Combine partial results through shared memory over the axis' bits from `first_bit` to the highest.

    Each step combines at most four bits. The partial results are already combined over the bits below `first_bit`.
    """
    max_bits = 4
    done = first_bit
    while done < axis.bits:
        bits = min(max_bits, axis.bits - done)
        partials = _combine_step(context, scope, axis, done, bits, partials, combine)
        done += bits
    return partials


def _combine_step(
    context: LoweringContext,
    scope: str,
    axis: Axis,
    done: int,
    bits: int,
    inputs: list[Partial],
    combine: Callable[[Partial, Partial], Partial],
) -> list[Partial]:
    """Combine partial results over the `bits` bits of the axis from bit `done` up.

    Invocations that differ only in the axis' lowest `done` bits hold the same partial results; one of them stores these
    to shared memory. Then each invocation loads the 2**bits partial results that it needs and combines them.
    """
    b = context.builder
    count = 1 << context.bits(scope)
    rank = (
        b.emit("floormod", context.invocation_number(scope), b.index(count))
        if count != context.invocations
        else context.invocation_number(scope)
    )
    low_shift, high_shift = axis.shift, axis.shift + done
    # For each of the `inputs`, memory holds `stored_count` partial results. `own_index` is the index of the
    # invocation's own one: its number without the `done` combined bits. `coordinate` are the bits that are combined
    # now; the partial results of coordinates 0, 1, ... are at `first_index`, `first_index + (1 << low_shift)`, ...
    stored_count = count >> done
    upper = b.emit("floordiv", rank, b.index(1 << high_shift)) if high_shift else rank
    lower = b.emit("floormod", rank, b.index(1 << low_shift)) if low_shift else b.index(0)
    own_index = b.emit("add", b.emit("mul", upper, b.index(1 << low_shift)), lower)
    coordinate = b.emit("floormod", upper, b.index(1 << bits))
    first_index = b.emit("sub", own_index, b.emit("mul", coordinate, b.index(1 << low_shift)))
    writes = _writer(context, scope, rank, low_shift, done, count)
    widest = max(v.type.dtype.itemsize for v in inputs[0])  # type: ignore[attr-defined]
    inputs_per_step = max(1, min(len(inputs), _CHUNK_BYTES // (stored_count * widest)))
    results: list[Partial] = []
    for start in range(0, len(inputs), inputs_per_step):
        part = inputs[start : start + inputs_per_step]
        arrays = []  # one for the elements, and for `argument` another one for their indices
        for number, value in enumerate(part[0]):
            assert isinstance(value.type, Scalar)
            arrays.append(
                context.alternating_scratch(
                    value.type.dtype, stored_count * len(part), "exchange" if number == 0 else "places"
                )
            )
        for array in arrays:
            context.access(array, "w")

        def write(part: list[Partial] = part, arrays: list[Value] = arrays) -> None:
            for position, values in enumerate(part):
                for array, value in zip(arrays, values, strict=True):
                    b.op("store", array, context.at(own_index, position * stored_count), value)

        if writes is None:
            write()
        else:
            with b.when(writes):
                write()
        for array in arrays:
            context.access(array, "r")
        for position in range(len(part)):
            partials = [
                tuple(
                    b.emit("load", array, context.at(first_index, position * stored_count + (n << low_shift)))
                    for array in arrays
                )
                for n in range(1 << bits)
            ]
            results.append(_tree(list(partials), combine))
    return results


def _writer(context: LoweringContext, scope: str, rank: Value, shift: int, done: int, count: int) -> Value | None:
    """Return the condition that this invocation stores its values, so that equal values are stored once; None if all
    invocations store.

    Invocations whose numbers differ only in the `done` bits from bit `shift` up hold equal values. Invocations numbered
    `count` or higher hold replicas.
    """
    b = context.builder
    tests: list[Value | None] = []
    if done:
        part = b.emit("floordiv", rank, b.index(1 << shift)) if shift else rank
        tests.append(b.emit("eq", b.emit("floormod", part, b.index(1 << done)), b.index(0)))
    if scope == "workgroup" and count != context.invocations:
        tests.append(b.emit("lt", context.invocation_number(scope), b.index(count)))
    return context.all_of(tests)


# -- scans
def scan(context: LoweringContext, op: OpName, tile: Held, axis: int) -> Held:
    """Return the inclusive scan of a tile with `op` along an axis, in the tile's layout.

    A group has contiguous elements of one invocation, and a cycle has one group of each invocation (see `layout`). The
    scan first runs within each group, then over the totals of a cycle's groups, across invocations, and last from cycle
    to cycle.
    """
    b, layout = context.builder, tile.layout
    element, scanned_axis = tile.values[0].type, layout.axes[axis]
    assert isinstance(element, Scalar)
    identity = b.const(identity_of(op, element.dtype), element)
    values = dict(zip(layout.slots(), _masked_values(context, tile, axis, identity), strict=True))
    # The distinct slots along the other axes, in the order of the layout's slots.
    other_slots = list(dict.fromkeys((*s[:axis], *s[axis + 1 :]) for s in layout.slots()))
    cycles = scanned_axis.slots_per_invocation // scanned_axis.group

    def slot(other: tuple[int, ...], number: int) -> tuple[int, ...]:
        """Return the slot with `number` along the scanned axis and `other` along the other axes."""
        return (*other[:axis], number, *other[axis:])

    for other in other_slots:
        for start in range(0, scanned_axis.slots_per_invocation, scanned_axis.group):
            for number in range(start + 1, start + scanned_axis.group):
                at = slot(other, number)
                values[at] = b.emit(op, values[slot(other, number - 1)], values[at])
    group_keys = [(other, cycle) for other in other_slots for cycle in range(cycles)]
    totals = [values[slot(o, cycle * scanned_axis.group + scanned_axis.group - 1)] for o, cycle in group_keys]
    totals_before, totals_of_all = _across(context, op, layout.scope, scanned_axis, totals, identity)
    for position, (other, cycle) in enumerate(group_keys):
        before_group = totals_before[position]  # the combination of all elements before this group
        if cycle:  # combine with the total of all earlier cycles
            earlier = totals_of_all[position - 1]
            before_group = b.emit(op, earlier, before_group)
            totals_of_all[position] = b.emit(op, earlier, totals_of_all[position])
        for number in range(cycle * scanned_axis.group, (cycle + 1) * scanned_axis.group):
            at = slot(other, number)
            values[at] = b.emit(op, before_group, values[at]) if cycle or scanned_axis.bits else values[at]
    return Held(layout, tuple(values.values()))


def _across(
    context: LoweringContext, op: OpName, scope: str, axis: Axis, totals: list[Value], identity: Value
) -> tuple[list[Value], list[Value]]:
    """Scan the totals of groups across the invocations of an axis.

    Return two values for each total: the combination of the totals of invocations with lower coordinates (an exclusive
    scan), and the combination of the totals of all invocations.
    """
    b = context.builder
    if axis.bits == 0:
        return [identity] * len(totals), list(totals)
    own_coordinate = context.coordinate(axis, scope)
    totals_so_far = list(totals)
    for bit in range(axis.bits):  # blocks of doubling size: combine the right half with the last value of the left half
        stride = 1 << bit
        right = b.emit(
            "eq", b.emit("floormod", b.emit("floordiv", own_coordinate, b.index(stride)), b.index(2)), b.index(1)
        )
        block = b.emit("mul", b.emit("floordiv", own_coordinate, b.index(2 * stride)), b.index(2 * stride))
        source = b.emit("add", block, b.index(stride - 1))
        from_left = _from_coordinate(context, scope, axis, totals_so_far, source)
        totals_so_far = [
            b.emit("select", right, b.emit(op, left, own), own)
            for left, own in zip(from_left, totals_so_far, strict=True)
        ]
    last = b.index((1 << axis.bits) - 1)
    totals_of_all = _from_coordinate(context, scope, axis, totals_so_far, last)
    previous = b.emit("max", b.emit("sub", own_coordinate, b.index(1)), b.index(0))
    shifted = _from_coordinate(context, scope, axis, totals_so_far, previous)
    first = b.emit("eq", own_coordinate, b.index(0))
    return [b.emit("select", first, identity, total) for total in shifted], totals_of_all


def _from_coordinate(
    context: LoweringContext, scope: str, axis: Axis, values: list[Value], target: Value
) -> list[Value]:
    """Return `values` of another invocation: the one at coordinate `target` along the axis whose coordinates along
    other axes equal this invocation's.
    """
    b = context.builder
    count = 1 << context.bits(scope)
    rank = context.invocation_number(scope)
    if count != context.invocations and scope == "workgroup":  # replicas act as the invocation whose values they hold
        rank = b.emit("floormod", rank, b.index(count))
    distance = b.emit("sub", target, context.coordinate(axis, scope))
    source = b.emit("add", rank, b.emit("mul", distance, b.index(1 << axis.shift)))
    if scope == "subgroup" or _shuffled_bits(context, Layout((axis,), scope), axis) == axis.bits:
        context.record_subgroup_use()
        lane = source if scope == "subgroup" else b.emit("floormod", source, b.index(context.options.subgroup))
        return [b.emit("sg_shuffle", v, lane) for v in values]
    element = values[0].type
    assert isinstance(element, Scalar)
    values_per_step = max(1, min(len(values), _CHUNK_BYTES // (count * element.dtype.itemsize)))
    results: list[Value] = []
    writes = _writer(context, scope, rank, shift=0, done=0, count=count)  # all invocations but replicas
    for start in range(0, len(values), values_per_step):
        part = values[start : start + values_per_step]
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
