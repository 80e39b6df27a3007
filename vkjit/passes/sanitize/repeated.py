"""Which reads repeat a read that came before them on every way: same place in the source, same element, no barrier between.

Enters: a kernel in normal form, inlined. Leaves: those `load`s. Two indices are one where they are the same operations of
the same values; what operations without effects give depends on nothing else. Unrolled code is full of such reads before
it is simplified.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import Loc
from ...ir.core import Op, Region, Value
from ...ir.ops import OPS, Effect
from ...ir.rewrite import LOOPS

__all__ = ["repeated_reads"]

_Read = tuple[Loc, tuple[int, ...]]
"""A place in the source, and the numbers of the array and of the indices."""


def repeated_reads(body: Region) -> set[Op]:
    """The loads of a kernel's body that repeat others."""
    finder = _Finder()
    finder.region(body, set())
    return finder.found


@dataclass(slots=True)
class _Finder:
    """`numbers` of values by what makes them; `found` so far."""

    values: dict[Value, int] = field(default_factory=dict)
    numbers: dict[object, int] = field(default_factory=dict)
    found: set[Op] = field(default_factory=set)

    def region(self, region: Region, seen: set[_Read]) -> None:
        """Goes through a region; `seen` has the reads of this epoch that stand on the way to the current place."""
        for op in region.ops:
            if op.name == "load":
                key = (op.loc, tuple(self.number(value) for value in op.operands))
                if key in seen:
                    self.found.add(op)
                seen.add(key)
            elif op.name == "barrier":
                seen.clear()
            elif op.regions:
                self.inside(op, seen)

    def inside(self, op: Op, seen: set[_Read]) -> None:
        """What was read inside doesn't count behind: it may not have run."""
        passes = any(inner.name == "barrier" for region in op.regions for inner in region.walk())
        for region in op.regions:
            self.region(region, set() if passes and op.name in LOOPS else set(seen))
        if passes:
            seen.clear()

    def number(self, value: Value) -> int:
        """Equal for values that are made alike."""
        if value not in self.values:
            key = self.key(value)
            self.values[value] = self.numbers.setdefault(key, len(self.numbers))
        return self.values[value]

    def key(self, value: Value) -> object:
        op = value.op
        if op is None or op.regions or len(op.results) != 1:
            return value
        row = OPS[op.name]
        if row.effect != Effect.NONE or row.convergent or not row.speculatable:
            return value
        attrs = tuple(sorted((name, repr(attr)) for name, attr in op.attrs.items()))
        return op.name, str(value.type), attrs, *(self.number(operand) for operand in op.operands)
