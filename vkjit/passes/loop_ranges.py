"""Which loops may be copied for the case that all their indices are in range, and what their indices are at both ends.

Enters: a `for` in high form. Leaves: `may_be_copied`, and `Ends`, which rebuilds an index in front of the loop as it is
in the first and in the last round. Holds: what rises or falls with the counter, and is in range at both ends, is so in all
rounds. Where it moves by one: the counter starts at 0 or above, so both ends are less than 2**63 apart. Where it moves by a
multiple: the `limits` have to be below `LIMIT`, the number of rounds and the factor, so both ends are less than 2**62 apart.
"""

from __future__ import annotations

from ..ir.builder import Builder
from ..ir.core import Op, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS, constant_of, is_constant
from ..ir.types import INDEX, Scalar
from .arithmetic.division import is_non_negative

__all__ = ["LIMIT", "MOST_OPERATIONS", "MOST_SANITIZED", "Ends", "may_be_copied"]

LIMIT = 1 << 31

MOST_OPERATIONS = 64
MOST_SANITIZED = 320
"""As many where the sanitizer would write much code around each access: unrolled rounds of many loads among them."""
_DEEPEST = 8


def may_be_copied(op: Op, most: int = MOST_OPERATIONS) -> bool:
    """Whether an operation is a small innermost loop that counts up from 0 or above, through all rounds, without what must
    stand once or needs uniform control flow; of `most` operations at most.
    """
    if op.name != "for" or not is_constant(op.operands[2]) or constant_of(op.operands[2]) <= 0:
        return False
    if not is_non_negative(op.operands[0]):
        return False
    for count, inner in enumerate(op.regions[0].walk()):
        row = OPS[inner.name]
        if count == most or inner.name in LOOPS or inner.name == "call":
            return False
        if inner.name in ("break", "continue", "return") and inner is not op.regions[0].terminator:
            return False
        if row.convergent or row.effect in (Effect.ALLOCATE, Effect.SYNC):
            return False
    return True


class Ends:
    """The indices of one loop; `builder` appends in front of it."""

    def __init__(self, loop: Op, builder: Builder) -> None:
        self.builder = builder
        self.counter = loop.regions[0].args[0]
        self.inside: set[Value] = set(loop.regions[0].args)
        for op in loop.regions[0].walk():
            self.inside.update(op.results)
        low, high, step = loop.operands[:3]
        self.first = low
        self.last = builder.emit("sub", high, builder.const(1, high.type))
        if constant_of(step) > 1:
            rounds = builder.emit("floordiv", builder.emit("sub", self.last, low), step)
            self.last = builder.emit("add", low, builder.emit("mul", rounds, step))
        self.limits: list[Value] = []
        self.distance: Value | None = None

    def of(self, index: Value) -> tuple[Value, ...] | None:
        """The index at both ends, or the one value that it has in all rounds; None where that isn't known."""
        fixed = self.fixed(index)
        if fixed is not None:
            return (fixed,)
        first, last = (self.moving(index, counter) for counter in (self.first, self.last))
        return None if first is None or last is None else (first, last)

    def fixed(self, value: Value, depth: int = _DEEPEST) -> Value | None:
        """A value that doesn't depend on the round, in front of the loop."""
        op = value.op
        if value not in self.inside:
            return value
        if op is None or depth == 0 or op.regions or len(op.results) != 1:
            return None
        row = OPS[op.name]
        if row.effect != Effect.NONE or not row.speculatable:
            return None
        operands = [self.fixed(operand, depth - 1) for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        return self.builder.emit(op.name, *(v for v in operands if v is not None), **op.attrs)

    def moving(self, value: Value, counter: Value, depth: int = _DEEPEST) -> Value | None:
        """A value that rises or falls with the counter, for one value of that."""
        op = value.op
        if value is self.counter:
            return counter if value.type == INDEX else None
        if op is None or depth == 0 or value.type != INDEX:
            return None
        if op.name == "cast" and op.operands[0] is self.counter and isinstance(self.counter.type, Scalar):
            return self.builder.cast(counter, INDEX)
        if op.name == "mul":
            return self.multiplied(op, counter)
        if op.name not in ("add", "sub"):
            return None
        x, y = op.operands
        for place, (moved, still) in enumerate(((x, y), (y, x))):
            fixed = self.fixed(still)
            end = self.moving(moved, counter, depth - 1) if fixed is not None else None
            if fixed is not None and end is not None:
                return self.builder.emit(op.name, *((end, fixed) if place == 0 else (fixed, end)))
        return None

    def multiplied(self, op: Op, counter: Value) -> Value | None:
        """A multiple of the counter, of a factor that is the same in all rounds."""
        for place, (moved, still) in enumerate((op.operands, op.operands[::-1])):
            factor = self.fixed(still) if self.is_counter(moved) else None
            if factor is None:
                continue
            if not is_constant(factor):
                self.limit(factor)
            elif abs(int(constant_of(factor))) >= LIMIT:
                return None
            self.limit(self.span())
            end = self.builder.cast(counter, INDEX)
            return self.builder.emit("mul", *((end, factor) if place == 0 else (factor, end)))
        return None

    def is_counter(self, value: Value) -> bool:
        """Whether a value is the counter, as an index."""
        op = value.op
        if op is not None and op.name == "cast" and value.type == INDEX:
            value = op.operands[0]
        return value is self.counter

    def span(self) -> Value:
        """How far the counter goes."""
        if self.distance is None:
            ends = [self.builder.cast(value, INDEX) for value in (self.last, self.first)]
            self.distance = self.builder.emit("sub", *ends)
        return self.distance

    def limit(self, value: Value) -> None:
        """Asks for a value to be at least 0 and below `LIMIT`."""
        if value not in self.limits:
            self.limits.append(value)
