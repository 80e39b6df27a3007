"""Reports of the sanitizer that are kept until the kernel's end, for software drivers.

Before: `report %cond, values... {site}`, anywhere. After: variables that hold which places an invocation has reported, a bit
each, and the values of the first time; at the kernel's end one loop for up to 32 places::

    for %k = 0, number of bits in %todo, 1 (%todo) {
        the lowest bit of %todo, and what belongs to it, by selections
        write that record (see `records`)
        continue %todo & (%todo - 1)
    }

Such drivers run both sides of every branch, and each store invocation by invocation, whether it happens or not: the loop's body
runs once where nothing is wrong, however many places there are. Values that are the same at the end aren't kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ... import dtypes
from ...ir.builder import Builder
from ...ir.core import Op, Region, Value
from ...ir.rewrite import constant_of, is_constant, rewrite_region
from ...ir.types import U32, Array, Scalar, Type
from ..formula import Formula, Term
from .records import Layouts, Records, reports_of, zero_of
from .state import State

__all__ = ["defer_records"]

_BITS = 32


def defer_records(state: State) -> None:
    """Replaces the reports of a kernel."""
    body = state.kernel.body
    _lift(body, set(reports_of(state)))
    reports = reports_of(state)
    if not reports:
        return
    layouts, records = Layouts(state), Records(state)
    held = _Held(state, layouts, reports)

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        if op not in held.places:
            return None
        held.note(op, builder)
        return []

    rewrite_region(body, rule)
    last = body.ops.pop()
    f = Formula(Builder(body, last.loc))
    for group in held.groups:
        group.write(f, layouts, records)
    body.ops.append(last)


def _lift(region: Region, reports: set[Op]) -> None:
    """Puts reports in front of the `if` that they stand in, as far as nothing inside decides about them: what a branch doesn't
    change needn't be joined behind it.
    """
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        for side, inner in enumerate(op.regions):
            _lift(inner, reports)
            for report in _leading(inner, reports) if op.name == "if" else []:
                inner.ops.remove(report)
                builder.loc = report.loc
                f = Formula(builder)
                chosen = f.term(op.operands[0]) if side == 0 else ~f.term(op.operands[0])
                if not is_constant(report.operands[0]):
                    chosen = chosen & f.term(report.operands[0])
                report.operands[0] = chosen.value
                region.ops.append(report)
        region.ops.append(op)


def _leading(side: Region, reports: set[Op]) -> list[Op]:
    """The reports at the start of a side, before anything that might leave it, that look at nothing made there."""
    found: list[Op] = []
    inside: set[Value] = set()
    for op in side.ops:
        if op.regions:
            break
        if op in reports:
            condition = op.operands[0]
            always = is_constant(condition) and bool(constant_of(condition))
            if any(value in inside for value in op.operands[1:] + ([] if always else [condition])):
                break
            found.append(op)
        inside.update(op.results)
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """A place: its bit, and by value that is stored the variable that holds it, or the value itself where that is the same at
    the end.
    """

    site: int
    bit: int
    kept: list[tuple[Value, bool]]

    def values(self, f: Formula, layouts: Layouts) -> list[Term]:
        """What was kept, at the kernel's end."""
        zero = f.builder.index(0)
        found = [f.builder.emit("load", kept, zero) if held else kept for kept, held in self.kept]
        return [layouts.bits(self.site, f, value) for value in found]


@dataclass(slots=True)
class _Group:
    """Up to 32 places that share a word: a bit of `mask` for each that was reported."""

    mask: Value
    places: list[_Place] = field(default_factory=list)

    def write(self, f: Formula, layouts: Layouts, records: Records) -> None:
        """Writes the records of the places that were reported."""
        builder = f.builder
        todo = f.term(builder.emit("load", self.mask, builder.index(0)))
        values = [place.values(f, layouts) for place in self.places]
        if len(self.places) == 1:
            with builder.when(todo.differs(0).value):
                records.write(f, f.term(self.places[0].site, dtypes.u32), values[0])
            return
        body = Region([U32, U32], ["k", "todo"])
        with builder.at(body):
            left = f.term(body.args[1])
            lowest = [(left & place.bit).differs(0) for place in self.places]
            site = _first(f, lowest, [f.term(place.site, dtypes.u32) for place in self.places])
            chosen = []
            for position in range(max(map(len, values))):
                able = [n for n, stored in enumerate(values) if len(stored) > position]
                chosen.append(_first(f, [lowest[n] for n in able], [values[n][position] for n in able]))
            records.write(f, site, chosen)
            builder.op("continue", (left & (left - 1)).value)
        zero, one = (builder.const(number, U32) for number in (0, 1))
        rounds = f.call("min", f.call("popcount", todo), f.term(len(self.places), dtypes.u32))  # a bound that is seen
        builder.op("for", zero, rounds.value, one, todo.value, types=[U32], regions=[body])


def _first(f: Formula, conditions: list[Term], values: list[Term]) -> Term:
    """The value of the first condition that holds; the last one where none does."""
    chosen = values[-1]
    for condition, value in zip(conditions[-2::-1], values[-2::-1], strict=True):
        chosen = f.select(condition, value, chosen)
    return chosen


class _Held:
    """The variables of one kernel."""

    def __init__(self, state: State, layouts: Layouts, reports: list[Op]) -> None:
        self.state = state
        self.layouts = layouts
        self.groups: list[_Group] = []
        self.places: dict[Op, tuple[_Group, _Place]] = {}
        by_site: dict[int, list[Op]] = {}
        for op in reports:
            by_site.setdefault(op.attrs["site"], []).append(op)
        self.steady = {result for op in state.kernel.body.ops for result in op.results} | set(state.kernel.body.args)
        for site, ops in by_site.items():
            place = self._place(site, ops)
            self.places.update((op, place) for op in ops)

    def _place(self, site: int, ops: list[Op]) -> tuple[_Group, _Place]:
        if not self.groups or len(self.groups[-1].places) == _BITS:
            self.groups.append(_Group(self._variable(U32)))
        group = self.groups[-1]
        kept = []
        for same in zip(*(self.layouts.stored(op) for op in ops), strict=True):
            steady = same[0] in self.steady and all(value is same[0] for value in same)
            kept.append((same[0], False) if steady else (self._variable(same[0].type), True))
        group.places.append(_Place(site, 1 << len(group.places), kept))
        return group, group.places[-1]

    def _variable(self, kind: Type) -> Value:
        """A variable of an invocation, at first 0."""
        prologue = self.state.prologue
        assert isinstance(kind, Scalar)
        array = prologue.emit("local", type=Array(kind, 1, "local", shape=(1,), contiguous=True))
        prologue.op("store", array, prologue.index(0), prologue.const(zero_of(kind), kind))
        return array

    def note(self, op: Op, builder: Builder) -> None:
        """Keeps a report unless there is one of the place."""
        group, place = self.places[op]
        f, zero = Formula(builder), builder.index(0)
        condition = f.term(op.operands[0])
        before = f.term(builder.emit("load", group.mask, zero))
        bit = f.select(condition, f.term(place.bit, dtypes.u32), 0)
        builder.op("store", group.mask, zero, (before | bit).value)
        first = condition & (before & place.bit).equals(0)
        for (array, held), value in zip(place.kept, self.layouts.stored(op), strict=True):
            if held:
                old = f.term(builder.emit("load", array, zero))
                builder.op("store", array, zero, f.select(first, f.term(value), old).value)
