"""Values that are made alike, and sums of them: what can be told equal before any pass has simplified it.

Enters: values of one function. Leaves: numbers, equal for the same operations of the same values where nothing else decides what
they give; and sums, a constant beside the rest, exact modulo 2**64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.core import Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import constant_of, is_constant
from ..ir.types import INDEX

__all__ = ["Alike", "Sum"]

Sum = tuple[frozenset[tuple[int, int]], int]
"""The numbers of values with how often they are added, and a constant."""

_MOST_TERMS = 8


@dataclass(slots=True)
class Alike:
    """Numbers of values, by what makes them."""

    values: dict[Value, int] = field(default_factory=dict)
    numbers: dict[object, int] = field(default_factory=dict)

    def number(self, value: Value) -> int:
        """Equal for values that are made alike."""
        if value not in self.values:
            key = self._key(value)
            self.values[value] = self.numbers.setdefault(key, len(self.numbers))
        return self.values[value]

    def _key(self, value: Value) -> object:
        op = value.op
        if op is None or op.regions or len(op.results) != 1:
            return value
        row = OPS[op.name]
        if row.effect != Effect.NONE or row.convergent or not row.speculatable:
            return value
        attrs = tuple(sorted((name, repr(attr)) for name, attr in op.attrs.items()))
        return op.name, str(value.type), attrs, *(self.number(operand) for operand in op.operands)

    def sum(self, value: Value) -> Sum:
        """An index as a sum."""
        terms: dict[int, int] = {}
        constant, waiting = 0, [(value, 1)]
        while waiting:
            value, factor = waiting.pop()
            op = value.op
            if is_constant(value):
                constant += factor * int(constant_of(value))
            elif op is not None and op.name in ("add", "sub") and value.type == INDEX and len(waiting) < _MOST_TERMS:
                waiting += [(op.operands[0], factor), (op.operands[1], -factor if op.name == "sub" else factor)]
            else:
                number = self.number(value)
                terms[number] = terms.get(number, 0) + factor
        return frozenset(item for item in terms.items() if item[1]), constant
