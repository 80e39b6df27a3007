"""Cost model for drivers with a cap on loop iterations: choose the loops to count, and bound the cost of the others.

Some drivers silently terminate loops when a kernel has executed a fixed number of iterations, its cap. The pass
`loop_guard` detects that: it inserts code that counts iterations at run time. Counting costs time. So the pass uses
this model to choose the loops to count; for the other loops, the model gives a constant bound of the cost.

Costs are loop iterations that a vector of invocations executes. These drivers execute all code under a mask of active
invocations, even if none is active: the branches that no invocation takes, and the body of a loop once more after the
last invocation has left it. Such an execution of a loop's body with no active invocation is a masked iteration; it
includes one masked iteration of each loop inside (`masked_iteration_cost`). So a loop of n iterations costs
n * (1 + cost of its body) plus a masked iteration. A loop inside a branch that isn't taken costs a masked iteration.

The kernel must be in normal form (see `ir.verify`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OPS
from vkjit.ir.rewrite import LOOPS, breaks_of, exits_of
from vkjit.ir.types import Array

from .trip_bound import Intervals, TripBound, constant, node

__all__ = ["LoopCostModel"]

_THRESHOLDS = (1024, 64, 0)
"""Thresholds for the cost of a loop, in the order in which they are tried: loops that cost more are counted."""
_UNIFORM = frozenset({"always", "workgroup", "subgroup"})
"""The entries of `OpInfo.uniformity` that imply the same value in all invocations of a vector."""
_MAX_BOUND_SIZE = 200
"""The largest number of nodes of the expression that `LoopCostModel.bound` returns."""
_SMALL_ATOMIC = 64
"""The assumed iterations, under contention, of a back end's compare-and-swap loop for an 8- or 16-bit atomic."""


@dataclass(slots=True)
class LoopCostModel:
    """The cost model of one kernel.

    `counted` has the loops whose iterations must be counted at run time, `costs` the cost of one execution of each
    other loop, in iterations. `loop_of` maps loop bodies to their loops.
    """

    counted: set[Op]
    costs: dict[Op, int]
    loop_of: dict[Region, Op]

    @staticmethod
    def of(function: Function, budget: int) -> LoopCostModel:
        """Choose the loops to count: none if all loops together cost at most `budget` iterations.

        Otherwise, count the loops that cost more than a threshold: the highest of `_THRESHOLDS` for which the other
        loops, plus one iteration of a counted one, take at most half of the budget. The other half remains for the
        iterations of the counted loops.
        """
        intervals = Intervals(function)
        trip_counts = {op: _constant_trip_count(intervals, op) for op in function.body.walk() if op.name in LOOPS}
        chosen = _with_threshold(function, trip_counts, budget)
        if not chosen.counted and chosen.of_region(function.body) <= budget:
            return chosen
        for threshold in _THRESHOLDS:
            chosen = _with_threshold(function, trip_counts, threshold)
            bodies = (chosen.of_region(op.regions[0]) for op in chosen.counted)
            if chosen.of_region(function.body) + max(bodies, default=0) <= budget // 2:
                break
        return chosen

    @staticmethod
    def bound(function: Function) -> TripBound | None:
        """Return an upper bound of the cost of a kernel, as an expression that a launch can evaluate.

        Return None if a trip count has no bound or the expression is too large.
        """
        total = _bound_of(function.body, Intervals(function))
        return None if total is None or total.size() > _MAX_BOUND_SIZE else total

    def of_region(self, region: Region) -> int:
        """Return the constant part of a region's cost: the cost of the loops that aren't counted, plus a masked
        iteration of each counted loop. Loops inside of counted loops are left out.
        """
        return sum(self._of_op(op) for op in region.ops)

    def _of_op(self, op: Op) -> int:
        """Return an operation's share of the cost that `of_region` sums up."""
        if op.name == "if":  # both branches are executed
            return sum(map(self.of_region, op.regions))
        return (masked_iteration_cost(op) if op in self.counted else self.costs.get(op, 0)) + _back_end_iterations(op)

    def contains_counted(self, op: Op) -> bool:
        """True for counted loops and for operations that contain one."""
        return op in self.counted or any(inner in self.counted for region in op.regions for inner in region.walk())

    def encloses_counted(self, loop: Op) -> bool:
        """True if the loop contains a counted loop."""
        return any(inner in self.counted for inner in loop.regions[0].walk())

    def exits_uniformly(self, loop: Op) -> bool:
        """True if all invocations of a vector that enter the loop exit it after the same iteration."""
        # Several `continue`s are excluded, too: one exit is left, the body's terminator.
        if loop.name != "for" or breaks_of(loop) or sum(1 for _ in exits_of(loop.regions[0])) > 1:
            return False
        return all(self.is_uniform(bound) for bound in loop.operands[:3])

    def is_uniform(self, value: Value, depth: int = 12) -> bool:
        """True if the value is known to be the same in all active invocations of a vector.

        The search looks through at most `depth` operations.
        """
        if depth == 0:
            return False
        if isinstance(value.owner, Region):
            return self._uniform_argument(value, value.owner, depth)
        op = value.owner
        rule = OPS[op.name].uniformity
        if rule in _UNIFORM:
            return True
        array = op.operands[0].type if op.operands else None
        read_only = rule == "load" and isinstance(array, Array) and array.access == "in" and array.restrict
        if rule != "operands" and not read_only:
            return False
        return all(isinstance(v.type, Array) or self.is_uniform(v, depth - 1) for v in op.operands)

    def _uniform_argument(self, value: Value, owner: Region, depth: int) -> bool:
        """True if an argument of the region `owner` is uniform: a kernel parameter, or a uniform induction variable."""
        loop = self.loop_of.get(owner)
        if loop is None:
            return True  # a parameter of the kernel
        is_induction = loop.name == "for" and value.index == 0
        return (
            is_induction
            and self.is_uniform(loop.operands[0], depth - 1)
            and self.is_uniform(loop.operands[2], depth - 1)
        )


def masked_iteration_cost(loop: Op) -> int:
    """Return the cost of a loop with no active invocation: one masked iteration of it and of each loop inside."""
    return 1 + sum(_masked_cost(op) for op in loop.regions[0].ops)


def _masked_cost(op: Op) -> int:
    """Return the cost of executing an operation with no active invocation: a masked iteration of each loop in it."""
    if op.name in LOOPS:
        return masked_iteration_cost(op)
    return sum(_masked_cost(inner) for region in op.regions for inner in region.ops)


def _back_end_iterations(op: Op) -> int:
    """Return the iterations of the loop that back ends generate for an atomic on part of a 32-bit word.

    Return 0 for other operations.
    """
    array = op.operands[0].type if op.name in ("atomic", "atomic_cas", "atomic_store") else None
    return _SMALL_ATOMIC if isinstance(array, Array) and array.dtype.itemsize < 4 else 0


def _constant_trip_count(intervals: Intervals, op: Op) -> int | None:
    """Return a constant upper bound of a loop's trip count; None if the bound isn't constant or there is none."""
    bound = intervals.trips(op)
    if bound is None or not bound.is_constant():
        return None
    return bound.numbers[0]  # the value of a constant node


def _with_threshold(function: Function, trip_counts: dict[Op, int | None], threshold: int) -> LoopCostModel:
    """Return the model that counts each loop that may cost more than `threshold` iterations, and its outer loops."""
    chosen = LoopCostModel(set(), {}, {op.regions[0]: op for op in trip_counts})
    for op in _innermost_first(function.body):
        trip_count = trip_counts[op]
        cost = None  # unknown
        if trip_count is not None:
            cost = trip_count * (1 + chosen.of_region(op.regions[0])) + masked_iteration_cost(op)
        if cost is None or cost > threshold or chosen.encloses_counted(op):
            chosen.counted.add(op)
        else:
            chosen.costs[op] = cost
    return chosen


def _innermost_first(region: Region) -> Iterable[Op]:
    """Yield the loops in a region, inner ones before outer ones."""
    for op in region.ops:
        for inner in op.regions:
            yield from _innermost_first(inner)
        if op.name in LOOPS:
            yield op


def _bound_of(region: Region, intervals: Intervals) -> TripBound | None:
    """Return a bound of a region's cost as an expression, None if the trip count of a loop has no bound."""
    total = constant(0)
    for op in region.ops:
        total = node("add", total, constant(_back_end_iterations(op)))
        for part in (_bound_of(inner, intervals) for inner in op.regions):
            if part is None:
                return None
            if op.name in LOOPS:
                trip_count = intervals.trips(op)
                if trip_count is None:
                    return None
                part = node(
                    "add", node("mul", trip_count, node("add", part, constant(1))), constant(masked_iteration_cost(op))
                )
            total = node("add", total, part)
    return total
