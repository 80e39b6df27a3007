"""Integers of a kernel as numbers: for all invocations of a workgroup, and all rounds of loops with constant bounds.

Enters: values, from local ids, constants and counters. Leaves: arrays of numbers with an axis of rounds and one of
invocations; None for what depends on anything else, or might wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.core import Op, Value
from ...ir.rewrite import constant_of
from ...ir.types import Scalar

__all__ = ["Ints", "Numbers"]

_MOST_ROUNDS = 1 << 12
"""Rounds of the loops that are entered, times invocations divided by 256, that are computed."""
_LARGEST = 1 << 30
"""Beyond it, integers might wrap."""

Ints = npt.NDArray[np.int64]
_FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "floordiv": np.floor_divide, "floormod": np.remainder,
}  # fmt: skip


@dataclass(slots=True)
class Numbers:
    """Values of integers for all invocations (second axis) and rounds of the loops around (first axis)."""

    local_size: tuple[int, int, int]
    alone: bool = False
    """Whether local ids count as unknown."""
    counters: dict[Value, Ints] = field(default_factory=dict)
    rounds: int = 1
    known: dict[Value, Ints | None] = field(default_factory=dict)

    def entered(self, loop: Op) -> Numbers:
        """The same inside a loop: with all rounds of one whose bounds are constants; of others, nothing that depends on
        their counter is known.
        """
        bounds: list[Any] = [constant_of(v) for v in loop.operands[:3]] if loop.name == "for" else [None]
        if not all(isinstance(b, int) for b in bounds) or bounds[2] <= 0:
            return self
        count = max(0, -((bounds[0] - bounds[1]) // bounds[2]))
        invocations = self.local_size[0] * self.local_size[1] * self.local_size[2]
        if not count or self.rounds * count * max(1, invocations // 256) > _MOST_ROUNDS:
            return self
        counters = {v: np.tile(held, (count, 1)) for v, held in self.counters.items()}
        counters[loop.regions[0].args[0]] = np.repeat(np.arange(*bounds, dtype=np.int64), self.rounds)[:, None]
        return Numbers(self.local_size, self.alone, counters, self.rounds * count)

    def has(self, loop: Op) -> bool:
        """Whether the rounds of a loop are known."""
        return loop.regions[0].args[0] in self.counters

    def cells(self, shape: Sequence[int], indices: Sequence[Value]) -> Ints | None:
        """The elements of an array that are touched, in C order; None where that isn't known, or some lie outside."""
        total: Ints = np.zeros((1, 1), dtype=np.int64)
        for extent, value in zip(shape, indices, strict=True):
            index = self.of(value)
            if index is None or index.min() < 0 or index.max() >= extent:
                return None
            total = total * extent + index
        return np.unique(total)

    def of(self, value: Value) -> Ints | None:
        """A value's numbers."""
        if value not in self.known:
            found = self._of(value)
            if found is not None and max(abs(int(found.min())), abs(int(found.max()))) > _LARGEST:
                found = None
            self.known[value] = found
        return self.known[value]

    def _of(self, value: Value) -> Ints | None:
        if value in self.counters:
            return self.counters[value]
        op = value.op
        if op is None or not isinstance(value.type, Scalar) or not value.type.dtype.is_integer:
            return None
        if op.name == "const":
            return np.full((1, 1), op.attrs["value"], dtype=np.int64)
        if op.name == "local_id":
            return None if self.alone else self._ids(op.attrs["dim"])
        if op.name == "cast" and value.type.dtype.bits >= 32:
            return self.of(op.operands[0])
        if op.name not in _FUNCTIONS or value.type.dtype.bits < 32:
            return None
        first, second = (self.of(v) for v in op.operands)
        if first is None or second is None or (op.name.startswith("floor") and not second.all()):
            return None
        result: Ints = _FUNCTIONS[op.name](first, second)
        return result

    def _ids(self, dim: int) -> Ints:
        x, y, z = self.local_size
        number = np.arange(x * y * z, dtype=np.int64)[None, :]
        return (number % x, number // x % y, number // (x * y))[dim]
