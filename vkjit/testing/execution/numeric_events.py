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

from .accumulations import SUMS

__all__ = ["Sights", "watch_births", "watch_losses"]

_LOSING: frozenset[OpName] = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "fmin", "fmax"})
"""Operations that treat NaN like a number or ignore it."""


@dataclass(slots=True)
class Sights:
    """Source locations of one run: `losses` compare a NaN, `births` produce NaN or infinities from finite operands."""

    losses: dict[Loc, None] = field(default_factory=dict)
    births: dict[Loc, None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget the events of the previous run."""
        self.losses.clear()
        self.births.clear()


def watch_losses(compiler: FunctionCompiler, op: Op, steps: list[Step], sights: Sights) -> None:
    """Add a step, before the operation, that records NaN operands."""
    if op.name not in _LOSING:
        return
    slots, loc, found = compiler.slots(op.operands), op.loc, sights.losses

    def step(frame: Any, mask: Any) -> None:
        if loc in found:
            return
        for slot in slots:
            value = np.asarray(frame[slot])
            if value.dtype.kind == "f" and np.any(np.isnan(value) & (True if mask is None else mask)):
                found[loc] = None

    steps.append(step)


def watch_births(compiler: FunctionCompiler, op: Op, steps: list[Step], sights: Sights) -> None:
    """Add a step, after the operation, that records NaN or infinities from finite operands."""
    computes = OPS[op.name].meaning is not None or op.name == "cast" or op.name in SUMS
    if not computes or len(op.results) != 1 or not _holds_floats(op.result.type):
        return
    slots = [slot for slot, v in zip(compiler.slots(op.operands), op.operands, strict=True) if _holds_floats(v.type)]
    if not slots:
        return
    target, loc, found, sums = compiler.slot(op.result), op.loc, sights.births, op.name in SUMS

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
