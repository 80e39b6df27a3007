"""Makes a driver's silent cap on loop iterations loud: counts iterations, reports before the cap can have been hit.

Some drivers run 8 invocations as one vector and stop every loop once the vector has gone through a fixed number of
rounds, summed over all loops of the kernel. A round counts while any invocation of the vector takes part, the two sides
of a branch count one after the other, and loops count a round even where nobody enters them (see `loop_costs`).

What holds: at each point of the program, `count` in the invocations that are active there is an upper bound of the
vector's rounds so far.
  * Cheap loops with a constant bound aren't touched. What they cost, and the round of each loop that nobody enters, is
    added where the code around them is counted, taken or not.
  * A `for` without `break` and without counted loops inside costs nothing per round: its rounds are known before.
  * Other loops carry the count; a round adds one number. After a loop, the count is the maximum over the subgroup.
  * An `if` with counted loops on both sides gives (then - before) + (else - before) + before, which may pass the cap
    where neither side does.
  * A loop around counted loops that has several `continue`s takes the maximum at the start of its body.
  * Where an invocation leaves a loop from inside an `if` that counts, its count would be lost to the others. In such
    kernels, and on devices without subgroup arithmetic, each invocation counts for itself against the cap divided by
    the size of the vector, which bounds their sum.
Reports stand after the outermost counted loops, and after branches whose sides add up. Nothing leaves a loop early:
the driver's cap itself ends loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .. import dtypes
from ..errors import ReportSite
from ..ir.builder import Builder
from ..ir.core import Module, Op, Region, Value
from ..ir.rewrite import breaks_of, completes, constant_of, exits_of
from ..ir.types import U32
from .formula import Formula, Term
from .loop_costs import LoopCosts
from .trip_bound import TripBound, bound_from_json, bound_to_json

__all__ = ["LoopGuard", "bound_from_json", "bound_to_json", "bounded_trip_product"]

_CEILING = 1 << 30  # counts are held below this, far from wrapping round

MESSAGE = (
    "this device's driver stops loops silently after {cap:,} iterations, summed over all loops of the kernel (and over "
    "the branches that neighbouring invocations take), and the loops up to here may have run more: split the work over "
    "several launches or more invocations, use a newer driver, or run the kernel on the interpreter"
)


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """Takes normal form, after inlining and all passes that make loops. Does nothing where `cap` is None, nor in a
    kernel with the attribute `bound_checked` whose rounds are bounded by what its launcher knows.

    `subgroup_arithmetic`: the device has `sg_reduce`; `width`: the size of its vectors; `margin`: how far below the
    cap the guard reports.
    """

    name: ClassVar[str] = "loop_guard"
    cap: int | None
    width: int = 8
    subgroup_arithmetic: bool = True
    margin: int = 64

    def run(self, module: Module) -> Module:
        function = module.kernel
        if self.cap is None or (function.attrs.get("bound_checked") and bounded_trip_product(module) is not None):
            return module
        budget = self.cap - self.margin
        costs = LoopCosts.of(function, budget)
        if not costs.counted:
            return module
        limit = budget - costs.of_region(function.body)
        jointly = self.subgroup_arithmetic and not _leaves_counting_branch(function.body, costs)
        guard = _Guard(module, costs, max(limit if jointly else limit // self.width, 0), self.cap, jointly)
        start = Builder(Region(), function.loc)
        zero = start.const(0, U32)
        guard.region(function.body, zero, frozenset(), outermost=True, needed=False)
        function.body.ops[:0] = start.region.ops
        return module


def bounded_trip_product(module: Module) -> TripBound | None:
    """An upper bound of the rounds of all loops of the kernel, for the launcher to evaluate.

    None where a loop's rounds depend on more than constants, extents, integer scalars and the grid. A launch whose
    bound is below the cap needs no guard. Takes the module before or after the guard.
    """
    return LoopCosts.bound(module.kernel)


def _leaves_counting_branch(region: Region, costs: LoopCosts) -> bool:
    """Whether a loop is left, or continued, from inside an `if` that has counted loops."""
    branches = (op for op in region.walk() if op.name == "if" and costs.counts(op))
    return any(True for op in branches for inner in op.regions for _ in exits_of(inner))


class _Guard:
    """Rewrites one function. `limit` is what counts may reach; `jointly`: counts are those of the whole vector."""

    def __init__(self, module: Module, costs: LoopCosts, limit: int, cap: int, jointly: bool) -> None:
        self.module = module
        self.costs = costs
        self.limit = limit
        self.cap = cap
        self.jointly = jointly

    def region(self, region: Region, count: Value, exits: frozenset[Op], *, outermost: bool, needed: bool) -> Value:
        """Counts through a region; gives the count at its end, which `exits` take along.

        `outermost`: no counted loop is around. `needed`: something after the region wants to know the count.
        """
        source, region.ops = region.ops, []
        builder = Builder(region)
        for position, op in enumerate(source):
            builder.loc = op.loc
            if op in self.costs.counted:
                count = self.loop(op, count, builder, outermost=outermost)
            elif op.name == "if":
                wanted = needed or any(map(self.costs.counts, source[position + 1 :]))
                count = self.branch(op, count, exits, builder, outermost=outermost, needed=wanted)
            else:
                if op in exits:
                    op.operands.append(count)
                region.ops.append(op)
        return count

    def branch(
        self, op: Op, count: Value, exits: frozenset[Op], builder: Builder, *, outermost: bool, needed: bool
    ) -> Value:
        counting = [any(map(self.costs.counts, region.ops)) for region in op.regions]
        split = self.jointly and not self.costs.uniform(op.operands[0])
        both = split and all(counting)
        # the vector goes through both sides: their sum may pass the cap where neither does
        joined = both and outermost
        needed = (needed or joined) and any(counting)
        ends = [self.region(r, count, exits, outermost=outermost, needed=needed) for r in op.regions]
        builder.region.ops.append(op)
        if not needed or not completes(op):
            return count
        rows = [(ends[0], count), (count, ends[1])] if both else [(ends[0],), (ends[1],)]
        for region, row in zip(op.regions, rows, strict=True):
            if region.terminator.name == "yield":
                region.terminator.operands += row
        added = [Value(U32, op, len(op.results) + n) for n in range(len(rows[0]))]
        op.results += added
        if not split:
            return added[0]
        most = [builder.emit("sg_reduce", value, op="max", partial=True) for value in added]
        if not both:
            return most[0]
        total = builder.emit("sub", builder.emit("add", *most), count)
        if joined:
            last = [inner for inner in op.walk() if inner in self.costs.counted][-1]
            self.report(last, total, builder)
        return total

    def report(self, loop: Op, count: Value, builder: Builder) -> None:
        """Reports at a loop's line where the count has passed the limit."""
        site = self.module.add_site(ReportSite("loop_limit", loop.loc, MESSAGE.format(cap=self.cap)))
        builder.op("report", builder.emit("gt", count, builder.const(self.limit, U32)), site=site)

    def loop(self, op: Op, count: Value, builder: Builder, *, outermost: bool) -> Value:
        if _has_known_rounds(op) and not self.costs.around_counted(op):
            after = self.known_rounds(op, count, builder)
        else:
            after = self.carried_rounds(op, count, builder)
        if self.jointly and not self.costs.together(op):
            after = builder.emit("sg_reduce", after, op="max", partial=True)
        if outermost:
            self.report(op, after, builder)
        return after

    def known_rounds(self, op: Op, count: Value, builder: Builder) -> Value:
        """count + rounds * weight, with the rounds of a `for` that never breaks, held just above the limit."""
        weight = self.costs.of_region(op.regions[0]) + 1
        f = Formula(builder)
        rounds = _rounds(f, op)
        most = self.limit // weight + 1
        held = f.call("min", rounds, f.term(most, rounds.dtype)).cast(U32.dtype)
        total = f.term(count) + held * weight
        builder.region.ops.append(op)
        return f.call("min", total, f.term(_CEILING, U32.dtype)).value

    def carried_rounds(self, op: Op, count: Value, builder: Builder) -> Value:
        """The count as one more carried value of the loop."""
        body = op.regions[0]
        around = self.costs.around_counted(op)
        op.operands.append(count)
        carried = Value(U32, body, len(body.args), "rounds")
        body.args.append(carried)
        exits = frozenset(exits_of(body))
        head = Builder(Region(), op.loc)
        inside = carried
        if around and self.jointly and sum(e.name == "continue" for e in exits) > 1:
            inside = head.emit("sg_reduce", inside, op="max", partial=True)
        inside = head.emit("add", inside, head.const(self.costs.of_region(body) + 1, U32))
        if around:
            inside = head.emit("min", inside, head.const(_CEILING, U32))
        self.region(body, inside, exits, outermost=False, needed=True)
        body.ops[:0] = head.region.ops
        builder.region.ops.append(op)
        result = Value(U32, op, len(op.results))
        op.results.append(result)
        return result


def _has_known_rounds(op: Op) -> bool:
    step = op.operands[2] if op.name == "for" else None
    return step is not None and bool(constant_of(step)) and not breaks_of(op)


def _rounds(f: Formula, op: Op) -> Term:
    """The trip count of a `for` with constant step, unsigned, of at least 32 bits."""
    low, high = (f.term(value) for value in op.operands[:2])
    step = int(constant_of(op.operands[2]))
    if step < 0:
        low, high, step = high, low, -step
    unsigned = dtypes.u64 if low.dtype.bits == 64 else dtypes.u32
    wide = {8: dtypes.i32, 16: dtypes.i32}.get(low.dtype.bits, low.dtype)
    distance = (high.cast(wide) - low.cast(wide)).cast(unsigned)
    if step > 1:
        shift = step.bit_length() - 1
        before = distance - 1
        distance = (before >> shift if step == 1 << shift else f.call("udiv_raw", before, f.term(step, unsigned))) + 1
    return f.select(low < high, distance, 0)
