"""Which reads repeat a read that came before them on every way: same place in the source, same element, no barrier between.

Enters: a kernel in normal form, inlined. Leaves: those `load`s. Two indices are one where they are the same operations of
the same values; what operations without effects give depends on nothing else. Unrolled code is full of such reads before
it is simplified.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import Loc
from ...ir.core import Op, Region
from ...ir.rewrite import LOOPS
from ..alike import Alike

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
    """The loads `found` so far."""

    alike: Alike = field(default_factory=Alike)
    found: set[Op] = field(default_factory=set)

    def region(self, region: Region, seen: set[_Read]) -> None:
        """Goes through a region; `seen` has the reads of this epoch that stand on the way to the current place."""
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
        """What was read inside doesn't count behind: it may not have run."""
        passes = any(inner.name == "barrier" for region in op.regions for inner in region.walk())
        for region in op.regions:
            self.region(region, set() if passes and op.name in LOOPS else set(seen))
        if passes:
            seen.clear()
