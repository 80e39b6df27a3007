"""Loop versioning for bounds checks: eligible loops, and the values of indices in the first and last iterations.

`may_be_versioned` selects the loops, `for`s in high form. `EndpointIndices` recomputes an index in the preheader,
with its values in the first and last iterations. An index that is monotonic in the induction variable and in range in
both is in range in all iterations, provided that it doesn't wrap around in between:

- If the induction variable, which starts at 0 or above, has the coefficient 1, both ends are less than 2**63 apart.
- If it moves with a multiple, `limits` require the distance that the induction variable covers, and a factor that isn't
  constant, to be less than `LIMIT`, so both ends are less than 2**62 apart.
"""

from __future__ import annotations

from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS, constant_of, is_constant
from vkjit.ir.types import INDEX, Scalar

from ..arithmetic.division import is_non_negative

__all__ = ["LIMIT", "MAX_OPERATIONS", "MAX_SANITIZED_OPERATIONS", "EndpointIndices", "may_be_versioned"]

LIMIT = 1 << 31

MAX_OPERATIONS = 64
MAX_SANITIZED_OPERATIONS = 320
"""The limit under the sanitizer, which adds much code to checked accesses; it admits unrolled bodies with many loads."""
_MAX_DEPTH = 8


def may_be_versioned(op: Op, max_operations: int = MAX_OPERATIONS) -> bool:
    """True if an operation is an innermost loop that may be versioned.

    The loop has at most `max_operations` operations, counts up from 0 or above, and has no early exits. It contains nothing that
    must not be duplicated (allocations) or needs uniform control flow.
    """
    if op.name != "for" or not is_constant(op.operands[2]) or constant_of(op.operands[2]) <= 0:
        return False
    if not is_non_negative(op.operands[0]):
        return False
    for count, inner in enumerate(op.regions[0].walk()):
        info = OPS[inner.name]
        if count == max_operations or inner.name in LOOPS or inner.name == "call":
            return False
        if inner.name in ("break", "continue", "return") and inner is not op.regions[0].terminator:
            return False
        if info.convergent or info.effect in (Effect.ALLOCATE, Effect.SYNC):
            return False
    return True


class EndpointIndices:
    """The indices of one loop in its first and last iterations; `builder` appends to the preheader.

    `limits` collects values that must be in [0, LIMIT) for the results to hold.
    """

    def __init__(self, loop: Op, builder: Builder) -> None:
        self.builder = builder
        self.induction = loop.regions[0].args[0]
        self.inside: set[Value] = set(loop.regions[0].args)
        for op in loop.regions[0].walk():
            self.inside.update(op.results)
        low, high, step = loop.operands[:3]
        self.first = low
        self.last = builder.emit("sub", high, builder.const(1, high.type))
        if constant_of(step) > 1:
            last_iteration = builder.emit("floordiv", builder.emit("sub", self.last, low), step)
            self.last = builder.emit("add", low, builder.emit("mul", last_iteration, step))
        self.limits: list[Value] = []
        self.distance: Value | None = None

    def of(self, index: Value) -> tuple[Value, ...] | None:
        """Return (first, last) values of an index, or (value,) if it is loop-invariant; None if they aren't known."""
        fixed = self.invariant(index)
        if fixed is not None:
            return (fixed,)
        first, last = (self.monotonic(index, counter) for counter in (self.first, self.last))
        return None if first is None or last is None else (first, last)

    def invariant(self, value: Value, depth: int = _MAX_DEPTH) -> Value | None:
        """Recompute a loop-invariant value in the preheader; None if it isn't invariant."""
        op = value.op
        if value not in self.inside:
            return value
        if op is None or depth == 0 or op.regions or len(op.results) != 1:
            return None
        info = OPS[op.name]
        if info.effect != Effect.NONE or not info.speculatable:
            return None
        operands = [self.invariant(operand, depth - 1) for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        return self.builder.emit(op.name, *(v for v in operands if v is not None), **op.attrs)

    def monotonic(self, value: Value, counter: Value, depth: int = _MAX_DEPTH) -> Value | None:
        """Recompute a value that is monotonic in the induction variable, with `induction` in place of the latter.

        Returns None if the value isn't known to be monotonic.
        """
        op = value.op
        if value is self.induction:
            return counter if value.type == INDEX else None
        if op is None or depth == 0 or value.type != INDEX:
            return None
        if op.name == "cast" and op.operands[0] is self.induction and isinstance(self.induction.type, Scalar):
            return self.builder.cast(counter, INDEX)
        if op.name == "mul":
            return self.scaled(op, counter)
        if op.name not in ("add", "sub"):
            return None
        x, y = op.operands
        for position, (term, invariant) in enumerate(((x, y), (y, x))):
            fixed = self.invariant(invariant)
            end = self.monotonic(term, counter, depth - 1) if fixed is not None else None
            if fixed is not None and end is not None:
                return self.builder.emit(op.name, *((end, fixed) if position == 0 else (fixed, end)))
        return None

    def scaled(self, op: Op, counter: Value) -> Value | None:
        """Recompute the product of the induction variable and a loop-invariant factor; None if there is none."""
        for position, (term, invariant) in enumerate((op.operands, op.operands[::-1])):
            factor = self.invariant(invariant) if self.is_induction(term) else None
            if factor is None:
                continue
            if not is_constant(factor):
                self.require_below_limit(factor)
            elif abs(int(constant_of(factor))) >= LIMIT:
                return None
            self.require_below_limit(self.span())
            end = self.builder.cast(counter, INDEX)
            return self.builder.emit("mul", *((end, factor) if position == 0 else (factor, end)))
        return None

    def is_induction(self, value: Value) -> bool:
        """True if a value is the induction variable, possibly cast to an index."""
        op = value.op
        if op is not None and op.name == "cast" and value.type == INDEX:
            value = op.operands[0]
        return value is self.induction

    def span(self) -> Value:
        """Return the distance from the induction variable's first to its last value."""
        if self.distance is None:
            ends = [self.builder.cast(value, INDEX) for value in (self.last, self.first)]
            self.distance = self.builder.emit("sub", *ends)
        return self.distance

    def require_below_limit(self, value: Value) -> None:
        """Require a value to be in [0, LIMIT)."""
        if value not in self.limits:
            self.limits.append(value)
