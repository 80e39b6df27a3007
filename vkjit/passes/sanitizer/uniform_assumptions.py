"""The sanitizer's check "uniform": test at run time that the value of `assume_uniform` is uniform in the workgroup.

`MarkUniformAssumptions` runs on the high form (see `ir.verify`) and marks the operations to check with the attribute
`doubted`: those whose operand isn't known to be uniform and that the whole workgroup reaches.
`UniformAssumptionChecks` instruments them later, as a part of the pass `Sanitize`.

The check needs no barrier. Each workgroup has a u64 word of hidden memory, its vote, for each checked operation. The
first invocation of a workgroup that reaches the operation for the n-th time writes n (high half) and its value (low
half) to the vote. The other invocations, when they reach it for the n-th time, compare their values with the vote. If
the values differ, they report an error and continue with the value of the vote, so that a wrong assumption can't make a
later barrier divergent. 64-bit values are compared by a 32-bit hash, and each invocation continues with its own value.
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

__all__ = ["MarkUniformAssumptions", "UniformAssumptionChecks"]

MESSAGE = "assume_uniform: the value differs within the workgroup, it is {0} here"


@dataclass(frozen=True, slots=True)
class MarkUniformAssumptions:
    """Pass that marks the `assume_uniform` operations to check, before the kernel is inlined.

    Does nothing unless the kernel's attribute `sanitize` has the check "uniform".
    """

    name: ClassVar[str] = "doubt_promises"

    def run(self, module: Module) -> Module:
        if "uniform" not in module.kernel.attrs.get("sanitize", ()):
            return module
        functions = module.all_functions()
        if not any(op.name == "assume_uniform" for function in functions for op in function.body.walk()):
            return module
        for op, control in Uniformity.of(module).reached_assumptions().items():
            source = op.operands[0].op
            from_collective = source is not None and source.loc == op.loc  # emitted by a collective for its own result
            if control is None and isinstance(op.operands[0].type, Scalar) and not from_collective:
                op.attrs["doubted"] = True
        return module


@dataclass(slots=True)
class UniformAssumptionChecks:
    """Instrumentation of the marked `assume_uniform` operations.

    `replaced` maps the result of each operation to the value with which invocations continue.
    """

    state: State
    replaced: dict[Value, Value] = field(default_factory=dict)

    def before_access(self, op: Op, builder: Builder) -> None:
        """Do nothing: this check isn't about memory accesses."""

    def after(self, op: Op, builder: Builder) -> None:
        """Compare the value of a marked `assume_uniform` with that of the first invocation to reach it."""
        if op.name != "assume_uniform" or not op.attrs.pop("doubted", False):
            return
        f = Formula(builder)
        value = f.term(op.operands[0])
        count = self._count(builder, f)
        own_word = (count.cast(dtypes.u64) << 32) | _bits(f, value).cast(dtypes.u64)
        vote = self._vote(f, count, own_word)
        same_count = (vote >> 32).cast(dtypes.u32).equals(count)
        differs = same_count & vote.differs(own_word)
        site = self.state.module.add_site(ReportSite("uniform", op.loc, MESSAGE))
        builder.op("report", differs.value, value.value, site=site)
        agreed = f.select(differs, _value(vote.cast(dtypes.u32), value), value)
        self.replaced[op.result] = builder.emit("assume_uniform", agreed.value)

    def _count(self, builder: Builder, f: Formula) -> Term:
        """Emit a counter of how often the invocation has reached the operation; 1 at the first time."""
        prologue = self.state.prologue
        kind = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        counter = prologue.emit("local", type=kind)
        prologue.op("store", counter, prologue.index(0), prologue.const(0, dtypes.u32))
        count = f.term(builder.emit("load", counter, builder.index(0))) + 1
        builder.op("store", counter, builder.index(0), count.value)
        return count

    def _vote(self, f: Formula, count: Term, own_word: Term) -> Term:
        """Emit the vote and return the word in memory after it.

        This invocation reaches the operation for the `count`-th time; `own_word` is the word that it would write. The
        result is the word of the first invocation to do so. If another invocation has already reached the operation
        more often, the result is that invocation's word, with a larger count, and the values aren't compared.
        """
        builder, number = f.builder, self.state.plan.votes
        self.state.plan.votes += 1
        votes = self.state.param("votes", hidden_array(dtypes.u64))
        index = (f.term(self.state.group.value) * self.state.scalar("votes_per_group") + number).value
        attrs: Attrs = {"order": "relaxed", "scope": "device"}
        before = f.term(builder.emit("atomic_load", votes, index, **attrs))
        attempt, keep = Region(), Region()
        with builder.at(attempt):
            old = f.term(builder.emit("atomic_cas", votes, index, before.value, own_word.value, **attrs))
            builder.op("yield", f.select(old.equals(before), own_word, old).value)
        with builder.at(keep):
            builder.op("yield", before.value)
        is_behind = (before >> 32).cast(dtypes.u32) < count
        return f.term(builder.op("if", is_behind.value, types=[Scalar(dtypes.u64)], regions=[attempt, keep]).result)

    def finish(self) -> None:
        """Replace the results of the checked operations according to `replaced`."""
        replace_uses(self.state.kernel.body, self.replaced)


def _bits(f: Formula, value: Term) -> Term:
    """Return the bits of a scalar as a u32; for a 64-bit scalar, a hash of its bits."""
    if value.dtype.kind == "bool":
        return f.select(value, f.term(1, dtypes.u32), 0)
    if value.dtype is dtypes.index:
        value = value.cast(dtypes.i64)
    bits = value.bits()
    if bits.dtype is dtypes.u64:
        return (bits >> 32).cast(dtypes.u32) * 0x9E3779B1 + bits.cast(dtypes.u32)
    return bits.cast(dtypes.u32)


def _value(bits: Term, like: Term) -> Term:
    """Return the scalar, of the type of `like`, that `_bits` has encoded in 32 bits.

    For 64-bit types, the bits are only a hash, so `like` itself is returned. An `index` is assumed to be less than
    2**31; its hash is then the value.
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
