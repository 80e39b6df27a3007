"""Interpreters that give up: changed kernels may not end.

Enters: seconds. Leaves: inside the block, checks interpret kernels on devices that raise EndlessError when the time is
over, at the next round of a loop.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from ..devices import use_device
from ..errors import KernelError
from ..interp.compile import FunctionCompiler, ProgramCompiler
from ..interp.device import InterpreterDevice, InterpreterKernel
from ..interp.engine import Program
from ..ir.core import Function, Module, Region
from ..runtime.artifact import KernelArtifact
from .run import interpreter_factory

__all__ = ["EndlessError", "impatient"]


class EndlessError(KernelError):
    """The time is over, and the kernel still runs."""


class _FunctionCompiler(FunctionCompiler):
    """Looks at the clock whenever a region is entered."""

    deadline: float

    def region(self, region: Region) -> Any:
        run, deadline = super().region(region), self.deadline

        def watched(frame: Any, mask: Any) -> Any:
            if time.thread_time() > deadline:
                raise EndlessError("the kernel goes on for too long")
            return run(frame, mask)

        return watched


class _ProgramCompiler(ProgramCompiler):
    deadline: float

    def compiler(self, function: Function) -> FunctionCompiler:
        made = _FunctionCompiler(self, function)
        made.deadline = self.deadline
        return made


class _Impatient(InterpreterDevice):
    """An interpreter with a deadline."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        module: Module = artifact.code
        program = Program(module)
        compiler = _ProgramCompiler(module)
        compiler.deadline = self.deadline
        program._code = compiler.kernel()
        return InterpreterKernel(artifact, program)


@contextlib.contextmanager
def impatient(seconds: float) -> Iterator[None]:
    """Kernels that are interpreted inside the block have that much time, all of them together."""
    deadline = time.thread_time() + seconds
    token = interpreter_factory.set(lambda: _Impatient(deadline))
    try:
        with use_device(_Impatient(deadline)):
            yield
    finally:
        interpreter_factory.reset(token)
