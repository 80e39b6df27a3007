"""Code generation for memory: views, shared and local arrays, barriers, atomics, strides, the argument block."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import Build, artifact_for, block, expected, linear, on_device, same
from vkjit import dtypes
from vkjit.backends.vulkan import codegen
from vkjit.dtypes import DType
from vkjit.ir.attributes import FunctionAttrs
from vkjit.ir.core import Module
from vkjit.ir.ops import op_name
from vkjit.ir.types import Array, Scalar, Vector

N = 64
F32 = Scalar(dtypes.f32)


def _check(device: Any, module: Module, args: list[Any], groups: Any = 1) -> list[Any]:
    found = on_device(device, module, groups, args)
    same(found, expected(module, groups, args))
    return found


def _needs(device: Any, dtype: DType) -> None:
    if dtype.name not in device.caps.dtypes:
        pytest.skip(f"this device has no {dtype.name}")


@pytest.mark.parametrize("narrow", [True, False])
def test_strided_arrays(device: Any, narrow: bool) -> None:
    """Arrays that aren't linear take their strides from the argument block, or from the extents if contiguous."""
    matrix = Array(F32, 2, access="in")
    flat = Array(F32, 2, contiguous=True)
    b = Build("strided", {"x": matrix, "out": flat}, local=(8, 8, 1), narrow=narrow)
    row, column = b.gid(1), b.gid(0)
    b.op("store", b.p["out"], row, column, b.emit("load", b.p["x"], row, column))
    args = [np.arange(N, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32)]
    _check(device, b.finish(), args)


def test_negative_offsets_in_32_and_64_bits(device: Any) -> None:
    b = Build("reverse", {"x": linear(dtypes.f32, "in"), "at": dtypes.i32, "out": linear(dtypes.f32)}, narrow=True)
    i = b.gid32()
    low = b.emit("sub", b.p["at"], i)
    b.op("store", b.p["out"], b.emit("sub", b.i32(63), i), b.emit("load", b.p["x"], low))
    b.op("store", b.p["out"], b.emit("add", b.gid(), b.index(64)), b.emit("load", b.p["x"], b.cast(low, dtypes.index)))
    args = [np.arange(N, dtype=np.float32), 63, np.zeros(2 * N, np.float32)]
    (*_, out) = _check(device, b.finish(), args)
    np.testing.assert_array_equal(out, np.concatenate([np.arange(N), np.arange(N)[::-1]]))


@pytest.mark.parametrize(
    ("dtype", "lanes"), [(dtypes.f32, 4), (dtypes.f32, 2), (dtypes.u8, 4), (dtypes.f16, 4), (dtypes.i64, 2)], ids=str
)
def test_wide_views(device: Any, dtype: DType, lanes: int) -> None:
    """A linear view with a vector element type accesses several elements at once."""
    _needs(device, dtype)
    vector = Vector(dtype, lanes)
    b = Build("wide", {"x": linear(dtype, "in", restrict=True), "out": linear(dtype)})
    i = b.gid32()
    x = b.emit("linear", b.p["x"], type=linear(vector, "in", restrict=True))
    out = b.emit("linear", b.p["out"], type=linear(vector))
    value = b.emit("load", x, i)
    b.op("store", out, i, b.emit("add", value, value))
    x_values = np.arange(N * lanes).astype(dtype.numpy)
    if device.caps.kind == "interpreter":
        pytest.skip("the interpreter has views of the same element size only")
    (_, result) = on_device(device, b.finish(verified=False), 1, [x_values, np.zeros_like(x_values)])
    np.testing.assert_array_equal(result, x_values + x_values)


def test_view_of_the_bits(device: Any) -> None:
    b = Build("bits", {"x": linear(dtypes.f32, "in"), "out": linear(dtypes.u32)})
    i = b.gid32()
    x = b.emit("linear", b.p["x"], type=linear(dtypes.u32, "in"))
    b.op("store", b.p["out"], i, b.emit("load", x, i))
    x_values = np.linspace(-2, 2, N, dtype=np.float32)
    (_, out) = on_device(device, b.finish(), 1, [x_values, np.zeros(N, np.uint32)])
    np.testing.assert_array_equal(out, x_values.view(np.uint32))


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.boolean, dtypes.u8, dtypes.f16, dtypes.i64, dtypes.bf16], ids=str)
def test_shared_array_and_barrier(device: Any, dtype: DType) -> None:
    """Each invocation reads what its mirror image wrote."""
    if dtype is not dtypes.bf16:
        _needs(device, dtype)
    b = Build("mirror", {"x": linear(dtype, "in"), "out": linear(dtype)})
    tile = b.emit("shared", type=block(dtype, N))
    i, local = b.gid32(), b.cast(b.emit("local_id", dim=0), dtypes.i32)
    b.op("store", tile, local, b.emit("load", b.p["x"], i))
    b.op("barrier")
    b.op("store", b.p["out"], i, b.emit("load", tile, b.emit("sub", b.i32(N - 1), local)))
    x = (np.arange(2 * N) % 61 // (20 if dtype is dtypes.boolean else 1)).astype(dtype.storage)
    (_, out) = on_device(device, b.finish(), 2, [x, np.zeros_like(x)])
    np.testing.assert_array_equal(out, x.reshape(2, N)[:, ::-1].reshape(-1))


def test_barrier_orders_global_memory_of_the_workgroup(device: Any) -> None:
    b = Build("through", {"x": linear(dtypes.i32), "out": linear(dtypes.i32)})
    i = b.gid32()
    b.op("store", b.p["x"], i, b.emit("mul", i, i))
    b.op("barrier")
    b.op("store", b.p["out"], i, b.emit("load", b.p["x"], b.emit("sub", b.i32(N - 1), i)))
    _, out = _check(device, b.finish(), [np.zeros(N, np.int32), np.zeros(N, np.int32)])
    np.testing.assert_array_equal(out, (np.arange(N) ** 2)[::-1])


def test_sum_in_a_loop_with_barriers(device: Any) -> None:
    b = Build("tree", {"x": linear(dtypes.f32, "in"), "out": linear(dtypes.f32)})
    tile = b.emit("shared", type=block(dtypes.f32, N))
    local = b.cast(b.emit("local_id", dim=0), dtypes.i32)
    b.op("store", tile, local, b.emit("load", b.p["x"], b.gid32()))
    body, _ = b.repeat(b.i32(0), b.i32(6), b.i32(1), [])
    with b.at(body):
        half = b.emit("shr_raw", b.i32(N // 2), body.args[0])
        b.op("barrier")
        with b.when(b.emit("lt", local, half)):
            other = b.emit("load", tile, b.emit("add", local, half))
            b.op("store", tile, local, b.emit("add", b.emit("load", tile, local), other))
        b.op("continue")
    with b.when(b.emit("eq", local, b.i32(0))):
        group = b.cast(b.emit("group_id", dim=0), dtypes.i32)
        b.op("store", b.p["out"], group, b.emit("load", tile, b.i32(0)))
    x = np.random.default_rng(0).integers(0, 100, 4 * N).astype(np.float32)
    (_, out) = _check(device, b.finish(), [x, np.zeros(4, np.float32)], groups=4)
    np.testing.assert_array_equal(out, x.reshape(4, N).sum(1))


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.boolean, dtypes.bf16, dtypes.i64], ids=str)
def test_local_array_with_a_runtime_index(device: Any, dtype: DType) -> None:
    b = Build("window", {"x": linear(dtype, "in"), "out": linear(dtype)}, local=16)
    own = b.emit("local", type=block(dtype, 4, "local"))
    i = b.gid32()
    first = b.emit("mul", i, b.i32(4))
    body, _ = b.repeat(b.i32(0), b.i32(4), b.i32(1), [])
    with b.at(body):
        k = body.args[0]
        b.op("store", own, k, b.emit("load", b.p["x"], b.emit("add", first, k)))
        b.op("continue")
    body, _ = b.repeat(b.i32(0), b.i32(4), b.i32(1), [])
    with b.at(body):
        k = body.args[0]
        transposed = b.emit("load", own, b.emit("sub", b.i32(3), k))
        b.op("store", b.p["out"], b.emit("add", first, k), transposed)
        b.op("continue")
    x = (np.arange(N) * 5 % 7 // (5 if dtype is dtypes.boolean else 1)).astype(dtype.storage)
    (_, out) = on_device(device, b.finish(), 1, [x, np.zeros_like(x)])
    np.testing.assert_array_equal(out, x.reshape(16, 4)[:, ::-1].reshape(-1))


# Atomics

ATOMICS = [
    (name, dtype)
    for dtype in (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.f32, dtypes.f64, dtypes.u8, dtypes.i16, dtypes.f16)
    for name in ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
    if not (dtype.is_float and name in ("and", "or", "xor"))
]


def _atomic_kernel(name: str, dtype: DType, space: str) -> Module:
    b = Build("atomics", {"x": linear(dtype, "in"), "out": linear(dtype)})
    i = b.gid32()
    value = b.emit("load", b.p["x"], i)
    slot = b.emit("and", i, b.i32(3))
    attrs: dict[str, Any] = {"order": "relaxed", "scope": "device"}
    if space == "global":
        b.op("atomic", b.p["out"], slot, value, op=name, **attrs)
        return b.finish()
    tile = b.emit("shared", type=block(dtype, 4))
    with b.when(b.emit("lt", i, b.i32(4))):
        b.op("store", tile, i, b.emit("load", b.p["out"], i))
    b.op("barrier")
    b.op("atomic", tile, slot, value, op=name, **attrs)
    b.op("barrier")
    with b.when(b.emit("lt", i, b.i32(4))):
        b.op("store", b.p["out"], i, b.emit("load", tile, i))
    return b.finish()


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("name", "dtype"), ATOMICS, ids=str)
def test_atomic(device: Any, name: str, dtype: DType, space: str) -> None:
    """64 invocations update 4 elements; the operands make the result independent of the order."""
    _needs(device, dtype)
    feature = "int64_atomics" if space == "global" else "int64_shared_atomics"
    if dtype.bits == 64 and feature not in device.caps.features:
        pytest.skip(f"this device has no {feature}")
    x = (np.arange(N) // 4 % 5).astype(dtype.numpy)
    if name == "exchange":
        x[:] = 3
    out = np.array([1, 2, 3, 100], dtype.numpy)
    _check(device, _atomic_kernel(name, dtype, space), [x, out])


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i32, dtypes.u8], ids=str)
def test_old_values_of_atomic_additions_are_a_permutation(device: Any, dtype: DType) -> None:
    _needs(device, dtype)
    b = Build("tickets", {"counter": linear(dtype), "out": linear(dtype)})
    one = b.const(1.0 if dtype.is_float else 1, dtype)
    ticket = b.emit("atomic", b.p["counter"], b.i32(1), one, op="add", order="relaxed", scope="device")
    b.op("store", b.p["out"], b.gid32(), ticket)
    counter, out = on_device(device, b.finish(), 2, [np.zeros(4, dtype.numpy), np.zeros(2 * N, dtype.numpy)])
    np.testing.assert_array_equal(np.sort(out), np.arange(2 * N))
    np.testing.assert_array_equal(counter, [0, 2 * N, 0, 0])


@pytest.mark.parametrize("name", ["min", "max"])
def test_float_extremes_pass_nan_on(device: Any, name: str) -> None:
    module = _atomic_kernel(name, dtypes.f32, "global")
    x = np.zeros(N, np.float32)
    x[1::8] = np.nan
    x[2::4] = -0.0
    _check(device, module, [x, np.array([-0.0, 0, 0, np.inf], np.float32)])


@pytest.mark.parametrize("dtype", [dtypes.i32, dtypes.u64, dtypes.f32, dtypes.i16], ids=str)
def test_compare_and_swap_load_and_store(device: Any, dtype: DType) -> None:
    _needs(device, dtype)
    if dtype.bits == 64 and "int64_atomics" not in device.caps.features:
        pytest.skip("this device has no int64_atomics")

    def order(name: str) -> dict[str, Any]:
        return {"order": name, "scope": "device"}

    b = Build("cas", {"x": linear(dtype), "out": linear(dtype)})
    i = b.gid32()
    old = b.emit(
        "atomic_cas",
        b.p["x"],
        i,
        b.const(dtype.numpy.type(3).item(), dtype),
        b.cast(i, dtype),
        **order("acq_rel"),
    )
    now = b.emit("atomic_load", b.p["x"], i, **order("acquire"))
    b.op("atomic_store", b.p["out"], i, b.emit("add", old, now), **order("release"))
    x = (np.arange(N) % 4).astype(dtype.numpy)
    after, out = _check(device, b.finish(), [x, np.zeros(N, dtype.numpy)])
    np.testing.assert_array_equal(after, np.where(x == 3, np.arange(N), x).astype(dtype.numpy))
    np.testing.assert_array_equal(out, x + after)


def test_last_workgroup_sees_what_the_others_wrote(device: Any) -> None:
    """A device-scope fence and an atomic counter order plain stores across workgroups."""
    b = Build("last", {"part": linear(dtypes.i32), "counter": linear(dtypes.i32), "out": linear(dtypes.i32)})
    group, local = (b.cast(b.emit(name, dim=0), dtypes.i32) for name in ("group_id", "local_id"))
    ticket = b.emit("shared", type=block(dtypes.i32, 1))
    with b.when(b.emit("eq", local, b.i32(0))):
        b.op("store", b.p["part"], group, b.emit("mul", group, group))
        b.op("fence", scope="device")
        old = b.emit("atomic", b.p["counter"], b.i32(0), b.i32(1), op="add", order="acq_rel", scope="device")
        b.op("store", ticket, b.i32(0), old)
    b.op("barrier")
    with b.when(b.emit("eq", b.emit("load", ticket, b.i32(0)), b.i32(N - 1))):
        b.op("fence", scope="device")
        b.op("store", b.p["out"], local, b.emit("load", b.p["part"], local))
    args = [np.full(N, -1, np.int32), np.zeros(1, np.int32), np.zeros(N, np.int32)]
    (*_, out) = on_device(device, b.finish(), N, args)
    np.testing.assert_array_equal(out, np.arange(N) ** 2)


# Argument block and ids


def test_block_past_the_push_constants_goes_by_address(device: Any) -> None:
    count = 40
    b = Build(
        "many",
        {"flag": dtypes.boolean, **{f"a{i}": dtypes.i64 for i in range(count)}, "out": linear(dtypes.i64)},
        local=1,
    )
    for i in range(count):
        b.op("store", b.p["out"], b.i32(i), b.p[f"a{i}"])
    b.op("store", b.p["out"], b.i32(count), b.cast(b.p["flag"], dtypes.i64))
    module = b.finish()
    if device.caps.kind != "interpreter":
        small = dataclasses.replace(device.caps, push_constant_bytes=128)
        assert codegen.emit(module, small).indirect
        if device.caps.push_constant_bytes < 8 * count:
            assert artifact_for(device, module).indirect
    values = [i**7 - 1000 for i in range(count)]
    (*_, out) = on_device(device, module, 1, [True, *values, np.zeros(count + 1, np.int64)])
    np.testing.assert_array_equal(out, [*values, 1])


@pytest.mark.parametrize("mode", ["plain", "cut", "subgroups"])
def test_ids(device: Any, mode: str) -> None:
    attrs: FunctionAttrs = {"cut": True} if mode == "cut" else {"subgroups": True} if mode == "subgroups" else {}
    local, groups = (8, 4, 2), (3, 2, 2)
    total = 64 * 12
    b = Build("ids", {"out": linear(dtypes.i64)}, local=local, **attrs)
    place = b.index(0)
    names = ("global_id", "local_id", "group_id", "num_groups", "local_size")
    for axis in (2, 1, 0):
        size = b.index(local[axis] * groups[axis])
        place = b.emit("add", b.emit("mul", place, size), b.gid(axis))
    column = 0
    for name in names:
        for axis in range(3):
            at = b.emit("add", b.emit("mul", place, b.index(15)), b.index(column))
            b.op("store", b.p["out"], at, b.cast(b.emit(op_name(name), dim=axis), dtypes.i64))
            column += 1
    (out,) = on_device(device, b.finish(), groups, [np.zeros(15 * total, np.int64)])
    z, y, x = (axis.reshape(-1) for axis in np.indices([n * m for n, m in zip(local, groups, strict=True)][::-1]))
    ids = (x, y, z)
    columns = [
        *ids,
        *(v % n for v, n in zip(ids, local, strict=True)),
        *(v // n for v, n in zip(ids, local, strict=True)),
        *(np.full(total, n) for n in groups),
        *(np.full(total, n) for n in local),
    ]
    np.testing.assert_array_equal(out.reshape(total, 15), np.stack(columns, 1))
