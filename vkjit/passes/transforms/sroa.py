"""Scalar replacement of local arrays that are only indexed by constants.

Works on any form of the IR (see `ir.verify`)::

    %t = local : local<f32, 2>                 %p = poison : f32
    store %t, %zero, %a
    %s = for %lo, %hi, %step, %b : f32         %s, %t1 = for %lo, %hi, %step, %b, %a : f32, f32
        (%i: index, %c: f32) {           ->        (%i: index, %c: f32, %t0: f32) {
      %x = load %t, %zero : f32                  %y = add %t0, %c : f32
      %y = add %x, %c : f32
      store %t, %zero, %y
      continue %y                                continue %y, %y
    }                                          }
    %r = load %t, %zero : f32                  (uses of %r become %t1)

1. An array is replaced if all its uses are loads and stores at constant, in-range indices, and it has at most
   `max_elements` elements. Each of its elements becomes a value; vector elements aren't split.
2. A load is replaced by the last stored value, or by poison if there is none.
3. The elements to which a region of an `if` stores become additional results of the `if`. A region without stores to
   such an element yields its previous value.
4. The elements to which a loop's body stores become additional loop-carried values and results; exits pass on their
   current values.

Redundant loop-carried values are left to `dce`. Structs need no rule: in the IR, their fields are separate values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.rewrite import LOOPS, breaks_of, completes, constant_of, is_constant, resolve
from vkjit.ir.types import Array

__all__ = ["ScalarReplacement"]

Slot = tuple[Value, int]
"""(array, offset): a local array and the linear offset of an element."""


@dataclass(frozen=True, slots=True)
class ScalarReplacement:
    """Replace local arrays of at most `max_elements` elements by values."""

    max_elements: int = 128
    name: ClassVar[str] = "sroa"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            arrays = self.qualifying(function)
            if arrays:
                _Replacement(function, arrays).run()
        return module

    def qualifying(self, function: Function) -> frozenset[Value]:
        """Return the arrays that meet rule 1."""
        arrays: set[Value] = set()
        for op in function.body.walk():
            kind = op.result.type if op.name == "local" else None
            if isinstance(kind, Array) and math.prod(kind.shape or ()) <= self.max_elements:
                arrays.add(op.result)
            elif arrays:
                accessed = op.operands[0] if op.name in ("load", "store") else None
                if accessed is not None and accessed in arrays and _linear_offset(op) is None:
                    arrays.discard(accessed)
                other_uses = op.operands if accessed is None else op.operands[1:]
                arrays.difference_update(other_uses)
        return frozenset(arrays)


def _linear_offset(op: Op) -> int | None:
    """Return the linear offset of the element that a load or store accesses.

    Return None if its indices aren't constant and in range.
    """
    array = op.operands[0].type
    if not isinstance(array, Array) or array.shape is None:
        return None
    indices = op.operands[1 : 1 + array.rank]
    if not all(map(is_constant, indices)):
        return None
    numbers = [int(constant_of(index)) for index in indices]
    offset = 0
    for number, extent in zip(numbers, array.shape, strict=True):
        if not 0 <= number < extent:
            return None
        offset = offset * extent + number
    return offset


@dataclass(slots=True)
class _Replacement:
    """The rewrite of one function.

    - `arrays` are the arrays to replace.
    - `values` maps slots to their values at the current operation.
    - `stored` maps each operation with regions to the slots that its regions store to, in a fixed order, except for
      slots of arrays that are allocated in these regions.
    - `replaced` maps the results of loads to the values that replace them.
    """

    function: Function
    arrays: frozenset[Value]
    values: dict[Slot, Value] = field(default_factory=dict)
    stored: dict[Op, tuple[Slot, ...]] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        self.collect(self.function.body)
        self.region(self.function.body, (), ())

    def collect(self, region: Region) -> dict[Slot, None]:
        """Return the slots that a region stores to, except for slots of arrays that are allocated in it.

        Fill `stored` for the operations inside.
        """
        slots: dict[Slot, None] = {}
        own: set[Value] = set()
        for op in region.ops:
            if op.name == "local":
                own.add(op.result)
            elif op.name == "store" and op.operands[0] in self.arrays:
                slots[op.operands[0], _linear_offset(op) or 0] = None  # the offset is known (rule 1), it isn't None
            elif op.regions:
                inside = {slot: None for inner in op.regions for slot in self.collect(inner)}
                self.stored[op] = tuple(inside)
                slots.update(inside)
        return {slot: None for slot in slots if slot[0] not in own} if own else slots

    def region(self, region: Region, branch: Sequence[Slot], loop: Sequence[Slot]) -> None:
        """Rewrite a region.

        `branch` and `loop` are the slots whose values become results of the enclosing `if` and loop; `yield`s and exits
        pass them on.
        """
        source, region.ops = region.ops, []
        builder = Builder(region)
        for op in source:
            if self.replaced:
                op.operands[:] = [resolve(self.replaced, value) for value in op.operands]
            builder.loc = op.loc
            if op.name == "local" and op.result in self.arrays:
                self.allocate(op, builder)
            elif op.name in ("load", "store") and op.operands[0] in self.arrays:
                self.access(op)
            else:
                self.other(op, branch, loop)
                region.ops.append(op)

    def allocate(self, op: Op, builder: Builder) -> None:
        """Replace an allocation: the value of all its slots becomes poison."""
        array = op.result.type
        assert isinstance(array, Array)
        fresh = builder.emit("poison", type=array.element)
        self.values.update({(op.result, offset): fresh for offset in range(math.prod(array.shape or ()))})

    def access(self, op: Op) -> None:
        """Replace a load or store (rule 2)."""
        slot = (op.operands[0], _linear_offset(op) or 0)  # the offset is known (rule 1), it isn't None
        if op.name == "store":
            self.values[slot] = op.operands[-1]
        else:
            self.replaced[op.result] = self.values[slot]

    def other(self, op: Op, branch: Sequence[Slot], loop: Sequence[Slot]) -> None:
        """Rewrite control flow, so that it passes on the values of slots (rules 3 and 4); keep other operations."""
        if op.name == "yield":
            op.operands += [self.values[slot] for slot in branch]
        elif op.name in ("break", "continue"):
            op.operands += [self.values[slot] for slot in loop]
        elif op.name == "if":
            self.branch(op, loop)
        elif op.name in LOOPS:
            self.loop(op)

    def branch(self, op: Op, loop: Sequence[Slot]) -> None:
        """Add the stored slots to the results of an `if` (rule 3)."""
        slots = self.stored[op]
        before = [self.values[slot] for slot in slots]
        for inner in op.regions:
            self.region(inner, slots, loop)
            self.values.update(zip(slots, before, strict=True))
        if completes(op):
            self.results(op, slots)

    def loop(self, op: Op) -> None:
        """Add the stored slots to the loop-carried values and results of a loop (rule 4)."""
        slots = self.stored[op]
        before = [self.values[slot] for slot in slots]
        body = op.regions[0]
        op.operands += before
        for slot, value in zip(slots, before, strict=True):
            argument = Value(value.type, body, len(body.args), slot[0].name)
            body.args.append(argument)
            self.values[slot] = argument
        self.region(body, (), slots)
        self.values.update(zip(slots, before, strict=True))
        if op.name == "for" or breaks_of(op):
            self.results(op, slots)

    def results(self, op: Op, slots: Sequence[Slot]) -> None:
        """Add a result for each slot to an operation; it becomes the value of the slot."""
        for slot in slots:
            result = Value(self.values[slot].type, op, len(op.results), slot[0].name)
            op.results.append(result)
            self.values[slot] = result
