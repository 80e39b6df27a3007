"""Lowering of sanitizer reports to records, one per report site, so that one launch can report errors at all sites.

The last step of the pass `Sanitize`. It replaces `report %cond, values... {site}`, for sites of a kind in `KINDS`, by::

    if %cond { %old = atomic_cas %records, site * 32, 0, workgroup + 1
               if %old == 0 { store the linear local id, and the values, after it } }

The format of records is described in `layout`. The first invocation that reports a site claims its record; later ones
don't change it. Extents of arguments and integer constants are omitted from the record, because the host knows them.

Software drivers (Vulkan drivers that run on CPUs) execute both sides of every branch. For them, the module
`deferred_reports` writes the records at the end of the kernel instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.rewrite import constant_of, is_constant, rewrite_region
from vkjit.ir.types import Scalar, Type, Vector

from ..formulas.formula import Formula, Term
from .layout import FIRST_VALUE, MAX_VALUES, RECORD_WORDS, HostValue
from .state import State, hidden_array

__all__ = ["KINDS", "RecordLayouts", "Records", "reports_of", "write_records", "zero_of"]

KINDS = frozenset({
    "bounds", "zero_division", "race", "uninitialised", "fresh_shared", "overflow", "nan", "uniform", "loops",
})  # fmt: skip
"""Kinds of report sites that become records. Reports of other kinds, such as asserts, remain `report` operations.
"uninitialised" and "fresh_shared" are uninitialized reads, the latter from shared memory.
"""


_GATHERED = frozenset({"fresh_shared"})
"""Kinds whose reports share one branch if they are in the same straight-line code.

Uninitialized reads of local arrays aren't included. Later passes fold most of their conditions to False and remove
those reports. A common branch would prevent that.
"""


def write_records(state: State) -> None:
    """Replace the reports of a kernel by code that writes records where the reports are."""
    body = state.kernel.body
    _gather(body, state.module.sites)
    reports = set(reports_of(state))
    if not reports:
        return
    layouts, records = RecordLayouts(state), Records(state)

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        if op not in reports:
            return None
        f, site = Formula(builder), op.attrs["site"]
        with builder.when(op.operands[0]):
            values = [layouts.bits(site, f, value) for value in layouts.stored(op)]
            records.write(f, f.term(site, dtypes.u32), values)
        return []

    rewrite_region(body, rule)


def reports_of(state: State) -> list[Op]:
    """Return the reports that become records, in program order."""
    sites = state.module.sites
    ops = state.kernel.body.walk()
    return [op for op in ops if op.name == "report" and sites[op.attrs["site"]].kind in KINDS]


def _gather(region: Region, sites: Sequence[ReportSite]) -> None:
    """Gather the reports of kinds in `_GATHERED` in one branch per piece of straight-line code.

    The branch comes at the end of the piece, and is executed if the condition of any of its reports holds.
    """
    source, region.ops = region.ops, []
    waiting: list[Op] = []
    for op in source:
        if op.name == "report" and sites[op.attrs["site"]].kind in _GATHERED:
            waiting.append(op)
            continue
        if op.regions or op.name == "barrier" or OPS[op.name].terminator:
            _behind_branch(waiting, region)
            waiting.clear()
            for inner in op.regions:
                _gather(inner, sites)
        region.ops.append(op)


def _behind_branch(reports: list[Op], region: Region) -> None:
    """Append reports to a region, inside one branch if there are several."""
    if len(reports) < 2:
        region.ops += reports
        return
    builder = Builder(region, reports[-1].loc)
    any_condition = reports[0].operands[0]
    for op in reports[1:]:
        any_condition = builder.emit("or", any_condition, op.operands[0])
    with builder.when(any_condition):
        builder.region.ops += reports


def zero_of(kind: Type) -> bool | int | float:
    """Return the zero of a scalar or vector type, as a value for `const`."""
    dtype = kind.dtype if isinstance(kind, (Scalar, Vector)) else dtypes.i32
    if dtype.kind == "bool":
        return False
    return 0.0 if dtype.is_float else 0


class RecordLayouts:
    """The values that the record of each report site stores.

    A value is omitted if it is the same extent of an argument, or the same integer constant, in all reports of the
    site. `host_values` maps the number of each site to a list with a `HostValue` for each omitted value and None for
    each stored one. The constructor puts the omitted values into the plan's `value_kinds`, with "" for each stored
    value; `bits` replaces "" by the value's kind.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.host_values: dict[int, list[HostValue | None]] = {}
        for op in reports_of(state):
            values = [self._host_value(value) for value in op.operands[1 : 1 + MAX_VALUES]]
            before = self.host_values.setdefault(op.attrs["site"], values)
            self.host_values[op.attrs["site"]] = [x if x == y else None for x, y in zip(before, values, strict=True)]
        for site, host_values in self.host_values.items():
            state.plan.value_kinds[site] = tuple("" if value is None else value for value in host_values)

    def _host_value(self, value: Value) -> HostValue | None:
        """Return how the host obtains a value, so that records can omit it; None if the record must store it."""
        op = value.op
        if op is not None and op.name == "extent" and op.operands[0].op is None:
            numbers: tuple[int, ...] = self.state.kernel.attrs["arg_index"]
            return HostValue(arg=numbers[self.state.kernel.params.index(op.operands[0])], axis=op.attrs["axis"])
        if not is_constant(value) or not isinstance(value.type, Scalar) or not value.type.dtype.is_integer:
            return None
        return HostValue(number=int(constant_of(value)))

    def stored(self, op: Op) -> list[Value]:
        """Return the values of a report that its record stores."""
        host_values = self.host_values[op.attrs["site"]]
        # `host_values` has at most MAX_VALUES items; the record has no room for further values
        return [v for v, host in zip(op.operands[1:], host_values, strict=False) if host is None]

    def bits(self, site: int, f: Formula, value: Value) -> Term:
        """Return a stored value as a u64, and put its kind into the plan. To be called for a site's values in order.

        After the first report of the site, the plan has the kinds of all its values and isn't changed any more.
        """
        kind, bits = _bits(f, value)
        kinds = list(self.state.plan.value_kinds[site])
        if "" in kinds:
            kinds[kinds.index("")] = kind
            self.state.plan.value_kinds[site] = tuple(kinds)
        return bits


class Records:
    """The memory of the records: `words` and `values` are the same memory as u32 words and as u64 values."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.words = state.param("records", hidden_array(dtypes.u32))
        self.values = state.param("values", hidden_array(dtypes.u64))

    def write(self, f: Formula, site: Term, values: Sequence[Term]) -> None:
        """Emit code that claims the record of a site and, unless it was claimed before, fills it with `values`.

        `site` is the number of the site, a u32. The values are u64.
        """
        builder = f.builder
        first_word = site * RECORD_WORDS
        group = self._linear(f, "group_id", [f.term(builder.emit("num_groups", dim=dim)) for dim in (0, 1)])
        claim = group.cast(dtypes.u32) + 1
        old = f.term(
            builder.emit(
                "atomic_cas", self.words, first_word.cast(dtypes.index).value, f.term(0, dtypes.u32).value, claim.value,
                order="relaxed", scope="device",
            )
        )  # fmt: skip
        with builder.when(old.equals(0).value):
            sizes = [f.term(size, dtypes.index) for size in self.state.local_size[:2]]
            local = self._linear(f, "local_id", sizes)
            builder.op("store", self.words, (first_word + 1).cast(dtypes.index).value, local.cast(dtypes.u32).value)
            for position, value in enumerate(values):
                # u32 word numbers are halved, since `values` has elements of u64
                index = site * (RECORD_WORDS // 2) + (FIRST_VALUE // 2 + position)
                builder.op("store", self.values, index.cast(dtypes.index).value, value.value)

    @staticmethod
    def _linear(f: Formula, name: OpName, extents: list[Term]) -> Term:
        """Return a linear id, x first, given the extents along x and y."""
        x, y, z = (f.term(f.builder.emit(name, dim=dim)) for dim in range(3))
        return (z * extents[1] + y) * extents[0] + x


def _bits(f: Formula, value: Value) -> tuple[str, Term]:
    """Return the kind of a scalar value (see `SanitizerPlan.value_kinds`), and the value as a u64."""
    dtype = getattr(value.type, "dtype", dtypes.i32)
    term = f.term(value)
    if dtype.kind == "bool":
        return "int", f.select(term, f.term(1, dtypes.u64), 0)
    if dtype.is_float and dtype.bits < 64:
        single = term if dtype is dtypes.f32 else f.call("cast", term, type=Scalar(dtypes.f32))
        return "f32", single.bits().cast(dtypes.u64)
    if dtype.is_float:
        kind, wide = "f64", term.bits()
    elif dtype.is_signed:
        kind, wide = "int", term.cast(dtypes.i64)
    else:
        kind, wide = "uint", term.cast(dtypes.u64)
    return kind, wide.as_bits_of(dtypes.u64) if wide.dtype is not dtypes.u64 else wide
