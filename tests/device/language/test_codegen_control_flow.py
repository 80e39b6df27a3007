"""Code generation for control flow: branches, counted loops at the limits of their types, loops with exits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import INDEX, Build, expected, linear, on_device, same
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Region
from vkjit.ir.types import I32, Scalar

N = 64


def _check(device: Any, module: Any, args: list[Any], groups: int = 1) -> list[Any]:
    found = on_device(device, module, groups, args)
    same(found, expected(module, groups, args))
    return found


def test_if_with_results_on_both_sides(device: Any) -> None:
    b = Build("both", {"x": linear(dtypes.i32, "in"), "out": linear(dtypes.i32)})
    i = b.gid32()
    x = b.emit("load", b.p["x"], i)
    yes, no, (first, second) = b.choose(b.emit("gt", x, b.i32(10)), [I32, I32])
    with b.at(yes):
        b.op("yield", b.emit("mul", x, b.i32(2)), b.i32(1))
    with b.at(no):
        b.op("yield", x, b.emit("sub", b.i32(0), x))
    b.op("store", b.p["out"], i, b.emit("add", first, second))
    _check(device, b.finish(), [np.arange(N, dtype=np.int32), np.zeros(N, np.int32)])


def test_if_that_only_chooses(device: Any) -> None:
    b = Build("chooses", {"x": linear(dtypes.f32, "in"), "out": linear(dtypes.f32)})
    i = b.gid32()
    x = b.emit("load", b.p["x"], i)
    zero = b.const(0.0, dtypes.f32)
    yes, no, (result,) = b.choose(b.emit("lt", x, zero), [Scalar(dtypes.f32)])
    with b.at(yes):
        b.op("yield", zero)
    with b.at(no):
        b.op("yield", x)
    b.op("store", b.p["out"], i, result)
    (_, out) = _check(device, b.finish(), [np.linspace(-1, 1, N, dtype=np.float32), np.zeros(N, np.float32)])
    np.testing.assert_array_equal(out, np.maximum(np.linspace(-1, 1, N, dtype=np.float32), 0))


def test_if_whose_sides_both_leave(device: Any) -> None:
    """An `if` whose branches both exit the loop is followed by unreachable code."""
    b = Build("leaves", {"out": linear(dtypes.i32)})
    i = b.gid32()
    body = Region([I32])
    made = b.op("loop", b.i32(0), types=[I32], regions=[body])
    with b.at(body):
        (n,) = body.args
        yes, no, _ = b.choose(b.emit("ge", n, i), [])
        with b.at(yes):
            b.op("break", n)
        with b.at(no):
            b.op("continue", b.emit("add", n, b.i32(3)))
        b.op("unreachable")
    b.op("store", b.p["out"], i, made.result)
    (out,) = _check(device, b.finish(), [np.zeros(N, np.int32)])
    np.testing.assert_array_equal(out, (np.arange(N) + 2) // 3 * 3)


RANGES: dict[DType, list[tuple[int, int, int]]] = {
    dtypes.i8: [
        (0, 127, 50),
        (-128, 127, 100),
        (127, -128, -100),
        (5, 5, 1),
        (5, 4, 1),
        (4, 5, -1),
        (0, 10, 0),
        (-128, -128, -1),
        (100, 127, 27),
        (0, 127, 127),
    ],
    dtypes.u8: [(0, 255, 16), (255, 0, 1), (250, 255, 1), (0, 255, 255), (3, 9, 0)],
    dtypes.i32: [
        (0, 10, 1),
        (0, 10, 3),
        (2**31 - 5, 2**31 - 1, 3),
        (-(2**31), 2**31 - 1, 2**30),
        (10, 0, -1),
        (-(2**31) + 5, -(2**31), -3),
        (2**31 - 1, -(2**31), -(2**31)),
    ],
    dtypes.i64: [(0, 7, 2), (2**63 - 4, 2**63 - 1, 2), (-(2**63), 2**63 - 1, 2**62)],
    dtypes.index: [(0, 12, 5), (3, -9, -4), (2**62, 2**63 - 1, 2**61)],
}


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "run-time"])
@pytest.mark.parametrize("dtype", RANGES, ids=str)
def test_ranges_run_as_often_as_they_should(device: Any, dtype: DType, constant: bool) -> None:
    """Iteration counts are exact and don't overflow at the limits of the type; step 0 gives no iterations."""
    if dtype is not dtypes.index and dtype.name not in device.caps.dtypes:
        pytest.skip(f"this device has no {dtype.name}")
    kind = dtypes.i64 if dtype is dtypes.index else dtype
    ranges = RANGES[dtype]
    for row, (low, high, step) in enumerate(ranges):
        b = Build("ranges", {"ends": linear(kind, "in"), "out": linear(kind)}, local=1)
        if constant:
            ends = [b.const(value, dtype) for value in (low, high, step)]
        else:
            ends = [b.cast(b.emit("load", b.p["ends"], b.i32(place)), dtype) for place in range(3)]
        zero = b.const(0, dtype)
        body, (count, last) = b.repeat(ends[0], ends[1], ends[2], [zero, zero])
        with b.at(body):
            iv, trips, _ = body.args
            b.op("continue", b.emit("add", trips, b.const(1, dtype)), iv)
        b.op("store", b.p["out"], b.i32(0), b.cast(count, kind))
        b.op("store", b.p["out"], b.i32(1), b.cast(last, kind))
        args = [np.array([low, high, step], kind.numpy), np.zeros(2, kind.numpy)]
        wanted = range(low, high, step) if step else ()
        module = b.finish()
        (_, out) = on_device(device, module, 1, args)
        assert tuple(out) == (len(wanted), wanted[-1] if wanted else 0), (row, low, high, step)
        same([out], expected(module, 1, args)[1:])


def test_nested_loops_with_break_and_continue_in_ifs(device: Any) -> None:
    b = Build("nested", {"limit": dtypes.i32, "x": linear(dtypes.i32, "in"), "out": linear(dtypes.i32)})
    i = b.gid32()
    one, zero = b.i32(1), b.i32(0)
    outer, (total,) = b.repeat(zero, b.i32(N), one, [zero])
    with b.at(outer):
        row, so_far = outer.args
        inner, (part,) = b.repeat(row, b.p["limit"], b.i32(7), [so_far])
        with b.at(inner):
            k, sum_ = inner.args
            b.leave_when(b.emit("eq", b.emit("and", k, b.i32(3)), zero), "continue", sum_)
            value = b.emit("add", sum_, b.emit("load", b.p["x"], b.emit("and", k, b.i32(N - 1))))
            b.leave_when(b.emit("gt", value, b.emit("mul", i, b.i32(40))), "break", value)
            b.op("continue", value)
        yes, no, (kept,) = b.choose(b.emit("lt", part, b.i32(2000)), [I32])
        with b.at(yes):
            b.op("yield", b.emit("add", part, one))
        with b.at(no):
            b.op("break", part)
        b.op("continue", kept)
    b.op("store", b.p["out"], i, total)
    args = [90, np.arange(N, dtype=np.int32), np.zeros(N, np.int32)]
    _check(device, b.finish(), args)


def test_loop_without_continue(device: Any) -> None:
    """The continue block is unreachable but still emitted."""
    b = Build("once", {"out": linear(dtypes.i32)})
    i = b.gid32()
    body = Region([I32])
    made = b.op("loop", i, types=[I32], regions=[body])
    with b.at(body):
        b.op("break", b.emit("add", body.args[0], b.i32(5)))
    b.op("store", b.p["out"], i, made.result)
    (out,) = _check(device, b.finish(), [np.zeros(N, np.int32)])
    np.testing.assert_array_equal(out, np.arange(N) + 5)


def test_return_inside_an_if(device: Any) -> None:
    b = Build("early", {"out": linear(dtypes.i32)})
    i = b.gid32()
    yes, no, _ = b.choose(b.emit("lt", i, b.i32(10)), [])
    with b.at(yes):
        b.op("return")
    with b.at(no):
        b.op("yield")
    b.op("store", b.p["out"], i, i)
    (out,) = _check(device, b.finish(), [np.zeros(N, np.int32)])
    np.testing.assert_array_equal(out, np.where(np.arange(N) < 10, 0, np.arange(N)))


def test_index_loop_over_a_runtime_extent(device: Any) -> None:
    b = Build("sum", {"x": linear(dtypes.f32, "in"), "n": dtypes.i64, "out": linear(dtypes.f32)})
    start = b.const(0.0, dtypes.f32)
    body, (total,) = b.repeat(b.gid(), b.cast(b.p["n"], INDEX), b.index(64), [start])
    with b.at(body):
        k, acc = body.args
        b.op("continue", b.emit("add", acc, b.emit("load", b.p["x"], k)))
    b.op("store", b.p["out"], b.gid32(), total)
    x = np.arange(1000, dtype=np.float32)
    (*_, out) = _check(device, b.finish(), [x, 1000, np.zeros(N, np.float32)])
    np.testing.assert_array_equal(out, np.array([x[i::64].sum() for i in range(64)]))
