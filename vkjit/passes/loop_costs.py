"""Which loops have to be counted against a cap on iterations, what the others cost, and what is uniform in a vector.

Enters: a kernel in normal form. Leaves: `LoopCosts`. Drivers with a cap run all code in order, where no invocation
takes part with all of them off: sides of branches that nobody takes, and the body in the round that finds a loop's end.
A loop goes through its body once even then (`last_round`). So a loop of n rounds costs n * (1 + cost of its body) and
its last round, and what stands in a body costs at least its last rounds in each round, taken or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir.core import Function, Op, Region, Value
from ..ir.ops import OPS
from ..ir.rewrite import LOOPS, breaks_of, exits_of
from ..ir.types import Array
from .trip_bound import Intervals, TripBound, constant, node

__all__ = ["LoopCosts"]

_THRESHOLDS = (1024, 64, 0)
_UNIFORM = frozenset({"always", "workgroup", "subgroup"})
_LARGEST_BOUND = 200  # nodes
_SMALL_ATOMIC = 64  # what back ends may take to change 8 or 16 bits of a word that others change too


@dataclass(slots=True)
class LoopCosts:
    """`counted`: the loops to count. `costs`: of each other loop, for one execution."""

    counted: set[Op]
    costs: dict[Op, int]
    loop_of: dict[Region, Op]

    @staticmethod
    def of(function: Function, budget: int) -> LoopCosts:
        """Counts nothing where all loops together stay within the budget, else all loops but cheap ones."""
        intervals = Intervals(function)
        rounds = {op: _constant_rounds(intervals, op) for op in function.body.walk() if op.name in LOOPS}
        chosen = _with_threshold(function, rounds, budget)
        if not chosen.counted and chosen.of_region(function.body) <= budget:
            return chosen
        for threshold in _THRESHOLDS:
            chosen = _with_threshold(function, rounds, threshold)
            bodies = (chosen.of_region(op.regions[0]) for op in chosen.counted)
            if chosen.of_region(function.body) + max(bodies, default=0) <= budget // 2:
                break
        return chosen

    @staticmethod
    def bound(function: Function) -> TripBound | None:
        """The cost of the whole function as an expression."""
        found = _bound_of(function.body, Intervals(function))
        return None if found is None or found.size() > _LARGEST_BOUND else found

    def of_region(self, region: Region) -> int:
        """Cost of the loops that aren't counted, outside of counted ones, and the last rounds of those."""
        return sum(self._of_op(op) for op in region.ops)

    def _of_op(self, op: Op) -> int:
        if op.name == "if":
            return sum(map(self.of_region, op.regions))
        return (last_round(op) if op in self.counted else self.costs.get(op, 0)) + _hidden(op)

    def counts(self, op: Op) -> bool:
        """True for counted loops and what contains them."""
        return op in self.counted or any(inner in self.counted for region in op.regions for inner in region.walk())

    def around_counted(self, loop: Op) -> bool:
        """True where a counted loop stands inside."""
        return any(inner in self.counted for inner in loop.regions[0].walk())

    def together(self, loop: Op) -> bool:
        """True where all invocations of a vector that enter the loop leave it after the same round."""
        if loop.name != "for" or breaks_of(loop) or sum(1 for _ in exits_of(loop.regions[0])) > 1:
            return False
        return all(self.uniform(bound) for bound in loop.operands[:3])

    def uniform(self, value: Value, depth: int = 12) -> bool:
        """True where the invocations of a vector that are active have the same value."""
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
        return all(isinstance(v.type, Array) or self.uniform(v, depth - 1) for v in op.operands)

    def _uniform_argument(self, value: Value, owner: Region, depth: int) -> bool:
        loop = self.loop_of.get(owner)
        if loop is None:
            return True  # a parameter of the kernel
        counter = loop.name == "for" and value.index == 0
        return counter and self.uniform(loop.operands[0], depth - 1) and self.uniform(loop.operands[2], depth - 1)


def last_round(loop: Op) -> int:
    """What going through a loop costs with all invocations off: one round, and the last rounds of the loops inside."""
    return 1 + sum(_switched_off(op) for op in loop.regions[0].ops)


def _switched_off(op: Op) -> int:
    if op.name in LOOPS:
        return last_round(op)
    return sum(_switched_off(inner) for region in op.regions for inner in region.ops)


def _hidden(op: Op) -> int:
    """Rounds of loops that only back ends see: atomics on a part of a word."""
    array = op.operands[0].type if op.name in ("atomic", "atomic_cas", "atomic_store") else None
    return _SMALL_ATOMIC if isinstance(array, Array) and array.dtype.itemsize < 4 else 0


def _constant_rounds(intervals: Intervals, op: Op) -> int | None:
    bound = intervals.trips(op)
    return bound.numbers[0] if bound is not None and bound.is_constant() else None


def _with_threshold(function: Function, rounds: dict[Op, int | None], threshold: int) -> LoopCosts:
    made = LoopCosts(set(), {}, {op.regions[0]: op for op in rounds})
    for op in _innermost_first(function.body):
        known = rounds[op]
        cost = None if known is None else known * (1 + made.of_region(op.regions[0])) + last_round(op)
        if cost is None or cost > threshold or made.around_counted(op):
            made.counted.add(op)
        else:
            made.costs[op] = cost
    return made


def _innermost_first(region: Region) -> Iterable[Op]:
    for op in region.ops:
        for inner in op.regions:
            yield from _innermost_first(inner)
        if op.name in LOOPS:
            yield op


def _bound_of(region: Region, intervals: Intervals) -> TripBound | None:
    total = constant(0)
    for op in region.ops:
        total = node("add", total, constant(_hidden(op)))
        for part in (_bound_of(inner, intervals) for inner in op.regions):
            if part is None:
                return None
            if op.name in LOOPS:
                rounds = intervals.trips(op)
                if rounds is None:
                    return None
                part = node("add", node("mul", rounds, node("add", part, constant(1))), constant(last_round(op)))
            total = node("add", total, part)
    return total
