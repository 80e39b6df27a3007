"""Symbolic ranges of array rows that a loop accesses, for loops whose bounds are known only at the launch.

`definite_writes` compares the rows that a loop reads with the rows that an earlier loop has written. `Rows` is a range
with symbolic bounds; two equal `Rows` are always the same rows at run time.

A range is found for two forms of indices:

1. The index is the induction variable of a loop. The range is that of the loop's bounds.
2. The index is `c * s + i`, where `c` is the induction variable of a loop over blocks from 0 to `E`, `s` is the
   constant size of a block, and `0 <= i < s`. The range is the rows from 0 to `E * s`.

Bounds have 64 bits. Products are used only if their factors are small enough that they can't wrap around.
"""

from __future__ import annotations

from dataclasses import dataclass

from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import INDEX, Scalar

from .concrete_values import ConcreteValues

__all__ = ["Rows", "rows_of_index", "rows_of_induction_variable"]

_MAX_BLOCKS = 1 << 31
_MAX_BLOCK_SIZE = 1 << 12
"""Upper limits on the number of blocks and on the size of a block, so that their product can't wrap around."""

Key = object
"""A symbolic bound (see `_key`). Equal keys stand for equal values at run time."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows from `start` (inclusive) to `end * scale` (exclusive)."""

    start: Key
    end: Key
    scale: int = 1


def rows_of_induction_variable(loop: Op) -> Rows | None:
    """Return the rows that a loop writes if it stores to the row whose index is the loop's induction variable.

    Returns None if the loop's step isn't 1, since the loop then skips rows.
    """
    return _range_of_bounds(loop) if constant_of(loop.operands[2]) == 1 else None


def rows_of_index(index: Value, evaluator: ConcreteValues, loops: list[Op]) -> Rows | None:
    """Return a range of rows that contains all values of an index along the first axis; None if no range is known.

    `loops` are the enclosing loops of the access, and `evaluator` evaluates integers at the access.
    """
    loop_of_variable = {loop.regions[0].args[0]: loop for loop in loops if loop.name == "for"}
    if index in loop_of_variable:
        return _range_of_variable(loop_of_variable[index])
    for block, offset in _pairs(index, "add"):
        for variable, size in _pairs(block, "mul"):
            scale, offsets = _constant_int(size), evaluator.of(offset)
            if variable not in loop_of_variable or scale is None or offsets is None:
                continue
            # the blocks must be those from 0 to the loop's end; with `scale` 1, this end isn't itself a product
            rows = _range_of_variable(loop_of_variable[variable])
            if rows is not None and rows.scale == 1 and rows.start == 0 and 0 <= offsets.min() <= offsets.max() < scale:
                return _range_to_product(loop_of_variable[variable].operands[1], scale)
    return None


def _range_of_variable(loop: Op) -> Rows | None:
    """Return a range that contains all values of a loop's induction variable.

    Returns None unless the loop's step is a positive constant.
    """
    step = _constant_int(loop.operands[2])
    return _range_of_bounds(loop) if step is not None and step > 0 else None


def _range_of_bounds(loop: Op) -> Rows:
    """Return the range from a loop's start to its end.

    If the start is 0 and the end is a product `base * constant`, the factors become `end` and `scale` of the range.
    """
    start, end = _key(loop.operands[0]), loop.operands[1]
    if start == 0:
        for base, size in _pairs(end, "mul"):
            scale = _constant_int(size)
            rows = None if scale is None or scale <= 0 else _range_to_product(base, scale)
            if rows is not None:
                return rows
    return Rows(start, _key(end))


def _range_to_product(end: Value, scale: int) -> Rows | None:
    """Return the rows from 0 to `end * scale` (exclusive); None if the product might wrap around."""
    return Rows(0, _key(end), scale) if scale < _MAX_BLOCK_SIZE and _is_small(end) else None


def _is_small(value: Value) -> bool:
    """True if a value is known to be small enough that its product with a block size can't wrap around."""
    op = value.op
    if value.type != INDEX or op is None:
        return False
    if op.name == "extent":  # limited by the array's size in memory
        return True
    if op.name == "min":
        return any(n < _MAX_BLOCKS for n in map(_constant_int, op.operands) if n is not None)
    # a value converted from a type of at most 32 bits
    source = op.operands[0].type if op.name == "cast" else None
    return isinstance(source, Scalar) and source.dtype.is_integer and source.dtype.bits <= 32


def _pairs(value: Value, name: OpName) -> list[tuple[Value, Value]]:
    """Return the operands (x, y) and (y, x) of an operation `name` on `index` values; [] for any other value."""
    op = value.op
    if op is None or op.name != name or value.type != INDEX:
        return []
    x, y = op.operands
    return [(x, y), (y, x)]


def _constant_int(value: Value) -> int | None:
    """Return the value of a constant; None for any other value."""
    return int(constant_of(value)) if is_constant(value) else None


def _key(value: Value) -> Key:
    """Return the symbolic bound of a value: a constant, an extent of an array, or the IR value itself."""
    if is_constant(value):
        return int(constant_of(value))
    op = value.op
    return ("extent", op.operands[0], op.attrs["axis"]) if op is not None and op.name == "extent" else value
