"""Tests of subgroup operations at every size, with inactive invocations, against lists of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.interp.kernels import kernel, run, samples
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import OPS, semantics
from vkjit.ir.ops import OpName

SIZES = [4, 8, 16, 32, 64, 128]
LOCAL = 256
LIVE = np.random.default_rng(5).random(2 * LOCAL) < 0.7
LIVE[:128] = True


def collective(line: str, dtype: DType, result: DType | None = None, local: int = LOCAL) -> Any:
    """Build a kernel in which invocations with a set flag run `line` on %v (and %n, a lane) and store %r."""
    out = (result or dtype).name
    return kernel(
        f"%x: array<{dtype.name}, 1, in>, %n32: array<i32, 1, in>, %flag: array<bool, 1, in>, %y: array<{out}, 1, out>",
        f"""%i = global_id {{dim = 0}} : index
        %v = load %x, %i : {dtype.name}
        %m = load %n32, %i : i32
        %n = cast %m : index
        %f = load %flag, %i : bool
        if %f {{
          {line}
          store %y, %i, %r
          yield
        }} else {{
          yield
        }}
        return""",
        (local, 1, 1),
    )


def execute(
    module: Any, x: Any, size: int, result: DType, lanes: Any = None, live: Any = LIVE, local: int = LOCAL
) -> Any:
    found = []
    for options in ({}, {"lanes_per_batch": local}):
        y = np.zeros(len(x), dtype=result.storage)
        n32 = np.zeros(len(x), np.int32) if lanes is None else lanes
        run(module, len(x) // local, x, n32, live, y, subgroup_size=size, **options)
        found.append(y)
    np.testing.assert_array_equal(found[0], found[1])
    return found[0]


def per_subgroup(
    x: Any, size: int, live: Any, compute: Callable[[list[Any], list[bool]], list[Any]], local: int = LOCAL
) -> Any:
    """Apply a function of (values, active flags) to each subgroup of each workgroup; inactive lanes get 0."""
    out: list[Any] = []
    for start in range(0, len(x), local):
        for first in range(start, start + local, size):
            last = min(first + size, start + local)
            flags = live[first:last].tolist()
            values = compute([*x[first:last]], flags)
            out += [value if flag else 0 for value, flag in zip(values, flags, strict=True)]
    return out


NEUTRAL: dict[OpName, Callable[[DType], Any]] = {
    "add": lambda d: -0.0 if d.is_float else 0,
    "mul": lambda _: 1,
    "min": lambda d: np.inf if d.is_float else True if d is dtypes.boolean else np.iinfo(d.numpy).max,
    "max": lambda d: -np.inf if d.is_float else np.iinfo(d.numpy).min,
    "and": lambda d: True if d is dtypes.boolean else d.numpy.type(0) - d.numpy.type(1),
    "or": lambda _: 0,
    "xor": lambda _: 0,
}


def tree(op: OpName, dtype: DType, values: list[Any], flags: list[bool], size: int) -> Any:
    """Reduce with a butterfly: at each step every lane combines with the lane `stride` away."""
    meaning = OPS[op].meaning
    assert meaning is not None
    neutral = np.array(NEUTRAL[op](dtype), dtype=dtype.numpy)
    lanes = [v if f else neutral for v, f in zip(values, flags, strict=True)] + [neutral] * (size - len(values))
    stride = 1
    while stride < size:
        lanes = [meaning(lanes[min(i, i ^ stride)], lanes[max(i, i ^ stride)]) for i in range(size)]
        stride *= 2
    return np.asarray(lanes[0], dtype=dtype.numpy)[()]


KINDS = [
    *[(op, dtype) for op in ("add", "mul", "min", "max") for dtype in (dtypes.i32, dtypes.u8, dtypes.f32, dtypes.f16)],
    *[(op, dtype) for op in ("and", "or", "xor") for dtype in (dtypes.i32, dtypes.u64, dtypes.boolean)],
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("op", "dtype"), KINDS)
def test_reduce(op: OpName, dtype: DType, size: int) -> None:
    x = samples(dtype, 2 * LOCAL)
    module = collective(f'%r = sg_reduce %v {{op = "{op}"}} : {dtype.name}', dtype)
    found = execute(module, x, size, dtype)
    with semantics.silence_warnings():
        wanted = per_subgroup(x, size, LIVE, lambda v, f: [tree(op, dtype, v, f, size)] * len(v))
    np.testing.assert_array_equal(found, np.array(wanted, dtype=dtype.numpy))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("op", ["add", "min", "xor"])
def test_scan_of_integers(op: OpName, exclusive: bool, size: int) -> None:
    x = samples(dtypes.i32, 2 * LOCAL)
    flag = "true" if exclusive else "false"
    module = collective(f'%r = sg_scan %v {{op = "{op}", exclusive = {flag}}} : i32', dtypes.i32)

    def scan(values: list[Any], flags: list[bool]) -> list[Any]:
        total: Any = np.int32(NEUTRAL[op](dtypes.i32))
        out = []
        for value, flag in zip(values, flags, strict=True):
            before = total
            total = semantics.MEANING[op](total, value) if flag else total
            out.append(before if exclusive else total)
        return out

    with semantics.silence_warnings():
        wanted = per_subgroup(x, size, LIVE, scan)
    np.testing.assert_array_equal(execute(module, x, size, dtypes.i32), np.array(wanted, np.int32))


def test_scan_of_floats_follows_ascending_strides() -> None:
    x = np.random.default_rng(1).normal(0, 1, 2 * LOCAL).astype(np.float32)
    module = collective('%r = sg_scan %v {op = "add", exclusive = false} : f32', dtypes.f32)
    live = np.ones(2 * LOCAL, np.bool_)

    def scan(values: list[Any], flags: list[bool]) -> list[Any]:
        stride = 1
        while stride < len(values):
            values = [v if i < stride else values[i - stride] + v for i, v in enumerate(values)]
            stride *= 2
        return values

    found = execute(module, x, 16, dtypes.f32, live=live)
    np.testing.assert_array_equal(found, np.array(per_subgroup(x, 16, live, scan), np.float32))


@pytest.mark.parametrize("size", SIZES)
def test_shuffles(size: int) -> None:
    x = samples(dtypes.f32, 2 * LOCAL)
    lanes = np.random.default_rng(6).integers(-1, size + 1, 2 * LOCAL).astype(np.int32)
    found = execute(collective("%r = sg_shuffle %v, %n : f32", dtypes.f32), x, size, dtypes.f32, lanes)
    xored = execute(collective("%r = sg_shuffle_xor %v {mask = 3} : f32", dtypes.f32), x, size, dtypes.f32)
    spread = np.repeat(lanes[::size], size)
    shared = execute(collective("%r = sg_broadcast %v, %n : f32", dtypes.f32), x, size, dtypes.f32, spread)
    index = np.arange(2 * LOCAL)
    for got, lane in ((found, lanes), (xored, index % size ^ 3), (shared, spread)):
        source = index // size * size + np.clip(lane, 0, size - 1)
        known = (lane >= 0) & (lane < size) & LIVE[source]
        np.testing.assert_array_equal(got, np.where(LIVE, np.where(known, x[source], np.nan), 0).astype(np.float32))


@pytest.mark.parametrize("size", SIZES)
def test_votes_and_election(size: int) -> None:
    x = np.random.default_rng(3).random(2 * LOCAL) < 0.5
    x[: LOCAL // 2], x[LOCAL:] = True, False
    line = {
        "any": "%r = sg_any %v : bool",
        "all": "%r = sg_all %v : bool",
        "elect": "%r = sg_elect : bool",
    }
    found = {name: execute(collective(text, dtypes.boolean), x, size, dtypes.boolean) for name, text in line.items()}
    np.testing.assert_array_equal(
        found["any"],
        per_subgroup(x, size, LIVE, lambda v, f: [any(a and b for a, b in zip(v, f, strict=True))] * len(v)),
    )
    np.testing.assert_array_equal(
        found["all"],
        per_subgroup(x, size, LIVE, lambda v, f: [all(a or not b for a, b in zip(v, f, strict=True))] * len(v)),
    )
    np.testing.assert_array_equal(
        found["elect"],
        per_subgroup(x, size, LIVE, lambda v, f: [i == f.index(True) if any(f) else 0 for i in range(len(v))]),
    )


@pytest.mark.parametrize("size", SIZES)
def test_ballot(size: int) -> None:
    x = np.random.default_rng(3).random(2 * LOCAL) < 0.5
    module = collective("%r = sg_ballot %v : u64", dtypes.boolean, dtypes.u64)
    wanted = per_subgroup(
        x,
        size,
        LIVE,
        lambda v, f: [sum(bool(a and b) << i for i, (a, b) in enumerate(zip(v[:64], f, strict=False)))] * len(v),
    )
    np.testing.assert_array_equal(execute(module, x, size, dtypes.u64), np.array(wanted, np.uint64))


def test_a_workgroup_that_is_no_multiple_of_the_subgroup() -> None:
    x = samples(dtypes.i32, 2 * 40)
    live = np.ones(80, np.bool_)
    module = collective('%r = sg_reduce %v {op = "add"} : i32', dtypes.i32, local=40)
    found = execute(module, x, 32, dtypes.i32, live=live, local=40)
    with semantics.silence_warnings():
        wanted = per_subgroup(x, 32, live, lambda v, _: [np.add.reduce(np.array(v), dtype=np.int32)] * len(v), local=40)
    np.testing.assert_array_equal(found, wanted)


def test_vectors_reduce_by_component() -> None:
    module = kernel(
        "%x: array<vec<i32, 2>, 1, in>, %y: array<vec<i32, 2>, 1, out>",
        """%i = global_id {dim = 0} : index
        %v = load %x, %i : vec<i32, 2>
        %r = sg_reduce %v {op = "max"} : vec<i32, 2>
        store %y, %i, %r
        return""",
    )
    x = samples(dtypes.i32, 128).reshape(64, 2)
    y = np.zeros_like(x)
    run(module, 1, x, y, subgroup_size=16)
    np.testing.assert_array_equal(y, np.repeat(x.reshape(4, 16, 2).max(axis=1), 16, axis=0))


@pytest.mark.parametrize("size", SIZES)
def test_ids(size: int) -> None:
    names = ("lane_id", "subgroup_id", "subgroup_size", "num_subgroups")
    lines = "".join(
        f"%{n} = {n} : index\n%c{k} = const {k} : index\n%w{k} = cast %{n} : i32\nstore %y, %i, %c{k}, %w{k}\n"
        for k, n in enumerate(names)
    )
    module = kernel("%y: array<i32, 2, out>", f"%i = global_id {{dim = 0}} : index\n{lines}return", (96, 1, 1))
    y = np.zeros((192, 4), np.int32)
    run(module, 2, y, subgroup_size=size)
    local = np.arange(192) % 96
    np.testing.assert_array_equal(
        y, np.stack([local % size, local // size, local * 0 + size, local * 0 - (-96 // size)], axis=1)
    )
