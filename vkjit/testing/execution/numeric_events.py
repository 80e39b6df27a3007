"""Numeric events during interpretation: comparisons of NaN, and operations that create NaN or infinities.

The compiler of shadow programs (`shadow`) calls the `record_*` functions for each operation. They add a step to the
interpreter's program, which records the operation's source location if the event occurs; reports of failures then name
it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkjit.backends.interp.extension import FunctionCompiler, Step
from vkjit.dtypes import DType
from vkjit.errors import Loc
from vkjit.ir.core import Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Array

from .accumulations import ACCUMULATIONS

__all__ = ["NumericEvents", "record_lost_nans", "record_nonfinite"]

_LOSING: frozenset[OpName] = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "fmin", "fmax"})
"""Operations in whose result a NaN operand is lost: comparisons yield a bool, `fmin` and `fmax` the other operand."""


@dataclass(slots=True)
class NumericEvents:
    """The numeric events of one run: source locations, as the keys of dictionaries, in order of occurrence.

    `lost_nans`: operations of `_LOSING` that had a NaN operand. `nonfinite`: operations that produced NaN or infinities
    from finite operands.
    """

    lost_nans: dict[Loc, None] = field(default_factory=dict)
    nonfinite: dict[Loc, None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget the events of the previous run."""
        self.lost_nans.clear()
        self.nonfinite.clear()


def record_lost_nans(compiler: FunctionCompiler, op: Op, steps: list[Step], events: NumericEvents) -> None:
    """Add a step that records the location of an operation in `_LOSING` if it has a NaN operand.

    It must run before the operation's own step.
    """
    if op.name not in _LOSING:
        return
    slots, loc, locations = compiler.slots(op.operands), op.loc, events.lost_nans

    def step(frame: Any, mask: Any) -> None:
        if loc in locations:
            return
        for slot in slots:
            value = np.asarray(frame[slot])
            if value.dtype.kind == "f" and np.any(np.isnan(value) & (True if mask is None else mask)):
                locations[loc] = None

    steps.append(step)


def record_nonfinite(compiler: FunctionCompiler, op: Op, steps: list[Step], events: NumericEvents) -> None:
    """Add a step that records the location of an operation if it produces NaN or infinities from finite operands.

    It must run after the operation's own step.
    """
    computes = OPS[op.name].meaning is not None or op.name == "cast" or op.name in ACCUMULATIONS
    if not computes or len(op.results) != 1 or not _holds_floats(op.result.type):
        return
    slots = [slot for slot, v in zip(compiler.slots(op.operands), op.operands, strict=True) if _holds_floats(v.type)]
    if not slots:
        return
    target, loc, locations, accumulates = compiler.slot(op.result), op.loc, events.nonfinite, op.name in ACCUMULATIONS

    def step(frame: Any, mask: Any) -> None:
        created = ~np.isfinite(frame[target])
        if loc in locations or not created.any():
            return
        for slot in slots:
            finite = np.isfinite(frame[slot])
            # an accumulation's operand may have other axes than its result, so it counts as a whole
            created = created & (finite.all() if accumulates else finite)
        if mask is not None and np.ndim(mask) == created.ndim:  # the mask doesn't apply to tiles, which have other axes
            created = created & mask
        if created.any():
            locations[loc] = None

    steps.append(step)


def _holds_floats(kind: Any) -> bool:
    """True if values of an IR type are floats, or tiles or matrices of floats; False for arrays."""
    dtype = getattr(kind, "dtype", None)
    return not isinstance(kind, Array) and isinstance(dtype, DType) and dtype.is_float
