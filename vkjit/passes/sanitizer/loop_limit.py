"""The sanitizer's check "loops": report and exit `while` loops that seem to be infinite.

Instruments each operation `loop`, which a `while` loop is compiled to. Every invocation counts the loop's iterations,
from 0 at each entry. After `MAX_ITERATIONS` iterations it reports an error and exits the loop with zeros as the loop's
results. A counted `for` always terminates and isn't instrumented.
"""

from __future__ import annotations

from dataclasses import dataclass

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Region
from vkjit.ir.types import Array, Scalar

from ..formulas.formula import Formula
from .report_records import zero_of
from .state import State

__all__ = ["MAX_ITERATIONS", "LoopLimit"]

MAX_ITERATIONS = 50_000
"""The maximum number of iterations: below the limit at which some drivers silently stop loops."""


@dataclass(slots=True)
class LoopLimit:
    """Instrumentation of the `loop` operations of one kernel."""

    state: State

    def run(self, region: Region) -> None:
        """Instrument all loops of a region."""
        source, region.ops = region.ops, []
        builder = Builder(region)
        for op in source:
            builder.loc = op.loc
            if op.name == "loop":
                self._count(op, builder)
            region.ops.append(op)
            for inner in op.regions:
                self.run(inner)

    def _count(self, op: Op, builder: Builder) -> None:
        """Emit an iteration counter, reset in the preheader, and insert its increment and the exit into the body."""
        prologue = self.state.prologue
        counter_type = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        counter = prologue.emit("local", type=counter_type)
        builder.op("store", counter, builder.index(0), builder.const(0, dtypes.u32))
        head = Builder(Region(), op.loc)  # the code to insert at the start of the body
        f = Formula(head)
        iterations = f.term(head.emit("load", counter, head.index(0))) + 1
        head.op("store", counter, head.index(0), iterations.value)
        leave, stay = Region(), Region()
        head.op("if", (iterations > MAX_ITERATIONS).value, types=[], regions=[leave, stay])
        with head.at(stay):
            head.op("yield")
        with head.at(leave):
            text = f"this loop didn't end after {MAX_ITERATIONS:,} iterations of one invocation, and was stopped"
            site = self.state.module.add_site(ReportSite("loops", op.loc, text))
            head.op("report", head.const(True, dtypes.boolean), site=site)
            head.op("break", *(head.const(zero_of(r.type), r.type) for r in op.results))
        op.regions[0].ops[:0] = head.region.ops
