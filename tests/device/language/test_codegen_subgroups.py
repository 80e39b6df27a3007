"""Code generation for subgroup operations, compared with the interpreter at the same subgroup size."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import Build, expected, linear, on_device, same
from vkjit import dtypes
from vkjit.backends.vulkan import codegen
from vkjit.dtypes import DType
from vkjit.ir.core import Module
from vkjit.ir.ops import op_name
from vkjit.ir.types import Scalar, Type, Vector

COUNT = 128

REDUCTIONS = [
    (name, dtype)
    for dtype in (dtypes.i32, dtypes.u32, dtypes.f32, dtypes.i64, dtypes.f64, dtypes.f16, dtypes.u8, dtypes.i16)
    for name in ("add", "mul", "min", "max", "and", "or", "xor")
    if not (dtype.is_float and name in ("and", "or", "xor"))
] + [(name, dtypes.boolean) for name in ("and", "or", "xor")]


def _kernel(
    name: str, dtype: Type | DType, result: Type | DType | None = None, extra: Any = None, **attrs: Any
) -> Module:
    """Build a kernel that applies one operation per element; the local id along y checks the order of lanes."""
    b = Build("lanes", {"x": linear(dtype, "in"), "out": linear(result or dtype)}, local=(32, 2, 1), subgroups=True)
    local = b.emit("add", b.emit("mul", b.emit("local_id", dim=1), b.index(32)), b.emit("local_id", dim=0))
    i = b.cast(b.emit("add", b.emit("mul", b.emit("group_id", dim=0), b.index(64)), local), dtypes.i32)
    operands = [b.emit("load", b.p["x"], i)] if name != "sg_elect" else []
    if extra is not None:
        operands.append(extra(b))
    b.op("store", b.p["out"], i, b.emit(op_name(name), *operands, **attrs))
    return b.finish()


def _values(dtype: DType, lanes: int = 1) -> Any:
    rng = np.random.default_rng(7)
    shape = COUNT if lanes == 1 else (COUNT, lanes)
    if dtype.is_float:
        values = rng.normal(0, 1, shape).astype(dtype.numpy)
        values.reshape(-1)[[3, 40, 41]] = [np.nan, -0.0, 0.0]
        return values
    return rng.integers(0, 2 if dtype.kind == "bool" else 100, shape).astype(dtype.numpy)


def _check(device: Any, module: Module, args: list[Any]) -> list[Any]:
    found = on_device(device, module, 2, args)
    same(found, expected(module, 2, args, subgroup_size=device.caps.subgroup_size))
    return found


def _needs(device: Any, dtype: DType) -> None:
    if dtype.name not in device.caps.dtypes:
        pytest.skip(f"this device has no {dtype.name}")


@pytest.mark.parametrize(("name", "dtype"), REDUCTIONS, ids=str)
def test_reduction(device: Any, name: str, dtype: DType) -> None:
    """Results are bit-exact: float additions have the same order on every device."""
    _needs(device, dtype)
    _check(device, _kernel("sg_reduce", dtype, op=name), [_values(dtype), np.zeros(COUNT, dtype.numpy)])


@pytest.mark.parametrize("exclusive", [False, True], ids=["inclusive", "exclusive"])
@pytest.mark.parametrize(("name", "dtype"), REDUCTIONS, ids=str)
def test_scan(device: Any, name: str, dtype: DType, exclusive: bool) -> None:
    _needs(device, dtype)
    module = _kernel("sg_scan", dtype, op=name, exclusive=exclusive)
    _check(device, module, [_values(dtype), np.zeros(COUNT, dtype.numpy)])


@pytest.mark.parametrize("name", ["add", "max"])
def test_reduction_of_vectors(device: Any, name: str) -> None:
    vector = Vector(dtypes.f32, 3)
    module = _kernel("sg_reduce", vector, op=name)
    _check(device, module, [_values(dtypes.f32, 3), np.zeros((COUNT, 3), np.float32)])


@pytest.mark.parametrize(
    "dtype", [dtypes.i32, dtypes.f32, dtypes.boolean, dtypes.f16, dtypes.u8, dtypes.f64, dtypes.i64], ids=str
)
@pytest.mark.parametrize("name", ["sg_broadcast", "sg_shuffle", "sg_shuffle_xor"])
def test_exchange(device: Any, name: str, dtype: DType) -> None:
    _needs(device, dtype)
    attrs = {"mask": 5 % device.caps.subgroup_size} if name == "sg_shuffle_xor" else {}

    def lane(b: Build) -> Any:
        if name == "sg_broadcast":
            return b.index(3)
        return b.emit("sub", b.index(device.caps.subgroup_size - 1), b.emit("lane_id"))

    module = _kernel(name, dtype, extra=None if name == "sg_shuffle_xor" else lane, **attrs)
    x = np.nan_to_num(_values(dtype)) if dtype.is_float else _values(dtype)
    _check(device, module, [x, np.zeros(COUNT, dtype.numpy)])


@pytest.mark.parametrize("name", ["sg_any", "sg_all"])
@pytest.mark.parametrize("density", [0, 1, 2])
def test_vote(device: Any, name: str, density: int) -> None:
    x = np.array([False] * COUNT if density == 0 else [True] * COUNT)
    if density == 2:
        x[70] = False
    _check(device, _kernel(name, dtypes.boolean), [x, np.zeros(COUNT, np.bool_)])


def test_ballot_and_elect(device: Any) -> None:
    x = _values(dtypes.boolean)
    module = _kernel("sg_ballot", dtypes.boolean, dtypes.u64, type=Scalar(dtypes.u64))
    _check(device, module, [x, np.zeros(COUNT, np.uint64)])
    module = _kernel("sg_elect", dtypes.boolean, type=Scalar(dtypes.boolean))
    (_, out) = _check(device, module, [x, np.zeros(COUNT, np.bool_)])
    assert out.sum() == COUNT // device.caps.subgroup_size


def test_sizes_are_those_of_the_device(device: Any) -> None:
    b = Build("sizes", {"out": linear(dtypes.i64)}, subgroups=True)
    i = b.gid32()
    size, count = b.emit("subgroup_size"), b.emit("num_subgroups")
    own = b.emit("add", b.emit("mul", b.emit("subgroup_id"), size), b.emit("lane_id"))
    b.op("store", b.p["out"], i, b.cast(own, dtypes.i64))
    b.op("store", b.p["out"], b.i32(64), b.cast(size, dtypes.i64))
    b.op("store", b.p["out"], b.i32(65), b.cast(count, dtypes.i64))
    (out,) = on_device(device, b.finish(), 1, [np.zeros(66, np.int64)])
    size_here = device.caps.subgroup_size
    np.testing.assert_array_equal(out, [*range(64), size_here, 64 // size_here])


@pytest.mark.parametrize("name", ["add", "min", "xor"])
@pytest.mark.parametrize("operation", ["sg_reduce", "sg_scan"])
def test_native_and_butterfly_forms_agree(device: Any, name: str, operation: str) -> None:
    """Native and emulated integer reductions give the same results."""
    if "subgroup_arithmetic" not in device.caps.features or device.caps.kind in ("interpreter", "llvm-cpu"):
        pytest.skip("this device has one form")
    attrs: dict[str, Any] = {"exclusive": True} if operation == "sg_scan" else {}
    module = _kernel(operation, dtypes.i32, op=name, **attrs)
    slow = dataclasses.replace(device.caps, quirks=device.caps.quirks | {"slow_subgroup_arithmetic"})
    fast = dataclasses.replace(device.caps, quirks=frozenset())
    args = [_values(dtypes.i32), np.zeros(COUNT, np.int32)]
    native, butterfly = (on_device(device, module, 2, args, codegen.emit(module, caps)) for caps in (fast, slow))
    same(native, butterfly)
