"""Random structured programs over i32, and an evaluator that runs one invocation at a time in plain Python.

The evaluator shares only the IR's classes with the interpreter: control flow uses Python exceptions, values are Python
ints. Programs load x[i] and store y[i]; in between they compute, branch, loop, exit early, call functions, and use a
local array of four elements.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from vkjit.ir import I32, INDEX, Array, Builder, Function, Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import completes

GLOBAL = Array(I32, 1)
LOCAL = Array(I32, 1, space="local", shape=(4,))
ARITHMETIC: tuple[OpName, ...] = ("add", "sub", "mul", "xor", "min", "max", "floordiv", "floormod", "shl", "shr")
COMPARE: tuple[OpName, ...] = ("lt", "le", "eq", "ne")


class Maker:
    """Generator of one function, which may call those in `functions`."""

    def __init__(self, draw: Any, body: Region, functions: list[Function], results: int) -> None:
        self.draw = draw
        self.builder = Builder(body)
        self.functions = functions
        self.results = results
        self.budget = 30
        self.array: Value | None = None

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def pick(self, known: list[Value]) -> Value:
        return known[self.number(0, len(known) - 1)]

    def small(self, known: list[Value], mask: int) -> Value:
        return self.builder.emit("and", self.pick(known), self.builder.const(mask, I32))

    def condition(self, known: list[Value]) -> Value:
        name = COMPARE[self.number(0, len(COMPARE) - 1)]
        return self.builder.emit(name, self.pick(known), self.pick(known))

    def statements(self, known: list[Value], depth: int, loop: int | None) -> list[Value]:
        """Draw statements into the current region; `loop` is the number of values that `break` takes."""
        known = list(known)
        for _ in range(self.number(0, 4)):
            if self.budget <= 0:
                break
            self.budget -= 1
            kind = self.number(0, 9)
            if kind <= 3 or depth == 0:
                name = ARITHMETIC[self.number(0, len(ARITHMETIC) - 1)]
                known.append(self.builder.emit(name, self.pick(known), self.pick(known)))
            elif kind == 4 and self.array is not None:
                place = self.builder.cast(self.small(known, 3), INDEX)
                self.builder.op("store", self.array, place, self.pick(known))
                known.append(self.builder.emit("load", self.array, self.builder.index(self.number(0, 3))))
            elif kind == 5 and self.functions:
                callee = self.functions[self.number(0, len(self.functions) - 1)]
                made = self.builder.op("call", self.pick(known), self.pick(known), types=[I32], callee=callee.name)
                known.append(made.result)
            elif kind <= 7:
                known += self.branch(known, depth, loop)
            elif kind == 8:
                known += self.counted(known, depth)
            else:
                known += self.endless(known, depth)
            if not completes(self.builder.region.ops[-1]):
                break
        return known

    def finish(self, known: list[Value], regular: OpName, count: int, loop: int | None) -> None:
        """End the current region, usually with the `regular` terminator."""
        last = self.builder.region.ops[-1] if self.builder.region.ops else None
        if last is not None and not completes(last):
            self.builder.op("unreachable")
            return
        choice = self.number(0, 9)
        if choice == 0:
            self.builder.op("return", *(self.pick(known) for _ in range(self.results)))
        elif choice == 1 and loop is not None:
            self.builder.op("break", *(self.pick(known) for _ in range(loop)))
        elif choice == 2 and loop is not None:
            self.builder.op("continue", *(self.pick(known) for _ in range(loop)))
        else:
            self.builder.op(regular, *(self.pick(known) for _ in range(count)))

    def branch(self, known: list[Value], depth: int, loop: int | None) -> list[Value]:
        count = self.number(0, 2)
        condition, regions = self.condition(known), [Region(), Region()]
        for region in regions:
            with self.builder.at(region):
                inner = self.statements(known, depth - 1, loop)
                self.finish(inner, "yield", count, loop)
        if not any(region.terminator.name == "yield" for region in regions):
            count = 0
        made = self.builder.op("if", condition, types=[I32] * count, regions=regions)
        return list(made.results)

    def counted(self, known: list[Value], depth: int) -> list[Value]:
        count, step = self.number(0, 2), (1, 2, -1, -3, 3)[self.number(0, 4)]
        low, high = self.small(known, 7), self.small(known, 7)
        starts = [self.pick(known) for _ in range(count)]
        body = Region([I32] * (1 + count))
        with self.builder.at(body):
            inner = self.statements([*known, *body.args], depth - 1, count)
            self.finish(inner, "continue", count, count)
        made = self.builder.op(
            "for", low, high, self.builder.const(step, I32), *starts, types=[I32] * count, regions=[body]
        )
        return list(made.results)

    def endless(self, known: list[Value], depth: int) -> list[Value]:
        """Draw a `loop` that counts down a loop-carried value, so that it always ends."""
        body = Region([I32, I32])
        counter, carried = body.args
        with self.builder.at(body):
            done, stop, go = self.builder.emit("le", counter, self.builder.const(0, I32)), Region(), Region()
            with self.builder.at(stop):
                self.builder.op("break", carried, counter)
            with self.builder.at(go):
                self.builder.op("yield")
            self.builder.op("if", done, types=[], regions=[stop, go])
            inner = self.statements([*known, carried], depth - 1, None)  # exits here would skip the decrement
            last = self.builder.region.ops[-1]
            if completes(last):
                less = self.builder.emit("sub", counter, self.builder.const(1, I32))
                self.builder.op("continue", less, self.pick(inner))
            else:
                self.builder.op("unreachable")
        starts = [self.small(known, 3), self.pick(known)]
        made = self.builder.op("loop", *starts, types=[I32, I32], regions=[body])
        return list(made.results)


@st.composite
def programs(draw: Any, local: tuple[int, int, int] = (16, 1, 1)) -> Module:
    """A kernel that reads x and writes y, with up to two device functions."""
    functions: list[Function] = []
    for number in range(draw(st.integers(0, 2))):
        body = Region([I32, I32])
        maker = Maker(draw, body, list(functions), 1)
        maker.budget = 8
        known = maker.statements(body.args, 2, None)
        maker.finish(known, "return", 1, None)
        functions.append(Function(f"f{number}", body, [I32]))
    body = Region([GLOBAL, GLOBAL], ["x", "y"])
    maker = Maker(draw, body, functions, 0)
    builder = maker.builder
    i = builder.emit("global_id", dim=0)
    maker.array = builder.emit("local", type=LOCAL)
    for place in range(4):
        builder.op("store", maker.array, builder.index(place), builder.const(place, I32))
    known = [builder.emit("load", body.args[0], i), builder.const(1, I32), builder.const(-3, I32)]
    known = maker.statements(known, 3, None)
    if completes(builder.region.ops[-1]):
        for value in known[-3:]:
            old = builder.emit("load", body.args[1], i)
            builder.op("store", body.args[1], i, builder.emit("add", builder.emit("mul", old, known[1]), value))
        builder.op("return")
    else:
        builder.op("unreachable")
    return Module(Function("k", body, attrs={"local_size": local}), {f.name: f for f in functions})


class _Exit(Exception):
    def __init__(self, values: list[Any]) -> None:
        self.values = values


class _Break(_Exit):
    pass


class _Continue(_Exit):
    pass


class _Return(_Exit):
    pass


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


_SCALAR: dict[str, Any] = {
    "add": lambda a, b: wrap(a + b),
    "sub": lambda a, b: wrap(a - b),
    "mul": lambda a, b: wrap(a * b),
    "xor": lambda a, b: a ^ b,
    "and": lambda a, b: a & b,
    "min": min,
    "max": max,
    "floordiv": lambda a, b: wrap(a // b) if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "shl": lambda a, b: wrap(a << (b % 32)),
    "shr": lambda a, b: a >> (b % 32),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "cast": lambda a: a,
}


class Evaluator:
    """Evaluator of one invocation."""

    def __init__(self, module: Module, x: list[int], y: list[int], invocation: int) -> None:
        self.module, self.invocation = module, invocation
        self.values: dict[Value, Any] = {}
        try:
            self.region(module.kernel.body, [x, y])
        except _Return:
            return

    def region(self, region: Region, arguments: list[Any]) -> list[Any]:
        self.values.update(zip(region.args, arguments, strict=True))
        for op in region.ops:
            operands = [self.values[value] for value in op.operands]
            if op.name == "yield":
                return operands
            kind = {"break": _Break, "continue": _Continue, "return": _Return}.get(op.name)
            if kind is not None:
                raise kind(operands)
            self.values.update(zip(op.results, self.op(op, operands), strict=True))
        raise AssertionError("a region has no end")

    def op(self, op: Any, operands: list[Any]) -> list[Any]:
        if op.name in _SCALAR:
            return [_SCALAR[op.name](*operands)]
        if op.name == "if":
            return self.region(op.regions[0 if operands[0] else 1], [])
        if op.name in ("const", "global_id", "local"):
            return [{"const": op.attrs.get("value"), "global_id": self.invocation, "local": [0] * 4}[op.name]]
        if op.name == "load":
            return [operands[0][operands[1]]]
        if op.name == "store":
            operands[0][operands[1]] = operands[2]
            return []
        return {"for": self.counted, "loop": self.endless, "call": self.call}[op.name](op, operands)

    def counted(self, op: Any, operands: list[Any]) -> list[Any]:
        low, high, step, *carried = operands
        for k in range(low, high, step):
            try:
                self.region(op.regions[0], [k, *carried])
            except _Continue as end:
                carried = end.values
            except _Break as end:
                return end.values
        return carried

    def endless(self, op: Any, operands: list[Any]) -> list[Any]:
        carried = operands
        while True:
            try:
                self.region(op.regions[0], carried)
            except _Continue as end:
                carried = end.values
            except _Break as end:
                return end.values

    def call(self, op: Any, operands: list[Any]) -> list[Any]:
        try:
            self.region(self.module.functions[op.attrs["callee"]].body, operands)
        except _Return as end:
            return end.values
        raise AssertionError("a function has no end")
