"""The reference interpreter: what the IR means, the oracle of passes and back ends, the device of last resort.

Tools that change how kernels are interpreted build on `extension`.
"""

from __future__ import annotations

from .codegen.engine import Program, run_module
from .runtime.device import INTERPRETER_CAPS, InterpreterDevice, InterpreterKernel

__all__ = ["INTERPRETER_CAPS", "InterpreterDevice", "InterpreterKernel", "Program", "run_module"]
