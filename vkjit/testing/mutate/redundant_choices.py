"""Removal of redundant choices: conditions on ids, such as `local_id == 0`, around stores that any invocation could do.

Kernels often let one invocation of a workgroup store a value that all of them have. A mutant in which other invocations
store it, or all of them, is equivalent. `without_redundant_choices` removes such conditions from the IR of a kernel in
high form (see `vkjit.ir.verify`), so that `equivalence` finds the same IR for "invocation 0", "all but invocation 0"
and "all". An `if` is transformed under these rules:

1. The whole workgroup reaches the `if` together, and it isn't inside a loop.
2. Its condition is a term or a conjunction of terms. The terms that are computed only from local ids and constants are
   the choice; at least one invocation must satisfy all of them. The other terms are uniform over the workgroup.
3. All values inside the `if` are uniform over the workgroup, and the only side effects are stores. So every invocation
   would store the same values at the same indices.
4. Nothing else in the kernel accesses the arrays to which the `if` stores. For shared memory it is sufficient that
   nothing is accessed between the `if` and the nearest barriers before and after it.

Rule 4 excludes accesses by the storing invocation itself, which are ordered with its store without a barrier. Without
such accesses, the workgroup can't tell which of its invocations stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.types import Array
from vkjit.passes.analysis.alias import AliasClass, alias_class
from vkjit.passes.analysis.uniformity import Divergence, Uniformity

__all__ = ["without_redundant_choices"]

_OPERATIONS: dict[OpName, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip
"""The operations on ids and constants that a choice may consist of, with their implementations."""


def without_redundant_choices(module: Module) -> Module:
    """Remove redundant choices from the kernel in place, and return the module."""
    analysis = _Reached(module, module.kernel, others_written=True)  # True is the conservative assumption
    analysis.settle()
    sizes = module.kernel.attrs["local_size"]
    ids = np.indices(sizes[::-1]).reshape(3, -1)[::-1]  # local ids: a row each for x, y, z; a column per invocation
    if ids.shape[1] < 2:
        return module
    for op, entry in list(_outside_loops(module.kernel.body)):
        if analysis.control.get(op) is None:
            _Choice(module, analysis, op, entry, ids).take_out()
    return module


@dataclass(slots=True)
class _Reached(Uniformity):
    """Uniformity analysis that also records if the invocations of a workgroup reach each `if` together.

    `control` maps an `if` to None if they do, else to the reason why they don't.
    """

    control: dict[Op, Divergence | None] = field(default_factory=dict)

    def branch(self, op: Op, outer: Divergence | None, inner: Divergence | None) -> Any:
        # of the control flow around the `if` (see `Uniformity`), or of the one in which the function is called
        self.control[op] = outer or inner or self.entry
        return Uniformity.branch(self, op, outer, inner)


def _outside_loops(region: Region) -> Iterator[tuple[Op, Region]]:
    """Yield each `if` outside loops, with its enclosing region."""
    for op in region.ops:
        if op.name == "if":
            yield op, region
            for inner in op.regions:
                yield from _outside_loops(inner)


@dataclass(frozen=True, slots=True)
class _Choice:
    """An `if` whose condition may contain a redundant choice.

    `op` is the `if` and `around` the region that contains it. `ids` are the local ids of all invocations, with shape
    (3, invocations).
    """

    module: Module
    analysis: Uniformity
    op: Op
    around: Region
    ids: Any

    def take_out(self) -> None:
        """Remove the choice from the condition, if rules 2 to 4 of the module's docstring hold."""
        if self.op.results or not self._stores_are_uniform():
            return
        terms = list(_terms(self.op.operands[0]))
        # the terms of the choice, each with the mask of invocations that satisfy it
        choice = [(t, v) for t in terms if (v := self._chosen(t)) is not None]
        kept = [t for t in terms if not any(t is c for c, _ in choice)]
        selected = np.ones(self.ids.shape[1], bool)
        for _, mask in choice:
            selected &= mask
        if not choice or not selected.any() or any(self.analysis.scope(t) != "workgroup" for t in kept):
            return
        self._replace(kept)

    def _replace(self, kept: list[Value]) -> None:
        """Make the conjunction of the kept terms the condition of the `if`, or the constant true if none are kept."""
        if_index = self.around.ops.index(self.op)
        bool_type = self.op.operands[0].type
        if not kept:
            inserted = [Op("const", [], [bool_type], {"type": bool_type, "value": True}, None, self.op.loc)]
            self.op.operands[0] = inserted[0].result
        else:
            inserted, conjunction = [], kept[0]
            for term in kept[1:]:
                inserted.append(Op("and", [conjunction, term], [bool_type], {}, None, self.op.loc))
                conjunction = inserted[-1].result
            self.op.operands[0] = conjunction
        self.around.ops[if_index:if_index] = inserted

    def _chosen(self, term: Value) -> Any:
        """Return the mask of invocations for which a term is true; None if it depends on more than local ids."""
        value = self._number(term)
        return None if value is None else np.broadcast_to(np.asarray(value, bool), self.ids.shape[1:])

    def _number(self, value: Value) -> Any:
        """Return a value as a number or as an array by invocation; None if it depends on more than local ids."""
        op = value.op
        if op is None:
            return None
        if op.name == "const":
            return op.attrs["value"]
        if op.name == "local_id":
            return self.ids[op.attrs["dim"]]
        if op.name == "cast" and self._preserves_ids(value):
            return self._number(op.operands[0])
        if op.name not in _OPERATIONS:
            return None
        parts = [self._number(v) for v in op.operands]
        return None if any(p is None for p in parts) else _OPERATIONS[op.name](*parts)

    def _preserves_ids(self, value: Value) -> bool:
        """True for a cast from index to a type of at least 32 bits, which holds every local id (they are below 2048)."""
        return (
            str(value.type) in ("i32", "u32", "i64", "u64", "index")
            and value.op is not None
            and (str(value.op.operands[0].type) == "index")
        )

    def _stores_are_uniform(self) -> bool:
        """True if rules 3 and 4 of the module's docstring hold."""
        then_region, else_region = self.op.regions
        inside = set(then_region.walk())
        if any(op.name != "yield" for op in else_region.ops) or not all(map(self._is_uniform, inside)):
            return False
        arrays = {alias_class(op.operands[0]) for op in inside if op.name == "store"}
        return bool(arrays) and all(self._is_unshared(array, inside) for array in arrays)

    def _is_uniform(self, op: Op) -> bool:
        """True if an operation obeys rule 3 of the module's docstring."""
        info = OPS[op.name]
        allowed_effect = info.effect in (Effect.NONE, Effect.READ, Effect.CONTROL) or op.name in ("store", "yield")
        return (
            allowed_effect
            and not info.convergent
            and all(self.analysis.scope(v) == "workgroup" for v in (*op.operands, *op.results))
        )

    def _is_unshared(self, array: AliasClass, inside: set[Op]) -> bool:
        """True if rule 4 of the module's docstring holds for an array. `inside` are the operations in the `if`."""
        if isinstance(array, Value) and isinstance(array.type, Array) and array.type.space != "global":
            return array.type.space == "shared" and self._between_barriers()
        others = [op for op in self.module.kernel.body.walk() if op not in inside and _touches(op)]
        return not any(isinstance(v.type, Array) and alias_class(v) == array for op in others for v in op.operands)

    def _between_barriers(self) -> bool:
        """True if nothing is accessed between the `if` and the nearest barriers before and after it."""
        ops = self.around.ops
        if_index = ops.index(self.op)
        return _no_access_before_barrier(ops[if_index + 1 :]) and _no_access_before_barrier(ops[:if_index][::-1])


def _touches(op: Op) -> bool:
    """True if an operation may access its array operands.

    This covers calls, too, since a called function accesses no arrays of the kernel but its operands.
    """
    return op.name == "call" or OPS[op.name].effect in (Effect.READ, Effect.WRITE, Effect.READ_WRITE)


def _no_access_before_barrier(ops: list[Op]) -> bool:
    """True if a barrier comes in this sequence before any access to memory, call or control flow."""
    for op in ops:
        if op.name == "barrier":
            return True
        if op.regions or op.name == "call" or OPS[op.name].effect not in (Effect.NONE, Effect.ALLOCATE):
            return False
    return False


def _terms(value: Value) -> Iterator[Value]:
    """Yield the terms of a condition that is a nested conjunction."""
    if value.op is not None and value.op.name == "and":
        for operand in value.op.operands:
            yield from _terms(operand)
    else:
        yield value
