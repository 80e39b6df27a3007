"""Simplify branches and loops.

Works on any form of the IR (see `ir.verify`).

1. An `if` with a constant condition is replaced by the operations of the region that is taken. If control doesn't
   continue after an operation, the operations that follow it are removed.
2. A result of an `if` that is the same value in both regions is replaced by that value; a result that is true in one
   region and false in the other is replaced by the condition or its negation.
3. An `if` whose regions contain only a few cheap operations is converted to `select`s; an empty one is removed::

       %m = if %c : f32 {                    %a = mul %x, %two : f32
         %a = mul %x, %two : f32             %m = select %c, %a, %x : f32
         yield %a                    ->
       } else {
         yield %x
       }

4. An `if` of `not c` becomes an `if` of `c` with its regions swapped.
5. The results of a `for` with zero iterations are replaced by its initial values. A loop-carried value that never
   changes is replaced by its initial value.

Rule 3 executes the operations of both regions unconditionally. So they must be speculatable, not convergent, and
cheaper than a branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.rewrite import LOOPS, completes, constant_of, exits_of, is_constant, replace_uses
from vkjit.ir.types import BOOL, Scalar

from .fold import fold_op

__all__ = ["SimplifyBranches", "cost_of"]

_FREE: frozenset[OpName] = frozenset({"const", "poison", "bitcast"})
"""Operations that need no instruction."""
_PROHIBITIVE = 1000
"""The cost of operations that must not move: above any budget."""


@dataclass(frozen=True, slots=True)
class SimplifyBranches:
    """Simplify branches and loops; `budget` is the maximum cost of an `if` that becomes `select`s (rule 3)."""

    budget: int = 6
    name: ClassVar[str] = "simplify_branches"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            simplifier = _Simplifier(function, self.budget)
            simplifier.region(function.body)
            replace_uses(function.body, simplifier.replaced)
        return module


class _Simplifier:
    """The rewrite of one function.

    `replaced` maps values to their replacements. It is applied to operands as operations are visited, and once more at
    the end, as an operand in a loop's body may be replaced only after it was visited.
    """

    def __init__(self, function: Function, budget: int) -> None:
        self.function = function
        self.budget = budget
        self.replaced: dict[Value, Value] = {}

    def current(self, value: Value) -> Value:
        """Return the value that replaces `value`, or itself if it isn't replaced."""
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def region(self, region: Region) -> None:
        """Simplify the operations of a region, nested regions first."""
        source, region.ops = region.ops, []
        for op in source:
            op.operands[:] = [self.current(value) for value in op.operands]
            if op.name == "if":
                self.branch(op, region)
            elif op.name in LOOPS:
                self.loop(op, region)
            else:
                region.ops.append(op)
            if region.ops and self.ends(region.ops[-1], region):
                break

    def ends(self, op: Op, region: Region) -> bool:
        """True if control doesn't continue after `op`. If so, add a terminator to the region if `op` isn't one."""
        if OPS[op.name].terminator:
            return True
        if completes(op):
            return False
        if op.name != "loop":
            op.results = []  # no region of such an `if` yields results
        builder = Builder(region, op.loc)
        if region is self.function.body:
            builder.op("return", *(builder.emit("poison", type=t) for t in self.function.result_types))
        else:
            builder.op("unreachable")
        return True

    # -- branches

    def branch(self, op: Op, region: Region) -> None:
        """Simplify an `if` and append what remains of it to `region`."""
        condition = op.operands[0]
        if is_constant(condition):  # rule 1
            taken = op.regions[0 if constant_of(condition) else 1]
            self.region(taken)
            self.splice(op, taken, region)
            return
        inverse = condition.op
        if inverse is not None and inverse.name == "not":  # rule 4
            op.operands[0] = inverse.operands[0]
            op.regions.reverse()
        for inner in op.regions:
            self.region(inner)
        ends = [inner.terminator for inner in op.regions]
        if any(end.name != "yield" for end in ends):
            region.ops.append(op)
            return
        self.common_results(op, region)
        if all(len(inner.ops) == 1 for inner in op.regions) and not op.results:
            return
        if self.is_cheap(op):
            self.to_selects(op, region)
        else:
            region.ops.append(op)

    def splice(self, op: Op, taken: Region, region: Region) -> None:
        """Replace an `if` by the operations of `taken`, one of its regions."""
        last = taken.terminator
        if last.name == "yield":
            self.replaced.update(zip(op.results, last.operands, strict=True))
            region.ops += taken.ops[:-1]
        else:
            region.ops += taken.ops

    def common_results(self, op: Op, region: Region) -> None:
        """Remove the results of an `if` that are replaced by a common value, the condition or its negation (rule 2)."""
        builder = Builder(region, op.loc)
        pairs = list(zip(*(inner.terminator.operands for inner in op.regions), strict=True))
        replacements = [self.common_value(op.operands[0], x, y, builder) for x, y in pairs]
        if all(value is None for value in replacements):
            return
        for result, value in zip(op.results, replacements, strict=True):
            if value is not None:
                self.replaced[result] = value
        for inner in op.regions:
            kept = [v for v, value in zip(inner.terminator.operands, replacements, strict=True) if value is None]
            inner.terminator.operands[:] = kept
        op.results = [result for result, value in zip(op.results, replacements, strict=True) if value is None]
        for number, result in enumerate(op.results):
            result.index = number

    @staticmethod
    def common_value(condition: Value, x: Value, y: Value, builder: Builder) -> Value | None:
        """Return the value that replaces a result of an `if` whose regions yield x and y for it (rule 2).

        Return None if there is none.
        """
        if x is y:
            return x
        if not (is_constant(x) and is_constant(y)) or x.type != y.type:
            return None
        a, b = constant_of(x), constant_of(y)
        if repr(a) == repr(b):  # unlike ==, true for two NaNs, and false for 0.0 and -0.0
            return builder.const(a, x.type)
        if x.type == BOOL:
            return condition if a else builder.emit("not", condition)
        return None

    def is_cheap(self, op: Op) -> bool:
        """True if an `if` meets the conditions of rule 3."""
        if not all(isinstance(r.type, Scalar) for r in op.results):
            return False
        cost = len(op.results)
        for inner in op.regions:
            for moved in inner.ops[:-1]:
                cost += cost_of(moved)
        return cost <= self.budget

    def to_selects(self, op: Op, region: Region) -> None:
        """Append the operations of both regions to `region`, and a `select` for each result (rule 3)."""
        first, second = op.regions
        region.ops += [*first.ops[:-1], *second.ops[:-1]]
        pairs = zip(first.terminator.operands, second.terminator.operands, strict=True)
        builder = Builder(region, op.loc)
        for result, (x, y) in zip(op.results, pairs, strict=True):
            select = Op("select", [op.operands[0], x, y], [result.type], {}, None, op.loc)
            replacement = fold_op(select, builder)
            if replacement is None:
                region.ops.append(select)
                replacement = select.results
            replacement[0].name = replacement[0].name or result.name
            self.replaced[result] = replacement[0]

    # -- loops

    def loop(self, op: Op, region: Region) -> None:
        """Simplify a loop and append it to `region`, unless it has no iterations (rule 5)."""
        if op.name == "for" and _never_runs(op):
            self.replaced.update(zip(op.results, op.operands[3:], strict=True))
            return
        self.invariants(op)
        self.region(op.regions[0])
        region.ops.append(op)

    def invariants(self, op: Op) -> None:
        """Replace loop-carried values that every iteration passes on unchanged (rule 5); `dce` removes them."""
        if op.name == "for":  # the operands start, end and step, and the induction variable, precede the carried values
            initial_values, arguments = op.operands[3:], op.regions[0].args[1:]
        else:
            initial_values, arguments = op.operands, op.regions[0].args
        exits = list(exits_of(op.regions[0]))
        results_match_carried = [a.type for a in arguments] == [r.type for r in op.results]
        for position, (argument, initial) in enumerate(zip(arguments, initial_values, strict=True)):
            # For each kind of exit: True if every exit of that kind passes on the initial value.
            same: dict[OpName, bool] = {"continue": True, "break": results_match_carried}
            for exit in exits:
                if position < len(exit.operands):
                    value = exit.operands[position]
                    same[exit.name] &= value is argument or self.current(value) is initial
            if same["continue"]:
                self.replaced[argument] = initial
            if same["continue"] and same["break"]:
                self.replaced[op.results[position]] = initial


def cost_of(op: Op) -> int:
    """Return the cost of speculating or hoisting an operation: 0 or 1, or `_PROHIBITIVE` if it must not move.

    Functions that aren't correctly rounded, such as `sin`, are too expensive to be executed unconditionally.
    """
    info = OPS[op.name]
    if op.name in _FREE:
        return 0
    if info.effect != Effect.NONE or not info.speculatable or info.convergent or op.regions:
        return _PROHIBITIVE
    expensive = info.ulp is not None and info.ulp > 0.5  # correctly rounded results are within 0.5 ULP
    return _PROHIBITIVE if expensive else 1


def _never_runs(op: Op) -> bool:
    """True if a `for` is known to have no iterations."""
    if op.operands[0] is op.operands[1]:
        return True
    low, high, step = (constant_of(v) for v in op.operands[:3])
    if step == 0:
        return True
    if low is None or high is None:
        return False
    if step is None:  # the direction isn't known
        return bool(low == high)
    return bool(low >= high if step > 0 else low <= high)
