"""Common subexpression elimination: replace an operation by the result of an equal operation that dominates it.

Works on any form of the IR (see `ir.verify`)::

    %a = mul %x, %y : f32              %a = mul %x, %y : f32
    if %c {                            if %c {
      %b = mul %y, %x : f32     ->       store %z, %i, %a
      store %z, %i, %b                   yield
      ...

1. Only operations that have no side effects and aren't convergent are merged. Operands of commutative operations are
   compared in either order.
2. Constants are equal if their types and bits are.
3. A load is replaced by the value of an earlier load or store with the same array and indices if nothing in between may
   write the array's alias class (see `alias`): no store, atomic, barrier, fence or call. At the start of a loop's body,
   everything that the body writes counts as written.
4. In the regions of an `if`, its condition is replaced by the constant true or false.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.printer import attribute_text
from vkjit.ir.rewrite import LOOPS
from vkjit.ir.types import BOOL

from ..analysis.alias import ALL, AliasClass, alias_class, written_classes

__all__ = ["CSE"]


@dataclass(frozen=True, slots=True)
class CSE:
    """Eliminate common subexpressions and redundant loads."""

    name: ClassVar[str] = "cse"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Numbering(function).region(function.body)
        return module


class _Numbering:
    """The elimination in one function, by hash-based value numbering.

    - `replaced` maps the results of eliminated operations to the equal earlier values.
    - `available` maps keys of operations to their results, and `known` maps conditions to their values (rule 4).
    - `versions` maps alias classes to numbers that change with each write, so that keys of loads before and after a
      write differ. `clock` is the last version number.
    - `writes` has the alias classes that each operation writes.

    `available`, `known` and `versions` are scoped: `undo` has their old entries, which `restore` puts back at the end
    of a region.
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
        """Set an entry of a scoped table."""
        self.undo.append((table, key, table.get(key)))  # None if there was no entry, as no entry is None
        table[key] = value

    def restore(self, mark: int) -> None:
        """Undo the changes to scoped tables since `undo` had `mark` entries."""
        while len(self.undo) > mark:
            table, key, before = self.undo.pop()
            if before is None:
                del table[key]
            else:
                table[key] = before

    def region(self, region: Region, fact: tuple[Value, bool] | None = None) -> None:
        """Process a region in which `fact`, if given, holds: a condition and its value."""
        mark = len(self.undo)
        if fact is not None:
            self.put(self.known, *fact)
        source, region.ops = region.ops, []
        for op in source:
            if self.replaced or self.known:
                op.operands[:] = [self.current(value, op, region) for value in op.operands]
            if not self.is_replaced(op):
                region.ops.append(op)
                self.visit_regions(op)
                self.invalidate_writes(op)
        self.restore(mark)

    def current(self, value: Value, op: Op, region: Region) -> Value:
        """Return the value that replaces an operand of `op`: an equal earlier value, a constant for a known condition,
        or else the operand itself.
        """
        value = self.replaced.get(value, value)
        if not self.known or value not in self.known:
            return value
        key = _constant_key(self.known[value])
        if key not in self.available:
            self.put(self.available, key, Builder(region, op.loc).const(self.known[value], BOOL))
        constant: Value = self.available[key]
        return constant

    def visit_regions(self, op: Op) -> None:
        """Process the regions of an operation that is kept."""
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
        """True if an equal operation is available and replaces this one; otherwise record this one as available."""
        key = self.key(op)
        if key is None:
            return False
        equal = self.available.get(key)
        if equal is None:
            self.put(self.available, key, op.result)
            return False
        self.replaced[op.result] = equal
        equal.name = equal.name or op.result.name
        return True

    def key(self, op: Op) -> Any:
        """Return a key that is the same for operations with the same result; None if the operation must be kept."""
        info = OPS[op.name]
        if op.name == "const" and op.result.type == BOOL:
            return _constant_key(bool(op.attrs["value"]))
        if op.name == "load":
            return self.memory_key(op.operands)
        if info.effect != Effect.NONE or info.convergent or len(op.results) != 1:
            return None
        operands = tuple(op.operands)
        if info.commutative and id(operands[0]) > id(operands[1]):  # any fixed order
            operands = operands[::-1]
        if not op.attrs:  # the result type follows from the operands
            return (op.name, operands)
        attrs = tuple((name, _comparable(value)) for name, value in sorted(op.attrs.items()))
        return (op.name, operands, attrs)

    def memory_key(self, location: Sequence[Value]) -> Any:
        """Return the key of the memory at `location`, an array and indices, with its current content."""
        versions = self.versions.get(alias_class(location[0]), 0), self.versions.get(ALL, 0)
        return ("memory", tuple(location), versions)

    # -- memory

    def invalidate_writes(self, op: Op) -> None:
        """Give new versions to the alias classes that an operation writes. Make a stored value available for loads."""
        written = self.writes.get(op)
        if not written:
            return
        self.overwrite(written)
        if op.name == "store":
            self.put(self.available, self.memory_key(op.operands[:-1]), op.operands[-1])

    def overwrite(self, classes: Iterable[AliasClass]) -> None:
        """Give new versions to alias classes, so that earlier loads and stores don't match later loads."""
        for memory in classes:
            self.clock += 1
            self.put(self.versions, memory, self.clock)


def _constant_key(value: bool) -> Any:
    return ("const", BOOL, value)


def _comparable(value: Any) -> Any:
    """Return a key that compares attribute values by type and bits: 0.0 differs from -0.0, and True from 1."""
    return attribute_text(value) if isinstance(value, float) else (type(value), value)
