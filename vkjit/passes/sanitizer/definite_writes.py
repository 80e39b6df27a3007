"""Static proof that shared and local arrays are written before they are read, so that they need no shadow memory.

`is_covered` takes the accesses of an array in a kernel in normal form. The array is covered if all elements that are
read have been written by stores that every invocation reaches; for a shared array by all invocations together, with a
barrier between them and the reads. A store that is skipped because its index is out of bounds counts, as it is reported
itself.

Elements are tracked as sets of indices known at compile time (see `concrete_values`) and, for local arrays, as ranges of rows
up to a bound known at the launch only (see `row_ranges`): a loop may read what an earlier loop up to the same bound has
written. For a read at an unknown index the whole array has to be written.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.rewrite import exits_of

from .concrete_values import ConcreteValues
from .row_ranges import Rows, rows_of_index, rows_of_induction_variable
from .shadow import Accesses, array_of

__all__ = ["is_covered"]

Mask = npt.NDArray[np.bool_]
Place = tuple["Op | None", Region, int]
"""(operation that contains the region, or None for the kernel's body; region; index in the region of the operation, or
of its ancestor)
"""


def is_covered(accesses: Accesses, body: Region, local_size: tuple[int, int, int]) -> bool:
    """True if every load of an array is known to read only elements that have been written."""
    if accesses.atomics or not accesses.stores or not accesses.loads:
        return False
    if any(op.operands[0] is not accesses.root for op in accesses.all):
        return False
    array, places = _Array.of(accesses.root, local_size), _places(body)
    return all(array.reads(load, array.before(places[load]), places[load], local_size) for load in accesses.loads)


def _places(body: Region) -> dict[Op, list[Place]]:
    """Return, for each operation, the regions that contain it, outermost first."""
    places: dict[Op, list[Place]] = {}

    def visit(region: Region, owner: Op | None, outer: list[Place]) -> None:
        for position, op in enumerate(region.ops):
            places[op] = [*outer, (owner, region, position)]
            for inner in op.regions:
                visit(inner, op, places[op])

    visit(body, None, [])
    return places


@dataclass(frozen=True, slots=True)
class _Written:
    """The elements that have been written: a mask of cells, and ranges of rows, each with a mask of the cells in a row."""

    cells: Mask
    rows: tuple[tuple[Rows, Mask], ...] = ()

    def __or__(self, other: _Written) -> _Written:
        merged = dict(self.rows)
        for rows, mask in other.rows:
            merged[rows] = merged[rows] | mask if rows in merged else mask
        return _Written(self.cells | other.cells, tuple(merged.items()))

    def __and__(self, other: _Written) -> _Written:
        theirs = dict(other.rows)
        both = tuple((rows, mask & theirs[rows]) for rows, mask in self.rows if rows in theirs)
        return _Written(self.cells & other.cells, both)


@dataclass(frozen=True, slots=True)
class _Array:
    """An array and its definite writes.

    `private`: True for a local array, which each invocation has to write on its own. `start`: the values known at the
    start of the kernel. `writers`: for each region, the positions of its writing operations, each with everything that
    the region has written up to and including it.
    """

    root: Value
    shape: tuple[int, ...]
    private: bool
    start: ConcreteValues
    writers: dict[Region, list[tuple[int, _Written]]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Value, local_size: tuple[int, int, int]) -> _Array:
        kind = array_of(root)
        private = kind.space == "local"
        start = ConcreteValues((1, 1, 1), local_ids_unknown=True) if private else ConcreteValues(local_size)
        return cls(root, tuple(kind.shape or ()), private, start)

    def nothing(self) -> _Written:
        return _Written(np.zeros(math.prod(self.shape), dtype=bool))

    def before(self, chain: list[Place]) -> _Written:
        """Return what has been written when an operation is reached.

        For shared arrays, only what precedes the last barrier counts; all invocations of the workgroup run that region
        together.
        """
        written_before = self.nothing()
        for _, region, reached in chain:
            last = reached if self.private else _last_barrier(region, reached)
            writers = self.writers_of(region)
            count = bisect_left(writers, last, key=itemgetter(0))
            if count:
                written_before |= writers[count - 1][1]
        return written_before

    def writers_of(self, region: Region) -> list[tuple[int, _Written]]:
        """Return the region's entry of `writers`, computed once: an array may be read in hundreds of places."""
        if region not in self.writers:
            rows, total = [], self.nothing()
            for position, op in enumerate(region.ops):
                more = self.written(op, self.start)
                if more is not None:
                    total |= more
                    rows.append((position, total))
            self.writers[region] = rows
        return self.writers[region]

    def written(self, op: Op, numbers: ConcreteValues, counter: Op | None = None) -> _Written | None:
        """Return what an operation always writes, or None.

        `counter` is the enclosing loop of unknown extent whose induction variable indexes rows, if any.
        """
        if op.name == "store" and op.operands[0] is self.root:
            return self.stored(op, numbers, counter)
        if op.name == "if":
            return self.chosen(op, numbers, counter)
        if op.name != "for" or any(leave is not op.regions[0].terminator for leave in exits_of(op.regions[0])):
            return None
        inside = numbers.inside_loop(op)
        if inside.knows_loop(op):
            return self.all_of(op.regions[0], inside, counter)
        if not self.private or counter is not None:
            return None
        return replace(self.all_of(op.regions[0], inside, op), cells=self.nothing().cells)

    def chosen(self, branch: Op, numbers: ConcreteValues, counter: Op | None) -> _Written | None:
        """Return what both sides of an `if` write, or None. A side that contains a report doesn't count."""
        sides = [region for region in branch.regions if not any(op.name == "report" for op in region.ops)]
        if not sides or (len(sides) > 1 and not self.private):
            return None  # the invocations of a workgroup may take different sides
        if any(side.terminator.name != "yield" for side in sides):
            return None
        each = [self.all_of(side, numbers, counter) for side in sides]
        return each[0] if len(each) == 1 else each[0] & each[1]

    def all_of(self, region: Region, numbers: ConcreteValues, counter: Op | None) -> _Written:
        """Return what the operations of a region always write."""
        total = self.nothing()
        for op in region.ops:
            more = self.written(op, numbers, counter)
            if more is not None:
                total |= more
        return total

    def stored(self, store: Op, numbers: ConcreteValues, counter: Op | None) -> _Written:
        """Return what a store writes."""
        written, indices = self.nothing(), store.operands[1 : 1 + len(self.shape)]
        cells = numbers.cells(self.shape, indices)
        if cells is not None:
            written.cells[cells] = True
        rows = (
            None
            if counter is None or indices[0] is not counter.regions[0].args[0]
            else rows_of_induction_variable(counter)
        )
        columns = numbers.cells(self.shape[1:], indices[1:])
        if rows is None or columns is None:
            return written
        mask = np.zeros(math.prod(self.shape[1:]), dtype=bool)
        mask[columns] = True
        return replace(written, rows=((rows, mask),))

    def reads(self, load: Op, known: _Written, chain: list[Place], local_size: tuple[int, int, int]) -> bool:
        """True if the load is covered: all elements that it may read are in `known`, those written before it."""
        numbers = ConcreteValues(local_size)
        for owner, _, _ in chain:
            numbers = numbers if owner is None else numbers.inside_loop(owner)
        indices = load.operands[1 : 1 + len(self.shape)]
        cells = numbers.cells(self.shape, indices)
        if cells is not None and known.cells[cells].all():
            return True
        if known.cells.all():
            return True
        enclosing = [owner for owner, _, _ in chain if owner is not None]
        rows, columns = rows_of_index(indices[0], numbers, enclosing), numbers.cells(self.shape[1:], indices[1:])
        return columns is not None and any(rows == other and mask[columns].all() for other, mask in known.rows)


def _last_barrier(region: Region, reached: int) -> int:
    """Return the position of the last barrier before `reached` in a region, or 0 if there is none."""
    return max((n for n, op in enumerate(region.ops[:reached]) if op.name == "barrier"), default=0)
