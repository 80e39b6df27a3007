"""Statements that invocations of a workgroup or subgroup execute together, generated only in uniform control flow.

They exchange values by subgroup operations or through shared memory. In shared memory, each invocation writes at its
`slot`, its linear index in the workgroup; a barrier separates these writes from reads by other invocations. The lane
indices and XOR masks of broadcasts and shuffles are less than `LANES`, so that they are valid on every device with
subgroups of at least 8 lanes.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName, op_name
from vkjit.ir.types import BOOL, INDEX, Scalar, Type

from .builder import Maker, Place, statement

__all__: list[str] = []

LANES = 8


def _shared(m: Maker) -> list[Place]:
    """Return the shared arrays for exchange."""
    return [p for p in m.places if p.kind == "shared"]


@statement(8, lambda m: m.uniform and bool(_shared(m)))
def _exchange(m: Maker) -> None:
    """Each invocation writes a value into shared memory at its `slot` and reads values of other invocations."""
    place = m.pick(_shared(m))
    b, count = m.builder, m.invocations
    inner_indices = [b.index(m.draw(0, extent - 1)) for extent in (place.type.shape or ())[1:]]
    assert m.row is not None  # the statement is in the kernel's body, not in a device function
    b.op("store", place.array, _slot(m), *inner_indices, m.value(place.element))
    b.op("barrier")
    for _ in range(m.draw(1, 2)):
        # read at any slot, or at this invocation's slot with one bit flipped
        other = m.below(count) if m.chance(0.5) else b.emit("xor", _slot(m), b.index(m.pick([1, 8, count // 2])))
        if (count & (count - 1)) != 0:  # not a power of two: the result of `xor` may be `count` or more
            other = m.below(count)
        m.emit("load", place.array, other, *inner_indices)
    b.op("barrier")


def _slot(m: Maker) -> Value:
    """Return `slot`, the linear index of the invocation in its workgroup."""
    (slot,) = [v for v in m.scope if v.name == "slot"]
    return slot


def _tallies(m: Maker) -> list[Place]:
    """Return the shared arrays of atomic counters."""
    return [p for p in m.places if p.kind == "tally"]


@statement(4, lambda m: m.uniform and bool(_tallies(m)))
def _tally(m: Maker) -> None:
    """Counters in shared memory: initialized, updated atomically by all invocations, and read after a barrier."""
    place = m.pick(_tallies(m))
    b = m.builder
    (extent,) = place.type.shape or (0,)
    yes, no = Region(), Region()
    initial = m.constant(place.element)
    with b.at(yes):
        b.op("store", place.array, _slot(m), initial)
        b.op("yield")
    with b.at(no):
        b.op("yield")
    b.op("if", b.emit("lt", _slot(m), b.index(extent)), types=[], regions=[yes, no])
    b.op("barrier")
    value, counter_index = m.value(place.element), m.below(extent)
    b.op("atomic", place.array, counter_index, value, op=place.combine, order="relaxed", scope="workgroup")
    b.op("barrier")
    m.emit("load", place.array, m.below(extent))
    b.op("barrier")


# -- subgroups


def _subgroups_allowed(m: Maker) -> bool:
    """True if subgroup operations are allowed here."""
    return m.uniform and m.traits.subgroups


def _operand(m: Maker, name: str) -> Value:
    """Return an operand for the reduction `name`; bitwise reductions don't take floats."""
    if name in ("and", "or", "xor"):
        return m.value(BOOL if m.chance(0.3) else m.type(["int", "uint", "index"]))
    return m.value(m.type())


@statement(6, _subgroups_allowed)
def _reduce(m: Maker) -> None:
    """A reduction or scan over the subgroup."""
    name = m.pick(["add", "mul", "min", "max", "and", "or", "xor"])
    if not m.traits.strict:  # in these programs the order of float sums and products is unspecified
        name = m.pick(["min", "max", "and", "or", "xor"])
    if m.chance(0.6):
        m.emit("sg_reduce", _operand(m, name), op=name)
    else:
        m.emit("sg_scan", _operand(m, name), op=name, exclusive=m.chance(0.5))


@statement(4, _subgroups_allowed)
def _shuffle(m: Maker) -> None:
    """A broadcast or shuffle within the subgroup."""
    value = m.value(m.any_type())
    name: OpName = m.pick(["sg_broadcast", "sg_shuffle", "sg_shuffle_xor"])
    if name == "sg_shuffle_xor":
        m.emit(name, value, mask=m.draw(0, LANES - 1))
    elif name == "sg_broadcast":
        m.emit(name, value, m.builder.index(m.draw(0, LANES - 1)))
    else:
        m.emit(name, value, m.below(LANES))


@statement(4, _subgroups_allowed)
def _vote(m: Maker) -> None:
    """A vote, ballot or election within the subgroup."""
    name: OpName = m.pick(["sg_any", "sg_all", "sg_ballot", "sg_elect"])
    if name == "sg_elect":
        elected = m.builder.emit(name, type=BOOL)  # which lane is elected is unspecified: use only the number of lanes
        mask = m.builder.emit("sg_ballot", elected, type=Scalar(dtypes.u64))
        m.emit("popcount", mask)
    elif name == "sg_ballot":
        m.emit(name, m.value(BOOL), type=Scalar(dtypes.u64))
    else:
        m.emit(name, m.value(BOOL))


@statement(1, _subgroups_allowed)
def _lane_ids(m: Maker) -> None:
    """The lane's or subgroup's index, the subgroup size, or the number of subgroups."""
    m.emit(m.pick(["lane_id", "subgroup_id", "subgroup_size", "num_subgroups"]))


def _totals(m: Maker) -> list[Place]:
    """Return the shared arrays for partial results of workgroup reductions."""
    return [p for p in m.places if p.kind == "total"]


@statement(4, lambda m: m.uniform and bool(_totals(m)))
def _workgroup_total(m: Maker) -> None:
    """A workgroup reduction: each subgroup stores its partial result in shared memory, and every invocation combines
    all partial results.

    The elements are integers, on which the operation is exact and associative, so the result doesn't depend on the
    subgroup size.
    """
    place = m.pick(_totals(m))
    b, element = m.builder, place.element
    name = place.combine
    subgroup_result = b.emit("sg_reduce", m.value(element), op=name)
    lane_id, subgroup_id, num_subgroups = b.emit("lane_id"), b.emit("subgroup_id"), b.emit("num_subgroups")
    yes, no = Region(), Region()
    with b.at(yes):
        b.op("store", place.array, subgroup_id, subgroup_result)
        b.op("yield")
    with b.at(no):
        b.op("yield")
    b.op("if", b.emit("eq", lane_id, b.index(0)), types=[], regions=[yes, no])
    b.op("barrier")
    total = _combined(m, place.array, num_subgroups, element, name)
    b.op("barrier")
    m.keep(total)


def _combined(m: Maker, array: Value, count: Value, element: Type, name: str) -> Value:
    """Emit a loop that combines the first `count` elements of an array with the operation `name`."""
    b = m.builder
    body = Region([INDEX, element])
    with b.at(body):
        b.op("continue", b.emit(op_name(name), body.args[1], b.emit("load", array, body.args[0])))
    first = b.emit("load", array, b.index(0))
    return b.op("for", b.index(1), count, b.index(1), first, types=[element], regions=[body]).result
