"""Computes each value once: an operation equal to one that dominates it is replaced by that one's result.

Enters and leaves: any form::

    %a = mul %x, %y : f32              %a = mul %x, %y : f32
    if %c {                            if %c {
      %b = mul %y, %x : f32     ->       store %z, %i, %a
      store %z, %i, %b                   yield
      ...

1. Only operations without effect that aren't convergent; operands of commutative ones are compared in either order.
2. Constants are equal when type and bits are.
3. A load equals an earlier load or store of the same array and indices while nothing between them may write its alias
   class: no store, atomic, barrier, fence or call. What a loop's body writes is unknown from the loop's start.
4. Inside the regions of an `if`, its condition is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..ir.builder import Builder
from ..ir.core import Function, Module, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.printer import attribute_text
from ..ir.rewrite import LOOPS
from ..ir.types import BOOL
from .memory import ALL, AliasClass, alias_class, written_classes

__all__ = ["CSE"]


@dataclass(frozen=True, slots=True)
class CSE:
    """See the module's docstring."""

    name: ClassVar[str] = "cse"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Numbering(function).region(function.body)
        return module


class _Numbering:
    """One function. The tables hold what is true at the current place; `undo` restores them when a region ends.

    `available` maps keys of operations to results, `known` conditions to their value, `versions` classes of memory to
    numbers that change with each write.
    """

    def __init__(self, function: Function) -> None:
        self.replaced: dict[Value, Value] = {}
        self.available: dict[Any, Any] = {}
        self.known: dict[Any, Any] = {}
        self.versions: dict[Any, Any] = {}
        self.clock = 0
        self.undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self.writes: dict[Op, frozenset[AliasClass]] = {}
        written_classes(function.body, self.writes)

    # -- scopes

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self.undo.append((table, key, table.get(key)))
        table[key] = value

    def restore(self, mark: int) -> None:
        while len(self.undo) > mark:
            table, key, before = self.undo.pop()
            if before is None:
                del table[key]
            else:
                table[key] = before

    def region(self, region: Region, fact: tuple[Value, bool] | None = None) -> None:
        mark = len(self.undo)
        if fact is not None:
            self.put(self.known, *fact)
        source, region.ops = region.ops, []
        for op in source:
            if self.replaced or self.known:
                op.operands[:] = [self.current(value, op, region) for value in op.operands]
            if not self.is_replaced(op):
                region.ops.append(op)
                self.inside(op)
                self.after(op)
        self.restore(mark)

    def current(self, value: Value, op: Op, region: Region) -> Value:
        """What stands for an operand here: its replacement, or the constant that a condition is known to be."""
        value = self.replaced.get(value, value)
        if not self.known or value not in self.known:
            return value
        key = _constant_key(self.known[value])
        if key not in self.available:
            self.put(self.available, key, Builder(region, op.loc).const(self.known[value], BOOL))
        found: Value = self.available[key]
        return found

    def inside(self, op: Op) -> None:
        """The regions of an operation that stays."""
        if op.name == "if":
            self.region(op.regions[0], (op.operands[0], True))
            self.region(op.regions[1], (op.operands[0], False))
            return
        if op.name in LOOPS:
            self.overwrite(self.writes.get(op, ()))
        for region in op.regions:
            self.region(region)

    # -- values

    def is_replaced(self, op: Op) -> bool:
        """Looks the operation up; makes it available where it is new."""
        key = self.key(op)
        if key is None:
            return False
        found = self.available.get(key)
        if found is None:
            self.put(self.available, key, op.result)
            return False
        self.replaced[op.result] = found
        found.name = found.name or op.result.name
        return True

    def key(self, op: Op) -> Any:
        """Equal for operations that give the same value; None for those that have to stay."""
        row = OPS[op.name]
        if op.name == "const" and op.result.type == BOOL:
            return _constant_key(op.attrs["value"])
        if op.name == "load":
            return self.memory_key(op.operands)
        if row.effect != Effect.NONE or row.convergent or len(op.results) != 1:
            return None
        operands = tuple(op.operands)
        if row.commutative and id(operands[0]) > id(operands[1]):
            operands = operands[::-1]
        if not op.attrs:  # the result type follows from the operands
            return (op.name, operands)
        attrs = tuple((name, _comparable(value)) for name, value in sorted(op.attrs.items()))
        return (op.name, operands, attrs)

    def memory_key(self, place: Sequence[Value]) -> Any:
        versions = self.versions.get(alias_class(place[0]), 0), self.versions.get(ALL, 0)
        return ("memory", tuple(place), versions)

    # -- memory

    def after(self, op: Op) -> None:
        """What an operation has written is unknown after it, except for what a plain store has put there."""
        written = self.writes.get(op)
        if not written:
            return
        self.overwrite(written)
        if op.name == "store":
            self.put(self.available, self.memory_key(op.operands[:-1]), op.operands[-1])

    def overwrite(self, classes: Iterable[AliasClass]) -> None:
        for memory in classes:
            self.clock += 1
            self.put(self.versions, memory, self.clock)


def _constant_key(value: bool) -> Any:
    return ("const", BOOL, value)


def _comparable(value: Any) -> Any:
    """Attribute values by type and bits: 0.0 differs from -0.0, and True from 1."""
    return attribute_text(value) if isinstance(value, float) else (type(value), value)
