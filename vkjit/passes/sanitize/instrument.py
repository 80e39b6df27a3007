"""Builds the sanitizer's checks into a kernel.

Before: a kernel in normal form, inlined, with the attribute `sanitize` (names of checks) and guarded accesses (`bounds`).
After: with hidden parameters behind the user's, and with code around accesses, barriers and arithmetic that writes a
record for each place where something is wrong; `sanitizer_plan` among its attributes says what the launch has to give
and how records are read. The kernel goes on after a finding, and computes what it would have computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.core import Module
from .records import write_records
from .state import State

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
        write_records(state)
        state.finish()
        return module
