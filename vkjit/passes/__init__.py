"""Passes: each takes a module and gives a module with the same meaning; `pipeline` shows their order.

A pass is a frozen dataclass whose fields are its options. Its docstring shows before and after. It may change the
module that it is given, and returns it.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ..ir.core import Module

__all__ = ["Pass"]


class Pass(Protocol):
    """What every pass offers."""

    name: ClassVar[str]

    def run(self, module: Module) -> Module:
        """The module with the pass applied; the given one may have been changed."""
        ...
