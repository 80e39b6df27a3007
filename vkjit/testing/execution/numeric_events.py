"""Numeric events during interpretation: comparisons of NaN, and operations that create NaN or infinities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkjit.backends.interp.codegen.compile import FunctionCompiler, Step
from vkjit.dtypes import DType
from vkjit.errors import Loc
from vkjit.ir.core import Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Array

from .accumulations import ACCUMULATIONS

__all__ = ["NumericEvents", "record_lost_nans", "record_nonfinite"]

_LOSING: frozenset[OpName] = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "fmin", "fmax"})
"""Operations that treat NaN like a number or ignore it."""


@dataclass(slots=True)
class NumericEvents:
    """Source locations of one run.

    `lost_nans`: comparisons and min/max operations that got a NaN operand. `nonfinite`: operations that produced NaN or
    infinities from finite operands.
    """

    lost_nans: dict[Loc, None] = field(default_factory=dict)
    nonfinite: dict[Loc, None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget the events of the previous run."""
        self.lost_nans.clear()
        self.nonfinite.clear()


def record_lost_nans(compiler: FunctionCompiler, op: Op, steps: list[Step], sights: NumericEvents) -> None:
    """Add a step, before the operation, that records NaN operands."""
    if op.name not in _LOSING:
        return
    slots, loc, found = compiler.slots(op.operands), op.loc, sights.lost_nans

    def step(frame: Any, mask: Any) -> None:
        if loc in found:
            return
        for slot in slots:
            value = np.asarray(frame[slot])
            if value.dtype.kind == "f" and np.any(np.isnan(value) & (True if mask is None else mask)):
                found[loc] = None

    steps.append(step)


def record_nonfinite(compiler: FunctionCompiler, op: Op, steps: list[Step], sights: NumericEvents) -> None:
    """Add a step, after the operation, that records NaN or infinities from finite operands."""
    computes = OPS[op.name].meaning is not None or op.name == "cast" or op.name in ACCUMULATIONS
    if not computes or len(op.results) != 1 or not _holds_floats(op.result.type):
        return
    slots = [slot for slot, v in zip(compiler.slots(op.operands), op.operands, strict=True) if _holds_floats(v.type)]
    if not slots:
        return
    target, loc, found, sums = compiler.slot(op.result), op.loc, sights.nonfinite, op.name in ACCUMULATIONS

    def step(frame: Any, mask: Any) -> None:
        born = ~np.isfinite(frame[target])
        if loc in found or not born.any():
            return
        for slot in slots:
            finite = np.isfinite(frame[slot])
            born = born & (finite.all() if sums else finite)
        if mask is not None and np.ndim(mask) == born.ndim:  # the mask doesn't apply to tiles, which have other axes
            born = born & mask
        if born.any():
            found[loc] = None

    steps.append(step)


def _holds_floats(kind: Any) -> bool:
    dtype = getattr(kind, "dtype", None)
    return not isinstance(kind, Array) and isinstance(dtype, DType) and dtype.is_float
