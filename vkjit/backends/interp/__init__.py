"""The reference interpreter: what the IR means, the oracle of passes and back ends, the device of last resort."""

from __future__ import annotations

from .codegen.engine import Program, run_module

__all__ = ["Program", "run_module"]
