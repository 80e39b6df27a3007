"""Dead code elimination.

Removes operations without side effects whose results are unused, shared and local arrays that are only written, unused
results of `if`, loop-carried values that only feed themselves, and terminating loops with no live effects or results.
Works on any form of the IR (see `ir.verify`)::

    %a = mul %x, %y : f32                                (unused)
    %s, %t = for %lo, %hi, %step, %u, %v : f32, f32      %s = for %lo, %hi, %step, %u : f32
        (%i: index, %p: f32, %q: f32) {             ->       (%i: index, %p: f32) {
      %r = add %p, %p : f32                                %r = add %p, %p : f32
      %w = mul %q, %q : f32
      continue %r, %w                                      continue %r
    }                                                    }

Liveness is propagated backward from side effects and returns. An operand of `yield`, `break` or `continue` is live only
if the result or loop-carried argument that it becomes is. A `for` always terminates, so it is removed if nothing in it
is live; a `loop` is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.rewrite import LOOPS, exits_of
from vkjit.ir.types import Array

__all__ = ["DCE"]

_REMOVABLE = frozenset({Effect.NONE, Effect.READ, Effect.ALLOCATE})
"""The effects of operations that are dead if their results are."""
_NEEDED_FOR_OTHERS: frozenset[OpName] = frozenset({"if", "for", "yield", "break", "continue", "unreachable"})
"""Control flow that is live only if something in it or after it is."""
_WRITES: frozenset[OpName] = frozenset({"store", "atomic_store"})
"""Writes that are dead if nothing reads the array."""


@dataclass(frozen=True, slots=True)
class DCE:
    """Remove dead operations, results, loop-carried values and write-only arrays."""

    name: ClassVar[str] = "dce"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            liveness = _Liveness(function)
            liveness.solve()
            _sweep(function.body, liveness)
        return module


class _Liveness:
    """Liveness of the values and operations of a function.

    - `sources` maps each value that control flow defines (a result of an `if` or a loop, or a loop-carried argument) to
      the operands that may become it.
    - `partners` links each loop-carried argument to the result with the same index, and back, in loops where they have
      the same types: the two are live or dead together, so that arguments and results keep the same types.
    - `parents` has the enclosing operation of each operation, `stores` the writes to each array, and `exits` the
      `break`s and `continue`s of each loop.
    - `work` has the live values and operations whose operands haven't been visited yet.
    """

    def __init__(self, function: Function) -> None:
        self.live_values: set[Value] = set()
        self.live_ops: set[Op] = set()
        self.sources: dict[Value, list[Value]] = {}
        self.partners: dict[Value, Value] = {}
        self.parents: dict[Op, Op | None] = {}
        self.stores: dict[Value, list[Op]] = {}
        self.exits: dict[Op, list[Op]] = {}
        self.work: list[Value | Op] = []
        self._scan(function.body, None)

    def _scan(self, region: Region, parent: Op | None) -> None:
        """Fill the tables for a region, and put the operations that are always live on the work list."""
        for op in region.ops:
            self.parents[op] = parent
            if op.name == "if":
                self._scan_if(op)
            elif op.name in LOOPS:
                self._scan_loop(op)
            if _is_root(op):
                self.work.append(op)
            elif op.name in _WRITES:
                self.stores.setdefault(op.operands[0], []).append(op)
            for inner in op.regions:
                self._scan(inner, op)

    def _scan_if(self, op: Op) -> None:
        """Record where the results of an `if` come from."""
        for region in op.regions:
            if region.terminator.name == "yield":
                self._pass_on(op.results, region.terminator.operands)

    def _scan_loop(self, op: Op) -> None:
        """Record where the loop-carried values and results of a loop come from."""
        first = _first_carried(op)
        is_for = op.name == "for"
        arguments = op.regions[0].args[1 if is_for else 0 :]  # without the induction variable
        self._pass_on(arguments, op.operands[first:])
        if is_for:  # it may have no iterations
            self._pass_on(op.results, op.operands[first:])
        if _results_match_carried(op):
            self.partners.update(zip(arguments, op.results, strict=True))
            self.partners.update(zip(op.results, arguments, strict=True))
        self.exits[op] = list(exits_of(op.regions[0]))
        for exit in self.exits[op]:
            if exit.name == "break":
                self._pass_on(op.results, exit.operands)
                continue
            self._pass_on(arguments, exit.operands)
            if is_for:  # the `continue` of its last iteration defines the results
                self._pass_on(op.results, exit.operands)

    def _pass_on(self, targets: list[Value], values: list[Value]) -> None:
        """Record that control flow passes each of `values` to the target with the same index."""
        for target, value in zip(targets, values, strict=True):
            self.sources.setdefault(target, []).append(value)

    def solve(self) -> None:
        """Propagate liveness until the work list is empty."""
        work = self.work
        while work:
            item = work.pop()
            if isinstance(item, Value):
                self._need_value(item)
            else:
                self._need_op(item)

    def _need_value(self, value: Value) -> None:
        """Mark a value live, and put the values and operations that define it on the work list."""
        if value in self.live_values:
            return
        self.live_values.add(value)
        self.work += self.sources.get(value, ())
        if value in self.partners:
            self.work.append(self.partners[value])
        owner = value.owner
        if isinstance(owner, Op):
            self.work.append(owner)
            if isinstance(value.type, Array):
                self.work += self.stores.get(value, ())

    def _need_op(self, op: Op) -> None:
        """Mark an operation live, and put its operands and its enclosing operation on the work list."""
        if op in self.live_ops:
            return
        self.live_ops.add(op)
        parent = self.parents[op]
        if parent is not None:
            self.work.append(parent)
        if op.name in LOOPS:
            self.work += self.exits[op]
            self.work += op.operands[: _first_carried(op)]
        elif op.name not in ("yield", "break", "continue"):  # their operands are live if their targets are
            self.work += op.operands


def _is_root(op: Op) -> bool:
    """True for operations that are always live."""
    if op.name in _WRITES:
        array = op.operands[0].op
        return array is None or array.name not in ("shared", "local")
    return op.name not in _NEEDED_FOR_OTHERS and OPS[op.name].effect not in _REMOVABLE


def _first_carried(loop: Op) -> int:
    """Return the number of operands before the loop-carried values."""
    return 3 if loop.name == "for" else 0


def _results_match_carried(loop: Op) -> bool:
    """True if a loop has as many results as loop-carried values, with the same types."""
    return [v.type for v in loop.operands[_first_carried(loop) :]] == [r.type for r in loop.results]


def _sweep(region: Region, liveness: _Liveness) -> None:
    """Remove the dead operations of a region, and the dead results and loop-carried values of the live ones."""
    kept: list[Op] = []
    for op in region.ops:
        if op not in liveness.live_ops and not OPS[op.name].terminator:
            continue
        if op.name == "if":
            _narrow_if(op, liveness)
        elif op.name in LOOPS:
            _narrow_loop(op, liveness)
        for inner in op.regions:
            _sweep(inner, liveness)
        kept.append(op)
    region.ops = kept


def _keep(values: list[Value], flags: list[bool]) -> list[Value]:
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _renumber(values: list[Value]) -> None:
    """Set the indices of results or arguments to their positions."""
    for number, value in enumerate(values):
        value.index = number


def _narrow_if(op: Op, liveness: _Liveness) -> None:
    """Remove the dead results of an `if`."""
    live = [r in liveness.live_values for r in op.results]
    if all(live):
        return
    for region in op.regions:
        if region.terminator.name == "yield":
            region.terminator.operands[:] = _keep(region.terminator.operands, live)
    op.results = _keep(op.results, live)
    _renumber(op.results)


def _narrow_loop(op: Op, liveness: _Liveness) -> None:
    """Remove the dead loop-carried values and results of a loop."""
    first = _first_carried(op)
    is_for = op.name == "for"
    body = op.regions[0]
    live = liveness.live_values
    first_argument = 1 if is_for else 0  # after the induction variable
    arguments = [a in live for a in body.args[first_argument:]]
    results = [r in live for r in op.results]
    if all(arguments) and all(results):
        return
    for exit in list(exits_of(body)):
        exit.operands[:] = _keep(exit.operands, results if exit.name == "break" else arguments)
    op.operands[first:] = _keep(op.operands[first:], arguments)
    body.args[first_argument:] = _keep(body.args[first_argument:], arguments)
    op.results = _keep(op.results, results)
    _renumber(body.args)
    _renumber(op.results)
