"""Tests of the parts of the CPU backend that need no LLVM: text, geometry, value shapes, barrier regions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from vkjit import dtypes
from vkjit.backends.cpu.codegen.barrier_regions import plan_of
from vkjit.backends.cpu.codegen.context import Geometry
from vkjit.backends.cpu.codegen.llvm_text import Text, bytes_of, constant, intrinsic_suffix, memory_type, scalar_type
from vkjit.backends.cpu.codegen.lower import geometry_of
from vkjit.backends.cpu.codegen.stride_analysis import UNIFORM, VARYING, Shape, Shapes, Step
from vkjit.ir import BOOL, F32, I32, INDEX, Array, Builder, Function, Region, Value

FLOATS = Array(F32, 1, "global", "inout", linear=True)
INPUT = Array(F32, 1, "global", "in", restrict=True, linear=True)


def kernel(write: Callable[[Builder, list[Value]], None], local: tuple[int, int, int] = (64, 1, 1)) -> Function:
    body = Region([INPUT, FLOATS, I32], ["x", "y", "n"])
    builder = Builder(body)
    write(builder, body.args)
    builder.op("return")
    return Function("k", body, [], {"local_size": local, "narrow": True})


def nothing(_builder: Builder, _args: list[Value]) -> None:
    """Empty kernel body."""


def shapes_of(function: Function, width: int = 16) -> Shapes:
    x, y, z = function.attrs["local_size"]
    return Shapes.of(function, Geometry((x, y, z), width).steps)


# -- text


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, dtypes.boolean, "true"),
        (-1, dtypes.i32, "-1"),
        (0xFFFFFFFF, dtypes.u32, "-1"),
        (1.0, dtypes.f32, "0x3FF0000000000000"),
        (0.1, dtypes.f32, "0x3FB99999A0000000"),
        (-0.0, dtypes.f64, "0x8000000000000000"),
        (math.inf, dtypes.f32, "0x7FF0000000000000"),
        (1e39, dtypes.f32, "0x7FF0000000000000"),
        (1.5, dtypes.f16, "0xH3E00"),
        (1e6, dtypes.f16, "0xH7C00"),
    ],
)
def test_constants(value: Any, dtype: Any, expected: str) -> None:
    assert constant(value, dtype) == expected


def test_types() -> None:
    assert scalar_type(dtypes.bf16) == "float"
    assert (memory_type(dtypes.bf16), memory_type(dtypes.boolean)) == ("i16", "i8")
    assert intrinsic_suffix("<16 x float>") == "v16f32"
    assert intrinsic_suffix("half") == "f16"


def test_blocks_are_closed_once() -> None:
    text = Text()
    text.jump("a")
    text.jump("b")
    text.label("a")
    text.branch("%c", "a", "b", likely=True)
    text.jump("c")
    assert text.lines == ["  br label %a", "a:", "  br i1 %c, label %a, label %b, !prof !0"]


# -- splitting a workgroup into vectors


@pytest.mark.parametrize(
    ("local", "width", "steps"),
    [
        ((64, 1, 1), 16, (Step(1), UNIFORM, UNIFORM)),
        ((16, 16, 1), 16, (Step(1), UNIFORM, UNIFORM)),
        ((8, 8, 1), 8, (Step(1), UNIFORM, UNIFORM)),
        ((4, 16, 1), 16, (VARYING, VARYING, UNIFORM)),
        ((1, 64, 1), 16, (UNIFORM, Step(1), UNIFORM)),
        ((10, 10, 1), 16, (VARYING, VARYING, UNIFORM)),
        ((100, 1, 1), 16, (Step(1), UNIFORM, UNIFORM)),
        ((1, 1, 1), 1, (UNIFORM, UNIFORM, UNIFORM)),
    ],
)
def test_vectors_lie_along_x_where_they_can(local: Any, width: int, steps: tuple[Shape, Shape, Shape]) -> None:
    function = kernel(nothing, local)
    geometry = geometry_of(function, 16)
    assert geometry.width == width
    assert geometry.steps == steps
    assert geometry.count * width >= geometry.total
    assert geometry.partial == (geometry.total % width != 0)


def test_subgroups_are_whole_vectors() -> None:
    function = kernel(nothing, (8, 4, 1))
    function.attrs["subgroups"] = True
    assert geometry_of(function, 16).width == 16


# -- shapes


def test_shapes_of_arithmetic() -> None:
    found: dict[str, Value] = {}

    def write(b: Builder, args: list[Value]) -> None:
        i = found["id"] = b.emit("local_id", dim=0)
        n = args[2]
        found["twice"] = b.emit("mul", i, b.index(2))
        found["moved"] = b.emit("sub", found["twice"], b.cast(n, INDEX))
        found["down"] = b.emit("neg", i)
        found["product"] = b.emit("mul", i, b.cast(n, INDEX))
        found["square"] = b.emit("mul", i, i)
        found["narrow"] = b.cast(i, I32)
        found["wide"] = b.cast(b.emit("add", found["narrow"], n), INDEX)
        found["less"] = b.emit("lt", i, b.index(3))
        found["uniform"] = b.emit("mul", n, n)

    shapes = shapes_of(kernel(write))
    sizes = {name: shapes.of_value(value) for name, value in found.items()}
    assert sizes["id"] == Step(1)
    assert sizes["twice"] == Step(2) and sizes["moved"] == Step(2) and sizes["down"] == Step(-1)
    assert sizes["product"] is VARYING and sizes["square"] is VARYING and sizes["less"] is VARYING
    assert sizes["narrow"] == Step(1)
    assert sizes["wide"] is VARYING  # the sum may wrap in 32 bits between two lanes
    assert sizes["uniform"] == UNIFORM


def test_loads_at_uniform_places_are_uniform() -> None:
    found: list[Value] = []

    def write(b: Builder, args: list[Value]) -> None:
        table = b.emit("local", type=Array(F32, 1, "local", shape=(4,), linear=True))
        zero = b.const(0, I32)
        found.extend(b.emit("load", array, zero) for array in (args[0], args[1], table))
        found.append(b.emit("load", args[0], b.emit("local_id", dim=0)))

    shapes = shapes_of(kernel(write))
    assert [shapes.of_value(v) for v in found] == [UNIFORM, UNIFORM, VARYING, VARYING]


def test_what_lanes_choose_differently_varies() -> None:
    found: list[Value] = []

    def write(b: Builder, args: list[Value]) -> None:
        i, n = b.emit("local_id", dim=0), args[2]
        one, two = b.const(1, I32), b.const(2, I32)
        for condition in (b.emit("lt", i, b.index(5)), b.emit("lt", n, two)):
            regions = [Region(), Region()]
            made = b.op("if", condition, types=[I32, I32], regions=regions)
            for region, value in zip(regions, (one, two), strict=True):
                with b.at(region):
                    b.op("yield", value, n)
            found.extend(made.results)

    shapes = shapes_of(kernel(write))
    assert [shapes.of_value(v) for v in found] == [VARYING, UNIFORM, UNIFORM, UNIFORM]


def loop_with_exit(b: Builder, args: list[Value], condition: Value) -> tuple[Value, Value]:
    """Build a counting loop that breaks on `condition`; return its loop-carried value and its result."""
    body = Region([I32])
    loop = b.op("loop", b.const(0, I32), types=[I32], regions=[body])
    with b.at(body):
        leave, stay = Region(), Region()
        b.op("if", condition, types=[], regions=[leave, stay])
        with b.at(leave):
            b.op("break", body.args[0])
        with b.at(stay):
            b.op("yield")
        b.op("continue", b.emit("add", body.args[0], b.const(1, I32)))
    return body.args[0], loop.results[0]


def test_loops_that_lanes_leave_one_by_one() -> None:
    found: list[Value] = []

    def write(b: Builder, args: list[Value]) -> None:
        i = b.emit("local_id", dim=0)
        found.extend(loop_with_exit(b, args, b.emit("lt", i, b.index(5))))
        found.extend(loop_with_exit(b, args, b.emit("lt", args[2], b.const(5, I32))))

    function = kernel(write)
    shapes = shapes_of(function)
    assert [shapes.of_value(v) for v in found] == [UNIFORM, VARYING, UNIFORM, UNIFORM]
    loops = [op for op in function.body.ops if op.name == "loop"]
    assert [op in shapes.masked for op in loops] == [True, False]
    assert [op in shapes.early for op in loops] == [True, False]


def test_counted_loops_from_a_lane_on_are_uneven() -> None:
    found: list[Value] = []

    def write(b: Builder, args: list[Value]) -> None:
        body = Region([INDEX])
        bounds = (b.emit("local_id", dim=0), b.cast(args[2], INDEX), b.index(64))
        b.op("for", *bounds, types=[], regions=[body])
        with b.at(body):
            b.op("continue")
        found.append(body.args[0])

    function = kernel(write)
    shapes = shapes_of(function)
    loop = function.body.ops[-2]
    assert loop.name == "for" and loop in shapes.masked and loop not in shapes.early
    assert shapes.of_value(found[0]) == Step(1)


# -- barrier regions


def test_values_that_cross_a_barrier() -> None:
    found: dict[str, Value] = {}

    def write(b: Builder, args: list[Value]) -> None:
        i = found["id"] = b.emit("local_id", dim=0)
        found["loaded"] = b.emit("load", args[1], i)
        found["inner"] = b.emit("add", found["loaded"], found["loaded"])
        found["group"] = b.emit("group_id", dim=0)
        b.op("store", args[1], i, found["inner"])
        b.op("barrier")
        b.op("store", args[1], b.emit("add", i, found["group"]), found["loaded"])

    function = kernel(write)
    plan = plan_of(function, shapes_of(function))
    assert plan is not None
    assert plan.is_lifted(found["group"]) and not plan.is_lifted(found["id"])
    assert found["loaded"] in plan.crossing and not plan.is_recomputed(found["loaded"])
    assert found["id"] in plan.crossing and plan.is_recomputed(found["id"])
    assert found["inner"] not in plan.crossing


def test_kernels_without_barriers_have_one_phase() -> None:
    function = kernel(nothing)
    assert plan_of(function, shapes_of(function)) is None


def test_control_flow_around_a_barrier_is_lifted() -> None:
    found: list[Value] = []

    def write(b: Builder, args: list[Value]) -> None:
        body = Region([I32, F32, I32])
        made = b.op(
            "for", b.const(0, I32), args[2], b.const(1, I32), b.const(0.0, F32), b.const(1, I32), types=[F32, I32],
            regions=[body],
        )  # fmt: skip
        with b.at(body):
            b.op("barrier")
            value = b.emit("load", args[1], b.emit("local_id", dim=0))
            b.op("continue", b.emit("add", body.args[1], value), b.emit("add", body.args[2], body.args[2]))
        found.extend([*body.args, *made.results])
        flag = b.emit("eq", args[2], args[2])
        assert flag.type == BOOL

    function = kernel(write)
    plan = plan_of(function, shapes_of(function))
    assert plan is not None
    assert [plan.is_lifted(v) for v in found] == [True, False, True, False, True]
    assert found[1] in plan.stored and found[3] in plan.stored


@pytest.mark.parametrize(
    ("kind", "size"),
    [("i8", 1), ("float", 4), ("<16 x float>", 64), ("[4 x <8 x double>]", 256), ("[3 x <16 x i1>]", 6), ("i1", 1)],
)
def test_bytes_of_types(kind: str, size: int) -> None:
    assert bytes_of(kind) == size
