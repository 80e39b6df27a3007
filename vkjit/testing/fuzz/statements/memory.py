"""Statements with effects: loads, stores, guarded accesses, linear views, atomics, assertions and prints.

An invocation stores only to elements that no other invocation accesses (kind "own" of `Place`). It also updates
counters that all invocations share (kind "counter"), by atomics that commute. The old values that these atomics return
aren't used, so results don't depend on the order of invocations.
"""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.errors import Loc, ReportSite
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import BOOL, INDEX, Array, Scalar

from .builder import Maker, Place, statement

__all__: list[str] = []


def _of(m: Maker, *kinds: str) -> list[Place]:
    """Return the arrays whose `Place.kind` is one of these."""
    return [p for p in m.places if p.kind in kinds]


@statement(6, lambda m: bool(_of(m, "read", "own")))
def _load(m: Maker) -> None:
    place = m.pick(_of(m, "read", "own"))
    m.emit("load", place.array, *place.index(m))


@statement(4, lambda m: bool(_of(m, "own")))
def _store(m: Maker) -> None:
    place = m.pick(_of(m, "own"))
    m.builder.op("store", place.array, *place.index(m), m.value(place.element))


@statement(1, lambda m: bool(_of(m, "own")), nested=True)
def _accumulate(m: Maker) -> None:
    """A loop that reads and writes one element, with a load of the element before and after the loop."""
    b, place = m.builder, m.pick(_of(m, "own"))
    indices = place.index(m)
    m.emit("load", place.array, *indices)
    region, iterations = Region([INDEX]), m.draw(1, 3)
    with m.inside(region):
        old, other = b.emit("load", place.array, *indices), m.value(place.element)
        b.op("store", place.array, *indices, b.emit("and" if place.type.dtype.kind == "bool" else "sub", other, old))
        b.op("continue")
    b.op("for", b.index(0), b.index(iterations), b.index(1), types=[], regions=[region])
    m.emit("load", place.array, *indices)


@statement(1, lambda m: any(p.type.rank for p in _of(m, "read")))
def _get(m: Maker) -> None:
    """A guarded load that yields a constant if its index is out of range."""
    place = m.pick([p for p in _of(m, "read") if p.type.rank])
    b, indices = m.builder, place.index(m)
    axis = m.draw(0, place.type.rank - 1)
    indices[axis] = m.value(INDEX)
    inside, outside = Region(), Region()
    with b.at(inside):
        b.op("yield", b.emit("load", place.array, *indices))
    with b.at(outside):
        b.op("yield", m.constant(place.element))
    condition = _in_range(m, place.array, axis, indices[axis])
    branch = b.op("if", condition, types=[place.element], regions=[inside, outside])
    m.keep(branch.result)


@statement(1, lambda m: any(p.type.rank > 1 for p in _of(m, "own")))
def _put(m: Maker) -> None:
    """A guarded store that is skipped if its index is out of range."""
    place = m.pick([p for p in _of(m, "own") if p.type.rank > 1])
    b, indices = m.builder, place.index(m)
    # the axis with one element per `row` keeps its index, so that only the invocation's own elements are written
    axis = m.pick([a for a, v in enumerate(indices) if v is not m.row])
    indices[axis] = m.value(INDEX)
    value = m.value(place.element)
    condition = _in_range(m, place.array, axis, indices[axis])
    yes, no = Region(), Region()
    with b.at(yes):
        b.op("store", place.array, *indices, value)
        b.op("yield")
    with b.at(no):
        b.op("yield")
    b.op("if", condition, types=[], regions=[yes, no])


def _in_range(m: Maker, array: Value, axis: int, index: Value) -> Value:
    """Return the condition that an index is in range, as two comparisons or as one unsigned comparison."""
    b = m.builder
    shape = array.type.shape  # type: ignore[attr-defined]
    extent = b.index(shape[axis]) if shape is not None else b.emit("extent", array, axis=axis)
    if m.chance(0.5):
        u64 = Scalar(dtypes.u64)
        return b.emit("lt", b.cast(index, u64), b.cast(extent, u64))
    return b.emit("and", b.emit("ge", index, b.index(0)), b.emit("lt", index, extent))


@statement(1, lambda m: any(p.type.rank and p.type.shape is None for p in m.places))
def _sizes(m: Maker) -> None:
    """The extent or stride of an array as a value."""
    place = m.pick([p for p in m.places if p.type.rank and p.type.shape is None])
    value = m.emit(m.pick(["extent", "stride"]), place.array, axis=m.draw(0, place.type.rank - 1))
    m.uniform_values.add(value)


@statement(0.7, lambda m: any(_viewable(p) for p in m.places))
def _view(m: Maker) -> None:
    """An access through a linear (1D) view of a contiguous array, mostly with elements reinterpreted as integers."""
    place = m.pick([p for p in m.places if _viewable(p)])
    b, array = m.builder, place.type
    indices = place.index(m)
    offset = indices[0]
    for axis, index in enumerate(indices[1:], 1):
        offset = b.emit("add", b.emit("mul", offset, b.emit("extent", place.array, axis=axis)), index)
    bits = array.dtype.bits
    element = array.element
    if array.dtype.kind in ("int", "uint") or (array.dtype.is_float and place.kind == "read"):
        pool = [t for t in dtypes.ALL if t.bits == bits and t.kind in ("int", "uint")]
        element = Scalar(m.pick(pool))
    view = b.emit("linear", place.array, type=Array(element, 1, "global", array.access, linear=True))
    if place.kind == "own" and m.chance(0.5):
        b.op("store", view, offset, m.value(element))
    else:
        m.emit("load", view, offset)


def _viewable(place: Place) -> bool:
    """True for an array that `_view` can access through a linear view: contiguous, in global memory, of scalars."""
    array = place.type
    plain = array.space == "global" and array.contiguous and array.rank > 0 and isinstance(array.element, Scalar)
    return plain and place.kind in ("read", "own") and array.dtype.kind != "bool"


# -- atomics

_COUNTER_ORDERS = ["relaxed", "relaxed", "acquire", "release", "acq_rel"]


@statement(3, lambda m: bool(_of(m, "counter")))
def _count(m: Maker) -> None:
    """An atomic that commutes with all others on its array; the old value that it returns isn't used."""
    place = m.pick(_of(m, "counter"))
    name = m.pick(["add", "sub"]) if place.combine == "add" else place.combine
    scope = m.pick(["workgroup", "device"]) if place.type.space == "shared" else "device"
    index, value = place.index(m), m.value(place.element)
    m.builder.op("atomic", place.array, *index, value, op=name, order=m.pick(_COUNTER_ORDERS), scope=scope)


def _exchangeable(m: Maker) -> list[Place]:
    """Return the arrays of the kind "own" whose element type supports atomics."""
    places = [p for p in _of(m, "own") if isinstance(p.element, Scalar) and p.type.space == "global"]
    return [p for p in places if p.type.dtype.kind in ("int", "uint", "float") and p.type.dtype.bits >= 32]


@statement(2, lambda m: m.traits.atomics and bool(_exchangeable(m)))
def _own_atomic(m: Maker) -> None:
    """An atomic on an element that only this invocation accesses; the old value that it returns may be used."""
    place = m.pick(_exchangeable(m))
    indices, element = place.index(m), place.element
    is_float = place.type.dtype.is_float
    ordering: dict[str, Any] = {"order": "relaxed", "scope": "device"}
    names: list[OpName] = ["atomic", "atomic_load", "atomic_store"]
    names += [] if is_float else ["atomic_cas", "atomic"]
    name = m.pick(names)
    if name == "atomic_load":
        m.emit(name, place.array, *indices, **ordering)
    elif name == "atomic_store":
        m.builder.op(name, place.array, *indices, m.value(element), **ordering)
    elif name == "atomic_cas":
        m.emit(name, place.array, *indices, m.value(element), m.value(element), **ordering)
    else:
        # float sums may be rounded differently in programs that aren't strict
        ops = ["min", "max", "exchange", *(["add", "sub"] if m.traits.strict or not is_float else [])]
        ops += [] if is_float else ["and", "or", "xor"]
        m.emit(name, place.array, *indices, m.value(element), op=m.pick(ops), **ordering)


@statement(0.4, lambda m: m.traits.atomics)
def _fence(m: Maker) -> None:
    """A memory fence."""
    m.builder.op("fence", scope=m.pick(["workgroup", "device"]))


# -- reports


@statement(1.5, lambda m: m.traits.reports)
def _report(m: Maker) -> None:
    """An assertion, which fails if a value equals a constant. The constant is mostly a rare number."""
    b, type = m.builder, Scalar(dtypes.i32)
    unlikely = m.pick([77, 12345, 0]) if m.chance(0.3) else 987654
    condition = b.emit("eq", m.value(type), b.const(unlikely, type))
    site = m.module.add_site(ReportSite("assert", Loc("generated", len(m.module.sites) + 1), "found {0}"))
    b.op("report", condition, m.value(type), site=site)


@statement(2, lambda m: m.traits.prints)
def _print(m: Maker) -> None:
    """A print of an integer and a boolean."""
    site = m.module.add_site(ReportSite("print", Loc("generated", len(m.module.sites) + 1), "line {0} {1}\n"))
    m.builder.op("print", m.value(Scalar(dtypes.i32)), m.value(BOOL), site=site)
