"""Tests that folding and algebraic simplification are exact.

The interpreter returns the same bits with and without them, for every type and operation with special constants on
either side. All NaNs compare equal, regardless of their payload.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkjit import dtypes
from vkjit.backends.interp import run_module
from vkjit.dtypes import DType
from vkjit.ir import BOOL, INDEX, OPS, Array, Builder, Function, Module, Region, Scalar, Value, verify
from vkjit.ir.ops import KINDS, OpName, op_name
from vkjit.ir.rewrite import clone_module, is_constant
from vkjit.passes.transforms.algebraic_simplify import exact_conversion
from vkjit.passes.transforms.dce import DCE
from vkjit.passes.transforms.fold import Fold

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 8.0, 3.0, -4.0, float("inf"), float("-inf"), float("nan"), 1e-4, 60000.0]
SKIPPED: set[OpName] = {
    *("udiv_raw", "urem_raw", "sdiv_raw", "shl_raw", "shr_raw"),  # undefined for some operands
    *("fmin", "fmax"),  # the sign of a zero result is undefined
    "pow",  # slow
}


def numbers(dtype: DType) -> list[Any]:
    if dtype.kind == "bool":
        return [False, True]
    if dtype.is_float:
        return FLOATS
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    found = {0, 1, 2, 3, 7, 8, 31, low, low + 1, low + (1 << dtype.bits) - 1, low + (1 << dtype.bits) - 2}
    return sorted(found | ({-1, -2, -8} if dtype.is_signed else set()))


def storage(values: list[Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype is dtypes.bf16:
        return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.array(values, dtype.storage)


class Sheet:
    """Builder of a kernel that reads one element of `x` per invocation and stores results of several types."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.values = numbers(dtype)
        element = Scalar(dtype)
        self.region = Region([Array(element, 1, access="in")], ["x"])
        self.builder = Builder(self.region)
        self.row = self.builder.emit("global_id", dim=0)
        self.x = self.builder.emit("load", self.region.args[0], self.row)
        self.results: dict[DType, list[Value]] = {}

    def const(self, number: Any) -> Value:
        return self.builder.const(number, self.dtype)

    def keep(self, value: Value) -> None:
        assert isinstance(value.type, Scalar)
        self.results.setdefault(value.type.dtype, []).append(value)

    def module(self) -> Module:
        for dtype, values in self.results.items():
            array = Value(Array(Scalar(dtype), 2), self.region, len(self.region.args), f"y_{dtype.name}")
            self.region.args.append(array)
            for column, value in enumerate(values):
                self.builder.op("store", array, self.row, self.builder.index(column), value)
        self.builder.op("return")
        return Module(Function("k", self.region, [], {"local_size": (len(self.values), 1, 1)}))

    def run(self, module: Module) -> list[np.ndarray[Any, Any]]:
        outputs = [np.zeros((len(self.values), len(v)), t.storage) for t, v in self.results.items()]
        run_module(module, 1, [storage(self.values, self.dtype), *outputs])
        return outputs


def is_nan(bits: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype is dtypes.bf16:
        return (bits & 0x7FFF) > 0x7F80
    return np.isnan(bits) if dtype.is_float else np.zeros(bits.shape, bool)


def check(sheet: Sheet) -> Module:
    module = sheet.module()
    verify(module)
    folded = Fold().run(Fold().run(clone_module(module)))
    verify(folded)
    for dtype, found, wanted in zip(sheet.results, sheet.run(folded), sheet.run(module), strict=True):
        bits = np.dtype(f"u{dtype.itemsize}")
        same = found.view(bits) == wanted.view(bits)
        same |= is_nan(found, dtype) & is_nan(wanted, dtype)
        for row, column in np.argwhere(~same)[:1]:
            operation = sheet.results[dtype][column].op
            assert operation is not None
            raise AssertionError(
                f"{operation.name} of {sheet.values[row]}: {found[row, column]}, not {wanted[row, column]}"
            )
    return folded


ALL = [t for t in dtypes.ALL if t is not dtypes.boolean]


@pytest.mark.parametrize("dtype", [*dtypes.ALL], ids=lambda t: t.name)
def test_operations_with_constants(dtype: DType) -> None:
    sheet = Sheet(dtype)
    constants = [sheet.const(number) for number in sheet.values]
    for name, row in OPS.items():
        if row.meaning is None or name in SKIPPED or dtype.kind not in KINDS[row.of] or name == "select":
            continue
        if row.operands == ("T",):
            sheet.keep(sheet.builder.emit(name, sheet.x))
            sheet.keep(sheet.builder.emit(name, sheet.builder.emit(name, sheet.x)) if row.result == "T" else sheet.x)
            for c in constants:
                sheet.keep(sheet.builder.emit(name, c))
        elif row.operands == ("T", "T"):
            sheet.keep(sheet.builder.emit(name, sheet.x, sheet.x))
            for c in constants:
                sheet.keep(sheet.builder.emit(name, sheet.x, c))
                sheet.keep(sheet.builder.emit(name, c, sheet.x))
                sheet.keep(sheet.builder.emit(name, c, constants[0]))
    check(sheet)


@pytest.mark.parametrize("dtype", ALL, ids=lambda t: t.name)
def test_operations_of_operations(dtype: DType) -> None:
    """Chains of operations that the rules simplify: negations, nested sums, negated comparisons, selects."""
    sheet = Sheet(dtype)
    b, x = sheet.builder, sheet.x
    constants = [sheet.const(number) for number in sheet.values[:8]]
    negated = b.emit("neg", x)
    for c in constants:
        sheet.keep(b.emit("add", negated, c))
        sheet.keep(b.emit("add", c, negated))
        sheet.keep(b.emit("sub", c, negated))
        for name in ("add", "mul", "sub"):
            for d in constants:
                sheet.keep(b.emit(name, b.emit(name, x, c), d))
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            compared = b.emit(op_name(name), x, c)
            sheet.keep(b.emit("not", compared))
            sheet.keep(b.emit("select", b.emit("not", compared), x, c))
            sheet.keep(b.emit("select", compared, b.const(False, BOOL), b.const(True, BOOL)))
            sheet.keep(b.emit("select", compared, x, b.emit("poison", type=x.type)))
            for truth in (False, True):
                sheet.keep(b.emit("eq", compared, b.const(truth, BOOL)))
                sheet.keep(b.emit("xor", compared, b.const(truth, BOOL)))
    sheet.results = {
        t: [v for v in vs if v.op is None or "poison" not in {o.op.name for o in v.op.operands if o.op}]
        for t, vs in sheet.results.items()
    }
    check(sheet)


@pytest.mark.parametrize("dtype", [*dtypes.ALL], ids=lambda t: t.name)
def test_chains_of_conversions(dtype: DType) -> None:
    sheet = Sheet(dtype)
    types = [*dtypes.ALL, dtypes.index]
    for middle in types:
        once = sheet.builder.cast(sheet.x, middle)
        for target in (t for t in types if t is not dtypes.index):
            sheet.keep(sheet.builder.cast(once, target))
        for c in sheet.values:
            constant = sheet.builder.emit("cast", sheet.const(c), type=Scalar(middle))
            if middle is not dtypes.index:
                sheet.keep(constant)
    for other in (t for t in dtypes.ALL if t.bits == dtype.bits and t.kind != "bool" and dtype.kind != "bool"):
        bits = sheet.builder.emit("bitcast", sheet.x, type=Scalar(other))
        sheet.keep(bits)
        sheet.keep(sheet.builder.emit("bitcast", bits, type=Scalar(dtype)))
        for c in sheet.values:
            sheet.keep(sheet.builder.emit("bitcast", sheet.const(c), type=Scalar(other)))
    check(sheet)


def test_exact_conversions_lose_nothing() -> None:
    for source in dtypes.ALL:
        for target in dtypes.ALL:
            if not exact_conversion(source, target) or source.kind == "bool":
                continue
            sheet = Sheet(source)
            sheet.keep(sheet.builder.cast(sheet.builder.cast(sheet.x, target), source))
            (there_and_back,) = sheet.run(sheet.module())
            given = storage(sheet.values, source)
            nan = is_nan(given, source)
            assert ((there_and_back[:, 0] == given) | nan).all(), (source, target)


def test_dead_code_leaves_what_is_stored() -> None:
    sheet = Sheet(dtypes.i32)
    sheet.builder.emit("mul", sheet.x, sheet.x)
    sheet.keep(sheet.builder.emit("add", sheet.const(2), sheet.const(3)))
    module = DCE().run(check(sheet))
    names = [op.name for op in module.kernel.body.ops]
    assert "mul" not in names
    assert "add" not in names
    (stored,) = [op.operands[-1] for op in module.kernel.body.ops if op.name == "store"]
    assert is_constant(stored)
    assert INDEX in {op.result.type for op in module.kernel.body.ops if op.results}
