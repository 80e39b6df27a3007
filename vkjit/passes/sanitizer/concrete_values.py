"""Compile-time evaluation of integer values, for all invocations of a workgroup and all iterations of loops.

A value that is computed from local ids, constants, and induction variables of loops with constant bounds becomes a
NumPy array: one row per iteration, one column per invocation. An axis has size 1 if the value is the same along it.
Values that depend on anything else, or that might wrap around, are unknown (None). `definite_writes` uses this module
to find the array elements that a workgroup accesses.
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
"""Maximum number of iterations (rows) to evaluate. For workgroups with 512 or more invocations, the iterations times
(invocations // 256) are limited instead, which bounds the size of the arrays.
"""
_MAX_MAGNITUDE = 1 << 30
"""Integers of a larger magnitude are treated as unknown, since 32-bit arithmetic with them might wrap around."""

Ints = npt.NDArray[np.int64]
"""The values of an integer: one row per iteration, one column per invocation."""
_FUNCTIONS: dict[OpName, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "floordiv": np.floor_divide, "floormod": np.remainder,
}  # fmt: skip


@dataclass(slots=True)
class ConcreteValues:
    """An evaluator for the integer values of a kernel, either outside of loops or in the body of one loop.

    The rows of the results are the combined iterations of the enclosing loops whose bounds are known; `iterations` is
    their number. `induction_variables` has the values of these loops' induction variables. If `local_ids_unknown` is
    True, local ids are treated as unknown. `cache` has the values evaluated so far.
    """

    local_size: tuple[int, int, int]
    local_ids_unknown: bool = False
    induction_variables: dict[Value, Ints] = field(default_factory=dict)
    iterations: int = 1
    cache: dict[Value, Ints | None] = field(default_factory=dict)

    def inside_loop(self, loop: Op) -> ConcreteValues:
        """Return the evaluator for the body of a loop, or of another structured operation.

        For a `for` with constant bounds and not too many iterations, the rows of the new evaluator are all combinations
        of a row of this evaluator and an iteration of the loop. In any other case the result is `self`, and values that
        depend on the induction variable are unknown.
        """
        if loop.name != "for":
            return self
        bounds: list[Any] = [constant_of(v) for v in loop.operands[:3]]
        if not all(isinstance(b, int) for b in bounds) or bounds[2] <= 0:
            return self
        start, end, step = bounds
        trip_count = max(0, -((start - end) // step))  # (end - start) / step, rounded up
        invocations = self.local_size[0] * self.local_size[1] * self.local_size[2]
        if not trip_count or self.iterations * trip_count * max(1, invocations // 256) > _MAX_ITERATIONS:
            return self
        # the rows of the enclosing loops, repeated for each iteration of this one
        variables = {v: np.tile(values, (trip_count, 1)) for v, values in self.induction_variables.items()}
        own_values = np.arange(start, end, step, dtype=np.int64)
        variables[loop.regions[0].args[0]] = np.repeat(own_values, self.iterations)[:, None]
        return ConcreteValues(self.local_size, self.local_ids_unknown, variables, self.iterations * trip_count)

    def has_iterations_of(self, loop: Op) -> bool:
        """True if the iterations of a loop are among the rows of the results."""
        return loop.regions[0].args[0] in self.induction_variables

    def cells(self, shape: Sequence[int], indices: Sequence[Value]) -> Ints | None:
        """Return the elements that an access at `indices` touches, over all iterations and invocations.

        The result is a sorted array of C-order offsets into an array of shape `shape`. Returns None if an index is
        unknown or out of bounds.
        """
        offsets: Ints = np.zeros((1, 1), dtype=np.int64)
        for extent, value in zip(shape, indices, strict=True):
            index = self.of(value)
            if index is None or index.min() < 0 or index.max() >= extent:
                return None
            offsets = offsets * extent + index
        return np.unique(offsets)

    def of(self, value: Value) -> Ints | None:
        """Return the values of an IR integer, or None if they are unknown."""
        if value not in self.cache:
            numbers = self._of(value)
            if numbers is not None and max(abs(int(numbers.min())), abs(int(numbers.max()))) > _MAX_MAGNITUDE:
                numbers = None
            self.cache[value] = numbers
        return self.cache[value]

    def _of(self, value: Value) -> Ints | None:
        """Evaluate the operation that computes `value`; return None if the result is unknown."""
        if value in self.induction_variables:
            return self.induction_variables[value]
        op = value.op
        if op is None or not isinstance(value.type, Scalar) or not value.type.dtype.is_integer:
            return None
        if op.name == "const":
            return np.full((1, 1), op.attrs["value"], dtype=np.int64)
        if op.name == "local_id":
            return None if self.local_ids_unknown else self._ids(op.attrs["dim"])
        # values of at most _MAX_MAGNITUDE fit types of 32 bits or more; narrower ones might wrap around
        if op.name == "cast" and value.type.dtype.bits >= 32:
            return self.of(op.operands[0])
        if op.name not in _FUNCTIONS or value.type.dtype.bits < 32:
            return None
        first, second = (self.of(v) for v in op.operands)
        if first is None or second is None:
            return None
        if op.name.startswith("floor") and not second.all():  # a divisor is 0
            return None
        result: Ints = _FUNCTIONS[op.name](first, second)
        return result

    def _ids(self, dim: int) -> Ints:
        """Return the local ids along `dim` of all invocations, as a single row."""
        x, y, z = self.local_size
        linear_id = np.arange(x * y * z, dtype=np.int64)[None, :]
        return (linear_id % x, linear_id // x % y, linear_id // (x * y))[dim]
