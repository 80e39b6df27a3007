"""Shadow memory of the sanitizer: choose the arrays to check, and compute the shadow cell of an accessed element.

`ShadowMemory` collects the accesses to each array of a kernel in normal form. The race check and the check for
uninitialized reads ask it which arrays to watch, and which cell belongs to an access. A cell is a number, an index into
the memory that `layout` describes.

Numbering of cells: the launch passes the cell of each global array's first element. The cell of another element is
computed with the array's strides, so that arrays that overlap in memory share cells. After the cells of all global
arrays come those of shared arrays, separately for each workgroup. Local arrays have no cells; `uninitialized` marks
their elements in another local array.

An array is watched for races if some access writes it and some access isn't atomic. Arrays that overlap in memory are
treated as one. In a kernel with `over=` (one invocation per element of an array), an array isn't watched if each
invocation accesses only the element at its own index, since such accesses can't race.

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
"""The operations that are tracked; their first operand is the array."""


def array_of(value: Value) -> Array:
    """Return the type of an array value."""
    assert isinstance(value.type, Array)
    return value.type


@dataclass(slots=True)
class Accesses:
    """The operations that access one array. `root` is the array: a parameter of the kernel or an allocation."""

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

    `arrays` maps each array to the accesses to it. `hidden` are the sanitizer's own array parameters. `matrices` maps
    each array that is written by a `mat_store` (the store of a cooperative matrix) to the location of the first one.
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
        accesses = {"load": entry.loads, "store": entry.stores}.get(op.name, entry.atomics)
        accesses.append(op)

    def watched_for_races(self) -> dict[Value, Accesses]:
        """Return the arrays to watch for races."""
        watched = {
            root: accesses
            for root, accesses in self.arrays.items()
            if accesses.space == "shared" and accesses.writes and not accesses.only_atomics
        }
        for members, same_view in self._sharing_memory():
            only_reads = not any(accesses.writes for accesses in members)
            only_atomics = all(accesses.only_atomics for accesses in members)
            # an index is the same element in all members only if they are the same view
            own_elements_only = same_view and self._own_elements_only(members)
            if not only_reads and not only_atomics and not own_elements_only:
                watched |= {accesses.root: accesses for accesses in members}
        return watched

    def _sharing_memory(self) -> list[tuple[list[Accesses], bool]]:
        """Return the global arrays as groups of arrays that overlap in memory.

        Each group is paired with a bool: True if all its members are the same view (same address, shape and strides).
        The kernel's attribute `overlaps` lists the overlapping pairs of arguments.
        """
        groups = {root: [accesses] for root, accesses in self.arrays.items() if accesses.space == "global"}
        different_views: set[Value] = set()  # a member of each group whose members aren't all the same view
        root_of_number = {self._number(root): root for root in groups}
        for first, second, same_view in self.state.kernel.attrs.get("overlaps", ()):
            if first not in root_of_number or second not in root_of_number:
                continue
            # merge the groups of both arrays; all members refer to the same list
            merged = groups[root_of_number[first]]
            if groups[root_of_number[second]] is not merged:
                merged += groups[root_of_number[second]]
                groups |= dict.fromkeys((accesses.root for accesses in merged), merged)
            if not same_view:
                different_views.add(merged[0].root)
        distinct_groups = {id(members): members for members in groups.values()}
        return [
            (members, different_views.isdisjoint(accesses.root for accesses in members))
            for members in distinct_groups.values()
        ]

    def maybe_uninitialized(self) -> dict[Value, Accesses]:
        """Return the arrays that are uninitialized at the start of the kernel and that some operation reads.

        They are shared and local arrays, and `Out` parameters. Arrays that a `mat_store` writes are left out.
        """
        return {
            root: accesses
            for root, accesses in self.arrays.items()
            if accesses.reads
            and root not in self.matrices
            and (accesses.space in ("shared", "local") or array_of(root).access == "out")
        }

    def written(self) -> dict[int, tuple[str, Loc]]:
        """Return the global arrays that are written, by argument number: (name, location of one of the writes)."""
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
        # all accesses use the ids of all dimensions as their indices, in the same order
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
        """Return the stride of a global array along `axis`, in elements. It is read once in the prologue."""
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
        """Return the number of a shared array's first cell among the shared cells of one workgroup.

        The first call for an array allocates its cells.
        """
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
