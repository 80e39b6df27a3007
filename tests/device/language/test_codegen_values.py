"""Code generation for elementwise operations, conversions and constants, compared with the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import Build, expected, linear, on_device, same
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.ops import KINDS, OPS, OpName
from vkjit.ir.types import Scalar, Vector
from vkjit.passes.arithmetic.floats import ROUNDING_RULES

NUMBERS = tuple(dtype for dtype in dtypes.ALL if dtype not in (dtypes.boolean, dtypes.bf16))
INTEGERS = tuple(dtype for dtype in NUMBERS if dtype.is_integer)
FLOATS = tuple(dtype for dtype in NUMBERS if dtype.is_float)
COUNT = 64


def needs(device: Any, *kinds: DType) -> None:
    missing = [dtype.name for dtype in kinds if dtype.name not in device.caps.dtypes and dtype is not dtypes.bf16]
    if missing:
        pytest.skip(f"this device has no {', '.join(missing)}")


def samples(dtype: DType, seed: int, count: int = COUNT) -> Any:
    """Return limits of the range, special values and random values."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, np.inf, -np.inf, np.nan]
        values = np.concatenate([special, rng.normal(0, 100, count - len(special))]).astype(dtype.numpy)
    else:
        info = np.iinfo(dtype.numpy)
        special = [0, 1, 2, info.max, info.min, info.max - 1]
        spread = rng.integers(info.min, info.max, count - len(special), dtype=dtype.numpy, endpoint=True)
        values = np.concatenate([np.array(special, dtype=dtype.numpy), spread])
    return rng.permutation(values)


def _rows() -> list[tuple[str, DType]]:
    rows = []
    for name, row in OPS.items():
        if row.spirv and row.meaning is not None and name not in ("find_msb_raw", "bitcount_raw") and not row.ulp:
            rows += [
                (name, dtype)
                for dtype in (dtypes.boolean, *NUMBERS)
                if dtype.kind in row.spirv and dtype.kind in KINDS[row.of]
            ]
    rows += [(name, dtype) for name in ("add", "sub", "mul") for dtype in NUMBERS]
    return [(name, dtype) for name, dtype in rows if name != "sdiv_raw" or dtype.is_signed]


def _operands(name: str, dtype: DType, count: int) -> list[Any]:
    arrays = [samples(dtype, seed) for seed in range(count)]
    if name in ("shl_raw", "shr_raw"):
        arrays[1] = (np.arange(COUNT) % dtype.bits).astype(dtype.numpy)
    if name.endswith(("div_raw", "rem_raw")):
        arrays = [np.where(array < 1, 1, array).astype(dtype.numpy) for array in arrays]
    return arrays


@pytest.mark.parametrize(("name", "dtype"), _rows(), ids=str)
def test_operation(device: Any, name: OpName, dtype: DType) -> None:
    needs(device, dtype)
    if name in ROUNDING_RULES and dtype is dtypes.f64 and "far_whole_numbers" in device.caps.quirks:
        pytest.skip("this driver may round f64 to whole numbers wrongly: the compiler makes them of other operations")
    row = OPS[name]
    count = len(row.operands)
    kinds = [dtypes.boolean if word == "bool" else dtype for word in row.operands]
    target = dtypes.boolean if row.result == "bool" else dtype
    params = {f"x{i}": linear(kind, "in", restrict=True) for i, kind in enumerate(kinds)}
    b = Build(name, {**params, "out": linear(target)})
    i = b.gid32()
    values = [b.emit("load", b.p[key], i) for key in params]
    b.op("store", b.p["out"], i, b.emit(name, *values))
    module = b.finish()
    arrays = _operands(name, dtype, count)
    if kinds[0] is dtypes.boolean and dtype is not dtypes.boolean:
        arrays[0] = samples(dtypes.boolean, 9)
    args = [*arrays, np.zeros(COUNT, target.numpy)]
    same(on_device(device, module, 1, args), expected(module, 1, args))


@pytest.mark.parametrize("lanes", [2, 3, 4])
@pytest.mark.parametrize(
    ("name", "dtype"), [("add", dtypes.f32), ("mul", dtypes.i32), ("and", dtypes.u8), ("lt", dtypes.f32)], ids=str
)
def test_operation_on_vectors(device: Any, name: OpName, dtype: DType, lanes: int) -> None:
    needs(device, dtype)
    vector = Vector(dtype, lanes)
    truth = OPS[name].result == "bool"
    target = Vector(dtypes.boolean, lanes) if truth else vector
    b = Build(name, {"x": linear(vector, "in"), "y": linear(vector, "in"), "out": linear(target)})
    i = b.gid32()
    value = b.emit(name, b.emit("load", b.p["x"], i), b.emit("load", b.p["y"], i))
    b.op("store", b.p["out"], i, value)
    module = b.finish()
    arrays = [samples(dtype, seed, 64 * lanes).reshape(64, lanes) for seed in (1, 2)]
    args = [*arrays, np.zeros((64, lanes), np.bool_ if truth else dtype.numpy)]
    same(on_device(device, module, 1, args), expected(module, 1, args))


@pytest.mark.parametrize("source", [dtypes.boolean, *NUMBERS], ids=str)
@pytest.mark.parametrize("target", [dtypes.boolean, *NUMBERS], ids=str)
def test_cast(device: Any, source: DType, target: DType) -> None:
    needs(device, source, target)
    b = Build("cast", {"x": linear(source, "in"), "out": linear(target)})
    i = b.gid32()
    b.op("store", b.p["out"], i, b.emit("cast", b.emit("load", b.p["x"], i), type=Scalar(target)))
    module = b.finish()
    args = [samples(source, 3), np.zeros(COUNT, target.numpy)]
    if source.bits == 64 and target is dtypes.f16:
        # the reference rounds once, drivers convert through f32
        args[0] = (args[0] % 1000).astype(source.numpy) if source.is_integer else np.round(args[0])
    same(on_device(device, module, 1, args), expected(module, 1, args))


def test_cast_of_values_past_the_range_saturates(device: Any) -> None:
    b = Build("saturate", {"x": linear(dtypes.f32, "in"), "out": linear(dtypes.i32), "wide": linear(dtypes.u64)})
    i = b.gid32()
    x = b.emit("load", b.p["x"], i)
    b.op("store", b.p["out"], i, b.emit("cast", x, type=Scalar(dtypes.i32)))
    b.op("store", b.p["wide"], i, b.emit("cast", x, type=Scalar(dtypes.u64)))
    module = b.finish()
    x_values = np.resize(
        np.array([3e9, -3e9, 1e30, -1e30, np.nan, np.inf, -np.inf, -0.7, 2147483520, 1.8446744e19], np.float32), 64
    )
    args = [x_values, np.zeros(64, np.int32), np.zeros(64, np.uint64)]
    same(on_device(device, module, 1, args), expected(module, 1, args))


@pytest.mark.parametrize("source", [dtypes.f32, dtypes.i64, dtypes.f16], ids=str)
def test_bf16_arrays_round_to_nearest_even(device: Any, source: DType) -> None:
    needs(device, source)
    b = Build("bf16", {"x": linear(source, "in"), "out": linear(dtypes.bf16), "back": linear(dtypes.f32)})
    i = b.gid32()
    rounded = b.emit("cast", b.emit("load", b.p["x"], i), type=Scalar(dtypes.bf16))
    b.op("store", b.p["out"], i, rounded)
    b.op("store", b.p["back"], i, b.emit("cast", b.emit("load", b.p["out"], i), type=Scalar(dtypes.f32)))
    module = b.finish()
    args = [samples(source, 5), np.zeros(64, np.uint16), np.zeros(64, np.float32)]
    found, wanted = on_device(device, module, 1, args), expected(module, 1, args)
    same(found[2:], wanted[2:])
    numbers = ~np.isnan(wanted[2])
    np.testing.assert_array_equal(found[1][numbers], wanted[1][numbers])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (dtypes.f32, dtypes.u32),
        (dtypes.i64, dtypes.f64),
        (dtypes.f16, dtypes.i16),
        (dtypes.bf16, dtypes.u16),
        (dtypes.i16, dtypes.bf16),
    ],
    ids=str,
)
def test_bitcast(device: Any, source: DType, target: DType) -> None:
    needs(device, source, target)
    b = Build("bitcast", {"x": linear(source, "in"), "out": linear(target)})
    i = b.gid32()
    b.op("store", b.p["out"], i, b.emit("bitcast", b.emit("load", b.p["x"], i), type=Scalar(target)))
    module = b.finish()
    x = np.arange(1000, 1064).astype(source.storage)
    (_, out) = on_device(device, module, 1, [x, np.zeros(64, target.storage)])
    np.testing.assert_array_equal(out.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", [dtypes.boolean, *NUMBERS], ids=str)
def test_constants_keep_their_bits(device: Any, dtype: DType) -> None:
    needs(device, dtype)
    values: list[Any] = (
        [0.0, -0.0, 1.5, float("inf"), float("-inf")]
        if dtype.is_float
        else [dtype.numpy.type(n).item() for n in (0, 1)]
    )
    if dtype.is_integer:
        values += [int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)]
    b = Build("constants", {"out": linear(dtype)}, local=1)
    for place, value in enumerate(values):
        b.op("store", b.p["out"], b.i32(place), b.const(value, dtype))
    args = [np.ones(len(values), dtype.numpy)]
    module = b.finish()
    same(on_device(device, module, 1, args), [np.array(values, dtype.numpy)])


@pytest.mark.parametrize("dtype", [dtypes.boolean, *NUMBERS, dtypes.bf16], ids=str)
def test_scalar_parameters(device: Any, dtype: DType) -> None:
    needs(device, dtype)
    b = Build(
        "scalars",
        {"a": dtypes.i8, "b": dtype, "c": dtype, "out": linear(dtype)}
        if dtype is not dtypes.bf16
        else {"a": dtypes.f32, "b": dtype, "c": dtype, "out": linear(dtype)},
        local=1,
    )
    b.op("store", b.p["out"], b.i32(0), b.p["b"])
    b.op("store", b.p["out"], b.i32(1), b.p["c"])
    module = b.finish()
    carrier = dtype.numpy.type
    args = [1, carrier(1), carrier(0 if dtype.kind == "bool" else 3), np.zeros(2, dtype.storage)]
    wanted = np.array([1, 0 if dtype.kind == "bool" else 3], dtype.numpy)
    (*_, out) = on_device(device, module, 1, args)
    if dtype is dtypes.bf16:
        out = (out.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(out, wanted)


def test_vectors_are_made_and_taken_apart(device: Any) -> None:
    vector = Vector(dtypes.f32, 4)
    b = Build("vectors", {"x": linear(vector, "in"), "out": linear(vector)})
    i = b.gid32()
    x = b.emit("load", b.p["x"], i)
    parts = [b.emit("vec_extract", x, lane=lane, type=Scalar(dtypes.f32)) for lane in (3, 2, 1, 0)]
    transposed = b.emit("vec_make", *parts, type=vector)
    b.op("store", b.p["out"], i, b.emit("vec_insert", transposed, b.const(7.0, dtypes.f32), lane=1))
    module = b.finish()
    x_values = np.arange(256, dtype=np.float32).reshape(64, 4)
    wanted = x_values[:, ::-1].copy()
    wanted[:, 1] = 7
    (_, out) = on_device(device, module, 1, [x_values, np.zeros_like(x_values)])
    np.testing.assert_array_equal(out, wanted)
