"""Compile-time evaluation of integers for all invocations of a workgroup and all iterations of loops with constant
bounds.

Values computed from local ids, constants and induction variables become arrays with an axis of iterations and an axis
of invocations. Values that depend on anything else, or that might wrap, are unknown (None).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of
from vkjit.ir.types import Scalar

__all__ = ["ConcreteValues", "Ints"]

_MAX_ITERATIONS = 1 << 12
"""Limit on the iterations of the loops that are evaluated, times the invocations divided by 256."""
_MAX_MAGNITUDE = 1 << 30
"""Integers beyond this magnitude might wrap."""

Ints = npt.NDArray[np.int64]
_FUNCTIONS: dict[OpName, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "floordiv": np.floor_divide, "floormod": np.remainder,
}  # fmt: skip


@dataclass(slots=True)
class ConcreteValues:
    """Values of integers for the iterations of the enclosing loops (first axis) and all invocations (second axis)."""

    local_size: tuple[int, int, int]
    local_ids_unknown: bool = False
    """True if local ids are unknown."""
    induction_variables: dict[Value, Ints] = field(default_factory=dict)
    iterations: int = 1
    cache: dict[Value, Ints | None] = field(default_factory=dict)

    def inside_loop(self, loop: Op) -> ConcreteValues:
        """Return the state inside of a loop: with all its iterations if its bounds are constants; else its induction
        variable is unknown.
        """
        bounds: list[Any] = [constant_of(v) for v in loop.operands[:3]] if loop.name == "for" else [None]
        if not all(isinstance(b, int) for b in bounds) or bounds[2] <= 0:
            return self
        count = max(0, -((bounds[0] - bounds[1]) // bounds[2]))
        invocations = self.local_size[0] * self.local_size[1] * self.local_size[2]
        if not count or self.iterations * count * max(1, invocations // 256) > _MAX_ITERATIONS:
            return self
        counters = {v: np.tile(values, (count, 1)) for v, values in self.induction_variables.items()}
        counters[loop.regions[0].args[0]] = np.repeat(np.arange(*bounds, dtype=np.int64), self.iterations)[:, None]
        return ConcreteValues(self.local_size, self.local_ids_unknown, counters, self.iterations * count)

    def knows_loop(self, loop: Op) -> bool:
        """True if the iterations of a loop are known."""
        return loop.regions[0].args[0] in self.induction_variables

    def cells(self, shape: Sequence[int], indices: Sequence[Value]) -> Ints | None:
        """Return the elements of an array that are accessed, as offsets in C order; None if unknown, or if some are out
        of bounds.
        """
        total: Ints = np.zeros((1, 1), dtype=np.int64)
        for extent, value in zip(shape, indices, strict=True):
            index = self.of(value)
            if index is None or index.min() < 0 or index.max() >= extent:
                return None
            total = total * extent + index
        return np.unique(total)

    def of(self, value: Value) -> Ints | None:
        """Return the numbers of a value, or None if unknown."""
        if value not in self.cache:
            numbers = self._of(value)
            if numbers is not None and max(abs(int(numbers.min())), abs(int(numbers.max()))) > _MAX_MAGNITUDE:
                numbers = None
            self.cache[value] = numbers
        return self.cache[value]

    def _of(self, value: Value) -> Ints | None:
        if value in self.induction_variables:
            return self.induction_variables[value]
        op = value.op
        if op is None or not isinstance(value.type, Scalar) or not value.type.dtype.is_integer:
            return None
        if op.name == "const":
            return np.full((1, 1), op.attrs["value"], dtype=np.int64)
        if op.name == "local_id":
            return None if self.local_ids_unknown else self._ids(op.attrs["dim"])
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
