"""Tests of atomics: results and old values equal those of sequential invocations and don't depend on batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.interp.kernels import carried, kernel, run, samples, storage_of
from vkjit import dtypes
from vkjit.backends.interp.codegen.atomics import depends_on_order
from vkjit.dtypes import DType
from vkjit.ir import semantics
from vkjit.ir.ops import op_name

NUMBERS = (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64, dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
CASES = [
    (op, dtype)
    for op in ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
    for dtype in NUMBERS
    if not (dtype.is_float and op in ("and", "or", "xor"))
]
COUNT = 512


def atomic_kernel(op: str, dtype: DType, wanted: bool, space: str = "global") -> Any:
    name = dtype.name
    at = "%m" if space == "shared" else "%y"
    lines = ["%i = global_id {dim = 0} : index", "%k32 = load %where, %i : i32", "%k = cast %k32 : index"]
    lines += [f"%v = load %x, %i : {name}", "%c0 = const 0 : i32", "%go = ge %k32, %c0 : bool"]
    if space == "shared":
        lines += [
            f"%m = shared : shared<{name}, 64>", "%l = local_id {dim = 0} : index", f"%f = load %y, %l : {name}",
            "store %m, %l, %f", "barrier",
        ]  # fmt: skip
    lines += ["if %go {", f'%o = atomic {at}, %k, %v {{op = "{op}", order = "relaxed", scope = "device"}} : {name}']
    lines += ["store %old, %i, %o"] * wanted + ["yield", "} else {", "yield", "}"]
    if space == "shared":
        lines += ["barrier", f"%e = load %m, %l : {name}", "store %y, %l, %e"]
    arguments = (
        f"%x: array<{name}, 1, in>, %where: array<i32, 1, in>, %y: array<{name}, 1, inout>, %old: array<{name}, 1, out>"
    )
    return kernel(arguments, "\n".join([*lines, "return"]))


def reference(op: str, dtype: DType, x: Any, where: Any, y: Any) -> tuple[Any, Any]:
    """Apply the operation one invocation at a time; return the final memory and the old values."""
    y, old = y.copy(), np.zeros_like(x)
    function: Callable[..., Any] = (lambda _, v: v) if op == "exchange" else semantics.MEANING[op_name(op)]
    with semantics.silence_warnings():
        for lane in range(len(x)):
            if where[lane] >= 0:
                old[lane] = y[where[lane]]
                result = np.asarray(function(y[where[lane]], x[lane]), dtype=x.dtype)
                y[where[lane]] = semantics.to_bf16(result) if dtype is dtypes.bf16 else result
    return y, old


@pytest.mark.parametrize(("op", "dtype"), CASES)
@pytest.mark.parametrize("wanted", [False, True])
def test_every_operation_and_type(op: str, dtype: DType, wanted: bool) -> None:
    rng = np.random.default_rng(7)
    x, start = samples(dtype, COUNT), samples(dtype, 64, seed=9)
    if dtype.is_float and op in ("add", "sub"):
        x, start = np.nan_to_num(x, posinf=1, neginf=2), np.nan_to_num(start, posinf=0, neginf=0)
    # one heavily contended element, others with little contention, and some inactive invocations
    where = np.where(rng.random(COUNT) < 0.5, 5, rng.integers(-3, 64, COUNT)).astype(np.int32)
    final, seen = reference(op, dtype, x, where, start)
    module = atomic_kernel(op, dtype, wanted)
    for lanes in (64, 192, 1 << 16):
        y, old = storage_of(start, dtype), np.zeros(COUNT, dtype=dtype.storage)
        run(module, COUNT // 64, storage_of(x, dtype), where, y, old, lanes_per_batch=lanes)
        for found, expected in (
            (carried(y, dtype), final),
            (carried(old, dtype), seen if wanted else np.zeros_like(seen)),
        ):
            np.testing.assert_array_equal(found, expected)
            known = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


@pytest.mark.parametrize("op", ["add", "max", "exchange"])
@pytest.mark.parametrize("wanted", [False, True])
def test_shared_memory(op: str, wanted: bool) -> None:
    rng = np.random.default_rng(8)
    x, start = samples(dtypes.i32, 64), samples(dtypes.i32, 64, seed=2)
    where = rng.integers(-3, 64, 64).astype(np.int32)
    final, seen = reference(op, dtypes.i32, x, where, start)
    y, old = start.copy(), np.zeros(64, np.int32)
    run(atomic_kernel(op, dtypes.i32, wanted, "shared"), 1, x, where, y, old)
    np.testing.assert_array_equal(y, final)
    np.testing.assert_array_equal(old, seen if wanted else 0)


def test_histogram() -> None:
    module = kernel(
        "%x: array<u8, 1, in>, %h: array<u32, 1, inout>",
        """%i = global_id {dim = 0} : index
        %v = load %x, %i : u8
        %k = cast %v : index
        %one = const 1 : u32
        %o = atomic %h, %k, %one {op = "add", order = "relaxed", scope = "device"} : u32
        return""",
    )
    x = np.random.default_rng(1).integers(0, 256, 64 * 2000).astype(np.uint8)
    h = np.zeros(256, np.uint32)
    run(module, 2000, x, h)
    np.testing.assert_array_equal(h, np.bincount(x, minlength=256))


def test_one_counter_gives_every_invocation_its_ticket() -> None:
    module = kernel(
        "%c: array<i32, 1, inout>, %y: array<i32, 1, out>",
        """%i = global_id {dim = 0} : index
        %z = const 0 : index
        %one = const 1 : i32
        %o = atomic %c, %z, %one {op = "add", order = "relaxed", scope = "device"} : i32
        store %y, %i, %o
        return""",
    )
    for lanes in (64, 1 << 16):
        c, y = np.zeros(1, np.int32), np.zeros(64 * 300, np.int32)
        run(module, 300, c, y, lanes_per_batch=lanes)
        assert c[0] == 64 * 300
        np.testing.assert_array_equal(y, np.arange(64 * 300))


@pytest.mark.parametrize("dtype", [dtypes.i32, dtypes.u64, dtypes.f32])
@pytest.mark.parametrize("places", [1, 9, 400])
def test_compare_and_swap(dtype: DType, places: int) -> None:
    name = dtype.name
    module = kernel(
        f"%where: array<i32, 1, in>, %a: array<{name}, 1, in>, %b: array<{name}, 1, in>, %y: array<{name}, 1, inout>, "
        f"%old: array<{name}, 1, out>",
        f"""%i = global_id {{dim = 0}} : index
        %k32 = load %where, %i : i32
        %k = cast %k32 : index
        %e = load %a, %i : {name}
        %w = load %b, %i : {name}
        %o = atomic_cas %y, %k, %e, %w {{order = "relaxed", scope = "device"}} : {name}
        store %old, %i, %o
        return""",
    )
    rng = np.random.default_rng(4)
    where = rng.integers(0, places, COUNT).astype(np.int32)
    a, b = (rng.integers(0, 3, COUNT).astype(dtype.numpy) for _ in range(2))
    y, wanted, seen = np.zeros(places, dtype.numpy), np.zeros(places, dtype.numpy), np.zeros(COUNT, dtype.numpy)
    for lane in range(COUNT):
        seen[lane] = wanted[where[lane]]
        if wanted[where[lane]] == a[lane]:
            wanted[where[lane]] = b[lane]
    old = np.zeros(COUNT, dtype.numpy)
    run(module, COUNT // 64, where, a, b, y, old)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(old, seen)


def test_atomic_load_and_store() -> None:
    module = kernel(
        "%x: array<i32, 1, in>, %y: array<i32, 1, out>",
        """%i = global_id {dim = 0} : index
        %v = atomic_load %x, %i {order = "acquire", scope = "device"} : i32
        atomic_store %y, %i, %v {order = "release", scope = "device"}
        fence {scope = "device"}
        return""",
    )
    x = samples(dtypes.i32)
    y = np.zeros_like(x)
    run(module, 1, x, y)
    np.testing.assert_array_equal(y, x)


TWICE = """%i = global_id {dim = 0} : index
    %z = const 0 : index
    %two = const 2 : i32
    %one = const 1 : i32
    %zero = const 0 : i32
    %v = load %x, %i : f32
    for %zero, %two, %one (%k: i32) {
      %o = atomic %y, %z, %v {op = "add", order = "relaxed", scope = "device"} : f32
      continue
    }
    return"""


def test_float_sums_in_loops_do_not_depend_on_the_batch() -> None:
    module = kernel("%x: array<f32, 1, in>, %y: array<f32, 1, inout>", TWICE)
    assert depends_on_order(module)
    x = np.random.default_rng(2).normal(0, 1e3, 64 * 40).astype(np.float32)
    found = set()
    for lanes in (64, 640, 1 << 16):
        y = np.zeros(1, np.float32)
        run(module, 40, x, y, lanes_per_batch=lanes)
        found.add(float(y[0]))
    assert len(found) == 1
    assert found.pop() == pytest.approx(2 * float(x.astype(np.float64).sum()), rel=64 * 80 * 2**-24)


def test_integer_sums_may_run_in_any_batch() -> None:
    module = kernel("%x: array<i32, 1, in>, %y: array<i32, 1, inout>", TWICE.replace(": f32", ": i32"))
    assert not depends_on_order(module)
