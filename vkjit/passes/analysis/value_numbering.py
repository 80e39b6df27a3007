"""Value numbering, for checks that compare values in IR that hasn't been simplified yet.

Two values of a function get the same number if they are computed by the same side-effect-free operation from operands
with the same numbers. `ValueNumbers.sum` also returns an index as a sum of a constant and multiples of numbered values,
exact modulo 2**64, so that callers can find indices that differ by a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit.ir.core import Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import INDEX

__all__ = ["Sum", "ValueNumbers"]

Sum = tuple[frozenset[tuple[int, int]], int]
"""(terms, constant), for the sum of value * coefficient over the terms, plus the constant.

The terms are a set of (value number, coefficient) pairs.
"""

_MAX_TERMS = 8
"""The limit of terms that wait for expansion in `ValueNumbers.sum`; beyond it, additions aren't expanded."""


@dataclass(slots=True)
class ValueNumbers:
    """Value numbers of one function, assigned on demand.

    `values` maps values to their numbers. `numbers` maps a key of each computation (operation, type, attributes and
    operands' numbers) to its number.
    """

    values: dict[Value, int] = field(default_factory=dict)
    numbers: dict[object, int] = field(default_factory=dict)

    def number(self, value: Value) -> int:
        """Return the number of a value; equivalent values have the same number."""
        if value not in self.values:
            key = self._key(value)
            self.values[value] = self.numbers.setdefault(key, len(self.numbers))
        return self.values[value]

    def _key(self, value: Value) -> object:
        """Return a key of the computation of a value, or the value itself if it is equivalent to no other one."""
        op = value.op
        if op is None or op.regions or len(op.results) != 1:
            return value
        info = OPS[op.name]
        if info.effect != Effect.NONE or info.convergent or not info.speculatable:
            return value
        attrs = tuple(sorted((name, repr(attr)) for name, attr in op.attrs.items()))
        return op.name, str(value.type), attrs, *(self.number(operand) for operand in op.operands)

    def sum(self, value: Value) -> Sum:
        """Return an index as a sum, expanding additions and subtractions."""
        terms: dict[int, int] = {}
        constant, pending = 0, [(value, 1)]
        while pending:
            value, factor = pending.pop()
            op = value.op
            if is_constant(value):
                constant += factor * int(constant_of(value))
            elif op is not None and op.name in ("add", "sub") and value.type == INDEX and len(pending) < _MAX_TERMS:
                pending += [(op.operands[0], factor), (op.operands[1], -factor if op.name == "sub" else factor)]
            else:
                number = self.number(value)
                terms[number] = terms.get(number, 0) + factor
        return frozenset(item for item in terms.items() if item[1]), constant
