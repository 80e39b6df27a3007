"""Interpreters that give up: changed kernels may not end.

Enters: seconds. Leaves: inside the block, checks interpret kernels on devices that raise EndlessError when the time is
over, at the next round of a loop. The block's `Clock` can be wound up again, for one piece of work after the other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..devices import use_device
from ..errors import KernelError
from ..interp.compile import FunctionCompiler, ProgramCompiler
from ..interp.device import InterpreterDevice, InterpreterKernel
from ..interp.engine import Program
from ..ir.core import Function, Module, Region
from ..runtime.artifact import KernelArtifact
from .run import interpreter_factory

__all__ = ["Clock", "EndlessError", "impatient"]


class EndlessError(KernelError):
    """The time is over, and the kernel still runs."""


@dataclass(slots=True)
class Clock:
    """When the time is over, in seconds that the thread has run."""

    deadline: float

    def restart(self, seconds: float) -> None:
        """That many seconds from now on."""
        self.deadline = time.thread_time() + seconds


class _FunctionCompiler(FunctionCompiler):
    """Looks at the clock whenever a region is entered."""

    clock: Clock

    def region(self, region: Region) -> Any:
        run, clock = super().region(region), self.clock

        def watched(frame: Any, mask: Any) -> Any:
            if time.thread_time() > clock.deadline:
                raise EndlessError("the kernel goes on for too long")
            return run(frame, mask)

        return watched


class _ProgramCompiler(ProgramCompiler):
    clock: Clock

    def compiler(self, function: Function) -> FunctionCompiler:
        made = _FunctionCompiler(self, function)
        made.clock = self.clock
        return made


class _Impatient(InterpreterDevice):
    """An interpreter with a deadline."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        module: Module = artifact.code
        program = Program(module)
        compiler = _ProgramCompiler(module)
        compiler.clock = self.clock
        program._code = compiler.kernel()
        return InterpreterKernel(artifact, program)


@contextlib.contextmanager
def impatient(seconds: float) -> Iterator[Clock]:
    """Kernels that are interpreted inside the block have that much time, all of them together or until it is restarted."""
    clock = Clock(0.0)
    clock.restart(seconds)
    token = interpreter_factory.set(lambda: _Impatient(clock))
    try:
        with use_device(_Impatient(clock)):
            yield clock
    finally:
        interpreter_factory.reset(token)
