"""Preserve the results of divergent loops, for a driver that computes them again.

A driver with the quirk `recomputed_results` runs invocations as one vector. For those that have left a loop, it
preserves only phis with several incoming edges. It computes all other values of the loop's body in each iteration, for
the whole vector, and some of the operands have changed by then. After the loop, an invocation has the value of the last
iteration of the vector. The pass adds an edge, which is never taken, to the merge after the loop::

    %r = loop %a : i32 (%x: i32) {        %r = loop %a : i32 (%x: i32) {
      ...                                   if %never { break %0 }
      if %done { break %v }         ->      ...
      ...                                   if %done { break %v }
    }                                       ...
                                          }

`%0` is the constant 0. `%never` is false, which the driver doesn't know (see `opaque_constants`). Each loop has a
condition of its own: inside a nested loop, the driver knows that the condition of the outer one is false. Arguments of
the body and values from outside need no edge. A `for` has an edge for the end of its range, which is enough unless the
initial value may be undefined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.rewrite import LOOPS, breaks_of
from vkjit.ir.types import Scalar, Vector

from .opaque_constants import OpaqueConstant

__all__ = ["KeepLoopResults"]


@dataclass(frozen=True, slots=True)
class KeepLoopResults:
    """Add an edge to the merge after each loop with results from its body. The pass does nothing if `needed` is
    False."""

    name: ClassVar[str] = "keep_results"
    needed: bool = True

    def run(self, module: Module) -> Module:
        loops = [op for op in module.kernel.body.walk() if op.name in LOOPS and _needs_edge(op)] if self.needed else []
        if not loops:
            return module
        opaque = OpaqueConstant.of(module, 0, grids=True)
        assert opaque is not None  # there is always a grid
        for number, loop in enumerate(loops):
            _add_edge(loop, opaque.never(number))
        opaque.insert(module)
        return module


def _needs_edge(loop: Op) -> bool:
    """True if a `break` has a value from the loop's body that the driver may not keep."""
    body = loop.regions[0]
    first = 3 if loop.name == "for" else 0
    inside = {value for op in body.walk() for value in op.results}
    for end in breaks_of(loop):
        for value, initial in zip(end.operands, loop.operands[first:], strict=True):
            is_defined = initial.op is not None and not initial.op.regions and initial.op.name != "poison"
            if value in inside and not (loop.name == "for" and is_defined):
                return True
    return False


def _add_edge(loop: Op, never: Value) -> None:
    """Insert a `break` that is never executed at the start of a loop's body."""
    body = loop.regions[0]
    head, then, otherwise = (Builder(Region(), loop.loc) for _ in range(3))
    initial = loop.operands[3 if loop.name == "for" else 0 :]
    then.op("break", *(_zero(then, value) for value in initial))
    otherwise.op("yield")
    head.op("if", never, types=[], regions=[then.region, otherwise.region])
    body.ops[:0] = head.region.ops


def _zero(builder: Builder, value: Value) -> Value:
    """Emit a 0 of a value's type; return a matrix itself."""
    if isinstance(value.type, (Scalar, Vector)):
        return builder.const(False if value.type.dtype.kind == "bool" else 0, value.type)
    return value
