"""The sanitizer's check "uniform": test at run time that the value of `assume_uniform` is uniform in the workgroup.

`MarkUniformAssumptions` runs on the high form (see `ir.verify`) and marks the operations to check with the attribute
`doubted`: those whose operand isn't known to be uniform and that the whole workgroup reaches.
`UniformAssumptionChecks` instruments them later, as a part of the pass `Sanitize`.

The check needs no barrier. Each workgroup has one u64 word of hidden memory per checked operation: the vote. The first
invocation of a workgroup that reaches the operation for the n-th time writes n to the high half of the vote, and its
value to the low half. Each other invocation compares its value with the vote when it reaches the operation for the n-th
time. If the values differ, this invocation reports an error and continues with the value of the vote, so that a wrong
assumption doesn't make a later barrier divergent.

64-bit values are compared by a 32-bit hash. They can't be decoded from the vote, so an invocation that finds a
difference continues with its own value. The exception is the type `index`, whose small values are their own hashes.
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

_FACTOR = 0x9E3779B1
"""2**32 divided by the golden ratio, rounded to an odd number: a factor for hashing the high half of 64-bit values."""


@dataclass(frozen=True, slots=True)
class MarkUniformAssumptions:
    """Pass that marks the `assume_uniform` operations to check, before the kernel is inlined.

    Does nothing unless the kernel's attribute `sanitize` has the check "uniform".
    """

    name: ClassVar[str] = "doubt_promises"  # the name under which dumps show the pass; "promises" are the assumptions

    def run(self, module: Module) -> Module:
        if "uniform" not in module.kernel.attrs.get("sanitize", ()):
            return module
        functions = module.all_functions()
        if not any(op.name == "assume_uniform" for function in functions for op in function.body.walk()):
            return module
        for op, control in Uniformity.of(module).reached_assumptions().items():
            producer = op.operands[0].op
            # a collective wraps its own result, which is uniform, in an `assume_uniform` at the same source location
            from_collective = producer is not None and producer.loc == op.loc
            # `control` is None if the whole workgroup reaches the operation
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
        """Emit the check of a marked `assume_uniform`: compare its value with the vote, and report a difference."""
        if op.name != "assume_uniform" or not op.attrs.pop("doubted", False):
            return
        f = Formula(builder)
        value = f.term(op.operands[0])
        arrival = self._count_arrivals(builder, f)
        own_word = (arrival.cast(dtypes.u64) << 32) | _encode(f, value).cast(dtypes.u64)
        vote = self._cast_vote(f, arrival, own_word)
        same_arrival = (vote >> 32).cast(dtypes.u32).equals(arrival)
        differs = same_arrival & vote.differs(own_word)
        site = self.state.module.add_site(ReportSite("uniform", op.loc, MESSAGE))
        builder.op("report", differs.value, value.value, site=site)
        agreed = f.select(differs, _decode(vote.cast(dtypes.u32), value), value)
        self.replaced[op.result] = builder.emit("assume_uniform", agreed.value)

    def _count_arrivals(self, builder: Builder, f: Formula) -> Term:
        """Emit a counter of the times that the invocation has reached the operation, and return its value (from 1)."""
        prologue = self.state.prologue
        counter_type = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        counter = prologue.emit("local", type=counter_type)
        prologue.op("store", counter, prologue.index(0), prologue.const(0, dtypes.u32))
        arrival = f.term(builder.emit("load", counter, builder.index(0))) + 1
        builder.op("store", counter, builder.index(0), arrival.value)
        return arrival

    def _cast_vote(self, f: Formula, arrival: Term, own_word: Term) -> Term:
        """Emit code that writes `own_word` to the vote unless another invocation came first. Return the vote's word.

        `arrival` is the number of times that this invocation has reached the operation, and the high half of
        `own_word`. The caller compares values only if the returned word has the same number in its high half. It has
        another number in two cases, in which a difference may go unnoticed: an invocation that has reached the
        operation more often has overwritten the vote, or the CAS fails because of a concurrent write by an invocation
        that has reached the operation less often.
        """
        builder, vote_number = f.builder, self.state.plan.votes
        self.state.plan.votes += 1
        votes = self.state.param("votes", hidden_array(dtypes.u64))
        index = (f.term(self.state.group.value) * self.state.scalar("votes_per_group") + vote_number).value
        attrs: Attrs = {"order": "relaxed", "scope": "device"}
        before = f.term(builder.emit("atomic_load", votes, index, **attrs))
        attempt, keep = Region(), Region()
        with builder.at(attempt):
            old = f.term(builder.emit("atomic_cas", votes, index, before.value, own_word.value, **attrs))
            builder.op("yield", f.select(old.equals(before), own_word, old).value)
        with builder.at(keep):
            builder.op("yield", before.value)
        is_behind = (before >> 32).cast(dtypes.u32) < arrival  # nobody has voted for this arrival yet
        return f.term(builder.op("if", is_behind.value, types=[Scalar(dtypes.u64)], regions=[attempt, keep]).result)

    def finish(self) -> None:
        """Replace the results of the checked operations according to `replaced`."""
        replace_uses(self.state.kernel.body, self.replaced)


def _encode(f: Formula, value: Term) -> Term:
    """Return the bits of a scalar as a u32, zero-extended; for a 64-bit scalar, a hash of its bits."""
    if value.dtype.kind == "bool":
        return f.select(value, f.term(1, dtypes.u32), 0)
    if value.dtype is dtypes.index:
        value = value.cast(dtypes.i64)
    bits = value.bits()
    if bits.dtype is dtypes.u64:
        return (bits >> 32).cast(dtypes.u32) * _FACTOR + bits.cast(dtypes.u32)
    return bits.cast(dtypes.u32)


def _decode(bits: Term, like: Term) -> Term:
    """Return the scalar that `_encode` turned into `bits`, with the type of `like`.

    For 64-bit types, `bits` is only a hash, so `like` itself is returned. For `index`, the value is assumed to be
    between 0 and 2**31 - 1. The high half is then 0, and the hash is the low half.
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
