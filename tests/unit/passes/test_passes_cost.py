"""Tests that passes take about linear time on straight-line code: four times the operations, well below eight times."""

from __future__ import annotations

import gc
import time

import pytest

from vkjit.ir import BOOL, F32, I32, INDEX, Array, Builder, Function, Module, Region, Value, verify
from vkjit.ir.attributes import FunctionAttrs
from vkjit.ir.rewrite import clone_module
from vkjit.passes.registry import PASSES

NAMES = [
    "bounds", "cse", "dce", "dead_stores", "fold", "fuse_multiply_add", "licm", "narrow_index", "remove_barriers",
    "simplify_branches", "sroa", "strength_reduction", "unroll", "widen_access",
]  # fmt: skip
SMALL, FACTOR, MOST = 150, 4, 8


def straight(length: int) -> Module:
    """Build repeated sums, products, accesses to a linear, a strided and a local array, branches and barriers."""
    types = [INDEX, F32, Array(F32, 1, contiguous=True, restrict=True), Array(F32, 1, restrict=True), BOOL]
    region = Region(list(types), ["i", "a", "x", "y", "c"])
    builder = Builder(region)
    i, value, x, y, condition = region.args
    flat = builder.emit("linear", x, type=Array(F32, 1, restrict=True, linear=True))
    table = builder.op("local", type=Array(F32, 1, space="local", shape=(4,))).result
    place = builder.cast(i, I32)
    for number in range(length):
        place = builder.emit("add", place, builder.const(1, I32))
        read = builder.emit("load", flat, place)
        value = builder.emit("add", builder.emit("mul", value, read), value)
        builder.op("store", flat, place, value)
        builder.op("store", table, builder.index(number % 4), value)
        value = builder.emit("add", value, builder.emit("load", table, builder.index((number + 1) % 4)))
        builder.op("store", y, builder.emit("add", i, builder.index(number % 7)), value)
        branch(builder, condition, value, x, i)
        builder.op("barrier")
    builder.op("store", y, i, value)
    builder.op("return")
    attrs: FunctionAttrs = {
        "local_size": (8, 1, 1),
        "arg_index": (0, 1, 2, 3, 4),
        "narrow": True,
        "aligned": True,
        "bounds": True,
    }
    return Module(Function("k", region, [], attrs))


def branch(builder: Builder, condition: Value, value: Value, x: Value, i: Value) -> None:
    sides = [Region(), Region()]
    with builder.at(sides[0]):
        builder.op("store", x, i, value)
        builder.op("yield")
    with builder.at(sides[1]):
        builder.op("yield")
    builder.op("if", condition, types=[], regions=sides)


def seconds(name: str, module: Module) -> float:
    """Return the CPU time of a pass, the smaller of two runs, with garbage collection off as in compilation."""
    times = []
    for _ in range(2):
        copy = clone_module(module)
        gc.disable()
        start = time.process_time()
        PASSES[name]().run(copy)
        times.append(time.process_time() - start)
        gc.enable()
    return min(times)


@pytest.fixture(scope="module")
def modules() -> tuple[Module, Module]:
    made = straight(SMALL), straight(SMALL * FACTOR)
    verify(made[0])
    return made


@pytest.mark.parametrize("name", NAMES)
def test_time_grows_with_the_code(name: str, modules: tuple[Module, Module]) -> None:
    small, large = (seconds(name, module) for module in modules)
    assert large < MOST * small + 0.002
