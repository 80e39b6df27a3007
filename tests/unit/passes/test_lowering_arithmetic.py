"""Tests of LowerArithmetic against the semantics of the operations, on random and special operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.passes.lowering import (
    FLOATS,
    INTEGERS,
    LOCAL,
    first_difference,
    lowered,
    operation,
    padded,
    run,
    samples,
    special_values,
)
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import semantics, types
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region
from vkjit.ir.ops import OPS, op_name
from vkjit.ir.verify import verify
from vkjit.passes.lowering.lower_arithmetic import LowerArithmetic

COUNT = 2048


def check(name: str, sources: list[DType], result: DType, constants: dict[int, Any] | None = None) -> None:
    """Assert that the lowered operation returns the same bits as its reference semantics."""
    values = [samples(dtype, COUNT, seed) for seed, dtype in enumerate(sources)]
    for k, number in (constants or {}).items():
        values[k] = np.full(COUNT, number, sources[k].numpy)
    with semantics.silence_warnings():
        if name == "cast":
            expected = semantics.cast(values[0], sources[0], result)
        else:
            meaning = OPS[op_name(name)].meaning
            assert meaning is not None
            expected = np.asarray(meaning(*values))
    found = run(lowered(operation(name, sources, result, constants)), result, *values)
    assert first_difference(found, expected, *values) == ""


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["floordiv", "floormod", "truncdiv", "truncrem"])
def test_integer_division(name: str, dtype: DType) -> None:
    check(name, [dtype, dtype], dtype)
    for divisor in (0, 1, 2, 7, 8, *((-1, -3, -8) if dtype.is_signed else ())):
        check(name, [dtype, dtype], dtype, {1: divisor})


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["shl", "shr", "min", "max", "pow"])
def test_integer_operations_of_two(name: str, dtype: DType) -> None:
    check(name, [dtype, dtype], dtype)
    check(name, [dtype, dtype], dtype, {1: 5})


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["popcount", "clz", "ctz", "sign", "abs"])
def test_integer_operations_of_one(name: str, dtype: DType) -> None:
    check(name, [dtype], dtype)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 13, 16])
def test_constant_integer_powers(exponent: int) -> None:
    module = operation("pow", [dtypes.i32, dtypes.i32], dtypes.i32, {1: exponent})
    assert not any(op.name == "for" for op in LowerArithmetic().run(module).kernel.body.walk())
    check("pow", [dtypes.i32, dtypes.i32], dtypes.i32, {1: exponent})


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["min", "max", "copysign", "truncdiv", "truncrem", "floordiv", "floormod"])
def test_float_operations_of_two(name: str, dtype: DType) -> None:
    check(name, [dtype, dtype], dtype)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, -2.0, 0.5, 0.1, np.inf, np.nan])
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("name", ["min", "max", "floormod", "floordiv"])
def test_constant_float_operands(name: str, position: int, number: float) -> None:
    check(name, [dtypes.f32, dtypes.f32], dtypes.f32, {position: float(np.float32(number))})


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_float_operations_of_one(dtype: DType) -> None:
    check("sign", [dtype], dtype)
    check("isfinite", [dtype], dtypes.boolean)


@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS, dtypes.boolean], ids=lambda d: d.name)
@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS, dtypes.boolean], ids=lambda d: d.name)
def test_conversions(source: DType, target: DType) -> None:
    check("cast", [source], target)


@pytest.mark.parametrize("target", INTEGERS, ids=lambda d: d.name)
def test_conversions_at_the_ends_of_the_range(target: DType) -> None:
    limits = np.iinfo(target.numpy)
    for source in (dtypes.f32, dtypes.f64):
        ends = np.array([limits.min, limits.max, float(limits.max) + 1, float(limits.min) - 1], source.numpy)
        near = np.concatenate(
            [ends, np.nextafter(ends, source.numpy.type(0)), np.nextafter(ends, ends * 2), ends - 0.5]
        )
        values = np.resize(np.concatenate([near, special_values(source)]), 64).astype(source.numpy)
        with semantics.silence_warnings():
            expected = semantics.cast(values, source, target)
        found = run(lowered(operation("cast", [source], target)), target, values)
        assert first_difference(found, expected, values) == ""


def test_ids_are_divided_as_unsigned_numbers() -> None:
    """No zero guard and no sign correction where neither operand can be negative."""
    body = Region([types.Array(types.INDEX, 1, access="out")])
    build = Builder(body)
    i, width = build.emit("global_id", dim=0), build.emit("extent", body.args[0], axis=0)
    build.op("store", body.args[0], i, build.emit("floordiv", i, build.emit("add", width, build.index(1))))
    build.op("return")
    module = LowerArithmetic().run(Module(Function("k", body, [], {"local_size": (1, 1, 1), "narrow": True})))
    names = [op.name for op in module.kernel.body.walk()]
    assert "udiv_raw" in names
    assert "sdiv_raw" not in names


@pytest.mark.parametrize(("factors", "wraps"), [(2, False), (6, False), (7, True)])
def test_products_of_ids_are_divided_as_signed_numbers_if_they_may_wrap(factors: int, wraps: bool) -> None:
    body = Region([types.Array(types.INDEX, 1, access="out")])
    build = Builder(body)
    i = product = build.emit("local_id", dim=0)
    for _ in range(factors - 1):
        product = build.emit("mul", product, i)
    build.op("store", body.args[0], i, build.emit("floordiv", product, build.index(7)))
    build.op("return")
    module = LowerArithmetic().run(Module(Function("k", body, [], {"local_size": (1024, 1, 1)})))
    assert ("sdiv_raw" in [op.name for op in module.kernel.body.walk()]) is wraps


def test_vectors_are_taken_apart() -> None:
    vector = types.Vector(dtypes.i32, 3)
    body = Region([types.Array(vector, 1), types.Array(vector, 1, access="out")])
    build = Builder(body)
    zero = build.index(0)
    x = build.emit("load", body.args[0], zero)
    build.op("store", body.args[1], zero, build.emit("floormod", x, build.const(3, vector)))
    build.op("return")
    module = LowerArithmetic().run(Module(Function("k", body, [], {"local_size": (1, 1, 1)})))
    verify(module)
    assert not any(op.name == "floormod" for op in module.kernel.body.walk())


def test_strict_kernels_round_twice_in_multiply_add() -> None:
    module = operation("fma", [dtypes.f32] * 3, dtypes.f32, flags={"strict": True})
    names = [op.name for op in LowerArithmetic().run(module).kernel.body.walk()]
    assert "fma" not in names
    assert names.count("mul") == 1


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.f32], ids=lambda d: d.name)
def test_roots_are_rounded_in_strict_kernels(dtype: DType) -> None:
    """Roots are computed from an approximate reciprocal root if the device's own root isn't correctly rounded."""
    values = np.concatenate([special_values(dtype), np.abs(samples(dtype, 1 << 16, 3))]).astype(dtype.numpy)
    values = values[: len(values) // LOCAL * LOCAL]
    module = operation("sqrt", [dtype], dtype, flags={"strict": True})
    module = LowerArithmetic(correctly_rounded_sqrt=False).run(module)
    assert "sqrt" not in {op.name for op in module.kernel.body.ops}
    with semantics.silence_warnings():
        expected = np.sqrt(values)
    assert first_difference(run(lowered(module), dtype, values), expected, values) == ""


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.f32])
def test_extremes_of_fast_math_are_short_and_pass_nan_on(name: str, dtype: DType) -> None:
    specials = special_values(dtype)
    x, y = (padded(v) for v in (np.repeat(specials, len(specials)), np.tile(specials, len(specials))))
    module = lowered(operation(name, [dtype] * 2, dtype, flags={"fast_math": True}))
    with semantics.silence_warnings():
        found = run(module, dtype, x, y)
        expected = (np.minimum if name == "min" else np.maximum)(x, y)
        assert np.all((found == expected) | (np.isnan(found) & np.isnan(expected)))
    exact = lowered(operation(name, [dtype] * 2, dtype))
    count, before = (sum(op.name != "const" for op in m.kernel.body.walk()) for m in (module, exact))
    assert count < before
