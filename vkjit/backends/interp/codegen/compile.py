"""Compiles an `ir.Function` into threaded code (`FunctionCode`): a list of Python closures over numbered slots of a frame.

A frame is a list: slot 0 holds the `Batch`, slot 1 the `Accumulator` of the invocations that have returned, slot 2 the
call path, the others values. The handler of an operation, found by name, makes its step: a plain step computes and leaves
the mask unchanged, a control step returns the mask of the invocations that continue. A slot is reused after the last use of
its value, so that no more arrays are alive than the program needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vkjit.errors import InternalError
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName

from .values import DEAD, Mask

__all__ = ["CONTROL", "PLAIN", "FunctionCode", "FunctionCompiler", "ProgramCompiler", "Step", "control", "plain"]

Frame = list[Any]
Step = Callable[[Frame, Mask], None]
ControlStep = Callable[[Frame, Mask], Mask]

BATCH, RETURNED, PATH = 0, 1, 2
_RESERVED = 3

PLAIN: dict[OpName, Callable[[FunctionCompiler, Op], Step | None]] = {}
CONTROL: dict[OpName, Callable[[FunctionCompiler, Op], ControlStep]] = {}


def plain(*names: OpName) -> Callable[[Callable[[FunctionCompiler, Op], Step | None]], Callable[..., Step | None]]:
    """Registers the handler of operations that leave the mask alone; None means that nothing happens at run time."""

    def register(handler: Callable[[FunctionCompiler, Op], Step | None]) -> Callable[..., Step | None]:
        for name in names:
            if name in PLAIN or name in CONTROL:
                raise InternalError(f"operation {name} has a handler already")
            PLAIN[name] = handler
        return handler

    return register


def control(*names: OpName) -> Callable[[Callable[[FunctionCompiler, Op], ControlStep]], Callable[..., ControlStep]]:
    """Registers the handler of operations that may change the mask."""

    def register(handler: Callable[[FunctionCompiler, Op], ControlStep]) -> Callable[..., ControlStep]:
        for name in names:
            if name in PLAIN or name in CONTROL:
                raise InternalError(f"operation {name} has a handler already")
            CONTROL[name] = handler
        return handler

    return register


@dataclass(slots=True)
class FunctionCode:
    """A function made ready: copy `template`, put the arguments into `params`, run `body`."""

    name: str
    template: Frame
    params: list[int]
    body: ControlStep


@dataclass(slots=True)
class ProgramCompiler:
    """Compiles the functions of a module, each once."""

    module: Module
    done: dict[str, FunctionCode] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    places: int = 0

    def function(self, name: str) -> FunctionCode:
        """The code of a device function; InternalError for recursion or an unknown name."""
        if name in self.done:
            return self.done[name]
        if name not in self.module.functions:
            raise InternalError(f"no function is named {name}")
        if name in self.open:
            raise InternalError(f"function {name} calls itself")
        self.open.append(name)
        self.done[name] = self.compiler(self.module.functions[name]).compile()
        self.open.pop()
        return self.done[name]

    def kernel(self) -> FunctionCode:
        """The code of the kernel."""
        return self.compiler(self.module.kernel).compile()

    def compiler(self, function: Function) -> FunctionCompiler:
        """What compiles one function; interpreters that watch the steps put their own here."""
        return FunctionCompiler(self, function)

    def place(self) -> int:
        """A number for a program point."""
        self.places += 1
        return self.places


class FunctionCompiler:
    """Compiles one function; what handlers use: slots of values, code of regions, the innermost loop."""

    def __init__(self, program: ProgramCompiler, function: Function) -> None:
        self.program = program
        self.source = function
        self.loops: list[int] = []
        self.used: set[Value] = {value for op in function.body.walk() for value in op.operands}
        self._template: Frame = [None] * _RESERVED
        self._slots: dict[Value, int] = {}
        self._free: list[int] = []
        self._pinned: set[int] = set()

    def compile(self) -> FunctionCode:
        """The whole function."""
        params = [self.define(value) for value in self.source.params]
        body = self.region(self.source.body)
        return FunctionCode(self.source.name, self._template, params, body)

    def slot(self, value: Value) -> int:
        """The slot of a value that is defined already."""
        found = self._slots.get(value)
        if found is None:
            raise InternalError(f"{self.source.name}: a value is used before its definition: {value!r}")
        return found

    def slots(self, values: Sequence[Value]) -> list[int]:
        """The slots of several values."""
        return [self.slot(value) for value in values]

    def define(self, value: Value) -> int:
        """The slot that a new value gets."""
        if value not in self._slots:
            self._slots[value] = self.fresh()
        return self._slots[value]

    def constant(self, value: Value, content: Any) -> None:
        """Makes a value part of every new frame."""
        slot = self._slots[value] = len(self._template)
        self._template.append(content)
        self._pinned.add(slot)

    def fresh(self) -> int:
        """A slot for a handler's own use, to be given back with `release`."""
        if self._free:
            return self._free.pop()
        self._template.append(None)
        return len(self._template) - 1

    def release(self, slot: int) -> None:
        """Gives a slot back."""
        if slot not in self._pinned:
            self._free.append(slot)

    def region(self, region: Region) -> ControlStep:
        """The code of a region: returns the mask of those that reach its end."""
        for value in region.args:
            self.define(value)
        last = _last_uses(region)
        segments: list[tuple[tuple[Step, ...], ControlStep]] = []
        steps: list[Step] = []
        for number, op in enumerate(region.ops):
            if op.name in CONTROL:
                segments.append((tuple(steps), CONTROL[op.name](self, op)))
                steps = []
            else:
                self._plain(op, steps)
            for value in last.get(number, ()):
                self.release(self._slots[value])
        return _sequence(segments, tuple(steps))

    def _plain(self, op: Op, steps: list[Step]) -> None:
        handler = PLAIN.get(op.name)
        if handler is None:
            raise InternalError(f"the interpreter has no handler for operation {op.name}")
        step = handler(self, op)
        if step is not None:
            steps.append(step)


def _last_uses(region: Region) -> dict[int, list[Value]]:
    """For each operation of the region (by number) the values of the region that die with it."""
    last: dict[Value, int] = dict.fromkeys(region.args, len(region.ops) - 1)
    used: dict[Value, int] = {}
    for number, op in enumerate(region.ops):
        for value in op.results:
            last[value] = number
        for inner in op.walk():
            for value in inner.operands:
                used[value] = number
    ends: dict[int, list[Value]] = {}
    for value, number in last.items():
        ends.setdefault(used.get(value, number), []).append(value)
    return ends


def _sequence(segments: list[tuple[tuple[Step, ...], ControlStep]], tail: tuple[Step, ...]) -> ControlStep:
    def straight(frame: Frame, mask: Mask) -> Mask:
        for step in tail:
            step(frame, mask)
        return mask

    def branching(frame: Frame, mask: Mask) -> Mask:
        for steps, end in segments:
            for step in steps:
                step(frame, mask)
            mask = end(frame, mask)
            if mask is DEAD:
                return DEAD
        for step in tail:
            step(frame, mask)
        return mask

    return branching if segments else straight
