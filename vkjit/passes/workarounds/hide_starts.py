"""Hide the initial values of induction variables from a driver that computes wrong trip counts.

A driver with the quirk `minimum_trip_counts` computes the trip count of a loop with a constant start and a constant
step even if the limit is a minimum with a constant: it takes the constant for the limit. That bounds the trip count
only of loops that run while a signed induction variable is below the limit. Other loops lose iterations. The pass
subtracts a 0 that the driver can't fold from the start (see `opaque_constants`)::

    %m = min %n, %10 : i32                       %s = sub %10, %z : i32
    for %10, %m, %-1 (%j: i32) {           ->    for %s, %m, %-1 (%j: i32) {

`%10` and `%-1` are constants. The rules:

1. Ranges that count up with a signed type are left unchanged; the driver may unroll them.
2. In a `loop`, and in a `for` with a `break`, each loop-carried value with a constant start to which a constant is
   added may be the driver's induction variable. The conditions aren't looked at: the driver rewrites them first, and
   it finds minima in `select` operations and in branches, too.
3. Values computed from constants are constants to the driver, also where this compiler hasn't folded them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import breaks_of, constant_of, exits_of
from vkjit.ir.types import Scalar, Vector

from .opaque_constants import OpaqueConstant

__all__ = ["HideStarts"]


@dataclass(frozen=True, slots=True)
class HideStarts:
    """Hide the starts of induction variables. The pass does nothing if `needed` is False."""

    name: ClassVar[str] = "hide_starts"
    needed: bool = True

    def run(self, module: Module) -> Module:
        starts = _hidden_starts(module.kernel.body) if self.needed else {}
        if not starts:
            return module
        zeros = OpaqueConstant.of(module, 0, grids=True)
        assert zeros is not None  # there is always a grid
        _hide(module.kernel.body, starts, zeros)
        zeros.insert(module)
        return module


def _hidden_starts(body: Region) -> dict[Op, list[int]]:
    """Return the indices of the operands to hide, by loop."""
    constants: set[Value] = set()
    starts: dict[Op, list[int]] = {}
    for op in body.walk():
        if op.name == "const" or (
            op.operands and OPS[op.name].effect == Effect.NONE and constants.issuperset(op.operands)
        ):
            constants.update(op.results)
    for op in body.walk():
        if op.name in ("for", "loop") and (found := _starts_of(op, constants)):
            starts[op] = found
    return starts


def _starts_of(loop: Op, constants: set[Value]) -> list[int]:
    """Return the indices of a loop's operands to hide."""
    found: list[int] = []
    first, args = 0, loop.regions[0].args
    if loop.name == "for":
        first, args = 3, args[1:]
        start, limit, step = loop.operands[:3]
        rises = (constant_of(step) or 0) > 0 and start.type.dtype.is_signed  # type: ignore[attr-defined]  # an integer
        if start in constants and step in constants and limit not in constants and not rises:
            found.append(0)
        if not breaks_of(loop):
            return found
    latches = [op for op in exits_of(loop.regions[0]) if op.name == "continue"]
    for index, arg in enumerate(args):
        is_stepped = any(_adds_constant(latch.operands[index], arg, constants) for latch in latches)
        if loop.operands[first + index] in constants and is_stepped:
            found.append(first + index)
    return found


def _adds_constant(value: Value, arg: Value, constants: set[Value]) -> bool:
    """True if a value is made from `arg` and constants by additions and subtractions alone."""
    steps = 0
    while value is not arg:
        op = value.op
        if op is None or op.name not in ("add", "sub"):
            return False
        addends = [x for x in op.operands if x not in constants]
        if len(addends) != 1:
            return False
        value, steps = addends[0], steps + 1
    return steps > 0


def _hide(region: Region, starts: dict[Op, list[int]], zeros: OpaqueConstant) -> None:
    """Subtract an opaque 0 from each start of the loops in a region. (x - 0 is x even for -0.0.)"""
    source, region.ops = region.ops, []
    for op in source:
        builder = Builder(region, op.loc)
        for index in starts.get(op, ()):
            start = op.operands[index]
            assert isinstance(start.type, (Scalar, Vector))
            op.operands[index] = builder.emit("sub", start, zeros.like(start.type))
        region.ops.append(op)
        for inner in op.regions:
            _hide(inner, starts, zeros)
