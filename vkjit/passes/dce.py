"""Removes what nothing uses.

Enters and leaves: any form. Gone are operations without effect whose results are unused, arrays that are only
written (shared and local ones), results of `if` that nothing reads, values carried round a loop only for their own
sake, and loops whose end is certain and that do nothing else::

    %a = mul %x, %y : f32                                (unused)
    %s, %t = for %lo, %hi, %step, %u, %v : f32, f32      %s = for %lo, %hi, %step, %u : f32
        (%i: index, %p: f32, %q: f32) {             ->       (%i: index, %p: f32) {
      %r = add %p, %p : f32                                %r = add %p, %p : f32
      %w = mul %q, %q : f32
      continue %r, %w                                      continue %r
    }                                                    }

Liveness is found from its roots: effects, returns, and what they need. An operand of an exit is needed only if the
value that it becomes (a result, or a carried argument) is. A `for` ends always and goes when nothing in it is needed;
a `loop` stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.core import Function, Module, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS, exits_of
from ..ir.types import Array

__all__ = ["DCE"]

_REMOVABLE = frozenset({Effect.NONE, Effect.READ, Effect.ALLOCATE})
_NEEDED_FOR_OTHERS = frozenset({"if", "for", "yield", "break", "continue", "unreachable"})
_WRITES = frozenset({"store", "atomic_store"})


@dataclass(frozen=True, slots=True)
class DCE:
    """See the module's docstring."""

    name: ClassVar[str] = "dce"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            liveness = _Liveness(function)
            liveness.solve()
            _sweep(function.body, liveness)
        return module


class _Liveness:
    """Which values and operations of a function are needed.

    `sources` maps each value that control flow passes on (a result or an argument) to the operands that may become it;
    `partners` ties a loop's argument to its result of the same place, which go or stay together.
    """

    def __init__(self, function: Function) -> None:
        self.live_values: set[Value] = set()
        self.live_ops: set[Op] = set()
        self.sources: dict[Value, list[Value]] = {}
        self.partners: dict[Value, Value] = {}
        self.around: dict[Op, Op | None] = {}
        self.stores: dict[Value, list[Op]] = {}
        self.exits: dict[Op, list[Op]] = {}
        self.work: list[Value | Op] = []
        self._scan(function.body, None)

    def _scan(self, region: Region, parent: Op | None) -> None:
        for op in region.ops:
            self.around[op] = parent
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
        for region in op.regions:
            if region.terminator.name == "yield":
                self._pass_on(op.results, region.terminator.operands)

    def _scan_loop(self, op: Op) -> None:
        first = _lead(op)
        arguments = op.regions[0].args[1 if first else 0 :]
        self._pass_on(arguments, op.operands[first:])
        if first:
            self._pass_on(op.results, op.operands[first:])
        if _tied(op):
            self.partners.update(zip(arguments, op.results, strict=True))
            self.partners.update(zip(op.results, arguments, strict=True))
        self.exits[op] = list(exits_of(op.regions[0]))
        for exit in self.exits[op]:
            if exit.name == "break":
                self._pass_on(op.results, exit.operands)
                continue
            self._pass_on(arguments, exit.operands)
            if first:
                self._pass_on(op.results, exit.operands)

    def _pass_on(self, targets: list[Value], values: list[Value]) -> None:
        for target, value in zip(targets, values, strict=True):
            self.sources.setdefault(target, []).append(value)

    def solve(self) -> None:
        work = self.work
        while work:
            item = work.pop()
            if isinstance(item, Value):
                self._need_value(item)
            else:
                self._need_op(item)

    def _need_value(self, value: Value) -> None:
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
        if op in self.live_ops:
            return
        self.live_ops.add(op)
        parent = self.around[op]
        if parent is not None:
            self.work.append(parent)
        if op.name in LOOPS:
            self.work += self.exits[op]
            self.work += op.operands[: _lead(op)]
        elif op.name not in ("yield", "break", "continue"):  # what those pass on is needed where it goes
            self.work += op.operands


def _is_root(op: Op) -> bool:
    """True for operations that are needed whatever happens."""
    if op.name in _WRITES:
        array = op.operands[0].op
        return array is None or array.name not in ("shared", "local")
    return op.name not in _NEEDED_FOR_OTHERS and OPS[op.name].effect not in _REMOVABLE


def _lead(loop: Op) -> int:
    """The operands before the carried values."""
    return 3 if loop.name == "for" else 0


def _tied(loop: Op) -> bool:
    return [v.type for v in loop.operands[_lead(loop) :]] == [r.type for r in loop.results]


def _sweep(region: Region, liveness: _Liveness) -> None:
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
    for number, value in enumerate(values):
        value.index = number


def _narrow_if(op: Op, liveness: _Liveness) -> None:
    flags = [r in liveness.live_values for r in op.results]
    if all(flags):
        return
    for region in op.regions:
        if region.terminator.name == "yield":
            region.terminator.operands[:] = _keep(region.terminator.operands, flags)
    op.results = _keep(op.results, flags)
    _renumber(op.results)


def _narrow_loop(op: Op, liveness: _Liveness) -> None:
    """Drops what is carried for nothing."""
    first = _lead(op)
    body = op.regions[0]
    live = liveness.live_values
    lead = 1 if first else 0
    arguments = [a in live for a in body.args[lead:]]
    results = [r in live for r in op.results]
    if all(arguments) and all(results):
        return
    for exit in list(exits_of(body)):
        exit.operands[:] = _keep(exit.operands, results if exit.name == "break" else arguments)
    op.operands[first:] = _keep(op.operands[first:], arguments)
    body.args[lead:] = _keep(body.args[lead:], arguments)
    op.results = _keep(op.results, results)
    _renumber(body.args)
    _renumber(op.results)
