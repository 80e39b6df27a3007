"""Detection of subnormal numbers, which devices may flush to zero.

If a device gives a result that differs from the interpreter's, `is_excused` runs the program on the interpreter again
and checks every float result. If one is subnormal, the difference may be due to flushing and isn't reported. For the
check, the classes here extend the interpreter's compiler: after each operation with a float result, they add a step
that looks at the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.backends.interp.codegen.batch import Grid, Log
from vkjit.backends.interp.codegen.compile import Frame, FunctionCompiler, ProgramCompiler, Step
from vkjit.backends.interp.codegen.engine import Program as Threaded, _value
from vkjit.dtypes import DType
from vkjit.errors import KernelError
from vkjit.ir.core import Function, Op

from .program import Memory, Program

__all__ = ["is_excused"]


class _SubnormalDetector:
    """Looks for subnormal numbers; `found` is True after the first one."""

    def __init__(self) -> None:
        self.found = False

    def look(self, value: Any, dtype: DType) -> None:
        """Check the results of one operation, an array with an element per invocation."""
        if not isinstance(value, np.ndarray):
            return
        tiny = float(np.finfo(np.float32 if dtype is dtypes.bf16 else dtype.numpy).tiny)
        with np.errstate(all="ignore"):
            size = np.abs(value)
            self.found = self.found or bool(((size > 0) & (size < tiny)).any())


class _CheckedFunctionCompiler(FunctionCompiler):
    """Compiles a function with a check of the results of all float operations."""

    met: _SubnormalDetector

    def _plain(self, op: Op, steps: list[Step]) -> None:
        """Compile an operation without regions, followed by the check if its result is a float."""
        super()._plain(op, steps)
        dtype = getattr(op.results[0].type, "dtype", None) if op.results else None
        if not isinstance(dtype, DType) or not dtype.is_float or op.results[0] not in self._slots or op.name == "const":
            return
        slot, met = self.slot(op.results[0]), self.met
        kind: DType = dtype

        def step(frame: Frame, _mask: Any) -> None:
            met.look(frame[slot], kind)

        steps.append(step)


class _CheckedProgramCompiler(ProgramCompiler):
    """Compiles all functions of a module with the check."""

    met: _SubnormalDetector

    def compiler(self, function: Function) -> FunctionCompiler:
        functions = _CheckedFunctionCompiler(self, function)
        functions.met = self.met
        return functions


def is_excused(program: Program, memory: Memory) -> bool:
    """True if an operation of the program yields a subnormal float, so that a device's result may differ."""
    met = _SubnormalDetector()
    threaded = Threaded(program.module)
    compiler = _CheckedProgramCompiler(program.module)
    compiler.met = met
    threaded._code = compiler.kernel()
    arguments = memory.copy().arguments(program)
    values = [_value(param, argument) for param, argument in zip(threaded.params, arguments, strict=True)]
    grid = Grid(program.groups, threaded.local_size, 32)
    try:
        threaded.run(grid, values, Log(program.module.kernel.name, tuple(program.module.sites)))
    except KernelError:
        return met.found
    return met.found
