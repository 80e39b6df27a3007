"""The sanitizer's check "uninitialised": report reads of array elements that haven't been written.

Checks shared arrays, local arrays and `Out` parameters. Each element has a mark, which stores set. A load, or an atomic
that reads, reports an error if the mark isn't set.

The marks of an `Out` parameter are u32 words of hidden memory, which are 0 at the launch. The marks of a shared or
local array are an array of u8 in the same memory space. If shared memory has no room for them, the marks of shared
arrays are words of hidden memory, too. An element that is a vector has a single mark, which is set when any of the
vector's lanes is written.

Arrays that `definite_writes` proves to be initialized aren't instrumented.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.types import Array, Scalar, Vector

from ..analysis.alias import origin
from ..formulas.formula import Formula, Term
from .definite_writes import is_covered
from .shadow import ACCESSES, ShadowMemory, array_of, static_offset
from .state import State, hidden_array

__all__ = ["UninitializedReads"]

_MAX_UNROLLED = 16
"""The largest local array, in elements, whose marks are cleared without a loop."""
_ALIGNMENT_BYTES = 16
"""Allowance for the alignment of each shared array, in bytes."""


@dataclass(slots=True)
class UninitializedReads:
    """Instrumentation of accesses to arrays that may be uninitialized.

    `shared_bytes` is the shared memory available to a workgroup. `watched` are the instrumented arrays. `marks` maps
    each array whose marks are in its own memory space to the array of its marks. `updates` are loads that aren't
    checked (see `_updates`).
    """

    state: State
    tracking: ShadowMemory
    shared_bytes: int
    watched: set[Value] = field(default_factory=set)
    marks: dict[Value, Value] = field(default_factory=dict)
    updates: set[Op] = field(default_factory=set)

    def __post_init__(self) -> None:
        body, size = self.state.kernel.body, self.state.local_size
        candidates = self.tracking.maybe_uninitialized().items()
        self.watched = {root for root, a in candidates if a.space == "global" or not is_covered(a, body, size)}
        self.updates = _updates(self.state.kernel.body)
        shared = [root for root in self.watched if array_of(root).space == "shared"]
        if shared and self._fits(shared):
            self._clear_shared(shared)

    def _fits(self, shared: list[Value]) -> bool:
        """True if the marks of these arrays, one byte per element, fit in shared memory beside all shared arrays."""
        types = [array_of(op.result) for op in self.state.kernel.body.walk() if op.name == "shared"]
        array_bytes = sum(_count(array_type) * _element_bytes(array_type) for array_type in types)
        mark_bytes = sum(_count(array_of(root)) for root in shared)
        alignment = _ALIGNMENT_BYTES * (len(types) + len(shared))
        return array_bytes + mark_bytes + alignment <= self.shared_bytes

    def _clear_shared(self, shared: list[Value]) -> None:
        """Allocate the marks of shared arrays in shared memory, and emit code that clears them at the kernel's start.

        The invocations of the workgroup clear them together, and a barrier follows.
        """
        prologue, size = self.state.prologue, self.state.invocations
        for root in sorted(shared, key=self._position):
            count = _count(array_of(root))
            marks_type = Array(Scalar(dtypes.u8), 1, space="shared", shape=(count,), contiguous=True)
            self.marks[root] = marks = prologue.emit("shared", type=marks_type)
            body = Region([prologue.index(0).type], ["i"])
            with prologue.at(body):
                prologue.op("store", marks, body.args[0], prologue.const(0, dtypes.u8))
                prologue.op("continue")
            # from the invocation's local id, in steps of the number of invocations
            bounds = (self.state.local.value, prologue.index(count), prologue.index(size))
            prologue.op("for", *bounds, types=[], regions=[body])
        prologue.op("barrier")

    def _position(self, root: Value) -> int:
        """Return the number of operations before an allocation, a sort key that makes the order deterministic."""
        return next(n for n, op in enumerate(self.state.kernel.body.walk()) if op is root.op)

    def after(self, op: Op, builder: Builder) -> None:
        """Emit the allocation and clearing of marks after the allocation of a local array."""
        if op.name != "local" or op.result not in self.watched or op.result in self.marks:
            return
        count = _count(array_of(op.result))
        marks_type = Array(Scalar(dtypes.u8), 1, space="local", shape=(count,), contiguous=True)
        marks = builder.emit("local", type=marks_type)
        self.marks[op.result] = marks
        zero = builder.const(0, dtypes.u8)
        if count <= _MAX_UNROLLED:
            for position in range(count):
                builder.op("store", marks, builder.index(position), zero)
            return
        body = Region([builder.index(0).type], ["i"])
        with builder.at(body):
            builder.op("store", marks, body.args[0], zero)
            builder.op("continue")
        start, stop, step = (builder.index(number) for number in (0, count, 1))
        builder.op("for", start, stop, step, types=[], regions=[body])

    def before_access(self, op: Op, builder: Builder) -> None:
        """Emit code that checks the element's mark if the access reads, and sets the mark if the access writes."""
        root = origin(op.operands[0])
        if root not in self.watched or op.name not in ACCESSES:
            return
        f = Formula(builder)
        marks, index = self._mark(op, root, f)
        if op.name not in ("store", "atomic_store") and op not in self.updates:
            unset = f.term(builder.emit("load", marks, index.value)).equals(0)
            indices = op.operands[1 : 1 + array_of(root).rank]
            site = self.state.module.add_site(ReportSite(_kind(root), op.loc, _message(root)))
            builder.op("report", unset.value, *indices, site=site)
        if op.name not in ("load", "atomic_load"):
            builder.op("store", marks, index.value, builder.const(1, array_of(marks).dtype))

    def _mark(self, op: Op, root: Value, f: Formula) -> tuple[Value, Term]:
        """Return the array with the mark of the accessed element, and the mark's index in it."""
        if root not in self.marks:
            return self.state.param("written", hidden_array(dtypes.u32)), self.tracking.cell(op, f.builder)
        array_type = array_of(root)
        indices = [f.term(value) for value in op.operands[1 : 1 + array_type.rank]]
        return self.marks[root], static_offset(indices, array_type, f)


def _count(array_type: Array) -> int:
    """Return the number of elements of a shared or local array."""
    return math.prod(array_type.shape or ())


def _element_bytes(array_type: Array) -> int:
    """Return the size of an element of an array in bytes."""
    lanes = array_type.element.size if isinstance(array_type.element, Vector) else 1
    return lanes * array_type.dtype.itemsize


def _updates(region: Region) -> set[Op]:
    """Return the loads that only serve to assign one lane of a vector: load the vector, insert the lane, store it.

    Such a load doesn't count as a read of the element.
    """
    users: dict[Value, list[Op]] = {}
    for op in region.walk():
        for value in op.operands:
            users.setdefault(value, []).append(op)
    return {
        op
        for op in region.walk()
        if op.name == "load" and isinstance(op.result.type, Vector) and _only_inserted_into(op.result, users)
    }


def _only_inserted_into(value: Value, users: dict[Value, list[Op]]) -> bool:
    """True if the only uses of a vector are `vec_insert`s of lanes into it."""
    uses = users.get(value, [])
    return all(op.name == "vec_insert" and op.operands[0] is value and op.operands[1] is not value for op in uses)


def _kind(root: Value) -> str:
    """Return the kind of report site for an uninitialized read of an array (see `report_records.KINDS`)."""
    return "fresh_shared" if array_of(root).space == "shared" else "uninitialised"


def _message(root: Value) -> str:
    """Return the message of an uninitialized read of an array, with a placeholder for each index."""
    array_type = array_of(root)
    descriptions = {"global": "an element of an Out", "shared": "shared memory", "local": "a local array"}
    description = descriptions[array_type.space]
    shown = ", ".join(f"{{{axis}}}" for axis in range(array_type.rank))
    return f"read of {root.name or 'memory of a collective'}[{shown}], {description} that nothing was stored into yet"
