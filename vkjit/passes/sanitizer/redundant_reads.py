"""Redundant reads: loads that repeat a dominating load of the same source location and element, with no barrier
between.

`repeated_reads` takes an inlined kernel in normal form. Indices are equal if they have the same value number (see
`value_numbering`). Unrolled code has many such reads before it is simplified.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit.errors import Loc
from vkjit.ir.core import Op, Region
from vkjit.ir.rewrite import LOOPS

from ..analysis.value_numbering import ValueNumbers

__all__ = ["repeated_reads"]

_Read = tuple[Loc, tuple[int, ...]]
"""A source location, and the value numbers of the array and the indices."""


def repeated_reads(body: Region) -> set[Op]:
    """Return the loads of a kernel's body that repeat others."""
    finder = _Finder()
    finder.region(body, set())
    return finder.found


@dataclass(slots=True)
class _Finder:
    """A walk over the kernel; `found` are the repeated loads so far."""

    alike: ValueNumbers = field(default_factory=ValueNumbers)
    found: set[Op] = field(default_factory=set)

    def region(self, region: Region, seen: set[_Read]) -> None:
        """Visit a region; `seen` has the reads of this epoch that dominate the current operation."""
        for op in region.ops:
            if op.name == "load":
                key = (op.loc, tuple(self.alike.number(value) for value in op.operands))
                if key in seen:
                    self.found.add(op)
                seen.add(key)
            elif op.name == "barrier":
                seen.clear()
            elif op.regions:
                self.inside(op, seen)

    def inside(self, op: Op, seen: set[_Read]) -> None:
        """Visit the regions of an operation. Reads in them aren't added to `seen`, as they don't dominate what follows."""
        has_barrier = any(inner.name == "barrier" for region in op.regions for inner in region.walk())
        for region in op.regions:
            self.region(region, set() if has_barrier and op.name in LOOPS else set(seen))
        if has_barrier:
            seen.clear()
