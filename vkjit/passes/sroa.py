"""Scalar replacement: local arrays that are only indexed by constants become values.

Enters and leaves: any form::

    %t = local : local<f32, 2>                 %p = poison : f32
    store %t, %zero, %a
    %s = for %lo, %hi, %step, %b : f32         %s, %t1 = for %lo, %hi, %step, %b, %a : f32, f32
        (%i: index, %c: f32) {           ->        (%i: index, %c: f32, %t0: f32) {
      %x = load %t, %zero : f32                  %y = add %t0, %c : f32
      %y = add %x, %c : f32
      store %t, %zero, %y
      continue %y                                continue %y, %y
    }                                          }
    %r = load %t, %zero : f32                  (%t1 where %r was)

1. An array qualifies where every use is a load or a store at constant indices inside its shape, and it has at most
   `most` elements. Elements may be vectors; they stay whole.
2. A load is the value that was stored last; before the first store that is poison.
3. What an `if` stores it yields, as further results; a side that stores nothing yields what was there before.
4. What a loop stores it carries, as further carried values; its exits take along what is stored where they stand.

What is carried for nothing is left to `dce`. Structs need no rule: in the IR their fields are values of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..ir.builder import Builder
from ..ir.core import Function, Module, Op, Region, Value
from ..ir.rewrite import LOOPS, breaks_of, completes, constant_of, is_constant, resolve
from ..ir.types import Array

__all__ = ["ScalarReplacement"]

Slot = tuple[Value, int]
"""A local array and the position of an element in it."""


@dataclass(frozen=True, slots=True)
class ScalarReplacement:
    """`most`: elements of the largest array that is replaced."""

    most: int = 128
    name: ClassVar[str] = "sroa"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            arrays = self.qualifying(function)
            if arrays:
                _Replacement(function, arrays).run()
        return module

    def qualifying(self, function: Function) -> frozenset[Value]:
        """The arrays of rule 1."""
        found: set[Value] = set()
        for op in function.body.walk():
            if op.name == "local" and math.prod(op.attrs["type"].shape) <= self.most:
                found.add(op.result)
            elif found:
                place = op.operands[0] if op.name in ("load", "store") else None
                if place is not None and place in found and _position(op) is None:
                    found.discard(place)
                found.difference_update(op.operands[0 if place is None else 1 :])
        return frozenset(found)


def _position(op: Op) -> int | None:
    """Which element of a local array an access touches; None where that isn't a constant inside the shape."""
    array = op.operands[0].type
    if not isinstance(array, Array) or array.shape is None:
        return None
    indices = op.operands[1 : 1 + array.rank]
    if not all(map(is_constant, indices)):
        return None
    numbers = [int(constant_of(index)) for index in indices]
    position = 0
    for number, extent in zip(numbers, array.shape, strict=True):
        if not 0 <= number < extent:
            return None
        position = position * extent + number
    return position


@dataclass(slots=True)
class _Replacement:
    """One function. `values` holds what each slot holds at the current place, `stored` the slots that an operation
    with regions stores to and that are there before it, in a fixed order.
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
        """The slots that a region stores to, of arrays from outside of it; notes those of the operations in it."""
        found: dict[Slot, None] = {}
        own: set[Value] = set()
        for op in region.ops:
            if op.name == "local":
                own.add(op.result)
            elif op.name == "store" and op.operands[0] in self.arrays:
                found[op.operands[0], _position(op) or 0] = None
            elif op.regions:
                inside = {slot: None for inner in op.regions for slot in self.collect(inner)}
                self.stored[op] = tuple(inside)
                found.update(inside)
        return {slot: None for slot in found if slot[0] not in own} if own else found

    def region(self, region: Region, branch: Sequence[Slot], loop: Sequence[Slot]) -> None:
        """Rewrites a region; `branch` and `loop` are what the `if` and the loop around it pass on."""
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
        array = op.attrs["type"]
        fresh = builder.emit("poison", type=array.element)
        self.values.update({(op.result, position): fresh for position in range(math.prod(array.shape))})

    def access(self, op: Op) -> None:
        """Rule 2."""
        slot = (op.operands[0], _position(op) or 0)
        if op.name == "store":
            self.values[slot] = op.operands[-1]
        else:
            self.replaced[op.result] = self.values[slot]

    def other(self, op: Op, branch: Sequence[Slot], loop: Sequence[Slot]) -> None:
        if op.name == "yield":
            op.operands += [self.values[slot] for slot in branch]
        elif op.name in ("break", "continue"):
            op.operands += [self.values[slot] for slot in loop]
        elif op.name == "if":
            self.branch(op, loop)
        elif op.name in LOOPS:
            self.loop(op)

    def branch(self, op: Op, loop: Sequence[Slot]) -> None:
        """Rule 3."""
        slots = self.stored[op]
        before = [self.values[slot] for slot in slots]
        for inner in op.regions:
            self.region(inner, slots, loop)
            self.values.update(zip(slots, before, strict=True))
        if completes(op):
            self.results(op, slots)

    def loop(self, op: Op) -> None:
        """Rule 4."""
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
        for slot in slots:
            result = Value(self.values[slot].type, op, len(op.results), slot[0].name)
            op.results.append(result)
            self.values[slot] = result
