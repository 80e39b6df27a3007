"""Ranges of array rows that a loop covers, with bounds known at the launch only.

`Rows` describe what loops with positive constant steps, and indices computed from their induction variables, go
through; equal `Rows` are always the same rows. Since `c * s + i` with `c < E` and `0 <= i < s` is below `E * s`, a
loop over blocks covers the same rows as a loop over all. Bounds have 64 bits, and what is multiplied is small enough
not to wrap.
"""

from __future__ import annotations

from dataclasses import dataclass

from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import INDEX, Scalar

from .concrete_values import ConcreteValues

__all__ = ["Rows", "rows_of_index", "rows_of_induction_variable"]

_MAX_ROWS = 1 << 31
_MAX_BLOCK = 1 << 12

Key = object


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows from `start` to below `end * scale`."""

    start: Key
    end: Key
    scale: int = 1


def rows_of_induction_variable(loop: Op) -> Rows | None:
    """Return the rows that the induction variable of a loop goes through; None if its step isn't 1."""
    return _below(loop) if constant_of(loop.operands[2]) == 1 else None


def rows_of_index(index: Value, numbers: ConcreteValues, loops: list[Op]) -> Rows | None:
    """Return rows that contain an index in one of the enclosing loops; None if unknown."""
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
    """Return the range of a loop's induction variable if its step is a positive constant; else None."""
    step = _number(loop.operands[2])
    return _below(loop) if step is not None and step > 0 else None


def _below(loop: Op) -> Rows:
    """Return the range from a loop's start to its end."""
    start, end = _key(loop.operands[0]), loop.operands[1]
    if start == 0:
        for base, size in _pairs(end, "mul"):
            scale = _number(size)
            rows = None if scale is None or scale <= 0 else _scaled(base, scale)
            if rows is not None:
                return rows
    return Rows(start, _key(end))


def _scaled(end: Value, scale: int) -> Rows | None:
    """Return the rows below end * scale; None if the product might wrap."""
    return Rows(0, _key(end), scale) if scale < _MAX_BLOCK and _is_small(end) else None


def _is_small(value: Value) -> bool:
    """True if a value is known to be far below the largest index."""
    op = value.op
    if value.type != INDEX or op is None:
        return False
    if op.name == "extent":
        return True
    if op.name == "min":
        return any(n < _MAX_ROWS for n in map(_number, op.operands) if n is not None)
    source = op.operands[0].type if op.name == "cast" else None
    return isinstance(source, Scalar) and source.dtype.is_integer and source.dtype.bits <= 32


def _pairs(value: Value, name: OpName) -> list[tuple[Value, Value]]:
    """Return the two operands of an index operation of that name in both orders; nothing for other operations."""
    op = value.op
    if op is None or op.name != name or value.type != INDEX:
        return []
    x, y = op.operands
    return [(x, y), (y, x)]


def _number(value: Value) -> int | None:
    return int(constant_of(value)) if is_constant(value) else None


def _key(value: Value) -> Key:
    """Return a key that is equal only for equal values."""
    if is_constant(value):
        return int(constant_of(value))
    op = value.op
    return ("extent", op.operands[0], op.attrs["axis"]) if op is not None and op.name == "extent" else value
