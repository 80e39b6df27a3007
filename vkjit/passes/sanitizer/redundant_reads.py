"""Analysis of redundant reads: loads that the race check needn't instrument.

A load is redundant if a dominating load has the same source location and reads the same element, and no barrier is
between them. Arrays and indices are the same if they have the same value numbers (see `value_numbering`). Unrolled code
that hasn't been simplified yet has many such loads.

The analysis takes an inlined kernel in normal form (see `ir.verify`).
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
    """Return the redundant loads of a kernel's body."""
    finder = _Finder()
    finder.visit_region(body, set())
    return finder.redundant


@dataclass(slots=True)
class _Finder:
    """A walk over the kernel in program order. `redundant` has the redundant loads found so far."""

    value_numbers: ValueNumbers = field(default_factory=ValueNumbers)
    redundant: set[Op] = field(default_factory=set)

    def visit_region(self, region: Region, seen: set[_Read]) -> None:
        """Visit a region. `seen` has the loads since the last barrier that dominate the current operation."""
        for op in region.ops:
            if op.name == "load":
                read = (op.loc, tuple(self.value_numbers.number(value) for value in op.operands))
                if read in seen:
                    self.redundant.add(op)
                seen.add(read)
            elif op.name == "barrier":
                seen.clear()
            elif op.regions:
                self.visit_nested_regions(op, seen)

    def visit_nested_regions(self, op: Op, seen: set[_Read]) -> None:
        """Visit the regions of an operation. Their loads aren't added to `seen`, as they don't dominate what follows.

        The body of a loop with a barrier starts with an empty `seen`: the previous iteration's barrier may come between
        the loads before the loop and those in the body.
        """
        has_barrier = any(inner.name == "barrier" for region in op.regions for inner in region.walk())
        for region in op.regions:
            self.visit_region(region, set() if has_barrier and op.name in LOOPS else set(seen))
        if has_barrier:
            seen.clear()
