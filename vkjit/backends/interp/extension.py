"""The parts of the interpreter that tools extend, such as the time limit and the shadow execution of `vkjit.testing`.

A tool derives from `FunctionCompiler` and `ProgramCompiler` to generate other steps for operations, and from
`InterpreterDevice` to load kernels with them.
"""

from __future__ import annotations

from .codegen.batch import Grid, Log
from .codegen.compile import BATCH, Frame, FunctionCompiler, ProgramCompiler, Step
from .codegen.elementwise import meaning_of
from .codegen.engine import argument_value
from .codegen.memory import GlobalArray, Memory, Site
from .runtime.arguments import Arguments

__all__ = [
    "BATCH", "Arguments", "Frame", "FunctionCompiler", "GlobalArray", "Grid", "Log", "Memory", "ProgramCompiler", "Site",
    "Step", "argument_value", "meaning_of",
]  # fmt: skip
