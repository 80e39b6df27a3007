"""Turns reports of the sanitizer into records: one per place, so that one launch finds them all.

Before: `report %cond, values... {site}` whose site is of a kind in `KINDS`. After::

    if %cond { %old = atomic_cas %records, site * 32, 0, 1
               if %old == 0 { store global id and values behind it } }

Holds: the first invocation that comes to a place keeps it; others change nothing. Software drivers run both sides of every
branch; there, what stands in loops, or more than once, is kept in variables and written at the kernel's end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ... import dtypes
from ...errors import ReportSite
from ...ir.builder import Builder
from ...ir.core import Op, Region, Value
from ...ir.ops import OPS
from ...ir.rewrite import LOOPS, rewrite_region, walk_with_parents
from ...ir.types import BOOL, Array, Scalar, Type, Vector
from ..formula import Formula, Term
from .plan import FIRST_VALUE, MOST_VALUES, RECORD_WORDS
from .state import State, hidden_array

__all__ = ["KINDS", "write_records", "zero_of"]

KINDS = frozenset({
    "bounds", "zero_division", "race", "uninitialised", "fresh_shared", "overflow", "nan", "uniform", "loops",
})  # fmt: skip
"""Kinds of report sites that become records; asserts and a driver's loop limit stay reports."""


_GATHERED = frozenset({"fresh_shared"})
"""Kinds that are put behind one branch. Marks of local arrays mostly fold away, one by one; a branch for all of them holds
on to what they need."""


def write_records(state: State, *, deferred: bool) -> None:
    """Replaces the reports of a kernel; with `deferred`, those in loops and of many accesses are written at its end."""
    sites = state.module.sites
    records = state.param("records", hidden_array(dtypes.u32))
    body = state.kernel.body
    if not deferred:
        _gather(body, sites)
    looped = _kept_back(body) if deferred else set()
    held: dict[int, _Held] = {}

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        if op.name != "report" or sites[op.attrs["site"]].kind not in KINDS:
            return None
        if op in looped:
            held.setdefault(op.attrs["site"], _Held.of(state, op)).note(op, builder)
        else:
            _Record(state, records, builder, op).write()
        return []

    rewrite_region(body, rule)
    last = body.ops.pop()
    builder = Builder(body, last.loc)
    for entry in held.values():
        _Record(state, records, builder, entry.report(builder)).write()
    body.ops.append(last)


def _gather(region: Region, sites: Sequence[ReportSite]) -> None:
    """Puts the reports of a straight piece of code behind one branch: `if any of them { each of them }`."""
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
    if len(reports) < 2:
        region.ops += reports
        return
    builder = Builder(region, reports[-1].loc)
    found = reports[0].operands[0]
    for op in reports[1:]:
        found = builder.emit("or", found, op.operands[0])
    with builder.when(found):
        builder.region.ops += reports


def _kept_back(body: Region) -> set[Op]:
    """The reports inside loops, and those that share a site."""
    reports = [(op, around) for op, around in walk_with_parents(body) if op.name == "report"]
    counts = Counter(op.attrs["site"] for op, _ in reports)
    return {op for op, around in reports if counts[op.attrs["site"]] > 1 or any(a.name in LOOPS for a in around)}


@dataclass(slots=True)
class _Held:
    """The first report of a site by an invocation, kept until the kernel's end: whether, and its values. Of extents of
    arrays, which are the same at the end, nothing is kept."""

    op: Op
    flag: Value
    values: list[Value | None]

    @classmethod
    def of(cls, state: State, op: Op) -> _Held:
        """Variables that hold nothing yet."""
        prologue = state.prologue

        def variable(kind: Type) -> Value:
            array = prologue.emit("local", type=Array(_scalar(kind), 1, "local", shape=(1,), contiguous=True))
            prologue.op("store", array, prologue.index(0), prologue.const(zero_of(kind), kind))
            return array

        values = [None if _is_extent(v) else variable(v.type) for v in op.operands[1 : 1 + MOST_VALUES]]
        return cls(op, variable(BOOL), values)

    def note(self, op: Op, builder: Builder) -> None:
        """Keeps a report unless there is one."""
        f, zero = Formula(builder), builder.index(0)
        condition, before = f.term(op.operands[0]), f.term(builder.emit("load", self.flag, zero))
        first = condition & ~before
        builder.op("store", self.flag, zero, (before | condition).value)
        for array, value in zip(self.values, op.operands[1:], strict=False):
            if array is None:
                continue
            old = f.term(builder.emit("load", array, zero))
            builder.op("store", array, zero, f.select(first, f.term(value), old).value)

    def report(self, builder: Builder) -> Op:
        """The report of what was kept, in no region."""

        def value(array: Value | None, kept: Value) -> Value:
            if array is not None:
                return builder.emit("load", array, builder.index(0))
            assert kept.op is not None
            return builder.emit(kept.op.name, *kept.op.operands, **kept.op.attrs)

        pairs = zip(self.values, self.op.operands[1 : 1 + MOST_VALUES], strict=True)
        loaded = [value(self.flag, self.flag), *(value(*pair) for pair in pairs)]
        return Op("report", loaded, [], dict(self.op.attrs), None, self.op.loc)


def _is_extent(value: Value) -> bool:
    """Whether a value is the extent of an argument."""
    op = value.op
    return op is not None and op.name == "extent" and op.operands[0].op is None


def _scalar(kind: Type) -> Scalar:
    assert isinstance(kind, Scalar)
    return kind


def zero_of(kind: Type) -> bool | int | float:
    """The zero of a scalar or vector type, as constants have it."""
    dtype = kind.dtype if isinstance(kind, (Scalar, Vector)) else dtypes.i32
    return False if dtype.kind == "bool" else 0.0 if dtype.is_float else 0


class _Record:
    """One report on its way to becoming a record."""

    def __init__(self, state: State, records: Value, builder: Builder, op: Op) -> None:
        self.state = state
        self.records = records
        self.builder = builder
        self.op = op
        self.site: int = op.attrs["site"]
        self.f = Formula(builder)

    def write(self) -> None:
        outer = self.builder.op("if", self.op.operands[0], types=[], regions=[Region(), Region()])
        with self.builder.at(outer.regions[1]):
            self.builder.op("yield")
        with self.builder.at(outer.regions[0]):
            zero, one = (self.builder.const(n, dtypes.u32) for n in (0, 1))
            old = self.builder.emit(
                "atomic_cas", self.records, self.place(0), zero, one, order="relaxed", scope="device"
            )
            inner = self.builder.op("if", self.builder.emit("eq", old, zero), types=[], regions=[Region(), Region()])
            with self.builder.at(inner.regions[1]):
                self.builder.op("yield")
            with self.builder.at(inner.regions[0]):
                self.fill()
                self.builder.op("yield")
            self.builder.op("yield")

    def place(self, word: int) -> Value:
        return self.builder.index(self.site * RECORD_WORDS + word)

    def fill(self) -> None:
        """Global id and values."""
        for dim in range(3):
            number = self.f.term(self.builder.emit("global_id", dim=dim)).cast(dtypes.u32)
            self.put(1 + dim, number)
        kinds: list[str] = []
        for position, value in enumerate(self.op.operands[1 : 1 + MOST_VALUES]):
            kind, low, high = self.words(value)
            kinds.append(kind)
            self.put(FIRST_VALUE + 2 * position, low)
            self.put(FIRST_VALUE + 2 * position + 1, high)
        self.state.plan.value_kinds[self.site] = tuple(kinds)

    def put(self, word: int, value: Term) -> None:
        self.builder.op("store", self.records, self.place(word), value.value)

    def words(self, value: Value) -> tuple[str, Term, Term]:
        """The kind of a scalar value, and its bits as two words."""
        f, dtype = self.f, getattr(value.type, "dtype", dtypes.i32)
        term = f.term(value)
        if dtype.kind == "bool":
            return "int", f.select(term, f.term(1, dtypes.u32), 0), f.term(0, dtypes.u32)
        if dtype.is_float and dtype.bits < 64:
            single = term if dtype is dtypes.f32 else f.call("cast", term, type=Scalar(dtypes.f32))
            return "f32", single.bits(), f.term(0, dtypes.u32)
        wide = term.bits() if dtype.is_float else term.cast(dtypes.i64 if dtype.is_signed else dtypes.u64)
        unsigned = wide.as_bits_of(dtypes.u64) if wide.dtype is not dtypes.u64 else wide
        kind = "f64" if dtype.is_float else "int" if dtype.is_signed else "uint"
        return kind, unsigned.cast(dtypes.u32), (unsigned >> 32).cast(dtypes.u32)
