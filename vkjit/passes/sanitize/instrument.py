"""Builds the sanitizer's checks into a kernel.

Before: a kernel in normal form, inlined, with the attribute `sanitize` (names of checks) and guarded accesses (`bounds`).
After: with hidden parameters behind the user's, and with code around accesses, barriers and arithmetic that writes a
record for each place where something is wrong; `sanitizer_plan` among its attributes says what the launch has to give
and how records are read. The kernel goes on after a finding, and computes what it would have computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.builder import Builder
from ...ir.core import Module, Region
from .initialised import Initialised
from .races import Races
from .records import write_records
from .state import State
from .tracking import ACCESSES, Tracking

__all__ = ["Sanitize"]


@dataclass(frozen=True, slots=True)
class Sanitize:
    """Does nothing to kernels without the attribute. See the module's docstring."""

    name: ClassVar[str] = "sanitize"

    def run(self, module: Module) -> Module:
        checks = tuple(module.kernel.attrs.get("sanitize", ()))
        if not checks:
            return module
        state = State.of(module, checks)
        tracking = Tracking(state)
        parts: list[Initialised | Races] = []
        if state.has("uninitialised"):
            parts.append(Initialised(state, tracking))
        if state.has("races"):
            parts.append(Races(state, tracking))
        if parts:
            _instrument(module.kernel.body, parts)
        write_records(state)
        state.finish()
        return module


def _instrument(region: Region, parts: list[Initialised | Races]) -> None:
    """Asks each part at each operation for what stands before and after it."""
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        builder.loc = op.loc
        if op.name in ACCESSES:
            for part in parts:
                part.before_access(op, builder)
        region.ops.append(op)
        for part in parts:
            part.after(op, builder)
        for inner in op.regions:
            _instrument(inner, parts)
