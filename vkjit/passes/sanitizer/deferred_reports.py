"""Lowering of sanitizer reports for software drivers: write all records at the end of the kernel.

This is the alternative to `report_records`, which writes a record where the report is. Software drivers execute both
sides of every branch, and they execute a store once per invocation, even if it is masked off. A branch with stores for
every report would be slow there.

Each report site gets a bit in a mask, and local variables for the values of its first report. An operation `report
%cond, values... {site}` sets the bit and the variables if the condition holds. At the end of the kernel, one loop per
group of up to 32 sites writes the records::

    for %k = 0, popcount(%todo), 1 (%todo) {
        select the site and values of the lowest bit of %todo
        write its record (see `report_records`)
        continue %todo & (%todo - 1)
    }

If nothing was reported, software drivers execute the loop's body once, for any number of sites. Values that are still
available at the end of the kernel don't get a variable.
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
"""The number of bits in a mask."""


def defer_records(state: State) -> None:
    """Replace the reports of a kernel by updates of masks and variables, and append the loops that write records."""
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
    """Move reports before the `if` that contains them, unless their condition or values are computed inside.

    The condition of the `if` (for the second region, its negation) is combined with that of the report. A branch that
    doesn't change masks and variables needs no merge of their values after it.
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
                condition = f.term(op.operands[0]) if side == 0 else ~f.term(op.operands[0])
                if not is_constant(report.operands[0]):
                    condition = condition & f.term(report.operands[0])
                report.operands[0] = condition.value
                region.ops.append(report)
        region.ops.append(op)


def _leading(side: Region, reports: set[Op]) -> list[Op]:
    """Return the reports in a region of an `if` that can move before it.

    They use no value computed in the region. The search stops at the first nested control flow and at the first report
    that can't move.
    """
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
    """A report site whose record is written at the end of the kernel.

    `site` is its number, `bit` its bit in the mask of its group. `stored_values` has a pair for each value that the record
    stores: the variable that holds the value and True; or, if the value is available at the end of the kernel, the
    value itself and False.
    """

    site: int
    bit: int
    stored_values: list[tuple[Value, bool]]

    def values(self, f: Formula, layouts: RecordLayouts) -> list[Term]:
        """Return the kept values as 64-bit terms; to be called at the end of the kernel."""
        zero = f.builder.index(0)
        kept_values = [
            f.builder.emit("load", kept, zero) if is_variable else kept for kept, is_variable in self.stored_values
        ]
        return [layouts.bits(self.site, f, value) for value in kept_values]


@dataclass(slots=True)
class _Group:
    """Up to 32 sites that share a mask. The variable `mask` has a bit for each site that has reported."""

    mask: Value
    places: list[_Site] = field(default_factory=list)

    def write(self, f: Formula, layouts: RecordLayouts, records: Records) -> None:
        """Emit the loop that writes the records of the sites that have reported; for a single site, a branch."""
        builder = f.builder
        pending = f.term(builder.emit("load", self.mask, builder.index(0)))
        values = [place.values(f, layouts) for place in self.places]
        if len(self.places) == 1:
            with builder.when(pending.differs(0).value):
                records.write(f, f.term(self.places[0].site, dtypes.u32), values[0])
            return
        body = Region([U32, U32], ["k", "todo"])
        with builder.at(body):
            remaining = f.term(body.args[1])
            is_set = [(remaining & place.bit).differs(0) for place in self.places]
            site = _first(f, is_set, [f.term(place.site, dtypes.u32) for place in self.places])
            chosen = []  # the values of the site of the lowest bit; sites with fewer values are left out of a selection
            for position in range(max(map(len, values))):
                with_value = [n for n, stored in enumerate(values) if len(stored) > position]
                chosen.append(_first(f, [is_set[n] for n in with_value], [values[n][position] for n in with_value]))
            records.write(f, site, chosen)
            builder.op("continue", (remaining & (remaining - 1)).value)
        zero, one = (builder.const(number, U32) for number in (0, 1))
        iterations = f.call(
            "min", f.call("popcount", pending), f.term(len(self.places), dtypes.u32)
        )  # the minimum changes nothing, but gives later passes a constant bound
        builder.op("for", zero, iterations.value, one, pending.value, types=[U32], regions=[body])


def _first(f: Formula, conditions: list[Term], values: list[Term]) -> Term:
    """Return the value of the first condition that holds, or the last value if none does."""
    chosen = values[-1]
    for condition, value in zip(conditions[-2::-1], values[-2::-1], strict=True):
        chosen = f.select(condition, value, chosen)
    return chosen


class _DeferredReports:
    """The masks and variables of one kernel.

    `places` maps each report to its group and site. `available_at_end` are the values that are available at the end of the
    kernel: parameters, and results of operations outside of control flow.
    """

    def __init__(self, state: State, layouts: RecordLayouts, reports: list[Op]) -> None:
        self.state = state
        self.layouts = layouts
        self.groups: list[_Group] = []
        self.places: dict[Op, tuple[_Group, _Site]] = {}
        by_site: dict[int, list[Op]] = {}
        for op in reports:
            by_site.setdefault(op.attrs["site"], []).append(op)
        self.available_at_end = {result for op in state.kernel.body.ops for result in op.results} | set(
            state.kernel.body.args
        )
        for site, ops in by_site.items():
            place = self._place(site, ops)
            self.places.update((op, place) for op in ops)

    def _place(self, site: int, ops: list[Op]) -> tuple[_Group, _Site]:
        """Assign a bit and variables to a site; `ops` are its reports."""
        if not self.groups or len(self.groups[-1].places) == _BITS:
            self.groups.append(_Group(self._variable(U32)))
        group = self.groups[-1]
        kept = []
        for corresponding in zip(*(self.layouts.stored(op) for op in ops), strict=True):
            steady = corresponding[0] in self.available_at_end and all(
                value is corresponding[0] for value in corresponding
            )
            kept.append((corresponding[0], False) if steady else (self._variable(corresponding[0].type), True))
        group.places.append(_Site(site, 1 << len(group.places), kept))
        return group, group.places[-1]

    def _variable(self, kind: Type) -> Value:
        """Allocate a local array of one element, initialized to 0 at the start of the kernel."""
        prologue = self.state.prologue
        assert isinstance(kind, Scalar)
        array = prologue.emit("local", type=Array(kind, 1, "local", shape=(1,), contiguous=True))
        prologue.op("store", array, prologue.index(0), prologue.const(zero_of(kind), kind))
        return array

    def note(self, op: Op, builder: Builder) -> None:
        """Emit the code for a report: set the bit of its site if its condition holds, and store the values if the bit
        wasn't set before.
        """
        group, place = self.places[op]
        f, zero = Formula(builder), builder.index(0)
        condition = f.term(op.operands[0])
        before = f.term(builder.emit("load", group.mask, zero))
        bit = f.select(condition, f.term(place.bit, dtypes.u32), 0)
        builder.op("store", group.mask, zero, (before | bit).value)
        first = condition & (before & place.bit).equals(0)
        for (array, is_variable), value in zip(place.stored_values, self.layouts.stored(op), strict=True):
            if is_variable:
                old = f.term(builder.emit("load", array, zero))
                builder.op("store", array, zero, f.select(first, f.term(value), old).value)
