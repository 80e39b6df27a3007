"""Definite-assignment analysis: prove that every element of a shared or local array is written before it is read.

`uninitialized` doesn't instrument arrays for which the proof succeeds. `is_covered` takes the accesses to one array of
a kernel in normal form (see `ir.verify`). An array is covered if all elements that are read have been written by stores
that every invocation reaches. For a local array, each invocation has to write the elements that it reads. For a shared
array, the invocations of the workgroup have to write them together, with a barrier between the writes and the reads. A
store that is skipped because its index is out of bounds counts as a write, since the sanitizer reports that error.

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
"""One level of an operation's position: (owner, region, index).

The region contains the operation, directly or nested. The index is that of the operation, or of the ancestor that
contains it, in the region. The owner is the operation to which the region belongs, None for the kernel's body.
"""


def is_covered(accesses: Accesses, body: Region, local_size: tuple[int, int, int]) -> bool:
    """True if every load of an array is known to read only elements that have been written."""
    if accesses.atomics or not accesses.stores or not accesses.loads:
        return False
    if any(op.operands[0] is not accesses.root for op in accesses.all):
        return False  # an access through a linear view has an offset instead of indices
    array = _Array.of(accesses.root, local_size)
    positions = _positions(body)
    return all(
        array.is_load_covered(load, array.written_before(positions[load]), positions[load], local_size)
        for load in accesses.loads
    )


def _positions(body: Region) -> dict[Op, list[PositionLevel]]:
    """Return the position of each operation: a list of its levels, outermost first."""
    positions: dict[Op, list[PositionLevel]] = {}

    def visit(region: Region, owner: Op | None, outer_levels: list[PositionLevel]) -> None:
        for index, op in enumerate(region.ops):
            positions[op] = [*outer_levels, (owner, region, index)]
            for inner in op.regions:
                visit(inner, op, positions[op])

    visit(body, None, [])
    return positions


@dataclass(frozen=True, slots=True)
class _Written:
    """The elements of one array that have been written.

    `cells` is a mask over all elements in C order. `rows` has pairs of a range of rows and a mask over the elements of
    one row: in each row of the range, the masked elements have been written. The operators `|` and `&` are union and
    intersection.
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
    to pairs, in program order: the index of an operation that writes the array, and the elements that the region has
    definitely written when that operation is done.
    """

    root: Value
    shape: tuple[int, ...]
    private: bool
    start: ConcreteValues
    writers: dict[Region, list[tuple[int, _Written]]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Value, local_size: tuple[int, int, int]) -> _Array:
        array_type = array_of(root)
        private = array_type.space == "local"
        # Each invocation has its own local array. Elements at indices that depend on the local id aren't known to be
        # written, since they differ between invocations.
        start = ConcreteValues((1, 1, 1), local_ids_unknown=True) if private else ConcreteValues(local_size)
        return cls(root, tuple(array_type.shape or ()), private, start)

    def nothing(self) -> _Written:
        return _Written(np.zeros(math.prod(self.shape), dtype=bool))

    def written_before(self, position: list[PositionLevel]) -> _Written:
        """Return the elements that have been written when control reaches the operation at `position`.

        For a shared array, a store counts only if a barrier comes after it in the same region. The barrier also shows
        that all invocations of the workgroup execute this region.
        """
        total = self.nothing()
        for _, region, reached in position:
            end = reached if self.private else _last_barrier(region, reached)
            writers = self.writers_of(region)
            count = bisect_left(writers, end, key=itemgetter(0))  # the number of writers before index `end`
            if count:
                total |= writers[count - 1][1]  # includes what the earlier ones have written
        return total

    def writers_of(self, region: Region) -> list[tuple[int, _Written]]:
        """Return the region's entry of `writers`.

        It is computed only once, since an array may be read in hundreds of places.
        """
        if region not in self.writers:
            entries, total = [], self.nothing()
            for index, op in enumerate(region.ops):
                written_by_op = self.written(op, self.start)
                if written_by_op is not None:
                    total |= written_by_op
                    entries.append((index, total))
            self.writers[region] = entries
        return self.writers[region]

    def written(self, op: Op, evaluator: ConcreteValues, row_loop: Op | None = None) -> _Written | None:
        """Return the elements that an operation always writes; None if none are known.

        `evaluator` evaluates integers at the operation. `row_loop` is the enclosing `for` with unknown bounds, if there
        is one. A store whose row index is the induction variable of `row_loop` writes a range of rows.
        """
        if op.name == "store" and op.operands[0] is self.root:
            return self.written_by_store(op, evaluator, row_loop)
        if op.name == "if":
            return self.written_by_branch(op, evaluator, row_loop)
        if op.name != "for" or any(exit_op is not op.regions[0].terminator for exit_op in exits_of(op.regions[0])):
            return None
        inside = evaluator.inside_loop(op)
        if inside.has_iterations_of(op):
            return self.written_by_region(op.regions[0], inside, row_loop)
        if not self.private or row_loop is not None:
            return None
        # the loop may have no iterations: single elements aren't certain, but the range of rows is, as it is then empty
        return replace(self.written_by_region(op.regions[0], inside, op), cells=self.nothing().cells)

    def written_by_branch(self, branch: Op, evaluator: ConcreteValues, row_loop: Op | None) -> _Written | None:
        """Return the elements that both regions of an `if` always write; None if none are known.

        A region that contains a report is ignored: it is the failing side of a bounds check.
        """
        sides = [region for region in branch.regions if not any(op.name == "report" for op in region.ops)]
        if not sides or (len(sides) > 1 and not self.private):
            return None  # the invocations of a workgroup may take different sides, each writing only its own elements
        if any(side.terminator.name != "yield" for side in sides):
            return None
        per_side = [self.written_by_region(side, evaluator, row_loop) for side in sides]
        return per_side[0] if len(per_side) == 1 else per_side[0] & per_side[1]

    def written_by_region(self, region: Region, evaluator: ConcreteValues, row_loop: Op | None) -> _Written:
        """Return the union of the elements that the operations of a region always write."""
        total = self.nothing()
        for op in region.ops:
            written_by_op = self.written(op, evaluator, row_loop)
            if written_by_op is not None:
                total |= written_by_op
        return total

    def written_by_store(self, store: Op, evaluator: ConcreteValues, row_loop: Op | None) -> _Written:
        """Return the elements that a store writes.

        They are known elements and, if the row index is the induction variable of `row_loop`, a range of rows.
        """
        written = self.nothing()
        indices = store.operands[1 : 1 + len(self.shape)]
        cells = evaluator.cells(self.shape, indices)
        if cells is not None:
            written.cells[cells] = True
        rows = None
        if row_loop is not None and indices[0] is row_loop.regions[0].args[0]:
            rows = rows_of_induction_variable(row_loop)
        columns = evaluator.cells(self.shape[1:], indices[1:])  # the elements within a row
        if rows is None or columns is None:
            return written
        mask = np.zeros(math.prod(self.shape[1:]), dtype=bool)
        mask[columns] = True
        return replace(written, rows=((rows, mask),))

    def is_load_covered(
        self, load: Op, known: _Written, position: list[PositionLevel], local_size: tuple[int, int, int]
    ) -> bool:
        """True if all elements that a load may read are in `known`, the elements written before the load.

        `position` is the load's position.
        """
        evaluator = ConcreteValues(local_size)
        enclosing = [owner for owner, _, _ in position if owner is not None]
        for op in enclosing:
            evaluator = evaluator.inside_loop(op)
        indices = load.operands[1 : 1 + len(self.shape)]
        cells = evaluator.cells(self.shape, indices)
        if cells is not None and known.cells[cells].all():
            return True
        if known.cells.all():
            return True
        rows = rows_of_index(indices[0], evaluator, enclosing)
        columns = evaluator.cells(self.shape[1:], indices[1:])
        return columns is not None and any(rows == other and mask[columns].all() for other, mask in known.rows)


def _last_barrier(region: Region, reached: int) -> int:
    """Return the index of the last barrier before the index `reached` in a region.

    Without a barrier, the result is 0: no store comes before this index, so none counts as ordered by a barrier.
    """
    return max((n for n, op in enumerate(region.ops[:reached]) if op.name == "barrier"), default=0)
