"""Shared and local arrays that are surely written before they are read, so that no marks are needed.

Enters: the accesses of such an array in a kernel in normal form. Leaves: whether all elements that are read have been written:
by stores that every invocation reaches, in shared arrays together, with a barrier between them and the reads. A store that is
left out because its index is wrong is reported as that. Holds: cells are numbers (see `numbers`) or, in local arrays, rows up
to an end that only the launch knows (see `rows`): what a loop over them has written, a loop to the same end may read. What is
read at places that aren't known has to be written as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...ir.core import Op, Region, Value
from ...ir.rewrite import exits_of
from .numbers import Numbers
from .rows import Rows, rows_of_counter, rows_of_index
from .tracking import Accesses, array_of

__all__ = ["is_covered"]

Mask = npt.NDArray[np.bool_]
Place = tuple["Op | None", Region, int]
"""(what holds the region, the region, the position in it of the operation that leads on)"""


def is_covered(accesses: Accesses, body: Region, local_size: tuple[int, int, int]) -> bool:
    """See the module's docstring."""
    if accesses.atomics or not accesses.stores or not accesses.loads:
        return False
    if any(op.operands[0] is not accesses.root for op in accesses.all):
        return False
    array, places = _Array.of(accesses.root), _places(body)
    start = Numbers((1, 1, 1), alone=True) if array.private else Numbers(local_size)
    return all(
        array.reads(load, array.before(places[load], start), places[load], local_size) for load in accesses.loads
    )


def _places(body: Region) -> dict[Op, list[Place]]:
    """Where each operation is, from the outermost region inwards."""
    found: dict[Op, list[Place]] = {}

    def visit(region: Region, owner: Op | None, around: list[Place]) -> None:
        for position, op in enumerate(region.ops):
            found[op] = [*around, (owner, region, position)]
            for inner in op.regions:
                visit(inner, op, found[op])

    visit(body, None, [])
    return found


@dataclass(frozen=True, slots=True)
class _Written:
    """What has been written: by cell, and by rows, with the cells of one row."""

    cells: Mask
    rows: tuple[tuple[Rows, Mask], ...] = ()

    def __or__(self, other: _Written) -> _Written:
        found = dict(self.rows)
        for rows, mask in other.rows:
            found[rows] = found[rows] | mask if rows in found else mask
        return _Written(self.cells | other.cells, tuple(found.items()))

    def __and__(self, other: _Written) -> _Written:
        theirs = dict(other.rows)
        both = tuple((rows, mask & theirs[rows]) for rows, mask in self.rows if rows in theirs)
        return _Written(self.cells & other.cells, both)


@dataclass(frozen=True, slots=True)
class _Array:
    """One array. `private`: each invocation has its own, and has to write all of it by itself."""

    root: Value
    shape: tuple[int, ...]
    private: bool

    @classmethod
    def of(cls, root: Value) -> _Array:
        kind = array_of(root)
        return cls(root, tuple(kind.shape or ()), kind.space == "local")

    def nothing(self) -> _Written:
        return _Written(np.zeros(math.prod(self.shape), dtype=bool))

    def before(self, chain: list[Place], numbers: Numbers) -> _Written:
        """What has been written when an operation is reached. Of shared arrays there is a barrier between: all
        invocations of a workgroup run the region together.
        """
        found = self.nothing()
        for _, region, reached in chain:
            last = reached if self.private else _last_barrier(region, reached)
            for op in region.ops[:last]:
                found |= self.written(op, numbers)
        return found

    def written(self, op: Op, numbers: Numbers, counter: Op | None = None) -> _Written:
        """What an operation surely writes; `counter` is the loop around it whose rows are counted."""
        if op.name == "store" and op.operands[0] is self.root:
            return self.stored(op, numbers, counter)
        if op.name == "if":
            return self.chosen(op, numbers, counter)
        if op.name != "for" or any(leave is not op.regions[0].terminator for leave in exits_of(op.regions[0])):
            return self.nothing()
        inside = numbers.entered(op)
        if inside.has(op):
            return self.all_of(op.regions[0], inside, counter)
        if not self.private or counter is not None:
            return self.nothing()
        return replace(self.all_of(op.regions[0], inside, op), cells=self.nothing().cells)

    def chosen(self, branch: Op, numbers: Numbers, counter: Op | None) -> _Written:
        """What both sides of an `if` write; a side that reports doesn't count."""
        sides = [region for region in branch.regions if not any(op.name == "report" for op in region.ops)]
        if not sides or (len(sides) > 1 and not self.private):
            return self.nothing()  # in a workgroup, some may take one side and some the other
        if any(side.terminator.name != "yield" for side in sides):
            return self.nothing()
        each = [self.all_of(side, numbers, counter) for side in sides]
        return each[0] if len(each) == 1 else each[0] & each[1]

    def all_of(self, region: Region, numbers: Numbers, counter: Op | None) -> _Written:
        """What the operations of a region surely write."""
        found = self.nothing()
        for op in region.ops:
            found |= self.written(op, numbers, counter)
        return found

    def stored(self, store: Op, numbers: Numbers, counter: Op | None) -> _Written:
        found, indices = self.nothing(), store.operands[1 : 1 + len(self.shape)]
        cells = numbers.cells(self.shape, indices)
        if cells is not None:
            found.cells[cells] = True
        rows = None if counter is None or indices[0] is not counter.regions[0].args[0] else rows_of_counter(counter)
        rest = numbers.cells(self.shape[1:], indices[1:])
        if rows is None or rest is None:
            return found
        mask = np.zeros(math.prod(self.shape[1:]), dtype=bool)
        mask[rest] = True
        return replace(found, rows=((rows, mask),))

    def reads(self, load: Op, known: _Written, chain: list[Place], local_size: tuple[int, int, int]) -> bool:
        """Whether all that a load may read is known to be written."""
        numbers = Numbers(local_size)
        for owner, _, _ in chain:
            numbers = numbers if owner is None else numbers.entered(owner)
        indices = load.operands[1 : 1 + len(self.shape)]
        cells = numbers.cells(self.shape, indices)
        if cells is not None and known.cells[cells].all():
            return True
        if known.cells.all():
            return True
        around = [owner for owner, _, _ in chain if owner is not None]
        rows, rest = rows_of_index(indices[0], numbers, around), numbers.cells(self.shape[1:], indices[1:])
        return rest is not None and any(rows == other and mask[rest].all() for other, mask in known.rows)


def _last_barrier(region: Region, reached: int) -> int:
    """The position of the last barrier in a region in front of one of its operations; 0 if there is none."""
    return max((n for n, op in enumerate(region.ops[:reached]) if op.name == "barrier"), default=0)
