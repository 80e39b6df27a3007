"""Unrolls counted loops of few rounds.

Enters: normal form. Leaves: normal form, without the loops that were unrolled::

    %s = for %zero, %two, %one, %a : f32           %v0 = load %x, %zero : f32
        (%k: index, %c: f32) {                     %s0 = add %a, %v0 : f32
      %v = load %x, %k : f32                 ->    %c1 = const 1 : index
      %t = add %c, %v : f32                        %v1 = load %x, %c1 : f32
      continue %t                                  %s1 = add %s0, %v1 : f32
    }

1. A loop qualifies where bounds and step are constants and rounds times operations stay within `budget`; within
   `array_budget` where its counter indexes a local array, which `sroa` can then take apart. Inner loops come first.
2. A round without inner exits is a copy of the body with the counter's number in its place.
3. A `continue` inside an `if`: what follows in the round moves to the other side of the `if`, which gives the values
   that the next round starts from.
4. A `break` inside an `if`: what follows in the round, and all later rounds, move to the other side of the `if`, which
   gives the loop's results. So the code grows deep; such loops have at most `MOST_BREAKS` rounds.
5. Loops in which both occur, or whose exits stand otherwise than alone at the end of one side, stay.

A loop that guards or bounds would count is gone before `loop_guard` and `trip_bound` look. Barriers and collectives
keep their place: all invocations go through the same copies in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..ir.builder import Builder
from ..ir.core import Module, Op, Region, Value
from ..ir.rewrite import LOOPS, clone_op, constant_of, exits_of, is_constant, resolve
from ..ir.types import Scalar
from .identities import wrapped

__all__ = ["Unroll"]

MOST_BREAKS = 8
_FREE = frozenset({"const", "poison", "yield", "break", "continue", "unreachable", "bitcast"})


@dataclass(frozen=True, slots=True)
class Unroll:
    """`budget`, `array_budget`: operations that an unrolled loop may have (rule 1); `rounds`: the most rounds."""

    budget: int = 128
    array_budget: int = 512
    rounds: int = 32
    name: ClassVar[str] = "unroll"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Unroller(self).region(function.body)
        return module


class _Unroller:
    """One function. `replaced` maps results of unrolled loops."""

    def __init__(self, options: Unroll) -> None:
        self.options = options
        self.replaced: dict[Value, Value] = {}

    def region(self, region: Region) -> int:
        """Unrolls what is inside; gives how many operations the region has then."""
        source, region.ops = region.ops, []
        total = 0
        for op in source:
            if self.replaced:
                op.operands[:] = [resolve(self.replaced, value) for value in op.operands]
            size = sum(map(self.region, op.regions))
            numbers = self.chosen(op, size) if op.name == "for" else None
            if numbers is None:
                region.ops.append(op)
                total += size + (op.name not in _FREE)
                continue
            results = _Rounds(op, numbers, Builder(region, op.loc)).run()
            self.replaced.update(zip(op.results, results, strict=True))
            total += size * len(numbers)
        return total

    def chosen(self, op: Op, size: int) -> Sequence[int] | None:
        """The counter's numbers in a loop that is to be unrolled, None for one that stays (rules 1 and 5)."""
        low, high, step = op.operands[:3]
        if not (is_constant(low) and is_constant(high) and is_constant(step)) or constant_of(step) == 0:
            return None
        numbers = range(constant_of(low), constant_of(high), constant_of(step))
        if not 0 < len(numbers) <= self.options.rounds:
            return None
        cost = size * len(numbers)
        if cost > self.options.budget and not (cost <= self.options.array_budget and _indexes_local(op)):
            return None
        return numbers if _can_leave(op, len(numbers)) else None


def _indexes_local(loop: Op) -> bool:
    """Whether an index of a local array is the counter, or made of it by one operation."""
    counter = loop.regions[0].args[0]
    near = {counter}
    for op in loop.regions[0].walk():
        if counter in op.operands and len(op.results) == 1:
            near.add(op.result)
        if op.name in ("load", "store") and getattr(op.operands[0].type, "space", "") == "local":
            rank = getattr(op.operands[0].type, "rank", 0)
            if not near.isdisjoint(op.operands[1 : 1 + rank]):
                return True
    return False


def _can_leave(loop: Op, rounds: int) -> bool:
    """Whether the exits of a loop's body allow the rules 2 to 4."""
    body = loop.regions[0]
    inner = [exit for exit in exits_of(body) if exit is not body.terminator]
    if not inner:
        return body.terminator.name in ("continue", "break")
    kinds = {exit.name for exit in inner}
    if body.terminator.name == "break":
        return False
    if "break" in kinds:
        return rounds <= MOST_BREAKS and _leaves_by(body, "break")
    return _leaves_by(body, "continue")


def _has_exits(op: Op) -> bool:
    """Whether an operation other than a loop holds exits of the loop around it."""
    return op.name not in LOOPS and any(True for inner in op.regions for _ in exits_of(inner))


def _leaves_by(region: Region, kind: str) -> bool:
    """Whether each `if` with exits has a side that only ends in an exit of that kind, and one that goes on."""
    for op in region.ops:
        if _has_exits(op):
            side = _leaving_side(op, kind)
            if side is None or not _leaves_by(op.regions[1 - side], kind):
                return False
    if region.terminator.name == "unreachable":
        return len(region.ops) > 1 and _has_exits(region.ops[-2])
    return region.terminator.name in ("yield", "continue")


def _leaving_side(op: Op, kind: str) -> int | None:
    for side, region in enumerate(op.regions):
        if region.terminator.name == kind and not any(map(_has_exits, region.ops)):
            return side
    return None


class _Rounds:
    """One loop: builds its rounds one after the other where the builder stands."""

    def __init__(self, loop: Op, numbers: Sequence[int], builder: Builder) -> None:
        self.loop = loop
        self.numbers = numbers
        self.builder = builder
        self.body = loop.regions[0]
        inner = [exit.name for exit in exits_of(self.body)]
        self.kind = "break" if "break" in inner else "continue"

    def run(self) -> list[Value]:
        carried = list(self.loop.operands[3:])
        if self.kind == "break":
            return self.round(0, carried)
        for number in range(len(self.numbers)):
            carried = self.round(number, carried)
        return carried

    def round(self, number: int, carried: Sequence[Value]) -> list[Value]:
        """Builds a round (rule 4: with all that follow it); gives the carried values after it, or the results."""
        if number == len(self.numbers):
            return list(carried)
        counter = self.body.args[0]
        assert isinstance(counter.type, Scalar)
        constant = self.builder.const(wrapped(self.numbers[number], counter.type.dtype), counter.type)
        mapping = dict(zip(self.body.args, [constant, *carried], strict=True))
        return self.rest(self.body.ops, mapping, number, [])

    def rest(
        self, ops: Sequence[Op], mapping: dict[Value, Value], number: int, after: list[tuple[Op, Sequence[Op]]]
    ) -> list[Value]:
        """Builds operations of a round; `after` holds the `if`s around them, with what follows each."""
        for position, op in enumerate(ops):
            self.builder.loc = op.loc
            if _has_exits(op):
                return self.branch(op, ops[position + 1 :], mapping, number, after)
            if op is ops[-1]:
                return self.end(op, mapping, number, after)
            self.builder.region.ops.append(clone_op(op, mapping))
        return []

    def end(
        self, op: Op, mapping: dict[Value, Value], number: int, after: list[tuple[Op, Sequence[Op]]]
    ) -> list[Value]:
        operands = [mapping.get(value, value) for value in op.operands]
        if op.name == "yield":
            around, following = after[-1]
            mapping.update(zip(around.results, operands, strict=True))
            return self.rest(following, mapping, number, after[:-1])
        if op.name == "continue" and self.kind == "break":
            return self.round(number + 1, operands)
        return operands

    def branch(
        self, op: Op, following: Sequence[Op], mapping: dict[Value, Value], number: int,
        after: list[tuple[Op, Sequence[Op]]],
    ) -> list[Value]:  # fmt: skip
        """Rules 3 and 4."""
        side = _leaving_side(op, self.kind)
        sides = [Region(), Region()]
        for place, source in enumerate(op.regions):
            with self.builder.at(sides[place]):
                if place == side:
                    own = dict(mapping)
                    sides[place].ops += [clone_op(inner, own) for inner in source.ops[:-1]]
                    found = [own.get(value, value) for value in source.terminator.operands]
                else:
                    found = self.rest(source.ops, dict(mapping), number, [*after, (op, following)])
                self.builder.loc = op.loc
                self.builder.op("yield", *found)
        condition = mapping.get(op.operands[0], op.operands[0])
        types = [result.type for result in self.loop.results]
        self.builder.loc = op.loc
        return list(self.builder.op("if", condition, types=types, regions=sides).results)
