"""Turns reports of the sanitizer into records: one per place, so that one launch finds them all.

Before: `report %cond, values... {site}` whose site is of a kind in `KINDS`. After::

    if %cond { %old = atomic_cas %records, site * 32, 0, 1
               if %old == 0 { store global id and values behind it } }

Holds: the first invocation that comes to a place keeps it; others change nothing.
"""

from __future__ import annotations

from ... import dtypes
from ...ir.builder import Builder
from ...ir.core import Op, Region, Value
from ...ir.rewrite import rewrite_region
from ...ir.types import Scalar
from ..formula import Formula, Term
from .plan import FIRST_VALUE, MOST_VALUES, RECORD_WORDS
from .state import State, hidden_array

__all__ = ["KINDS", "write_records"]

KINDS = frozenset({
    "bounds", "zero_division", "race", "uninitialised", "overflow", "nan", "uniform", "loops",
})  # fmt: skip
"""Kinds of report sites that become records; asserts and a driver's loop limit stay reports."""


def write_records(state: State) -> None:
    """Replaces the reports of a kernel."""
    sites = state.module.sites
    records = state.param("records", hidden_array(dtypes.u32))

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        if op.name != "report" or sites[op.attrs["site"]].kind not in KINDS:
            return None
        _Record(state, records, builder, op).write()
        return []

    rewrite_region(state.kernel.body, rule)


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
