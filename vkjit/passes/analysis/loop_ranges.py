"""Loop versioning for bounds checks: eligible loops, and the values of indices in the first and last iterations.

`bounds_checks` versions loops: if all indices are in range in the first and last iterations, a copy of the loop without
checks runs. `may_be_versioned` selects the loops, which are `for`s in high form (see `ir.verify`). `EndpointIndices`
computes an index for the first and for the last iteration, in the preheader. If an index is monotonic in the induction
variable, and in range in the first and last iterations, it is in range in all iterations, provided that it doesn't wrap
around in between. It doesn't wrap around in the two supported cases:

- The index is the induction variable plus or minus loop-invariant values. The induction variable starts at 0 or above,
  so the first and last index are less than 2**63 apart.
- The index contains the induction variable times a loop-invariant factor. Then the factor, and the distance from the
  first to the last value of the induction variable, must be less than `LIMIT` = 2**31, so the first and last index are
  less than 2**62 apart. If the factor or the distance isn't constant, it is added to `EndpointIndices.limits`, whose
  values must be tested at run time.
"""

from __future__ import annotations

from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS, constant_of, is_constant
from vkjit.ir.types import INDEX, Scalar

from .value_ranges import Ranges

__all__ = ["LIMIT", "MAX_OPERATIONS", "MAX_SANITIZED_OPERATIONS", "EndpointIndices", "may_be_versioned"]

LIMIT = 1 << 31
"""Below this bound, factors and distances exclude wraparound: see the module's docstring."""

MAX_OPERATIONS = 64
"""The largest number of operations in a loop that is versioned."""
MAX_SANITIZED_OPERATIONS = 320
"""The largest number of operations in a loop that is versioned under the sanitizer.

As the sanitizer adds much code to each checked access, versioning pays for longer loops, too, such as unrolled bodies
with many loads.
"""
_MAX_DEPTH = 8
"""The number of nested operations that are looked through."""


def may_be_versioned(op: Op, ranges: Ranges, max_operations: int = MAX_OPERATIONS) -> bool:
    """True if an operation is an innermost loop that may be versioned.

    The loop must have at most `max_operations` operations, count up from 0 or above (by the function's `ranges`), and
    have no early exits. It must not contain calls, operations that need uniform control flow, or allocations, which
    can't be duplicated.
    """
    if op.name != "for" or not is_constant(op.operands[2]) or constant_of(op.operands[2]) <= 0:
        return False
    if ranges.of(op.operands[0])[0] < 0:
        return False
    for count, inner in enumerate(op.regions[0].walk()):
        info = OPS[inner.name]
        is_too_long = count == max_operations  # this is operation number max_operations + 1
        if is_too_long or inner.name in LOOPS or inner.name == "call":
            return False
        if inner.name in ("break", "continue", "return") and inner is not op.regions[0].terminator:
            return False
        if info.convergent or info.effect in (Effect.ALLOCATE, Effect.SYNC):
            return False
    return True


class EndpointIndices:
    """The indices of one loop in its first and last iterations; `builder` appends to the preheader.

    `first` and `last` are the first and last values of the induction variable `induction`. `inside` are the values that
    the loop defines. `limits` collects values that must be in [0, LIMIT) for the results to hold; the caller emits the
    tests. `distance` caches the result of `span`.
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
        if constant_of(step) > 1:  # the last value is low + a multiple of the step, at most high - 1
            last_iteration = builder.emit("floordiv", builder.emit("sub", self.last, low), step)
            self.last = builder.emit("add", low, builder.emit("mul", last_iteration, step))
        self.limits: list[Value] = []
        self.distance: Value | None = None

    def of(self, index: Value) -> tuple[Value, ...] | None:
        """Return the values of an index in the first and in the last iteration.

        Return a single value if the index is loop-invariant, and None if it isn't known to be monotonic.
        """
        fixed = self.invariant(index)
        if fixed is not None:
            return (fixed,)
        first = self.monotonic(index, self.first)
        last = self.monotonic(index, self.last)
        return None if first is None or last is None else (first, last)

    def invariant(self, value: Value, depth: int = _MAX_DEPTH) -> Value | None:
        """Emit the computation of a loop-invariant value in the preheader; return None if it isn't known to be one."""
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

    def monotonic(self, value: Value, induction_value: Value, depth: int = _MAX_DEPTH) -> Value | None:
        """Emit the computation of `value` in the iteration whose induction variable is `induction_value`.

        Return None if `value` isn't known to be monotonic in the induction variable.
        """
        op = value.op
        if value is self.induction:
            return induction_value if value.type == INDEX else None
        if op is None or depth == 0 or value.type != INDEX:
            return None
        if op.name == "cast" and op.operands[0] is self.induction and isinstance(self.induction.type, Scalar):
            return self.builder.cast(induction_value, INDEX)
        if op.name == "mul":
            return self.scaled(op, induction_value)
        if op.name not in ("add", "sub"):
            return None
        x, y = op.operands
        for position, (term, invariant) in enumerate(((x, y), (y, x))):
            fixed = self.invariant(invariant)
            end = self.monotonic(term, induction_value, depth - 1) if fixed is not None else None
            if fixed is not None and end is not None:
                operands = (end, fixed) if position == 0 else (fixed, end)  # in the order of `op`
                return self.builder.emit(op.name, *operands)
        return None

    def scaled(self, op: Op, induction_value: Value) -> Value | None:
        """Emit the multiplication `op` in the iteration whose induction variable is `induction_value`.

        Return None if `op` isn't the product of the induction variable and a loop-invariant factor, or if the factor is
        too large.
        """
        for position, (term, invariant) in enumerate((op.operands, op.operands[::-1])):
            factor = self.invariant(invariant) if self.is_induction(term) else None
            if factor is None:
                continue
            if not is_constant(factor):
                self.require_below_limit(factor)
            elif abs(int(constant_of(factor))) >= LIMIT:
                return None
            self.require_below_limit(self.span())
            end = self.builder.cast(induction_value, INDEX)
            operands = (end, factor) if position == 0 else (factor, end)  # in the order of `op`
            return self.builder.emit("mul", *operands)
        return None

    def is_induction(self, value: Value) -> bool:
        """True if a value is the induction variable, possibly cast to an index."""
        op = value.op
        if op is not None and op.name == "cast" and value.type == INDEX:
            value = op.operands[0]
        return value is self.induction

    def span(self) -> Value:
        """Return the distance from the induction variable's first to its last value, computed in the preheader."""
        if self.distance is None:
            ends = [self.builder.cast(value, INDEX) for value in (self.last, self.first)]
            self.distance = self.builder.emit("sub", *ends)
        return self.distance

    def require_below_limit(self, value: Value) -> None:
        """Add a value to `limits`: the results hold only if it is in [0, LIMIT)."""
        if value not in self.limits:
            self.limits.append(value)
