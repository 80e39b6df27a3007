"""Passes over the IR: checks, and transformations that preserve a module's semantics. `pipeline` defines their order.

A pass is a frozen dataclass whose fields are its options. The docstring of its module shows the IR before and after the
pass. The forms "high", "normal" and "primitive" that the docstrings mention are defined in `ir.verify`.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ..ir.core import Module

__all__ = ["Pass"]


class Pass(Protocol):
    """The interface of a pass."""

    name: ClassVar[str]

    def run(self, module: Module) -> Module:
        """Apply the pass and return the resulting module. May modify `module` in place."""
        ...
