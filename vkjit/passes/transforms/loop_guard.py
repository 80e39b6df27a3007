"""Count loop iterations for drivers that silently terminate loops, and report if they may have done so.

Some drivers run 8 invocations as one vector and terminate every loop as soon as the vector has executed a fixed number
of iterations, the cap, summed over all loops of the kernel. An iteration counts if any invocation of the vector is
active. Both branches of an `if` count, and a loop counts one iteration even if no invocation enters it (see
`loop_costs`).

The pass inserts a counter, `count`. At each point of the program, its value in the active invocations is an upper bound
of the iterations that the vector has executed so far:

  * Cheap loops with a constant bound aren't instrumented. Their cost, and the single iteration of loops that no
    invocation enters, are constants. The constants of a loop's body are added to the count in each of its iterations;
    those of code outside of counted loops are subtracted from the limit.
  * A `for` without `break` and without counted loops inside has no overhead per iteration: its trip count is computed
    before the loop.
  * Other counted loops carry the count and add a constant in each iteration.
  * After a loop that invocations may leave at different times, the count is the maximum over the subgroup.
  * After an `if` with counted loops in both branches, the vector has executed both. The count is
    (then - before) + (else - before) + before, which may exceed the cap although neither branch does.
  * If a loop around counted loops has several `continue`s, the count at the start of its body is the maximum over the
    subgroup, as invocations may arrive with different counts.
  * If an invocation exits a loop from inside an `if` that contains counted loops, the other invocations don't get its
    count. In kernels with such exits, and on devices without subgroup arithmetic, each invocation counts separately,
    and the limit is the cap divided by the size of the vector, so that the sum over the vector stays below the cap.

Reports are placed after the outermost counted loops, and after branches whose counts are added. The guard itself never
exits a loop early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.rewrite import breaks_of, completes, constant_of, exits_of
from vkjit.ir.types import U32

from ..analysis.loop_costs import LoopCostModel
from ..analysis.trip_bound import TripBound, bound_from_json, bound_to_json
from ..formulas.formula import Formula, Term

__all__ = ["LoopGuard", "bound_from_json", "bound_to_json", "bounded_trip_product"]

_CEILING = 1 << 30
"""Counts are clamped to this, so that they don't wrap around."""

MESSAGE = (
    "this device's driver stops loops silently after {cap:,} iterations, summed over all loops of the kernel (and over "
    "the branches that neighbouring invocations take), and the loops up to here may have run more: split the work over "
    "several launches or more invocations, use a newer driver, or run the kernel on the interpreter"
)


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """Count iterations and report if they may have reached the driver's cap; do nothing if `cap` is None.

    The module must be in normal form (see `ir.verify`), after inlining and all passes that create loops. A kernel with
    the attribute `bound_checked` isn't instrumented if `bounded_trip_product` can bound its iterations: each launch
    then compares that bound with the cap.

    `width` is the number of invocations in a vector, `subgroup_arithmetic` is True if the device has `sg_reduce`, and
    counts are reported from `margin` iterations below the cap.
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
        costs = LoopCostModel.of(function, budget)
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
    """Return an upper bound of the iterations of all loops of the kernel, as an expression that launches evaluate.

    Return None if a trip count depends on anything but constants, extents, integer scalars and the grid. A launch for
    which the bound is below the cap needs no guard. The module may already contain the guard.
    """
    return LoopCostModel.bound(module.kernel)


def _leaves_counting_branch(region: Region, costs: LoopCostModel) -> bool:
    """True if an `if` that contains counted loops also contains a `break` or `continue` of an enclosing loop."""
    branches = (op for op in region.walk() if op.name == "if" and costs.contains_counted(op))
    return any(True for op in branches for inner in op.regions for _ in exits_of(inner))


class _Guard:
    """The rewrite of one kernel.

    Counts above `limit` are reported, with `cap` in the message. `jointly` is True if a count covers the whole vector,
    and False if each invocation counts separately.
    """

    def __init__(self, module: Module, costs: LoopCostModel, limit: int, cap: int, jointly: bool) -> None:
        self.module = module
        self.costs = costs
        self.limit = limit
        self.cap = cap
        self.jointly = jointly

    def region(self, region: Region, count: Value, exits: frozenset[Op], *, outermost: bool, needed: bool) -> Value:
        """Instrument a region that starts with `count`, and return the count at its end.

        The count becomes an operand of the operations in `exits`, the exits of the enclosing counted loop. `outermost`
        is True if no counted loop encloses the region, `needed` if the count is used after the region.
        """
        source, region.ops = region.ops, []
        builder = Builder(region)
        for position, op in enumerate(source):
            builder.loc = op.loc
            if op in self.costs.counted:
                count = self.loop(op, count, builder, outermost=outermost)
            elif op.name == "if":
                count_needed = needed or any(map(self.costs.contains_counted, source[position + 1 :]))
                count = self.branch(op, count, exits, builder, outermost=outermost, needed=count_needed)
            else:
                if op in exits:
                    op.operands.append(count)
                region.ops.append(op)
        return count

    def branch(
        self, op: Op, count: Value, exits: frozenset[Op], builder: Builder, *, outermost: bool, needed: bool
    ) -> Value:
        """Instrument an `if`, and return the count after it; the parameters are those of `region`."""
        counting = [any(map(self.costs.contains_counted, region.ops)) for region in op.regions]
        runs_both = self.jointly and not self.costs.is_uniform(op.operands[0])
        both_counted = runs_both and all(counting)
        # If the vector executes both branches, the sum of their counts is reported here: it may exceed the cap although
        # neither count does.
        combined = both_counted and outermost
        needed = (needed or combined) and any(counting)
        ends = [self.region(r, count, exits, outermost=outermost, needed=needed) for r in op.regions]
        builder.region.ops.append(op)
        if not needed or not completes(op):
            return count
        # Add the count at the regions' ends as a result. For `both_counted`, add two results: the count at the end of
        # the first and of the second region. In invocations that take the other region, the result is the old count.
        added_operands = [(ends[0], count), (count, ends[1])] if both_counted else [(ends[0],), (ends[1],)]
        for region, region_operands in zip(op.regions, added_operands, strict=True):
            if region.terminator.name == "yield":
                region.terminator.operands += region_operands
        added = [Value(U32, op, len(op.results) + n) for n in range(len(added_operands[0]))]
        op.results += added
        if not runs_both:
            return added[0]
        maxima = [builder.emit("sg_reduce", value, op="max", partial=True) for value in added]
        if not both_counted:
            return maxima[0]
        total = builder.emit("sub", builder.emit("add", *maxima), count)
        if combined:
            # The report names the last counted loop in the branches.
            last = [inner for inner in op.walk() if inner in self.costs.counted][-1]
            self.report(last, total, builder)
        return total

    def report(self, loop: Op, count: Value, builder: Builder) -> None:
        """Emit a report at the loop's location for counts above the limit."""
        site = self.module.add_site(ReportSite("loop_limit", loop.loc, MESSAGE.format(cap=self.cap)))
        builder.op("report", builder.emit("gt", count, builder.const(self.limit, U32)), site=site)

    def loop(self, op: Op, count: Value, builder: Builder, *, outermost: bool) -> Value:
        """Instrument a counted loop, and return the count after it."""
        if _has_known_trip_count(op) and not self.costs.encloses_counted(op):
            after = self.known_trip_count(op, count, builder)
        else:
            after = self.carried_count(op, count, builder)
        if self.jointly and not self.costs.exits_uniformly(op):
            after = builder.emit("sg_reduce", after, op="max", partial=True)
        if outermost:
            self.report(op, after, builder)
        return after

    def known_trip_count(self, op: Op, count: Value, builder: Builder) -> Value:
        """Instrument a `for` without `break`: add its trip count times the cost of an iteration, before the loop.

        The trip count is clamped to the smallest one for which the product exceeds the limit, so that the product
        doesn't wrap around.
        """
        weight = self.costs.of_region(op.regions[0]) + 1
        f = Formula(builder)
        trip_count = _trip_count(f, op)
        clamp = self.limit // weight + 1
        clamped = f.call("min", trip_count, f.term(clamp, trip_count.dtype)).cast(U32.dtype)
        total = f.term(count) + clamped * weight
        builder.region.ops.append(op)
        return f.call("min", total, f.term(_CEILING, U32.dtype)).value

    def carried_count(self, op: Op, count: Value, builder: Builder) -> Value:
        """Carry the count through a loop, increase it in each iteration, and return its value after the loop."""
        body = op.regions[0]
        encloses_counted = self.costs.encloses_counted(op)
        op.operands.append(count)
        carried = Value(U32, body, len(body.args), "rounds")
        body.args.append(carried)
        exits = frozenset(exits_of(body))
        head = Builder(Region(), op.loc)
        inside = carried
        if encloses_counted and self.jointly and sum(e.name == "continue" for e in exits) > 1:
            inside = head.emit("sg_reduce", inside, op="max", partial=True)
        inside = head.emit("add", inside, head.const(self.costs.of_region(body) + 1, U32))
        if encloses_counted:
            inside = head.emit("min", inside, head.const(_CEILING, U32))
        self.region(body, inside, exits, outermost=False, needed=True)
        body.ops[:0] = head.region.ops
        builder.region.ops.append(op)
        result = Value(U32, op, len(op.results))
        op.results.append(result)
        return result


def _has_known_trip_count(op: Op) -> bool:
    """True for a `for` with a constant step and without `break`: its trip count can be computed in the preheader."""
    step = op.operands[2] if op.name == "for" else None
    return step is not None and bool(constant_of(step)) and not breaks_of(op)


def _trip_count(f: Formula, op: Op) -> Term:
    """Compute the trip count of a `for` with constant step, unsigned, in at least 32 bits."""
    low, high = (f.term(value) for value in op.operands[:2])
    step = int(constant_of(op.operands[2]))
    if step < 0:
        low, high, step = high, low, -step
    unsigned = dtypes.u64 if low.dtype.bits == 64 else dtypes.u32
    wide = {8: dtypes.i32, 16: dtypes.i32}.get(low.dtype.bits, low.dtype)
    distance = (high.cast(wide) - low.cast(wide)).cast(unsigned)
    trip_count = distance
    if step > 1:  # distance / step, rounded up
        shift = step.bit_length() - 1
        distance_minus_one = distance - 1
        if step == 1 << shift:
            quotient = distance_minus_one >> shift
        else:
            quotient = f.call("udiv_raw", distance_minus_one, f.term(step, unsigned))
        trip_count = quotient + 1
    return f.select(low < high, trip_count, 0)
