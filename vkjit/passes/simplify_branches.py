"""Removes control flow that isn't needed.

Enters and leaves: any form. In the order of the rules:

1. An `if` whose condition is a constant becomes its region; after a region that exits, nothing follows.
2. A result of an `if` that is the same value both ways is that value; a result that is true one way and false the
   other is the condition, or its complement.
3. An `if` whose regions only compute a few cheap things becomes `select`s; one that does nothing goes::

       %m = if %c : f32 {                    %a = mul %x, %two : f32
         %a = mul %x, %two : f32             %m = select %c, %a, %x : f32
         yield %a                    ->
       } else {
         yield %x
       }

4. An `if` of `not c` takes its regions in the other order.
5. A `for` that never runs is its initial values; a value that is carried round a loop unchanged is its initial value.

What rule 3 moves may run where it would not have run: it is speculatable, not convergent, and costs less than a branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.builder import Builder
from ..ir.core import Function, Module, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS, completes, constant_of, exits_of, is_constant, replace_uses
from ..ir.types import BOOL, Scalar
from .fold import fold_op

__all__ = ["SimplifyBranches", "cost_of"]

_FREE = frozenset({"const", "poison", "bitcast"})


@dataclass(frozen=True, slots=True)
class SimplifyBranches:
    """`budget` is the number of operations that an `if` may hold to become `select`s (rule 3)."""

    budget: int = 6
    name: ClassVar[str] = "simplify_branches"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            simplifier = _Simplifier(function, self.budget)
            simplifier.region(function.body)
            replace_uses(function.body, simplifier.replaced)
        return module


class _Simplifier:
    """One function; `replaced` is applied to operands as they are met, and once more at the end (for loop bodies)."""

    def __init__(self, function: Function, budget: int) -> None:
        self.function = function
        self.budget = budget
        self.replaced: dict[Value, Value] = {}

    def current(self, value: Value) -> Value:
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def region(self, region: Region) -> None:
        """Simplifies the operations of a region, those inside an operation before the operation itself."""
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
        """True after the last operation that control can reach; completes the region."""
        if OPS[op.name].terminator:
            return True
        if completes(op):
            return False
        op.results = op.results if op.name == "loop" else []
        builder = Builder(region, op.loc)
        if region is self.function.body:
            builder.op("return", *(builder.emit("poison", type=t) for t in self.function.result_types))
        else:
            builder.op("unreachable")
        return True

    # -- branches

    def branch(self, op: Op, region: Region) -> None:
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
        """Puts the operations of a region in place of the `if` around it."""
        last = taken.terminator
        if last.name == "yield":
            self.replaced.update(zip(op.results, last.operands, strict=True))
            region.ops += taken.ops[:-1]
        else:
            region.ops += taken.ops

    def common_results(self, op: Op, region: Region) -> None:
        """Rule 2, which makes results fewer and leaves the rest."""
        builder = Builder(region, op.loc)
        pairs = list(zip(*(inner.terminator.operands for inner in op.regions), strict=True))
        same = [self.common_value(op.operands[0], x, y, builder) for x, y in pairs]
        if all(value is None for value in same):
            return
        for result, value in zip(op.results, same, strict=True):
            if value is not None:
                self.replaced[result] = value
        for inner in op.regions:
            kept = [v for v, value in zip(inner.terminator.operands, same, strict=True) if value is None]
            inner.terminator.operands[:] = kept
        op.results = [result for result, value in zip(op.results, same, strict=True) if value is None]
        for number, result in enumerate(op.results):
            result.index = number

    @staticmethod
    def common_value(condition: Value, x: Value, y: Value, builder: Builder) -> Value | None:
        if x is y:
            return x
        if not (is_constant(x) and is_constant(y)) or x.type != y.type:
            return None
        a, b = constant_of(x), constant_of(y)
        if repr(a) == repr(b):
            return builder.const(a, x.type)
        if x.type == BOOL:
            return condition if a else builder.emit("not", condition)
        return None

    def is_cheap(self, op: Op) -> bool:
        """Rule 3's conditions."""
        if not all(isinstance(r.type, Scalar) for r in op.results):
            return False
        cost = len(op.results)
        for inner in op.regions:
            for moved in inner.ops[:-1]:
                cost += cost_of(moved)
        return cost <= self.budget

    def to_selects(self, op: Op, region: Region) -> None:
        first, second = op.regions
        region.ops += [*first.ops[:-1], *second.ops[:-1]]
        pairs = zip(first.terminator.operands, second.terminator.operands, strict=True)
        builder = Builder(region, op.loc)
        for result, (x, y) in zip(op.results, pairs, strict=True):
            select = Op("select", [op.operands[0], x, y], [result.type], {}, None, op.loc)
            found = fold_op(select, builder)
            if found is None:
                region.ops.append(select)
                found = select.results
            found[0].name = found[0].name or result.name
            self.replaced[result] = found[0]

    # -- loops

    def loop(self, op: Op, region: Region) -> None:
        if op.name == "for" and _never_runs(op):
            self.replaced.update(zip(op.results, op.operands[3:], strict=True))
            return
        self.invariants(op)
        self.region(op.regions[0])
        region.ops.append(op)

    def invariants(self, op: Op) -> None:
        """Carried values that every round passes on unchanged (rule 5); what is left unused is for `dce` to remove."""
        first = 3 if op.name == "for" else 0
        arguments = op.regions[0].args[1 if first else 0 :]
        exits = list(exits_of(op.regions[0]))
        tied = [a.type for a in arguments] == [r.type for r in op.results]
        for place, (argument, initial) in enumerate(zip(arguments, op.operands[first:], strict=True)):
            same = {"continue": True, "break": tied}
            for exit in exits:
                if place < len(exit.operands):
                    value = exit.operands[place]
                    same[exit.name] &= value is argument or self.current(value) is initial
            if same["continue"]:
                self.replaced[argument] = initial
            if same["continue"] and same["break"]:
                self.replaced[op.results[place]] = initial


def cost_of(op: Op) -> int:
    """How much a moved operation counts; far above any budget where it has to stay."""
    row = OPS[op.name]
    if op.name in _FREE:
        return 0
    if row.effect != Effect.NONE or not row.speculatable or row.convergent or op.regions:
        return 1000
    expensive = row.ulp is not None and row.ulp > 0.5
    return 1000 if expensive else 1


def _never_runs(op: Op) -> bool:
    if op.operands[0] is op.operands[1]:
        return True
    low, high, step = (constant_of(v) for v in op.operands[:3])
    if step == 0:
        return True
    if low is None or high is None:
        return False
    if step is None:
        return bool(low == high)
    return bool(low >= high if step > 0 else low <= high)
