"""Lowering of sanitizer reports for software drivers: write all records at the end of the kernel.

This is the alternative to `report_records`, which writes a record where the report is. Software drivers (Vulkan drivers
that run on CPUs) execute both sides of every branch, and they execute a store once per invocation, even if it is masked
off. On them, a branch with stores for every report would be slow.

Each report site gets a bit in a mask, and local variables for the values of its first report. An operation `report
%cond, values... {site}` sets the bit and the variables if the condition holds. At the end of the kernel, one loop per
group of up to 32 sites writes the records::

    for %k = 0, popcount(%todo), 1 (%todo) {
        select the site and values of the lowest bit of %todo
        write its record (see `report_records`)
        continue %todo & (%todo - 1)
    }

If nothing was reported, software drivers execute each loop's body once, however many sites it serves. Values that are
still available at the end of the kernel don't get a variable.
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

_MASK_BITS = 32
"""The number of bits in a mask, and so the maximum number of sites in a group."""


def defer_records(state: State) -> None:
    """Replace the reports of a kernel by updates of masks and variables, and append the loops that write records."""
    body = state.kernel.body
    _hoist(body, set(reports_of(state)))
    reports = reports_of(state)  # in the new order
    if not reports:
        return
    layouts, records = RecordLayouts(state), Records(state)
    deferred = _DeferredReports(state, layouts, reports)

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        if op not in deferred.site_of_report:
            return None
        deferred.emit_update(op, builder)
        return []

    rewrite_region(body, rule)
    terminator = body.ops.pop()  # put back after the loops
    f = Formula(Builder(body, terminator.loc))
    for group in deferred.groups:
        group.write(f, layouts, records)
    body.ops.append(terminator)


def _hoist(region: Region, reports: set[Op]) -> None:
    """Move reports in front of the `if` that contains them, unless their condition or values are computed inside.

    The condition of a moved report is combined with that of the `if`, negated for the second region. If all reports of
    a branch are moved, the branch doesn't change masks and variables, and needs no merge of their values after it.
    """
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        for side, inner in enumerate(op.regions):
            _hoist(inner, reports)
            if op.name != "if":
                continue
            for report in _leading(inner, reports):
                inner.ops.remove(report)
                builder.loc = report.loc
                f = Formula(builder)
                condition = f.term(op.operands[0]) if side == 0 else ~f.term(op.operands[0])
                if not is_constant(report.operands[0]):  # a constant condition is taken to be True
                    condition = condition & f.term(report.operands[0])
                report.operands[0] = condition.value
                region.ops.append(report)
        region.ops.append(op)


def _leading(side: Region, reports: set[Op]) -> list[Op]:
    """Return the reports in a region of an `if` that can be moved in front of the `if`.

    These are reports that use no value computed in the region. The search stops at the first nested control flow and at
    the first report that can't be moved.
    """
    leading: list[Op] = []
    inside: set[Value] = set()
    for op in side.ops:
        if op.regions:
            break
        if op in reports:
            condition, *values = op.operands
            # a moved report with the constant condition True gets only the condition of the `if`
            always = is_constant(condition) and bool(constant_of(condition))
            needed = values if always else [*values, condition]
            if any(value in inside for value in needed):
                break
            leading.append(op)
        inside.update(op.results)
    return leading


@dataclass(frozen=True, slots=True)
class _Site:
    """A report site whose record is written at the end of the kernel.

    `number` is the number of the report site, `bit` its bit in the mask of its group. `stored_values` has a pair for
    each value that the record stores. The pair is (variable that holds the value, True), or (the value itself, False)
    if the value is available at the end of the kernel.
    """

    number: int
    bit: int
    stored_values: list[tuple[Value, bool]]

    def values(self, f: Formula, layouts: RecordLayouts) -> list[Term]:
        """Emit code at the end of the kernel that loads the values to store in the record; return them as u64 terms."""
        zero = f.builder.index(0)
        kept_values = [
            f.builder.emit("load", kept, zero) if is_variable else kept for kept, is_variable in self.stored_values
        ]
        return [layouts.bits(self.number, f, value) for value in kept_values]


@dataclass(slots=True)
class _Group:
    """Up to 32 sites that share a mask. In the variable `mask`, the bits of the sites that have reported are set."""

    mask: Value
    sites: list[_Site] = field(default_factory=list)

    def write(self, f: Formula, layouts: RecordLayouts, records: Records) -> None:
        """Emit the loop that writes the records of the sites that have reported. A single site needs only a branch."""
        builder = f.builder
        pending = f.term(builder.emit("load", self.mask, builder.index(0)))
        values = [site.values(f, layouts) for site in self.sites]
        if len(self.sites) == 1:
            with builder.when(pending.differs(0).value):
                records.write(f, f.term(self.sites[0].number, dtypes.u32), values[0])
            return
        body = Region([U32, U32], ["k", "todo"])
        with builder.at(body):
            remaining = f.term(body.args[1])
            is_set = [(remaining & site.bit).differs(0) for site in self.sites]
            site_number = _first(f, is_set, [f.term(site.number, dtypes.u32) for site in self.sites])
            chosen = []  # the values of the site of the lowest set bit
            for position in range(max(map(len, values))):
                # sites that have fewer values take no part in the selection
                with_value = [n for n, stored in enumerate(values) if len(stored) > position]
                chosen.append(_first(f, [is_set[n] for n in with_value], [values[n][position] for n in with_value]))
            records.write(f, site_number, chosen)
            builder.op("continue", (remaining & (remaining - 1)).value)  # clear the lowest set bit
        zero, one = (builder.const(number, U32) for number in (0, 1))
        # the `min` doesn't change the value, but gives later passes a constant bound
        iterations = f.call("min", f.call("popcount", pending), f.term(len(self.sites), dtypes.u32))
        builder.op("for", zero, iterations.value, one, pending.value, types=[U32], regions=[body])


def _first(f: Formula, conditions: list[Term], values: list[Term]) -> Term:
    """Return the value that belongs to the first condition that holds; the last value if none of them holds."""
    chosen = values[-1]
    # from the second last to the first: the select that is emitted last takes precedence
    for condition, value in zip(conditions[-2::-1], values[-2::-1], strict=True):
        chosen = f.select(condition, value, chosen)
    return chosen


class _DeferredReports:
    """The masks and variables of one kernel.

    `site_of_report` maps each report to its group and site. `available_at_end` are the values that are available at the
    end of the kernel: parameters, and results of operations outside of control flow.
    """

    def __init__(self, state: State, layouts: RecordLayouts, reports: list[Op]) -> None:
        self.state = state
        self.layouts = layouts
        self.groups: list[_Group] = []
        self.site_of_report: dict[Op, tuple[_Group, _Site]] = {}
        by_site: dict[int, list[Op]] = {}
        for op in reports:
            by_site.setdefault(op.attrs["site"], []).append(op)
        self.available_at_end = set(state.kernel.body.args)
        self.available_at_end.update(result for op in state.kernel.body.ops for result in op.results)
        for number, ops in by_site.items():
            group_and_site = self._allocate(number, ops)
            self.site_of_report.update((op, group_and_site) for op in ops)

    def _allocate(self, number: int, ops: list[Op]) -> tuple[_Group, _Site]:
        """Assign a bit and variables to the report site `number`; `ops` are its reports."""
        if not self.groups or len(self.groups[-1].sites) == _MASK_BITS:
            self.groups.append(_Group(self._variable(U32)))
        group = self.groups[-1]
        stored_values = []
        for per_report in zip(*(self.layouts.stored(op) for op in ops), strict=True):
            value = per_report[0]
            same_in_all_reports = all(other is value for other in per_report)
            if same_in_all_reports and value in self.available_at_end:
                stored_values.append((value, False))
            else:
                stored_values.append((self._variable(value.type), True))
        group.sites.append(_Site(number, 1 << len(group.sites), stored_values))
        return group, group.sites[-1]

    def _variable(self, value_type: Type) -> Value:
        """Allocate a variable: a local array of one element, initialized to 0 at the start of the kernel."""
        prologue = self.state.prologue
        assert isinstance(value_type, Scalar)
        array = prologue.emit("local", type=Array(value_type, 1, "local", shape=(1,), contiguous=True))
        prologue.op("store", array, prologue.index(0), prologue.const(zero_of(value_type), value_type))
        return array

    def emit_update(self, op: Op, builder: Builder) -> None:
        """Emit the code for the report `op`.

        If its condition holds, the code sets the bit of its site, and stores the values if the bit wasn't set before.
        All stores are unconditional: they store the old value if there is nothing to change.
        """
        group, site = self.site_of_report[op]
        f, zero = Formula(builder), builder.index(0)
        condition = f.term(op.operands[0])
        before = f.term(builder.emit("load", group.mask, zero))
        bit = f.select(condition, f.term(site.bit, dtypes.u32), 0)
        builder.op("store", group.mask, zero, (before | bit).value)
        first = condition & (before & site.bit).equals(0)
        for (array, is_variable), value in zip(site.stored_values, self.layouts.stored(op), strict=True):
            if is_variable:
                old = f.term(builder.emit("load", array, zero))
                builder.op("store", array, zero, f.select(first, f.term(value), old).value)
