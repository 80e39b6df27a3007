"""Deferred reports: keep reports in variables and write their records at the end of the kernel, for software drivers.

Takes a kernel with `report %cond, values... {site}` anywhere. Each site that can report gets a bit of a mask and
variables for the values of its first report. At the end of the kernel, one loop writes the records of up to 32 sites::

    for %k = 0, popcount(%todo), 1 (%todo) {
        select the site and values of the lowest bit of %todo
        write its record (see `report_records`)
        continue %todo & (%todo - 1)
    }

Software drivers run both sides of every branch, and each store one invocation after the other, even if it is masked
off. The loop's body runs once if nothing is wrong, for any number of sites. Values that are still available at the end
of the kernel don't get a variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.rewrite import constant_of, is_constant, rewrite_region
from vkjit.ir.types import U32, Array, Scalar, Type

from ..formulas.formula import Formula, Term
from .report_records import RecordLayouts, Records, reports_of, zero_of
from .state import State

__all__ = ["defer_records"]

_BITS = 32


def defer_records(state: State) -> None:
    """Replace the reports of a kernel by deferred ones."""
    body = state.kernel.body
    _hoist(body, set(reports_of(state)))
    reports = reports_of(state)
    if not reports:
        return
    layouts, records = RecordLayouts(state), Records(state)
    variables = _DeferredReports(state, layouts, reports)

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        if op not in variables.places:
            return None
        variables.note(op, builder)
        return []

    rewrite_region(body, rule)
    last = body.ops.pop()
    f = Formula(Builder(body, last.loc))
    for group in variables.groups:
        group.write(f, layouts, records)
    body.ops.append(last)


def _hoist(region: Region, reports: set[Op]) -> None:
    """Hoist reports out of the `if` that contains them if neither their condition nor their values are computed inside:
    values that a branch doesn't change need no merge after it.
    """
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        for side, inner in enumerate(op.regions):
            _hoist(inner, reports)
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
    """Return the reports at the start of a side, before any nested control flow, that use no value computed there."""
    leading: list[Op] = []
    inside: set[Value] = set()
    for op in side.ops:
        if op.regions:
            break
        if op in reports:
            condition = op.operands[0]
            always = is_constant(condition) and bool(constant_of(condition))
            if any(value in inside for value in op.operands[1:] + ([] if always else [condition])):
                break
            leading.append(op)
        inside.update(op.results)
    return leading


@dataclass(frozen=True, slots=True)
class _Site:
    """A site: its bit, and for each stored value the variable that holds it (True), or the value itself if it is still
    available at the end (False).
    """

    site: int
    bit: int
    kept: list[tuple[Value, bool]]

    def values(self, f: Formula, layouts: RecordLayouts) -> list[Term]:
        """Load the kept values at the end of the kernel."""
        zero = f.builder.index(0)
        kept_values = [f.builder.emit("load", kept, zero) if is_variable else kept for kept, is_variable in self.kept]
        return [layouts.bits(self.site, f, value) for value in kept_values]


@dataclass(slots=True)
class _Group:
    """Up to 32 sites that share a `mask` with a bit for each site that has reported."""

    mask: Value
    places: list[_Site] = field(default_factory=list)

    def write(self, f: Formula, layouts: RecordLayouts, records: Records) -> None:
        """Write the records of the sites that have reported."""
        builder = f.builder
        pending = f.term(builder.emit("load", self.mask, builder.index(0)))
        values = [place.values(f, layouts) for place in self.places]
        if len(self.places) == 1:
            with builder.when(pending.differs(0).value):
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
        iterations = f.call(
            "min", f.call("popcount", pending), f.term(len(self.places), dtypes.u32)
        )  # a visible upper bound
        builder.op("for", zero, iterations.value, one, pending.value, types=[U32], regions=[body])


def _first(f: Formula, conditions: list[Term], values: list[Term]) -> Term:
    """Return the value of the first condition that holds, or the last value if none does."""
    chosen = values[-1]
    for condition, value in zip(conditions[-2::-1], values[-2::-1], strict=True):
        chosen = f.select(condition, value, chosen)
    return chosen


class _DeferredReports:
    """The masks and variables of one kernel."""

    def __init__(self, state: State, layouts: RecordLayouts, reports: list[Op]) -> None:
        self.state = state
        self.layouts = layouts
        self.groups: list[_Group] = []
        self.places: dict[Op, tuple[_Group, _Site]] = {}
        by_site: dict[int, list[Op]] = {}
        for op in reports:
            by_site.setdefault(op.attrs["site"], []).append(op)
        self.steady = {result for op in state.kernel.body.ops for result in op.results} | set(state.kernel.body.args)
        for site, ops in by_site.items():
            place = self._place(site, ops)
            self.places.update((op, place) for op in ops)

    def _place(self, site: int, ops: list[Op]) -> tuple[_Group, _Site]:
        if not self.groups or len(self.groups[-1].places) == _BITS:
            self.groups.append(_Group(self._variable(U32)))
        group = self.groups[-1]
        kept = []
        for same in zip(*(self.layouts.stored(op) for op in ops), strict=True):
            steady = same[0] in self.steady and all(value is same[0] for value in same)
            kept.append((same[0], False) if steady else (self._variable(same[0].type), True))
        group.places.append(_Site(site, 1 << len(group.places), kept))
        return group, group.places[-1]

    def _variable(self, kind: Type) -> Value:
        """Allocate a variable of the invocation that is initially 0."""
        prologue = self.state.prologue
        assert isinstance(kind, Scalar)
        array = prologue.emit("local", type=Array(kind, 1, "local", shape=(1,), contiguous=True))
        prologue.op("store", array, prologue.index(0), prologue.const(zero_of(kind), kind))
        return array

    def note(self, op: Op, builder: Builder) -> None:
        """Set the bit of a report's site if its condition holds; store its values if it is the site's first report."""
        group, place = self.places[op]
        f, zero = Formula(builder), builder.index(0)
        condition = f.term(op.operands[0])
        before = f.term(builder.emit("load", group.mask, zero))
        bit = f.select(condition, f.term(place.bit, dtypes.u32), 0)
        builder.op("store", group.mask, zero, (before | bit).value)
        first = condition & (before & place.bit).equals(0)
        for (array, is_variable), value in zip(place.kept, self.layouts.stored(op), strict=True):
            if is_variable:
                old = f.term(builder.emit("load", array, zero))
                builder.op("store", array, zero, f.select(first, f.term(value), old).value)
