"""Generator of random kernels for testing passes: small, well typed, race-free, and certain to terminate.

`modules()` is a hypothesis strategy of modules in high form: nested `if`, `for` and `loop` with results, loop-carried
values, `break`, `continue` and early `return`, calls of a device function, integers, floats and booleans, loads,
stores and local arrays, one of them with constant indices only. Each of the INVOCATIONS invocations reads `x` at any
index and reads and writes its own row of `y` and `z`. A seed and a number of statements determine the kernel; smaller
numbers give smaller kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from vkjit import dtypes
from vkjit.ir import BOOL, F32, I32, INDEX, Array, Builder, Function, Module, Op, Region, Scalar, Type, Value
from vkjit.ir.attributes import FunctionAttrs

LOCAL, GROUPS, COLUMNS = 4, 2, 4
INVOCATIONS = LOCAL * GROUPS

I64, U8, F16 = Scalar(dtypes.i64), Scalar(dtypes.u8), Scalar(dtypes.f16)
NUMBERS: list[Type] = [I32, INDEX, F32, U8, I64, F16]
BINARY = {
    "float": ["add", "sub", "mul", "div", "min", "max", "copysign", "floordiv", "floormod"],
    "int": [
        "add",
        "sub",
        "mul",
        "floordiv",
        "floormod",
        "truncdiv",
        "truncrem",
        "and",
        "or",
        "xor",
        "shl",
        "shr",
        "min",
        "max",
    ],
}
UNARY = {
    "float": ["neg", "abs", "sqrt", "floor", "round", "sign"],
    "int": ["neg", "not", "popcount", "clz", "ctz", "sign"],
}
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
FLOATS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.25, float("inf"), float("nan"), -7.0]
INTS = [0, 1, -1, 2, 3, 7, 100, -128, 127]


def family(type: Type) -> str:
    assert isinstance(type, Scalar)
    return "float" if type.dtype.is_float else "int"


class _Generator:
    """Generator of one function. `scope` holds the visible values, `loops` the types carried by the enclosing loops."""

    def __init__(self, random: Random, builder: Builder, results: list[Type], callee: Function | None) -> None:
        self.random = random
        self.builder = builder
        self.results = results
        self.callee = callee
        self.scope: list[Value] = []
        self.loops: list[tuple[list[Type], list[Value]]] = []
        self.row: Value | None = None
        self.arrays: dict[str, Value] = {}
        self.fuel = 40

    def draw(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items)

    def flip(self) -> bool:
        return self.random.random() < 0.5

    # -- values

    def value(self, type: Type) -> Value:
        """Return a visible value of the type, or a constant."""
        candidates = [v for v in self.scope if v.type == type]
        if candidates and self.draw(0, 5) > 0:
            found: Value = self.pick(candidates)
            return found
        return self.constant(type)

    def constant(self, type: Type) -> Value:
        assert isinstance(type, Scalar)
        if type == BOOL:
            return self.builder.const(self.flip(), BOOL)
        number = self.pick(FLOATS if type.dtype.is_float else INTS)
        return self.builder.const(abs(number) if type.dtype.kind == "uint" else number, type)

    def keep(self, value: Value) -> Value:
        self.scope.append(value)
        return value

    def expression(self) -> None:
        choice = self.draw(0, 9)
        type = self.pick(NUMBERS)
        if choice < 1 and family(type) == "float":
            product = self.builder.emit("mul", self.value(type), self.value(type))
            self.keep(self.builder.emit(self.pick(["add", "sub"]), *self.random.sample([product, self.value(type)], 2)))
        elif choice < 4:
            self.keep(self.builder.emit(self.pick(BINARY[family(type)]), self.value(type), self.value(type)))
        elif choice < 5:
            self.keep(self.builder.emit(self.pick(UNARY[family(type)]), self.value(type)))
        elif choice < 7:
            self.keep(self.builder.emit(self.pick(COMPARE), self.value(type), self.value(type)))
        elif choice < 8:
            source = self.pick([BOOL, *NUMBERS])
            self.keep(self.builder.cast(self.value(source), type))
        elif choice < 9:
            self.keep(self.builder.emit("select", self.value(BOOL), self.value(type), self.value(type)))
        else:
            self.keep(self.builder.emit(self.pick(["and", "or", "xor", "eq"]), self.value(BOOL), self.value(BOOL)))

    def small(self, limit: int) -> Value:
        """Return an index from 0 to limit - 1, where `limit` is a power of two."""
        return self.builder.emit("and", self.value(INDEX), self.builder.index(limit - 1))

    # -- memory

    def place(self, name: str) -> list[Value]:
        array = self.arrays[name]
        if name == "x":
            return [array, self.small(INVOCATIONS)]
        if name == "buffer":
            return [array, self.small(4)]
        if name == "fixed":
            return [array, self.builder.index(self.draw(0, 1)), self.builder.index(self.draw(0, 1))]
        assert self.row is not None
        column = self.builder.index(self.draw(0, COLUMNS - 1)) if self.flip() else self.small(COLUMNS)
        return [array, self.row, column]

    def access(self) -> None:
        if not self.arrays:
            self.expression()
            return
        if self.draw(0, 3) == 0:
            self.adjacent_elements()
            return
        name = self.pick(sorted(self.arrays))
        where = self.place(name)
        if name == "x" or self.flip():
            self.keep(self.builder.emit("load", *where))
            return
        element = where[0].type
        assert isinstance(element, Array)
        self.builder.op("store", *where, self.value(element.element))

    def adjacent_elements(self) -> None:
        """Generate loads or stores of some of four adjacent elements."""
        name = self.pick(["x", "y", "z"])
        first = self.builder.emit("mul", self.small(INVOCATIONS // 4), self.builder.index(4))
        stores = name != "x" and self.flip()
        for number in self.random.sample(range(4), self.draw(2, 4)):
            if name == "x":
                where = [self.arrays[name], self.builder.emit("add", first, self.builder.index(number))]
            else:
                assert self.row is not None
                where = [self.arrays[name], self.row, self.builder.index(number)]
            if stores:
                self.builder.op("store", *where, self.value(F32 if name == "z" else I32))
            else:
                self.keep(self.builder.emit("load", *where))

    # -- control flow

    def body(self, region: Region, end: Callable[[], None], size: int) -> None:
        """Fill a region with statements, ended by an exit or by what `end` builds."""
        mark = len(self.scope)
        self.scope += region.args
        with self.builder.at(region):
            for _ in range(self.draw(size // 2, size)):
                if not self.statement(size):
                    self.builder.op("unreachable")
                    break
            else:
                end()
        del self.scope[mark:]

    def statement(self, size: int) -> bool:
        """Generate a statement; return False if it never completes."""
        self.fuel -= 1
        choice = self.draw(0, 11) if self.fuel > 0 else 0
        if choice < 5 or size <= 1:
            self.expression()
        elif choice < 7:
            self.access()
        elif choice < 9:
            return self.branch(size - 1)
        elif choice < 10:
            self.counted(size - 1)
        elif choice < 11:
            self.open_loop(size - 1)
        elif self.callee is not None:
            inputs = [self.value(p.type) for p in self.callee.params]
            types = list(self.callee.result_types)
            made = self.builder.op("call", *inputs, types=types, callee=self.callee.name)
            self.scope += made.results
        return True

    def exit(self) -> bool:
        """Generate an exit that is legal here, or nothing; return True if there is one."""
        choice = self.draw(0, 5)
        if choice == 0:
            self.builder.op("return", *(self.value(t) for t in self.results))
        elif choice <= 2 and self.loops:
            types, steady = self.loops[-1]
            values = [self.value(t) for t in types]
            if choice == 1:
                self.builder.op("break", *values, *steady)
            else:
                self.builder.op("continue", *values, *self.advanced(steady))
        else:
            return False
        return True

    def advanced(self, steady: list[Value]) -> list[Value]:
        """Decrement the counter of an open loop."""
        return [self.builder.emit("sub", v, self.builder.const(1, I32)) for v in steady]

    def branch(self, size: int) -> bool:
        types = [self.pick([BOOL, *NUMBERS]) for _ in range(self.draw(0, 2))]
        regions = [Region(), Region()]
        condition = self.value(BOOL)

        def end() -> None:
            if not self.exit():
                self.builder.op("yield", *(self.value(t) for t in types))

        for region in regions:
            self.body(region, end, size)
        yields = [region.terminator.name == "yield" for region in regions]
        made = self.builder.op("if", condition, types=types if any(yields) else [], regions=regions)
        self.scope += made.results
        return any(yields)

    def counted(self, size: int) -> None:
        type = self.pick([I32, INDEX, U8])
        assert isinstance(type, Scalar)
        low, step = self.builder.const(self.pick([0, 1, 3]), type), self.builder.const(self.pick([1, 2, 1, 0]), type)
        high = self.builder.emit("and", self.value(type), self.builder.const(3, type))
        if self.flip():
            high = self.builder.const(self.draw(0, 4), type)
        if type.dtype.is_signed and self.flip():
            low, high, step = high, self.builder.const(-1, type), self.builder.const(-1, type)
        types = [self.pick([BOOL, *NUMBERS]) for _ in range(self.draw(0, 2))]
        initial = [self.value(t) for t in types]
        region = Region([type, *types])
        self.loops.append((types, []))

        def end() -> None:
            self.builder.op("continue", *(self.value(t) for t in types))

        with self.builder.at(region):
            self.scaled(region.args[0])
        self.body(region, end, size)
        self.loops.pop()
        made = self.builder.op("for", low, high, step, *initial, types=types, regions=[region])
        self.scope += made.results

    def scaled(self, counter: Value) -> None:
        """Store a 64-bit product of an induction variable to the invocation's row."""
        if self.row is None or self.flip():
            return
        index = self.builder.cast(counter, INDEX)
        if self.flip():
            index = self.builder.emit(self.pick(["add", "sub"]), *self.random.sample([index, self.value(INDEX)], 2))
        product = self.builder.emit("mul", *self.random.sample([index, self.value(INDEX)], 2))
        self.builder.op("store", self.arrays["y"], self.row, self.builder.index(3), self.builder.cast(product, I32))

    def open_loop(self, size: int) -> None:
        """Generate a `loop` that ends after a few iterations at the latest, by a counter carried as its last value."""
        types = [self.pick([BOOL, *NUMBERS]) for _ in range(self.draw(0, 2))]
        initial = [self.value(t) for t in types] + [self.builder.const(self.pick([0, 1, 3]), I32)]
        region = Region([*types, I32])
        counter = region.args[-1]
        self.loops.append((types, [counter]))
        with self.builder.at(region):
            self.leave_when_zero(region.args, counter)

        def end() -> None:
            self.builder.op("continue", *(self.value(t) for t in types), *self.advanced([counter]))

        self.body(region, end, size)
        self.loops.pop()
        made = self.builder.op("loop", *initial, types=[*types, I32], regions=[region])
        self.scope += made.results

    def leave_when_zero(self, carried: list[Value], counter: Value) -> None:
        leave, stay = Region(), Region()
        Builder(leave).op("break", *carried)
        Builder(stay).op("yield")
        done = self.builder.emit("le", counter, self.builder.const(0, I32))
        self.builder.op("if", done, types=[], regions=[leave, stay])


def _device_function(random: Random) -> Function:
    region = Region([F32, INDEX], ["p", "q"])
    generator = _Generator(random, Builder(region), [F32, I32], None)
    generator.fuel = 10

    def end() -> None:
        generator.builder.op("return", generator.value(F32), generator.value(I32))

    generator.body(region, end, 3)
    return Function("f", region, [F32, I32])


PARAMETERS: dict[str, Type] = {
    "s": I32,
    "t": F32,
    "x": Array(F32, 1, access="in", contiguous=True),
    "y": Array(I32, 2),
    "z": Array(F32, 2, contiguous=True),
}


def modules() -> st.SearchStrategy[Module]:
    """Return a strategy of modules in high form; see the module docstring."""
    return st.builds(generate, st.integers(0, 2**32), st.integers(3, 60))


def generate(seed: int, statements: int) -> Module:
    """Generate the module determined by the seed and the number of statements."""
    random = Random(seed)
    callee = _device_function(random) if random.random() < 0.5 else None
    region = Region(list(PARAMETERS.values()), list(PARAMETERS))
    builder = Builder(region)
    generator = _Generator(random, builder, [], callee)
    generator.fuel = statements
    s, t, x, y, z = region.args
    generator.row = builder.emit("global_id", dim=0)
    buffer = builder.op("local", type=Array(F32, 1, space="local", shape=(4,))).result
    for lane in range(4):
        builder.op("store", buffer, builder.index(lane), t)
    fixed = builder.op("local", type=Array(I32, 2, space="local", shape=(2, 2))).result
    for place in range(4):
        builder.op("store", fixed, builder.index(place // 2), builder.index(place % 2), s)
    generator.arrays = {"x": x, "y": y, "z": z, "buffer": buffer, "fixed": fixed}
    read = builder.emit("load", x, generator.row)
    generator.scope += [s, t, generator.row, read, builder.emit("load", y, generator.row, builder.index(1))]
    generator.scope.append(builder.emit("lt", generator.row, builder.index(3)))
    generator.scope.append(builder.emit("gt", read, builder.const(0.0, F32)))

    def end() -> None:
        for name, type in (("y", I32), ("z", F32), ("y", I32), ("z", F32)):
            builder.op("store", *generator.place(name), generator.value(type))
        builder.op("return")

    inner = Region()
    generator.body(inner, end, 8)
    region.ops += inner.ops
    attrs: FunctionAttrs = {
        "local_size": (LOCAL, 1, 1),
        "arg_index": tuple(range(len(PARAMETERS))),
        "narrow": generator.flip(),
    }
    attrs["aligned"] = generator.flip()
    functions = {callee.name: callee} if callee is not None else {}
    return Module(Function("k", region, [], attrs), functions)


def arguments() -> list[Any]:
    """Return fresh, constant arguments. `y` isn't contiguous; rows of `y` and `z` are multiples of 16 bytes apart."""
    x = np.array([0.0, -0.0, 1.5, np.inf, -3.25, np.nan, 1e-3, 7.0], dtype=np.float32)
    y = np.arange(INVOCATIONS * COLUMNS * 4, dtype=np.int32).reshape(COLUMNS, 4 * INVOCATIONS).T[::4] - 5
    z = np.linspace(-2, 2, INVOCATIONS * COLUMNS, dtype=np.float32).reshape(INVOCATIONS, COLUMNS)
    return [5, 0.75, x, y, z]


def operations(module: Module) -> list[Op]:
    return [op for function in module.all_functions() for op in function.body.walk()]
