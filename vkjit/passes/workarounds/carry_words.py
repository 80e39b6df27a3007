"""Convert loop-carried booleans to u32, for a driver whose compiler crashes on loop-carried booleans.

A driver with the quirk `carried_truths` crashes the process when it compiles some loops with loop-carried booleans, for
example a loop that swaps two of them. The pass converts all loop-carried booleans::

    %r = loop %a : bool (%p: bool) {         %w = select %a, %1, %0 : u32
      ...                                    %q = loop %w : u32 (%v: u32) {
      continue %b                              %p = ne %v, %0 : bool
    }                                ->        ...
                                               %c = select %b, %1, %0 : u32
                                               continue %c
                                             }
                                             %r = ne %q, %0 : bool
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.types import Scalar, Type, Vector

__all__ = ["CarryBoolsAsWords"]


@dataclass(frozen=True, slots=True)
class CarryBoolsAsWords:
    """Convert loop-carried booleans to u32. The pass does nothing if `needed` is False."""

    name: ClassVar[str] = "carry_words"
    needed: bool = True

    def run(self, module: Module) -> Module:
        if self.needed:
            _convert_region(module.kernel.body)
        return module


def _convert_region(region: Region) -> None:
    """Convert the loops of a region, inner loops first."""
    ops: list[Op] = []
    for op in region.ops:
        for inner in op.regions:
            _convert_region(inner)
        carried = [index for index, result in enumerate(op.results) if _is_bool(result.type)]
        if op.name in ("for", "loop") and carried:
            ops += _convert_loop(op, carried)
        else:
            ops.append(op)
    region.ops = ops


def _convert_loop(loop: Op, carried: list[int]) -> list[Op]:
    """Convert the loop-carried booleans whose indices among the loop's results are `carried`.

    Return the operations that replace the loop: conversions, the loop, conversions.
    """
    body = loop.regions[0]
    before, after, head = (Builder(Region(), loop.loc) for _ in range(3))
    # in a `for`, the bounds and step precede the initial values, and the induction variable the other body arguments
    first_operand, first_argument = (3, 1) if loop.name == "for" else (0, 0)
    for index in carried:
        operand = first_operand + index
        loop.operands[operand] = _word(before, loop.operands[operand])
        _redefine_as_comparison(head, body.args, first_argument + index)
        _redefine_as_comparison(after, loop.results, index)
    for region in _exits(body):
        exit_op = region.ops.pop()
        exit_builder = Builder(region, exit_op.loc)
        for index in carried:
            exit_op.operands[index] = _word(exit_builder, exit_op.operands[index])
        region.ops.append(exit_op)
    body.ops[:0] = head.region.ops
    return [*before.region.ops, loop, *after.region.ops]


def _exits(region: Region) -> Iterator[Region]:
    """Yield the regions that end with a `break` or `continue` of the loop whose body is `region`."""
    if region.ops[-1].name in ("break", "continue"):
        yield region
    for op in list(region.ops):
        if op.name not in ("for", "loop"):
            for inner in op.regions:
                yield from _exits(inner)


def _word(builder: Builder, boolean: Value) -> Value:
    """Convert a boolean to a u32 that is 0 or 1."""
    word_type = _word_type(boolean.type)
    return builder.emit("select", boolean, builder.const(1, word_type), builder.const(0, word_type))


def _redefine_as_comparison(builder: Builder, values: list[Value], position: int) -> None:
    """Replace the boolean `values[position]` by a new u32 value, and redefine the boolean as the comparison u32 != 0.

    `values` are the body arguments or the results of a loop. The uses of the boolean don't change.
    """
    boolean = values[position]
    word = values[position] = Value(_word_type(boolean.type), boolean.owner, boolean.index)
    zero = builder.const(0, word.type)
    comparison = builder.emit("ne", word, zero).op
    assert comparison is not None
    comparison.results[0] = boolean
    boolean.owner = comparison
    boolean.index = 0


def _word_type(boolean: Type) -> Type:
    """Return the u32 type with the shape of a boolean type."""
    return Vector(dtypes.u32, boolean.size) if isinstance(boolean, Vector) else Scalar(dtypes.u32)


def _is_bool(type: Type) -> bool:
    return isinstance(type, (Scalar, Vector)) and type.dtype.kind == "bool"
