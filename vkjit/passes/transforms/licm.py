"""Loop-invariant code motion: hoist loop-invariant operations to the preheader.

Works on any form of the IR (see `ir.verify`)::

    for %lo, %hi, %one (%k: index) {          %b = mul %i, %n : index
      %b = mul %i, %n : index                 for %lo, %hi, %one (%k: index) {
      %o = add %b, %k : index          ->       %o = add %b, %k : index
      ...                                       ...

Only operations that are speculatable, have no side effects, and aren't convergent are hoisted. Loads are never hoisted,
since the loop may have no iterations, in which case the program doesn't load. Expensive operations aren't hoisted out
of an `if`, whose region may never be executed. An operation moves as far out as its operands allow, in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS

from .simplify_branches import cost_of

__all__ = ["LICM"]


@dataclass(frozen=True, slots=True)
class LICM:
    """Hoist loop-invariant operations."""

    name: ClassVar[str] = "licm"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Hoister().region(function.body, in_branch=False)
        return module


class _Hoister:
    """The rewrite of one function.

    `depth` maps each value to the loop depth of its definition, 0 outside of loops. `preheaders` has, for each
    enclosing loop, the operations hoisted to its preheader, the outermost loop first.
    """

    def __init__(self) -> None:
        self.depth: dict[Value, int] = {}
        self.preheaders: list[list[Op]] = []

    def region(self, region: Region, *, in_branch: bool) -> None:
        """Hoist from a region; `in_branch` is True if it is a region of an `if`."""
        current_depth = len(self.preheaders)
        for argument in region.args:
            self.depth[argument] = current_depth
        source, region.ops = region.ops, []
        for op in source:
            if op.name in LOOPS:
                self.preheaders.append([])
                self.region(op.regions[0], in_branch=False)
                region.ops += self.preheaders.pop()
                region.ops.append(op)
            else:
                for inner in op.regions:
                    self.region(inner, in_branch=True)
                self.place(op, region, current_depth, in_branch)
            for result in op.results:
                self.depth.setdefault(result, current_depth)

    def place(self, op: Op, region: Region, current_depth: int, in_branch: bool) -> None:
        """Append an operation to its region, or to the preheader of the outermost loop that its operands allow."""
        target = max((self.depth[v] for v in op.operands), default=0)
        if target < current_depth and self.movable(op, in_branch):
            self.preheaders[target].append(op)
            self.depth.update(dict.fromkeys(op.results, target))
        else:
            region.ops.append(op)

    @staticmethod
    def movable(op: Op, in_branch: bool) -> bool:
        """True if an operation may be hoisted; `in_branch` is True if it is inside an `if` of the loop's body."""
        info = OPS[op.name]
        if info.effect != Effect.NONE or not info.speculatable or info.convergent or op.regions:
            return False
        return not in_branch or cost_of(op) <= 1
