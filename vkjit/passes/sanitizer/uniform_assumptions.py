"""Checks of `assume_uniform` without synchronization.

Instruments `assume_uniform %v` where the value isn't known to be uniform and the whole workgroup reaches the operation.
The first invocation of a workgroup to reach it for the n-th time writes n and its value to a word of hidden memory. The
others that find the same n compare their value, report a difference, and continue with the first one's value, so that a
false assumption doesn't make a barrier divergent. For values of 64 bits, only a hash is compared, and each invocation
continues with its own value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.attributes import Attrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.rewrite import replace_uses
from vkjit.ir.types import Array, Scalar

from ..analysis.uniformity import Uniformity
from ..formulas.formula import Formula, Term
from .state import State, hidden_array

__all__ = ["MarkPromises", "Promises"]

MESSAGE = "assume_uniform: the value differs within the workgroup, it is {0} here"


@dataclass(frozen=True, slots=True)
class MarkPromises:
    """Pass that marks the `assume_uniform` operations to check, before the kernel is lowered."""

    name: ClassVar[str] = "doubt_promises"

    def run(self, module: Module) -> Module:
        if "uniform" not in module.kernel.attrs.get("sanitize", ()):
            return module
        functions = module.all_functions()
        if not any(op.name == "assume_uniform" for function in functions for op in function.body.walk()):
            return module
        for op, control in Uniformity.of(module).reached_assumptions().items():
            source = op.operands[0].op
            made_together = source is not None and source.loc == op.loc  # emitted by a collective for its own result
            if control is None and isinstance(op.operands[0].type, Scalar) and not made_together:
                op.attrs["doubted"] = True
        return module


@dataclass(slots=True)
class Promises:
    """Instrumentation of marked `assume_uniform` operations; `replaced` maps their results to the checked values."""

    state: State
    replaced: dict[Value, Value] = field(default_factory=dict)

    def before_access(self, op: Op, builder: Builder) -> None:
        """Do nothing: accesses aren't checked here."""

    def after(self, op: Op, builder: Builder) -> None:
        """Compare the value of a marked `assume_uniform` with that of the first invocation to reach it."""
        if op.name != "assume_uniform" or not op.attrs.pop("doubted", False):
            return
        f = Formula(builder)
        value = f.term(op.operands[0])
        count = self._count(builder, f)
        mine = (count.cast(dtypes.u64) << 32) | _bits(f, value).cast(dtypes.u64)
        winner = self._first(f, count, mine)
        together = (winner >> 32).cast(dtypes.u32).equals(count)
        differs = together & winner.differs(mine)
        site = self.state.module.add_site(ReportSite("uniform", op.loc, MESSAGE))
        builder.op("report", differs.value, value.value, site=site)
        agreed = f.select(differs, _value(winner.cast(dtypes.u32), value), value)
        self.replaced[op.result] = builder.emit("assume_uniform", agreed.value)

    def _count(self, builder: Builder, f: Formula) -> Term:
        """Count how often the invocation has reached the operation, from 1."""
        prologue = self.state.prologue
        kind = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        counter = prologue.emit("local", type=kind)
        prologue.op("store", counter, prologue.index(0), prologue.const(0, dtypes.u32))
        count = f.term(builder.emit("load", counter, builder.index(0))) + 1
        builder.op("store", counter, builder.index(0), count.value)
        return count

    def _first(self, f: Formula, count: Term, mine: Term) -> Term:
        """Return the word of the first invocation to reach the operation for the `count`-th time.

        If another invocation has already reached it more often, return that invocation's word. `mine` is this
        invocation's word.
        """
        builder, number = f.builder, self.state.plan.votes
        self.state.plan.votes += 1
        votes = self.state.param("votes", hidden_array(dtypes.u64))
        place = (f.term(self.state.group.value) * self.state.scalar("votes_per_group") + number).value
        attrs: Attrs = {"order": "relaxed", "scope": "device"}
        before = f.term(builder.emit("atomic_load", votes, place, **attrs))
        taken, other = Region(), Region()
        with builder.at(taken):
            swapped = f.term(builder.emit("atomic_cas", votes, place, before.value, mine.value, **attrs))
            builder.op("yield", f.select(swapped.equals(before), mine, swapped).value)
        with builder.at(other):
            builder.op("yield", before.value)
        behind = (before >> 32).cast(dtypes.u32) < count
        return f.term(builder.op("if", behind.value, types=[Scalar(dtypes.u64)], regions=[taken, other]).result)

    def finish(self) -> None:
        """Replace the results of the checked operations by the values that the workgroup agreed on."""
        replace_uses(self.state.kernel.body, self.replaced)


def _bits(f: Formula, value: Term) -> Term:
    """Return a scalar as 32 bits; for 64 bits, a hash."""
    if value.dtype.kind == "bool":
        return f.select(value, f.term(1, dtypes.u32), 0)
    if value.dtype is dtypes.index:
        value = value.cast(dtypes.i64)
    bits = value.bits()
    if bits.dtype is dtypes.u64:
        return (bits >> 32).cast(dtypes.u32) * 0x9E3779B1 + bits.cast(dtypes.u32)
    return bits.cast(dtypes.u32)


def _value(bits: Term, like: Term) -> Term:
    """Return the scalar encoded in 32 bits. For 64-bit types the bits are only a hash and `like` is returned; an index
    is restored from its low half.
    """
    dtype = like.dtype
    if dtype.kind == "bool":
        return bits.differs(0)
    if dtype is dtypes.index:
        return bits.as_bits_of(dtypes.i32).cast(dtypes.index)
    if dtype.bits == 64:
        return like
    narrow = bits.cast({8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}[dtype.bits])
    return narrow.as_bits_of(dtype)
