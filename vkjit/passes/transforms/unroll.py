"""Fully unroll counted loops with small constant trip counts.

Takes the normal form of the IR (see `ir.verify`)::

    %s = for %zero, %two, %one, %a : f32           %v0 = load %x, %zero : f32
        (%k: index, %c: f32) {                     %s0 = add %a, %v0 : f32
      %v = load %x, %k : f32                 ->    %c1 = const 1 : index
      %t = add %c, %v : f32                        %v1 = load %x, %c1 : f32
      continue %t                                  %s1 = add %s0, %v1 : f32
    }

1. A loop is unrolled if its bounds and step are constants, and the product of its trip count and its number of
   operations is at most `budget`, or at most `array_budget` if the induction variable indexes a local array: `sroa` can
   then replace the array. Inner loops are unrolled first.
2. Inner exits are exits inside of an `if`. An iteration without inner exits becomes a copy of the body with a constant
   for the induction variable.
3. If a `continue` is inside an `if`, the rest of the iteration moves to the other region of the `if`. The results of
   the `if` are the loop-carried values of the next iteration.
4. If a `break` is inside an `if`, the rest of the iteration and all later iterations move to the other region of the
   `if`. The results of the `if` are the loop's results. As the code nests deeply, such loops must have at most
   `MAX_BREAK_ITERATIONS` iterations.
5. Loops with both kinds of inner exits aren't unrolled, nor are loops with exits elsewhere than at the end of one
   region of an `if`.

Unrolled loops need no counting by `loop_guard`, which runs later. Barriers and collectives stay valid, as all
invocations execute the same copies in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import LOOPS, clone_op, constant_of, exits_of, is_constant, resolve
from vkjit.ir.types import Scalar

from .algebraic_simplify import wrapped

__all__ = ["Unroll"]

MAX_BREAK_ITERATIONS = 8
"""The largest trip count of an unrolled loop with `break` (rule 4)."""
_FREE: frozenset[OpName] = frozenset({"const", "poison", "yield", "break", "continue", "unreachable", "bitcast"})
"""Operations that don't count for the budget."""


@dataclass(frozen=True, slots=True)
class Unroll:
    """Unroll loops with at most `max_iterations` iterations and at most `budget` operations in all iterations together.

    For loops that index local arrays, the limit of operations is `array_budget` (rule 1).
    """

    budget: int = 128
    array_budget: int = 512
    max_iterations: int = 32
    name: ClassVar[str] = "unroll"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Unroller(self).region(function.body)
        return module


class _Unroller:
    """The rewrite of one function. `replaced` maps results of unrolled loops to the values that replace them."""

    def __init__(self, options: Unroll) -> None:
        self.options = options
        self.replaced: dict[Value, Value] = {}

    def region(self, region: Region) -> int:
        """Unroll the loops in a region and return its number of operations afterwards."""
        source, region.ops = region.ops, []
        total = 0
        for op in source:
            if self.replaced:
                op.operands[:] = [resolve(self.replaced, value) for value in op.operands]
            size = sum(map(self.region, op.regions))
            numbers = self.unrolled_values(op, size) if op.name == "for" else None
            if numbers is None:
                region.ops.append(op)
                total += size + (op.name not in _FREE)
                continue
            results = _Iterations(op, numbers, Builder(region, op.loc)).run()
            self.replaced.update(zip(op.results, results, strict=True))
            total += size * len(numbers)
        return total

    def unrolled_values(self, op: Op, size: int) -> Sequence[int] | None:
        """Return the values of the induction variable if a loop is to be unrolled (rules 1 and 5), else None."""
        low, high, step = op.operands[:3]
        if not (is_constant(low) and is_constant(high) and is_constant(step)) or constant_of(step) == 0:
            return None
        numbers = range(constant_of(low), constant_of(high), constant_of(step))
        if not 0 < len(numbers) <= self.options.max_iterations:
            return None
        cost = size * len(numbers)
        if cost > self.options.budget and not (cost <= self.options.array_budget and _indexes_local(op)):
            return None
        return numbers if _has_supported_exits(op, len(numbers)) else None


def _indexes_local(loop: Op) -> bool:
    """True if the induction variable, or a value computed from it by one operation, indexes a local array."""
    induction = loop.regions[0].args[0]
    derived = {induction}
    for op in loop.regions[0].walk():
        if induction in op.operands and len(op.results) == 1:
            derived.add(op.result)
        if op.name in ("load", "store") and getattr(op.operands[0].type, "space", "") == "local":
            rank = getattr(op.operands[0].type, "rank", 0)
            if not derived.isdisjoint(op.operands[1 : 1 + rank]):
                return True
    return False


def _has_supported_exits(loop: Op, trip_count: int) -> bool:
    """True if the exits of a loop's body have a form that rules 2 to 4 handle."""
    body = loop.regions[0]
    inner = [exit for exit in exits_of(body) if exit is not body.terminator]
    if not inner:
        return body.terminator.name in ("continue", "break")
    kinds = {exit.name for exit in inner}
    if body.terminator.name == "break":
        return False
    if "break" in kinds:
        return trip_count <= MAX_BREAK_ITERATIONS and _all_exit_by(body, "break")
    return _all_exit_by(body, "continue")


def _has_exits(op: Op) -> bool:
    """True if an operation other than a loop contains exits of the enclosing loop."""
    return op.name not in LOOPS and any(True for inner in op.regions for _ in exits_of(inner))


def _all_exit_by(region: Region, kind: str) -> bool:
    """True if each `if` with exits in a region has an exit of this kind at the end of one of its regions, no other
    exits in that region, and continues after the other one.
    """
    for op in region.ops:
        if _has_exits(op):
            side = _exiting_side(op, kind)
            if side is None or not _all_exit_by(op.regions[1 - side], kind):
                return False
    if region.terminator.name == "unreachable":
        return len(region.ops) > 1 and _has_exits(region.ops[-2])
    return region.terminator.name in ("yield", "continue")


def _exiting_side(op: Op, kind: str) -> int | None:
    """Return which region of an `if`, 0 or 1, ends in an exit of this kind and has no other exits.

    Return None if there is no such region.
    """
    for side, region in enumerate(op.regions):
        if region.terminator.name == kind and not any(map(_has_exits, region.ops)):
            return side
    return None


class _Iterations:
    """The unrolling of one loop, whose iterations are appended to the builder's region.

    `numbers` are the values of the induction variable, and `kind` is the kind of the loop's inner exits, "break" or
    "continue".
    """

    def __init__(self, loop: Op, numbers: Sequence[int], builder: Builder) -> None:
        self.loop = loop
        self.numbers = numbers
        self.builder = builder
        self.body = loop.regions[0]
        inner = [exit.name for exit in exits_of(self.body)]
        self.kind = "break" if "break" in inner else "continue"

    def run(self) -> list[Value]:
        """Build all iterations and return the values of the loop's results."""
        carried = list(self.loop.operands[3:])
        if self.kind == "break":
            return self.iteration(0, carried)
        for number in range(len(self.numbers)):
            carried = self.iteration(number, carried)
        return carried

    def iteration(self, number: int, carried: Sequence[Value]) -> list[Value]:
        """Build iteration `number` and return the loop-carried values after it.

        In loops with `break` (rule 4), also build all later iterations and return the loop's results.
        """
        if number == len(self.numbers):
            return list(carried)
        induction = self.body.args[0]
        assert isinstance(induction.type, Scalar)
        constant = self.builder.const(wrapped(self.numbers[number], induction.type.dtype), induction.type)
        mapping = dict(zip(self.body.args, [constant, *carried], strict=True))
        return self.rest(self.body.ops, mapping, number, [])

    def rest(
        self, ops: Sequence[Op], mapping: dict[Value, Value], number: int, after: list[tuple[Op, Sequence[Op]]]
    ) -> list[Value]:
        """Build the rest of iteration `number`, and return the values that it passes on.

        `ops` are the operations that remain. `mapping` maps values of the body to their copies. `after` has the
        enclosing `if`s with exits, each with the operations that follow it, the outermost first.
        """
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
        """Build the code that follows the terminator `op` of a region. Return the values that this code passes on.

        After a `yield`, it is the rest of the iteration after the enclosing `if`; after a `continue` of a loop with
        `break`, the next iteration (rule 4). Otherwise there is none, and the operands of `op` are returned.
        """
        operands = [mapping.get(value, value) for value in op.operands]
        if op.name == "yield":
            enclosing, following = after[-1]
            mapping.update(zip(enclosing.results, operands, strict=True))
            return self.rest(following, mapping, number, after[:-1])
        if op.name == "continue" and self.kind == "break":
            return self.iteration(number + 1, operands)
        return operands

    def branch(
        self, op: Op, following: Sequence[Op], mapping: dict[Value, Value], number: int,
        after: list[tuple[Op, Sequence[Op]]],
    ) -> list[Value]:  # fmt: skip
        """Build an `if` with exits and, in the region that continues, the operations after it (rules 3 and 4)."""
        exiting = _exiting_side(op, self.kind)
        sides = [Region(), Region()]
        for position, source in enumerate(op.regions):
            with self.builder.at(sides[position]):
                if position == exiting:
                    copy_mapping = dict(mapping)
                    sides[position].ops += [clone_op(inner, copy_mapping) for inner in source.ops[:-1]]
                    yielded = [copy_mapping.get(value, value) for value in source.terminator.operands]
                else:
                    yielded = self.rest(source.ops, dict(mapping), number, [*after, (op, following)])
                self.builder.loc = op.loc
                self.builder.op("yield", *yielded)
        condition = mapping.get(op.operands[0], op.operands[0])
        types = [result.type for result in self.loop.results]
        self.builder.loc = op.loc
        return list(self.builder.op("if", condition, types=types, regions=sides).results)
