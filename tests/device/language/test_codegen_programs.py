"""Random programs of nested branches, loops, exits and local arrays: devices compared with the interpreter."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import Build, block, expected, linear, on_device, same
from vkjit import dtypes
from vkjit.ir.core import Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import I32

COUNT = 64
_BINARY: tuple[OpName, ...] = ("add", "sub", "mul", "min", "max", "and", "or", "xor")
_COMPARE: tuple[OpName, ...] = ("lt", "le", "gt", "ge", "eq", "ne")


class Program:
    """A random kernel over i32 values; every operand is in scope."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.build = Build("program", {"x": linear(dtypes.i32, "in"), "out": linear(dtypes.i32)})
        self.scratch = self.build.emit("local", type=block(dtypes.i32, 4, "local"))
        self.budget = 60

    def module(self) -> Module:
        b = self.build
        i = b.gid32()
        for place in range(4):
            b.op("store", self.scratch, b.i32(place), b.i32(place))
        values = [i, b.emit("load", b.p["x"], i), b.i32(self.random.randint(-50, 50))]
        values = self.statements(values, depth=0, in_loop=False)
        total = values[0]
        for value in values[-4:]:
            total = b.emit("xor", b.emit("mul", total, b.i32(31)), value)
        b.op("store", b.p["out"], i, total)
        return b.finish()

    def statements(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        """Emit a few statements and return the values in scope afterwards."""
        values = list(values)
        for _ in range(self.random.randint(1, 5)):
            self.budget -= 1
            if self.budget < 0:
                break
            kinds = ["value", "value", "memory"]
            if depth < 4:
                kinds += ["if", "for", "loop"]
            if in_loop:
                kinds += ["exit"]
            made = getattr(self, f"emit_{self.random.choice(kinds)}")(values, depth, in_loop)
            values += made
        return values

    def pick(self, values: list[Value]) -> Value:
        return self.random.choice(values)

    def condition(self, values: list[Value]) -> Value:
        return self.build.emit(self.random.choice(_COMPARE), self.pick(values), self.pick(values))

    def emit_value(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        b = self.build
        if self.random.random() < 0.3:
            return [b.emit("select", self.condition(values), self.pick(values), self.pick(values))]
        return [b.emit(self.random.choice(_BINARY), self.pick(values), self.pick(values))]

    def emit_memory(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        b = self.build
        place = b.emit("and", self.pick(values), b.i32(3))
        if self.random.random() < 0.5:
            b.op("store", self.scratch, place, self.pick(values))
            return []
        return [b.emit("load", self.scratch, place)]

    def emit_if(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        b = self.build
        count = self.random.randint(0, 2)
        yes, no, results = b.choose(self.condition(values), [I32] * count)
        leaving = in_loop and self.random.random() < 0.3
        for region, leaves in ((yes, leaving), (no, False)):
            with b.at(region):
                inner = self.statements(values, depth + 1, in_loop) if self.random.random() < 0.8 else values
                if leaves:
                    b.op(self.random.choice(("break", "continue")), *self.carried(inner))
                else:
                    b.op("yield", *(self.pick(inner) for _ in range(count)))
        return results

    def carried(self, values: list[Value]) -> list[Value]:
        return [self.pick(values), self.pick(values)]

    def emit_exit(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        self.build.leave_when(self.condition(values), self.random.choice(("break", "continue")), *self.carried(values))
        return []

    def emit_for(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        b = self.build
        low = b.emit("and", self.pick(values), b.i32(3))
        high = b.emit("and", self.pick(values), b.i32(7))
        step = b.i32(self.random.choice((1, 1, 2, 3, -1, -2, 0)))
        body, results = b.repeat(low, high, step, self.carried(values))
        with b.at(body):
            inner = self.statements([*values, *body.args], depth + 1, True)
            b.op("continue", *self.carried(inner))
        return results

    def emit_loop(self, values: list[Value], depth: int, in_loop: bool) -> list[Value]:
        """Emit a loop with a few iterations, counted in a local array."""
        b = self.build
        body = Region([I32, I32])
        rounds = b.emit("local", type=block(dtypes.i32, 1, "local"))
        b.op("store", rounds, b.i32(0), b.i32(self.random.randint(1, 5)))
        made = b.op("loop", *self.carried(values), types=[I32, I32], regions=[body])
        with b.at(body):
            left = b.emit("load", rounds, b.i32(0))
            b.op("store", rounds, b.i32(0), b.emit("sub", left, b.i32(1)))
            b.leave_when(b.emit("le", left, b.i32(0)), "break", *body.args)
            inner = self.statements([*values, *body.args, left], depth + 1, True)
            b.op("continue", *self.carried(inner))
        return made.results


@pytest.mark.parametrize("seed", range(40))
def test_program(device: Any, seed: int) -> None:
    module = Program(seed).module()
    args = [np.random.default_rng(seed).integers(-100, 100, COUNT).astype(np.int32), np.zeros(COUNT, np.int32)]
    same(on_device(device, module, 1, args), expected(module, 1, args))
