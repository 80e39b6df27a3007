"""Time-limited interpretation, for kernels that may not terminate, such as those that mutation testing modifies.

Inside `with time_limited(seconds) as clock`, checks interpret kernels on devices that raise TimeLimitError after the
deadline, on entry to the next IR region, such as a loop iteration. `clock.restart` sets a new deadline, for example for
each kernel.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vkjit.backends.interp import InterpreterDevice, InterpreterKernel, Program
from vkjit.backends.interp.extension import FunctionCompiler, ProgramCompiler
from vkjit.backends.selection import use_device
from vkjit.errors import KernelError
from vkjit.ir.core import Function, Module, Region
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.open_blocks import Block, block, while_set

from .run import interpreter_factory

__all__ = ["Clock", "TimeLimitError", "time_limited"]


class TimeLimitError(KernelError):
    """The kernel exceeded its time limit."""


@dataclass(slots=True)
class Clock:
    """A deadline, in seconds of the thread's CPU time."""

    deadline: float

    def restart(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now."""
        self.deadline = time.thread_time() + seconds


class _FunctionCompiler(FunctionCompiler):
    """A function compiler whose regions check the deadline on entry."""

    clock: Clock

    def region(self, region: Region) -> Any:
        run, clock = super().region(region), self.clock

        def checked(frame: Any, mask: Any) -> Any:
            if time.thread_time() > clock.deadline:
                raise TimeLimitError("the kernel goes on for too long")
            return run(frame, mask)

        return checked


class _ProgramCompiler(ProgramCompiler):
    """A program compiler that compiles functions with checks of the deadline."""

    clock: Clock

    def compiler(self, function: Function) -> FunctionCompiler:
        inner = _FunctionCompiler(self, function)
        inner.clock = self.clock
        return inner


class _TimeLimitedDevice(InterpreterDevice):
    """An interpreter device with a deadline."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        module: Module = artifact.code
        program = Program(module)
        compiler = _ProgramCompiler(module)
        compiler.clock = self.clock
        program._code = compiler.kernel()  # instead of the code that `Program` has compiled, without checks
        return InterpreterKernel(artifact, program)


@block
def time_limited(seconds: float) -> Iterator[Clock]:
    """Limit the CPU time, in seconds, of interpreted kernels inside the block.

    A kernel that runs after the deadline raises TimeLimitError. The limit applies to the CPU time of the whole thread
    since the start of the block. Yields the `Clock`, by which the caller can set a new deadline.
    """
    clock = Clock(0.0)
    clock.restart(seconds)
    factory = functools.partial(_TimeLimitedDevice, clock)
    with Block(functools.partial(while_set, interpreter_factory, factory)), use_device(factory()):
        yield clock
