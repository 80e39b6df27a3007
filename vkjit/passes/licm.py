"""Moves computations that give the same in every round in front of the loop.

Enters and leaves: any form::

    for %lo, %hi, %one (%k: index) {          %b = mul %i, %n : index
      %b = mul %i, %n : index                 for %lo, %hi, %one (%k: index) {
      %o = add %b, %k : index          ->       %o = add %b, %k : index
      ...                                       ...

Only speculatable operations without effect that aren't convergent: never loads, since the loop may run zero times.
What is expensive stays inside an `if`, which may not be taken. An operation moves as far out as its operands allow,
in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.core import Module, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS
from .simplify_branches import cost_of

__all__ = ["LICM"]


@dataclass(frozen=True, slots=True)
class LICM:
    """See the module's docstring."""

    name: ClassVar[str] = "licm"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Hoister().region(function.body, in_branch=False)
        return module


class _Hoister:
    """`depth` counts the loops around each value's definition, 0 for none; `fronts` holds, for each loop around the
    current place, what goes in front of it."""

    def __init__(self) -> None:
        self.depth: dict[Value, int] = {}
        self.fronts: list[list[Op]] = []

    def region(self, region: Region, *, in_branch: bool) -> None:
        here = len(self.fronts)
        for argument in region.args:
            self.depth[argument] = here
        source, region.ops = region.ops, []
        for op in source:
            if op.name in LOOPS:
                self.fronts.append([])
                self.region(op.regions[0], in_branch=False)
                region.ops += self.fronts.pop()
                region.ops.append(op)
            else:
                for inner in op.regions:
                    self.region(inner, in_branch=True)
                self.place(op, region, here, in_branch)
            for result in op.results:
                self.depth.setdefault(result, here)

    def place(self, op: Op, region: Region, here: int, in_branch: bool) -> None:
        target = max((self.depth[v] for v in op.operands), default=0)
        if target < here and self.movable(op, in_branch):
            self.fronts[target].append(op)
            self.depth.update(dict.fromkeys(op.results, target))
        else:
            region.ops.append(op)

    @staticmethod
    def movable(op: Op, in_branch: bool) -> bool:
        row = OPS[op.name]
        if row.effect != Effect.NONE or not row.speculatable or row.convergent or op.regions:
            return False
        return not in_branch or cost_of(op) <= 1
