"""Detection of subnormal numbers, which devices may flush to zero.

If a device gives a result that differs from the interpreter's, `is_excused` runs the program on the interpreter again
and checks the float results of all operations. If one is subnormal, the difference may be due to flushing and isn't
reported. To this end, the classes here extend the interpreter's compiler, which turns each operation into a step (a
Python function). After the step of each operation with a float result, they add a step that checks the result.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.backends.interp import Program as InterpreterProgram
from vkjit.backends.interp.extension import (
    Frame,
    FunctionCompiler,
    Grid,
    Log,
    ProgramCompiler,
    Step,
    argument_value,
)
from vkjit.dtypes import DType
from vkjit.errors import KernelError
from vkjit.ir.core import Function, Op

from .program import Memory, Program

__all__ = ["is_excused"]


class _SubnormalDetector:
    """Checks results of operations for subnormal numbers; `found` is True after the first one."""

    def __init__(self) -> None:
        self.found = False

    def look(self, value: Any, dtype: DType) -> None:
        """Check the result of one operation, given as a NumPy array with the values of all invocations."""
        if not isinstance(value, np.ndarray):  # the result is an array in memory, such as that of `shared`
            return
        # the smallest normal number; that of bf16 is the same as that of f32
        smallest_normal = float(np.finfo(np.float32 if dtype is dtypes.bf16 else dtype.numpy).tiny)
        with np.errstate(all="ignore"):
            magnitude = np.abs(value)
            self.found = self.found or bool(((magnitude > 0) & (magnitude < smallest_normal)).any())


class _CheckedFunctionCompiler(FunctionCompiler):
    """Compiles a function with a check of the results of all float operations."""

    detector: _SubnormalDetector

    def _plain(self, op: Op, steps: list[Step]) -> None:
        """Compile an operation without regions, followed by the check if its result is a float."""
        super()._plain(op, steps)
        dtype = getattr(op.results[0].type, "dtype", None) if op.results else None
        # a result is read from its slot in the frame; constants aren't checked, only what is computed from them
        if not isinstance(dtype, DType) or not dtype.is_float or op.results[0] not in self._slots or op.name == "const":
            return
        slot, detector = self.slot(op.results[0]), self.detector
        float_type: DType = dtype

        def check_result(frame: Frame, _mask: Any) -> None:
            detector.look(frame[slot], float_type)

        steps.append(check_result)


class _CheckedProgramCompiler(ProgramCompiler):
    """Compiles all functions of a module with `_CheckedFunctionCompiler`."""

    detector: _SubnormalDetector

    def compiler(self, function: Function) -> FunctionCompiler:
        """Return the compiler of one function; the base class calls this for the kernel and each device function."""
        function_compiler = _CheckedFunctionCompiler(self, function)
        function_compiler.detector = self.detector
        return function_compiler


def is_excused(program: Program, memory: Memory) -> bool:
    """True if an operation of the program returns a subnormal float, so that a device's results may differ.

    `memory` has the program's arguments; it isn't changed.
    """
    detector = _SubnormalDetector()
    compiler = _CheckedProgramCompiler(program.module)
    compiler.detector = detector
    prepared = InterpreterProgram(program.module)
    prepared._code = compiler.kernel()  # code with checks replaces the code that the constructor compiled
    arguments = memory.copy().arguments(program)
    # the arguments in the form in which the interpreter's frames hold them
    values = [argument_value(param, argument) for param, argument in zip(prepared.params, arguments, strict=True)]
    # 32 is the default of `run_module`; the size may differ from that of the device
    grid = Grid(program.groups, prepared.local_size, subgroup_size=32)
    with contextlib.suppress(KernelError):  # after an error, the results so far count
        prepared.run(grid, values, Log(program.module.kernel.name, tuple(program.module.sites)))
    return detector.found
