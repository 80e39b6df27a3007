"""Carries truth values through loops as words, for a driver whose compiler dies of loops that carry truth values.

Enters and leaves: primitive form. Such a driver (quirk `carried_truths`) takes the process down while it compiles some loops
with a carried bool, such as ones that swap two of them::

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

from ... import dtypes
from ...ir.builder import Builder
from ...ir.core import Module, Op, Region, Value
from ...ir.types import Scalar, Type, Vector

__all__ = ["CarryWords"]


@dataclass(frozen=True, slots=True)
class CarryWords:
    """Does nothing where `needed` is False."""

    name: ClassVar[str] = "carry_words"
    needed: bool = True

    def run(self, module: Module) -> Module:
        if self.needed:
            _in_region(module.kernel.body)
        return module


def _in_region(region: Region) -> None:
    ops: list[Op] = []
    for op in region.ops:
        for inner in op.regions:
            _in_region(inner)
        carried = [place for place, result in enumerate(op.results) if _is_truth(result.type)]
        if op.name in ("for", "loop") and carried:
            ops += _with_words(op, carried)
        else:
            ops.append(op)
    region.ops = ops


def _with_words(loop: Op, carried: list[int]) -> list[Op]:
    """The loop between what goes before and after it."""
    body, counted = loop.regions[0], loop.name == "for"
    before, after, head = (Builder(Region(), loop.loc) for _ in range(3))
    for place in carried:
        start = place + (3 if counted else 0)
        loop.operands[start] = _word(before, loop.operands[start])
        _taken_back(head, body.args, place + counted)
        _taken_back(after, loop.results, place)
    for region in _exits(body):
        leaving = region.ops.pop()
        words = Builder(region, leaving.loc)
        for place in carried:
            leaving.operands[place] = _word(words, leaving.operands[place])
        region.ops.append(leaving)
    body.ops[:0] = head.region.ops
    return [*before.region.ops, loop, *after.region.ops]


def _exits(region: Region) -> Iterator[Region]:
    """The regions that end with a `break` or `continue` of the loop whose body is `region`."""
    if region.ops[-1].name in ("break", "continue"):
        yield region
    for op in list(region.ops):
        if op.name not in ("for", "loop"):
            for inner in op.regions:
                yield from _exits(inner)


def _word(builder: Builder, truth: Value) -> Value:
    kind = _word_type(truth.type)
    return builder.emit("select", truth, builder.const(1, kind), builder.const(0, kind))


def _taken_back(builder: Builder, values: list[Value], place: int) -> None:
    """Puts a word in the place of a truth value, which becomes the result of a comparison of it."""
    truth = values[place]
    word = values[place] = Value(_word_type(truth.type), truth.owner, truth.index)
    zero = builder.const(0, word.type)
    compared = builder.emit("ne", word, zero).op
    assert compared is not None
    compared.results[0], truth.owner, truth.index = truth, compared, 0


def _word_type(truth: Type) -> Type:
    return Vector(dtypes.u32, truth.size) if isinstance(truth, Vector) else Scalar(dtypes.u32)


def _is_truth(kind: Type) -> bool:
    return isinstance(kind, (Scalar, Vector)) and kind.dtype.kind == "bool"
