"""Shadow memory of the sanitizer: choose the arrays to check, and compute the shadow cell of an accessed element.

`ShadowMemory` collects the accesses to each array of a kernel in normal form. The race check and the check for
uninitialized reads ask it which arrays to watch, and which cell belongs to an access. A cell is a number, an index into
the memory that `layout` describes.

Cells: the launch passes the cell of a global array's first element, and the other cells follow the array's strides.
Arrays that overlap in memory therefore share cells. After the cells of all global arrays come those of shared arrays,
separately for each workgroup. Local arrays have no cells; `uninitialized` marks their elements in another local array.

An array is watched for races if some access writes it and some access isn't atomic. Arrays that overlap in memory are
treated as one. A kernel with `over=` (one invocation per element of an array) often accesses only the element at the
invocation's own index; arrays that are accessed only like that can't race and aren't watched.

Loads and stores of cooperative matrices aren't tracked. An array that they write counts as initialized.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vkjit.errors import Loc
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array

from ..analysis.alias import origin
from ..formulas.formula import Formula, Term
from .state import State

__all__ = ["ACCESSES", "Accesses", "ShadowMemory", "array_of"]

ACCESSES: frozenset[OpName] = frozenset({"load", "store", "atomic", "atomic_cas", "atomic_load", "atomic_store"})


def array_of(value: Value) -> Array:
    """Return the type of an array value."""
    assert isinstance(value.type, Array)
    return value.type


@dataclass(slots=True)
class Accesses:
    """The operations that access one array. `root` is the parameter or allocation."""

    root: Value
    loads: list[Op] = field(default_factory=list)
    stores: list[Op] = field(default_factory=list)
    atomics: list[Op] = field(default_factory=list)

    @property
    def all(self) -> list[Op]:
        return [*self.loads, *self.stores, *self.atomics]

    @property
    def space(self) -> str:
        return array_of(self.root).space

    @property
    def writes(self) -> bool:
        """True if some operation writes."""
        return bool(self.stores) or any(op.name != "atomic_load" for op in self.atomics)

    @property
    def only_atomics(self) -> bool:
        return not self.loads and not self.stores

    @property
    def reads(self) -> bool:
        """True if some operation reads."""
        return bool(self.loads) or any(op.name != "atomic_store" for op in self.atomics)


class ShadowMemory:
    """The arrays of one kernel and their shadow cells.

    `arrays` maps each array to the accesses to it; `matrices` maps each array that a `mat_store` writes to the location
    of one.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.arrays: dict[Value, Accesses] = {}
        self.hidden = set(state.params.values())
        self.matrices: dict[Value, Loc] = {}
        self._shared: dict[Value, int] = {}
        for op in state.kernel.body.walk():
            if op.name in ACCESSES and origin(op.operands[0]) not in self.hidden:
                self._note(op)
            elif op.name == "mat_store":
                self.matrices.setdefault(origin(op.operands[0]), op.loc)

    def _note(self, op: Op) -> None:
        """Add an access to the entry of its array."""
        root = origin(op.operands[0])
        entry = self.arrays.setdefault(root, Accesses(root))
        kind = {"load": entry.loads, "store": entry.stores}.get(op.name, entry.atomics)
        kind.append(op)

    def watched_for_races(self) -> dict[Value, Accesses]:
        """Return the arrays to watch for races."""
        watched = {r: a for r, a in self.arrays.items() if a.space == "shared" and a.writes and not a.only_atomics}
        for members, same_view in self._sharing_memory():
            harmless = not any(a.writes for a in members) or all(a.only_atomics for a in members)
            if not harmless and not (same_view and self._own_elements_only(members)):
                watched |= {a.root: a for a in members}
        return watched

    def _sharing_memory(self) -> list[tuple[list[Accesses], bool]]:
        """Return the global arrays in groups that overlap in memory.

        A group comes with True if all its members are the same view: same address, shape and strides. The attribute
        `overlaps` of the kernel lists the overlapping pairs of arguments.
        """
        groups = {r: [a] for r, a in self.arrays.items() if a.space == "global"}
        different_views: set[Value] = set()
        root_of_number = {self._number(root): root for root in groups}
        for first, second, same_view in self.state.kernel.attrs.get("overlaps", ()):
            if first not in root_of_number or second not in root_of_number:
                continue
            merged = groups[
                root_of_number[first]
            ]  # merge the groups of both arrays; all members refer to the same list
            if groups[root_of_number[second]] is not merged:
                merged += groups[root_of_number[second]]
                groups |= dict.fromkeys((a.root for a in merged), merged)
            if not same_view:
                different_views.add(merged[0].root)
        distinct_groups = {id(members): members for members in groups.values()}
        return [(members, not different_views & {a.root for a in members}) for members in distinct_groups.values()]

    def maybe_uninitialized(self) -> dict[Value, Accesses]:
        """Return the arrays that may be read before they are written: shared and local arrays, and `Out` parameters."""
        return {
            root: a
            for root, a in self.arrays.items()
            if a.reads
            and root not in self.matrices
            and (a.space in ("shared", "local") or array_of(root).access == "out")
        }

    def written(self) -> dict[int, tuple[str, Loc]]:
        """Return the global arrays that are written: argument number -> (name, a source location that writes it)."""
        written_arrays = [a for a in self.arrays.values() if a.space == "global" and a.writes]
        locations = {root: loc for root, loc in self.matrices.items() if array_of(root).space == "global"}
        locations |= {a.root: (a.stores or a.atomics)[0].loc for a in written_arrays}
        return {self._number(root): (root.name, loc) for root, loc in locations.items()}

    def _own_elements_only(self, members: list[Accesses]) -> bool:
        """True if each invocation accesses only the element at its own index of the arrays `members`.

        False for kernels without `over=`, where an invocation has no index of its own.
        """
        over = self.state.kernel.attrs.get("over")
        target = next((p for p in self.state.kernel.params if p.name == over), None)
        if target is None or not isinstance(target.type, Array) or not 1 <= target.type.rank <= 3:
            return False
        if not all(array_of(a.root).contiguous for a in members):
            return False  # different indices might be the same memory, as in a broadcast array
        all_dims = frozenset(range(target.type.rank))
        operations = [op for a in members for op in a.all]
        first = _dims(operations[0])
        return frozenset(first) == all_dims and all(_dims(op) == first for op in operations)

    # -- shadow cells

    def cell(self, op: Op, builder: Builder) -> Term:
        """Return the shadow cell of an access to a global or shared array."""
        root = origin(op.operands[0])
        f = Formula(builder)
        indices = [f.term(value) for value in op.operands[1 : 1 + array_of(root).rank]]
        if array_of(root).space == "global":
            return self._global_cell(root, indices, f)
        base = self._shared_base(f)
        return base + (static_offset(indices, array_of(root), f) + self._first_shared_cell(root))

    def _global_cell(self, root: Value, indices: list[Term], f: Formula) -> Term:
        """Return the shadow cell of an element of a global array, and mark the array as tracked."""
        number = self._number(root)
        if number not in self.state.plan.tracked:
            self.state.plan.tracked.append(number)
        offset = f.term(0, indices[0].dtype) if indices else f.term(f.builder.index(0))
        for axis, index in enumerate(indices):
            term = index * self._stride(root, axis)
            offset = term if axis == 0 else offset + term
        if self.state.kernel.attrs.get("overlaps"):
            offset = offset * self.state.scalar("scale", number)
        return offset + self.state.scalar("base", number)

    def _stride(self, root: Value, axis: int) -> Term:
        """Return a stride of a global array in elements, read once in the prologue."""
        cache, key = self.state.cached_terms, f"stride {self._number(root)} {axis}"
        if key not in cache:
            prologue = self.state.prologue
            cache[key] = Formula(prologue).term(prologue.emit("stride", root, axis=axis))
        return cache[key]

    def _number(self, root: Value) -> int:
        """Return the argument number of a global array."""
        numbers: tuple[int, ...] = self.state.kernel.attrs["arg_index"]
        return numbers[self.state.kernel.params.index(root)]

    def _shared_base(self, f: Formula) -> Term:
        """Return the first cell of this workgroup's shared arrays.

        The number of cells per workgroup is passed as a hidden parameter, since the pass knows it only after it has
        visited all accesses.
        """
        cache = self.state.cached_terms
        if "shared cells" not in cache:
            first = self.state.scalar("shared")
            cache["shared cells"] = first + self.state.group * self.state.scalar("per_group")
        return f.term(cache["shared cells"].value)

    def _first_shared_cell(self, root: Value) -> int:
        """Return the first cell of a shared array, relative to those of its workgroup; allocate it on first use."""
        if root not in self._shared:
            self._shared[root] = self.state.plan.shared_cells
            self.state.plan.shared_cells += math.prod(array_of(root).shape or ())
        return self._shared[root]


def static_offset(indices: list[Term], kind: Array, f: Formula) -> Term:
    """Return the offset, in elements, of an element of a shared or local array of type `kind`, which is in C order."""
    total = f.term(f.builder.index(0))
    shape = kind.shape or ()
    for axis, index in enumerate(indices):
        term = index * math.prod(shape[axis + 1 :])
        total = term if axis == 0 else total + term
    return total


def _dims(op: Op) -> tuple[int, ...]:
    """Return the grid dimensions whose global ids are the indices of an access; () for any other access."""
    dims: list[int] = []
    for value in op.operands[1 : 1 + array_of(op.operands[0]).rank]:
        if value.op is None or value.op.name != "global_id":
            return ()
        dims.append(value.op.attrs["dim"])
    return tuple(dims)
