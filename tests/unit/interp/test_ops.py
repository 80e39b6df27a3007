"""Tests of every elementwise row of the op table, for every element type, against NumPy; special values explicitly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.interp.kernels import carried, kernel, one_op, run, samples, storage_of
from vkjit import dtypes
from vkjit.backends.interp.codegen import elementwise
from vkjit.backends.interp.codegen.compile import CONTROL, PLAIN
from vkjit.dtypes import DType
from vkjit.ir import OPS, semantics
from vkjit.ir.ops import KINDS, OpName

RESULT_BOOL = {name for name, row in OPS.items() if row.result == "bool"}
ROWS = [name for name, row in OPS.items() if row.meaning is not None]


def test_every_row_has_a_handler() -> None:
    assert set(OPS) == set(PLAIN) | set(CONTROL)
    assert not set(PLAIN) & set(CONTROL)


def dtypes_of(name: OpName) -> list[DType]:
    row = OPS[name]
    if "u32" in row.operands:
        return [dtypes.u32]
    return [dtype for dtype in dtypes.by_name.values() if dtype.kind in KINDS[row.of]]


def expected(name: OpName, operands: list[Any], result: DType) -> Any:
    meaning = OPS[name].meaning
    assert meaning is not None
    with semantics.silence_warnings():
        value = np.asarray(meaning(*operands))
    return semantics.to_bf16(value) if result is dtypes.bf16 and name not in ("neg", "abs", "select") else value


def storable(dtype: DType) -> DType:
    return dtypes.i64 if dtype is dtypes.index else dtype


@pytest.mark.parametrize("name", ROWS)
def test_row_equals_numpy(name: OpName) -> None:
    row = OPS[name]
    for dtype in dtypes_of(name):
        if dtype is dtypes.index:
            continue  # no array holds this type; NumPy's counterpart is i64, which is covered
        sources = [dtypes.boolean if word == "bool" else dtype for word in row.operands]
        result = dtypes.boolean if name in RESULT_BOOL else dtype
        operands = [samples(source, seed=n) for n, source in enumerate(sources)]
        if name == "find_msb_raw":
            operands[0] = np.maximum(operands[0], np.uint32(1))
        out = np.zeros(64, dtype=result.storage)
        module = one_op(name, sources, result)
        run(module, 1, *(storage_of(x, s) for x, s in zip(operands, sources, strict=True)), out)
        wanted = expected(name, operands, result)
        assert wanted.dtype == result.numpy, f"{name} {dtype}: the table's meaning gives {wanted.dtype}"
        np.testing.assert_array_equal(carried(out, result), wanted, err_msg=f"{name} {dtype}", strict=True)


@pytest.mark.parametrize("name", ["add", "fma", "neg", "lt", "min", "select", "exp", "cast", "bitcast"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_vectors_compute_by_component(name: OpName, size: int) -> None:
    row = OPS[name]
    sources = [dtypes.boolean if word == "bool" else dtypes.f32 for word in row.operands]
    result = {"lt": dtypes.boolean, "cast": dtypes.i32, "bitcast": dtypes.u32}.get(name, dtypes.f32)
    operands = [samples(s, 64 * size, seed=n).reshape(64, size) for n, s in enumerate(sources)]
    out = np.zeros((64, size), dtype=result.storage)
    run(one_op(name, sources, result, size), 1, *operands, out)
    if name == "cast":
        wanted: Any = semantics.cast(operands[0], dtypes.f32, dtypes.i32)
    elif name == "bitcast":
        wanted = operands[0].view(np.uint32)
    else:
        wanted = expected(name, operands, result)
    np.testing.assert_array_equal(out, wanted, strict=True)


@pytest.mark.parametrize("source", dtypes.ALL)
def test_casts(source: DType) -> None:
    for target in dtypes.ALL:
        values = samples(source)
        out = np.zeros(64, dtype=target.storage)
        run(one_op("cast", [source], target), 1, storage_of(values, source), out)
        with semantics.silence_warnings():
            wanted = semantics.cast(values, source, target)
        np.testing.assert_array_equal(carried(out, target), wanted, err_msg=f"{source} to {target}")


def test_cast_special_values() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.9, -2.9, 0.0] + [0.0] * 56, dtype=np.float32)
    out = np.zeros(64, dtype=np.int32)
    run(one_op("cast", [dtypes.f32], dtypes.i32), 1, values, out)
    assert out[:8].tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2, -2, 0]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_bitcasts_keep_every_bit(bits: int) -> None:
    same = [dtype for dtype in dtypes.ALL if dtype.bits == bits]
    for source in same:
        for target in same:
            raw = np.random.default_rng(1).integers(0, 256, 64 * bits // 8).astype(np.uint8)
            out = np.zeros(64, dtype=target.storage)
            run(one_op("bitcast", [source], target), 1, raw.view(source.storage), out)
            assert out.tobytes() == raw.tobytes(), f"{source} to {target}"


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.f32, dtypes.f64, dtypes.i32, dtypes.u8])
def test_faster_meanings_are_the_same(name: OpName, dtype: DType) -> None:
    values = samples(dtype)
    x, y = np.meshgrid(values, values)
    meaning = OPS[name].meaning
    assert meaning is not None
    with semantics.silence_warnings():
        fast, slow = elementwise.meaning_of(name, dtype)(x, y), meaning(x, y)
    np.testing.assert_array_equal(fast, slow, strict=True)
    if dtype.is_float:
        known = ~np.isnan(slow)
        np.testing.assert_array_equal(np.signbit(fast)[known], np.signbit(slow)[known])


def test_vector_parts() -> None:
    module = kernel(
        "%x: array<f32, 1, in>, %y: array<vec<f32, 3>, 1, out>, %z: array<f32, 1, out>",
        """%i = global_id {dim = 0} : index
        %a = load %x, %i : f32
        %one = const 1.0 : f32
        %s = add %a, %one : f32
        %v = vec_make %a, %one, %s : vec<f32, 3>
        %w = vec_insert %v, %s {lane = 1} : vec<f32, 3>
        store %y, %i, %w
        %u = vec_make %one, %one : vec<f32, 2>
        %t = vec_insert %u, %a {lane = 0} : vec<f32, 2>
        %e = vec_extract %t {lane = 0} : f32
        %f = vec_extract %t {lane = 1} : f32
        %g = mul %e, %f : f32
        store %z, %i, %g
        return""",
    )
    x = samples(dtypes.f32)
    y, z = np.zeros((64, 3), np.float32), np.zeros(64, np.float32)
    run(module, 1, x, y, z)
    np.testing.assert_array_equal(y, np.stack([x, x + np.float32(1), x + np.float32(1)], axis=1))
    np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (dtypes.i8, "-128", -128),
        (dtypes.u64, "18446744073709551615", 2**64 - 1),
        (dtypes.i64, "-9223372036854775808", -(2**63)),
        (dtypes.boolean, "true", True),
        (dtypes.bf16, "1.00390625", 1.0),  # a tie, rounded to even
        (dtypes.f16, "65504.0", 65504.0),
        (dtypes.f64, "0.1", 0.1),
    ],
)
def test_constants(dtype: DType, text: str, value: Any) -> None:
    module = kernel(
        f"%y: array<{dtype.name}, 1, out>",
        f"""%i = global_id {{dim = 0}} : index
        %c = const {text} : {dtype.name}
        store %y, %i, %c
        return""",
    )
    y = np.zeros(64, dtype=dtype.storage)
    run(module, 1, y)
    assert set(carried(y, dtype).tolist()) == {value}


def test_ids_in_three_dimensions() -> None:
    names = ("global_id", "local_id", "group_id", "num_groups", "local_size")
    lines = [
        "%p0 = global_id {dim = 0} : index",
        "%p1 = global_id {dim = 1} : index",
        "%p2 = global_id {dim = 2} : index",
    ]
    for n in range(15):
        lines += [f"%id{n} = {names[n // 3]} {{dim = {n % 3}}} : index", f"%c{n} = const {n} : index"]
        lines += [f"%v{n} = cast %id{n} : i32", f"store %y, %p2, %p1, %p0, %c{n}, %v{n}"]
    groups, local = (3, 2, 2), (2, 3, 2)
    module = kernel("%y: array<i32, 4, out>", "\n".join([*lines, "return"]), local)
    z, y, x = np.meshgrid(*(np.arange(g * s) for g, s in zip(groups[::-1], local[::-1], strict=True)), indexing="ij")
    for lanes in (12, 40, 1 << 16):
        out = np.zeros((4, 6, 6, 15), np.int32)
        run(module, groups, out, lanes_per_batch=lanes)
        for dim, position in enumerate((x, y, z)):
            np.testing.assert_array_equal(out[..., dim], position)
            np.testing.assert_array_equal(out[..., 3 + dim], position % local[dim])
            np.testing.assert_array_equal(out[..., 6 + dim], position // local[dim])
            assert (out[..., 9 + dim] == groups[dim]).all()
            assert (out[..., 12 + dim] == local[dim]).all()
