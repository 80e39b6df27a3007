"""Definite-assignment analysis: prove that every element of a shared or local array is written before it is read.

`uninitialized` doesn't instrument arrays for which the proof succeeds. `is_covered` takes the accesses to one array of
a kernel in normal form (see `ir.verify`). An array is covered if all elements that are read have been written by stores
that every invocation reaches. For a local array, each invocation has to write the elements that it reads. For a shared
array, the invocations of the workgroup have to write them together, and a barrier has to follow before the reads. A
store that is skipped because its index is out of bounds counts as a write, since that error is reported itself.

The written elements are tracked in two forms:

1. A set of elements that is known at compile time (see `concrete_values`).
2. For local arrays, ranges of rows (indices along the first axis) whose bounds are known only at the launch (see
   `row_ranges`). A loop may read the rows that an earlier loop with the same bounds has written.

A read at an unknown index is covered only if the whole array has been written.
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
PositionLevel = tuple["Op | None", Region, int]
"""One level of an operation's position: (owner, region, index). The region is one that contains the operation, and the
index is that of the operation, or of its ancestor, in it. The owner is the operation that has the region, None for the
kernel's body.
"""


def is_covered(accesses: Accesses, body: Region, local_size: tuple[int, int, int]) -> bool:
    """True if every load of an array is known to read only elements that have been written."""
    if accesses.atomics or not accesses.stores or not accesses.loads:
        return False
    if any(op.operands[0] is not accesses.root for op in accesses.all):
        return False
    array, places = _Array.of(accesses.root, local_size), _places(body)
    return all(
        array.is_load_covered(load, array.written_before(places[load]), places[load], local_size)
        for load in accesses.loads
    )


def _places(body: Region) -> dict[Op, list[PositionLevel]]:
    """Return the position of each operation: a list of its levels, outermost first."""
    places: dict[Op, list[PositionLevel]] = {}

    def visit(region: Region, owner: Op | None, outer: list[PositionLevel]) -> None:
        for position, op in enumerate(region.ops):
            places[op] = [*outer, (owner, region, position)]
            for inner in op.regions:
                visit(inner, op, places[op])

    visit(body, None, [])
    return places


@dataclass(frozen=True, slots=True)
class _Written:
    """The elements of one array that have been written.

    `cells` is a mask over all elements in C order. `rows` has ranges of rows, each with a mask over the elements of a
    row. The operators `|` and `&` are union and intersection.
    """

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

    `private` is True for a local array. `start` evaluates integers outside of loops. `writers` maps each visited region
    to pairs: the index of an operation that writes the array, and the elements that the region has definitely written
    after that operation.
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
        # for a local array, elements have to be written by each invocation, so an index may not depend on local ids
        start = ConcreteValues((1, 1, 1), local_ids_unknown=True) if private else ConcreteValues(local_size)
        return cls(root, tuple(kind.shape or ()), private, start)

    def nothing(self) -> _Written:
        return _Written(np.zeros(math.prod(self.shape), dtype=bool))

    def written_before(self, chain: list[PositionLevel]) -> _Written:
        """Return the elements that have been written when control reaches the operation with the position `chain`.

        For a shared array, only stores before the last barrier of each region count. A barrier shows that all
        invocations of the workgroup execute that region together.
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
            entries, total = [], self.nothing()
            for position, op in enumerate(region.ops):
                more = self.written(op, self.start)
                if more is not None:
                    total |= more
                    entries.append((position, total))
            self.writers[region] = entries
        return self.writers[region]

    def written(self, op: Op, numbers: ConcreteValues, row_loop: Op | None = None) -> _Written | None:
        """Return the elements that an operation always writes; None if there are none.

        `numbers` evaluates integers at the operation. `row_loop` is the enclosing `for` with unknown bounds, if there
        is one: a store whose row is its induction variable writes a range of rows.
        """
        if op.name == "store" and op.operands[0] is self.root:
            return self.written_by_store(op, numbers, row_loop)
        if op.name == "if":
            return self.written_by_branch(op, numbers, row_loop)
        if op.name != "for" or any(leave is not op.regions[0].terminator for leave in exits_of(op.regions[0])):
            return None
        inside = numbers.inside_loop(op)
        if inside.has_iterations_of(op):
            return self.written_by_region(op.regions[0], inside, row_loop)
        if not self.private or row_loop is not None:
            return None
        # the loop may have no iterations, so that only the range of rows, which is then empty, is certain
        return replace(self.written_by_region(op.regions[0], inside, op), cells=self.nothing().cells)

    def written_by_branch(self, branch: Op, numbers: ConcreteValues, row_loop: Op | None) -> _Written | None:
        """Return the elements that an `if` always writes: those that both regions write; None if there are none.

        A region that contains a report is ignored: it is the failing side of a bounds check.
        """
        sides = [region for region in branch.regions if not any(op.name == "report" for op in region.ops)]
        if not sides or (len(sides) > 1 and not self.private):
            return None  # the invocations of a workgroup may take different sides
        if any(side.terminator.name != "yield" for side in sides):
            return None
        each = [self.written_by_region(side, numbers, row_loop) for side in sides]
        return each[0] if len(each) == 1 else each[0] & each[1]

    def written_by_region(self, region: Region, numbers: ConcreteValues, row_loop: Op | None) -> _Written:
        """Return the elements that the operations of a region always write, together."""
        total = self.nothing()
        for op in region.ops:
            more = self.written(op, numbers, row_loop)
            if more is not None:
                total |= more
        return total

    def written_by_store(self, store: Op, numbers: ConcreteValues, row_loop: Op | None) -> _Written:
        """Return the elements that a store writes: known ones, and a range of rows if its row is that of `row_loop`."""
        written, indices = self.nothing(), store.operands[1 : 1 + len(self.shape)]
        cells = numbers.cells(self.shape, indices)
        if cells is not None:
            written.cells[cells] = True
        rows = (
            None
            if row_loop is None or indices[0] is not row_loop.regions[0].args[0]
            else rows_of_induction_variable(row_loop)
        )
        columns = numbers.cells(self.shape[1:], indices[1:])
        if rows is None or columns is None:
            return written
        mask = np.zeros(math.prod(self.shape[1:]), dtype=bool)
        mask[columns] = True
        return replace(written, rows=((rows, mask),))

    def is_load_covered(
        self, load: Op, known: _Written, chain: list[PositionLevel], local_size: tuple[int, int, int]
    ) -> bool:
        """True if all elements that a load may read are in `known`, the elements written before it.

        `chain` is the load's position.
        """
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
    """Return the index of the last barrier before the index `reached` in a region; 0 if there is none."""
    return max((n for n, op in enumerate(region.ops[:reached]) if op.name == "barrier"), default=0)
