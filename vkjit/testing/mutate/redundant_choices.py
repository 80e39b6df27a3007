"""Remove redundant choices of invocations: conditions such as `local_id == 0` around stores that all could do.

Transforms a module in high form, for detecting equivalent mutants: "invocation 0", "all but invocation 0" and "all"
become the same program. Programs that are equal afterwards are equivalent. An `if` is transformed under these rules:

1. The whole workgroup reaches the `if` together, and not inside a loop.
2. Its condition is a conjunction. The terms computed only from local ids and constants form the choice, which is
   evaluated for all invocations and must select at least one. All other terms are workgroup-uniform.
3. Inside, all values are workgroup-uniform, and there are no side effects but stores. Every selected invocation stores
   the same values at the same indices.
4. Nothing else in the kernel accesses the arrays stored to. For shared memory: nothing is accessed between the `if` and
   the nearest barrier, on either side.

Because of rule 4, it doesn't matter to the workgroup which of its invocations stores: no other access is ordered with
the store merely because the same invocation makes it.
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
"""Operations that a choice may consist of, over ids and constants."""


def without_redundant_choices(module: Module) -> Module:
    """Remove redundant choices from the module in place, and return it."""
    analysis = _Reached(module, module.kernel, others_written=True)
    analysis.settle()
    sizes = module.kernel.attrs["local_size"]
    ids = np.indices(sizes[::-1]).reshape(3, -1)[::-1]
    if ids.shape[1] < 2:
        return module
    for op, entry in list(_outside_loops(module.kernel.body)):
        if analysis.control.get(op) is None:
            _Choice(module, analysis, op, entry, ids).take_out()
    return module


@dataclass(slots=True)
class _Reached(Uniformity):
    """Uniformity analysis that also records the divergence under which each `if` is reached."""

    control: dict[Op, Divergence | None] = field(default_factory=dict)

    def branch(self, op: Op, outer: Divergence | None, inner: Divergence | None) -> Any:
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
    """One `if` that may be a redundant choice."""

    module: Module
    analysis: Uniformity
    op: Op
    around: Region
    ids: Any

    def take_out(self) -> None:
        """Drop the terms of the condition that form the choice, if the rules hold."""
        if self.op.results or not self._stores_are_uniform():
            return
        terms = list(_terms(self.op.operands[0]))
        chosen = [(t, v) for t in terms if (v := self._chosen(t)) is not None]
        kept = [t for t in terms if not any(t is c for c, _ in chosen)]
        together = np.ones(self.ids.shape[1], bool)
        for _, which in chosen:
            together &= which
        if not chosen or not together.any() or any(self.analysis.scope(t) != "workgroup" for t in kept):
            return
        self._replace(kept)

    def _replace(self, kept: list[Value]) -> None:
        place = self.around.ops.index(self.op)
        kind = self.op.operands[0].type
        if not kept:
            made = [Op("const", [], [kind], {"type": kind, "value": True}, None, self.op.loc)]
            self.op.operands[0] = made[0].result
        else:
            made, last = [], kept[0]
            for term in kept[1:]:
                made.append(Op("and", [last, term], [kind], {}, None, self.op.loc))
                last = made[-1].result
            self.op.operands[0] = last
        self.around.ops[place:place] = made

    def _chosen(self, term: Value) -> Any:
        """Return the mask of invocations for which the term holds; None if it depends on more than local ids."""
        value = self._number(term)
        return None if value is None else np.broadcast_to(np.asarray(value, bool), self.ids.shape[1:])

    def _number(self, value: Value) -> Any:
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
        """True if a conversion preserves ids, which are below 2048."""
        return (
            str(value.type) in ("i32", "u32", "i64", "u64", "index")
            and value.op is not None
            and (str(value.op.operands[0].type) == "index")
        )

    def _stores_are_uniform(self) -> bool:
        """True if rules 3 and 4 hold."""
        first, second = self.op.regions
        inside = set(first.walk())
        if any(op.name != "yield" for op in second.ops) or not all(map(self._is_uniform, inside)):
            return False
        arrays = {alias_class(op.operands[0]) for op in inside if op.name == "store"}
        return bool(arrays) and all(self._is_unshared(array, inside) for array in arrays)

    def _is_uniform(self, op: Op) -> bool:
        row = OPS[op.name]
        quiet = row.effect in (Effect.NONE, Effect.READ, Effect.CONTROL) or op.name in ("store", "yield")
        return (
            quiet
            and not row.convergent
            and all(self.analysis.scope(v) == "workgroup" for v in (*op.operands, *op.results))
        )

    def _is_unshared(self, array: AliasClass, inside: set[Op]) -> bool:
        if isinstance(array, Value) and isinstance(array.type, Array) and array.type.space != "global":
            return array.type.space == "shared" and self._between_barriers()
        others = [op for op in self.module.kernel.body.walk() if op not in inside and _touches(op)]
        return not any(isinstance(v.type, Array) and alias_class(v) == array for op in others for v in op.operands)

    def _between_barriers(self) -> bool:
        ops = self.around.ops
        place = ops.index(self.op)
        return _no_access_before_barrier(ops[place + 1 :]) and _no_access_before_barrier(ops[:place][::-1])


def _touches(op: Op) -> bool:
    """True if the operation accesses its array operands; functions have no access to others."""
    return op.name == "call" or OPS[op.name].effect in (Effect.READ, Effect.WRITE, Effect.READ_WRITE)


def _no_access_before_barrier(ops: list[Op]) -> bool:
    for op in ops:
        if op.name == "barrier":
            return True
        if op.regions or op.name == "call" or OPS[op.name].effect not in (Effect.NONE, Effect.ALLOCATE):
            return False
    return False


def _terms(value: Value) -> Iterator[Value]:
    """Yield the terms of a conjunction."""
    if value.op is not None and value.op.name == "and":
        for operand in value.op.operands:
            yield from _terms(operand)
    else:
        yield value
