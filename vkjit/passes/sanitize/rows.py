"""Rows of an array that a loop goes through, where only the launch knows how many there are.

Enters: loops that count up by constant steps, and indices made of their counters. Leaves: `Rows`, which are equal where they
are the same rows for sure. Holds: `c * s + i` with c below E and i below s, a constant, is below `E * s`: the blocks of a loop
over blocks are rows of one over all of them. Ends have 64 bits, and what is multiplied is small enough not to wrap.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Op, Value
from ...ir.rewrite import constant_of, is_constant
from ...ir.types import INDEX, Scalar
from .numbers import Numbers

__all__ = ["Rows", "rows_of_counter", "rows_of_index"]

_MOST_ROWS = 1 << 31
_LARGEST_BLOCK = 1 << 12

Key = object


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows from `start` on, below `end * scale`."""

    start: Key
    end: Key
    scale: int = 1


def rows_of_counter(loop: Op) -> Rows | None:
    """The rows that the counter of a loop goes through, each of them; None where the loop leaves some out."""
    return _below(loop) if constant_of(loop.operands[2]) == 1 else None


def rows_of_index(index: Value, numbers: Numbers, loops: list[Op]) -> Rows | None:
    """Rows that an index lies in, in one of the loops around it; None where that isn't known."""
    counters = {loop.regions[0].args[0]: loop for loop in loops if loop.name == "for"}
    if index in counters:
        return _rising(counters[index])
    for block, place in _pairs(index, "add"):
        for counter, size in _pairs(block, "mul"):
            scale, inner = _number(size), numbers.of(place)
            if counter not in counters or scale is None or inner is None:
                continue
            rows = _rising(counters[counter])
            if rows is not None and rows.scale == 1 and rows.start == 0 and 0 <= inner.min() <= inner.max() < scale:
                return _scaled(counters[counter].operands[1], scale)
    return None


def _rising(loop: Op) -> Rows | None:
    step = _number(loop.operands[2])
    return _below(loop) if step is not None and step > 0 else None


def _below(loop: Op) -> Rows:
    start, end = _key(loop.operands[0]), loop.operands[1]
    if start == 0:
        for base, size in _pairs(end, "mul"):
            scale = _number(size)
            rows = None if scale is None or scale <= 0 else _scaled(base, scale)
            if rows is not None:
                return rows
    return Rows(start, _key(end))


def _scaled(end: Value, scale: int) -> Rows | None:
    """The rows below end * scale, where that can't wrap."""
    return Rows(0, _key(end), scale) if scale < _LARGEST_BLOCK and _is_small(end) else None


def _is_small(value: Value) -> bool:
    """Whether a value is far below the largest index."""
    op = value.op
    if value.type != INDEX or op is None:
        return False
    if op.name == "extent":
        return True
    if op.name == "min":
        return any(n < _MOST_ROWS for n in map(_number, op.operands) if n is not None)
    source = op.operands[0].type if op.name == "cast" else None
    return isinstance(source, Scalar) and source.dtype.is_integer and source.dtype.bits <= 32


def _pairs(value: Value, name: str) -> list[tuple[Value, Value]]:
    """The operands of an operation in both orders; none where it is another one."""
    op = value.op
    if op is None or op.name != name or value.type != INDEX:
        return []
    x, y = op.operands
    return [(x, y), (y, x)]


def _number(value: Value) -> int | None:
    return int(constant_of(value)) if is_constant(value) else None


def _key(value: Value) -> Key:
    """Equal for values that are the same for sure."""
    if is_constant(value):
        return int(constant_of(value))
    op = value.op
    return ("extent", op.operands[0], op.attrs["axis"]) if op is not None and op.name == "extent" else value
