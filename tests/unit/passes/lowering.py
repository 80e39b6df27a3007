"""Helpers of the lowering tests: build a kernel of one operation, lower it, and run it on the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.interp import run_module
from vkjit.dtypes import DType
from vkjit.ir import semantics
from vkjit.ir.attributes import FunctionAttrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region
from vkjit.ir.ops import OPS, op_name
from vkjit.ir.types import Array, Scalar
from vkjit.ir.verify import verify
from vkjit.passes.lowering.lower_access import LowerAccess
from vkjit.passes.lowering.lower_arithmetic import LowerArithmetic
from vkjit.passes.lowering.lower_math import LowerMath

Values = npt.NDArray[Any]
LOCAL = 64
INTEGERS = (
    dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64,
)  # fmt: skip
FLOATS = (dtypes.f16, dtypes.f32, dtypes.f64)


def operation(
    name: str,
    sources: Sequence[DType],
    result: DType,
    constants: Mapping[int, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Module:
    """Build a kernel `y[i] = op(x0[i], x1[i]...)`, with constants for the operands listed in `constants`."""
    arrays: list[Any] = [Array(Scalar(dtype), 1, access="in") for dtype in sources]
    body = Region([*arrays, Array(Scalar(result), 1, access="out")])
    build = Builder(body)
    index = build.emit("global_id", dim=0)
    fixed = constants or {}
    operands = [
        build.const(fixed[k], dtype) if k in fixed else build.emit("load", body.args[k], index)
        for k, dtype in enumerate(sources)
    ]
    extra = dict(attrs or {})
    if "type" in OPS[op_name(name)].attrs:
        extra["type"] = Scalar(result)
    build.op("store", body.args[-1], index, build.emit(op_name(name), *operands, **extra))
    build.op("return")
    kernel = Function("k", body, [], cast("FunctionAttrs", {"local_size": (LOCAL, 1, 1), **(flags or {})}))
    return Module(kernel)


def lowered(module: Module) -> Module:
    """Lower a module to the form that emitters accept, and verify that only primitive operations are left."""
    verify(module)
    for step in (LowerAccess(), LowerMath(), LowerArithmetic()):
        module = step.run(module)
    verify(module, "primitive")
    return module


def run(module: Module, result: DType, *values: Values) -> Values:
    """Run the kernel over all elements, whose number is a multiple of the workgroup size."""
    count = len(values[0])
    out = np.zeros(count, result.storage)
    with semantics.silence_warnings():
        run_module(module, count // LOCAL, [*values, out])
    return out


def padded(values: Values) -> Values:
    """Repeat values up to a multiple of the workgroup size."""
    count = -(-len(values) // LOCAL) * LOCAL
    return np.resize(values, count)


def samples(dtype: DType, count: int, seed: int) -> Values:
    """Return special values at random indices among random bit patterns and small numbers."""
    random = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return random.integers(0, 2, count).astype(bool)
    bits = random.integers(0, 2**dtype.bits, count, dtype=np.uint64, endpoint=False) if dtype.bits < 64 else None
    if bits is None:
        bits = random.integers(0, 2**64, count, dtype=np.uint64)
    wild = bits.astype(np.dtype(f"u{dtype.itemsize}")).view(dtype.numpy)
    special = special_values(dtype)
    small = (random.normal(size=count) * 8 if dtype.is_float else random.integers(0, 20, count)).astype(dtype.numpy)
    choice = random.integers(0, 4, count)
    mixed = np.where(choice == 0, special[random.integers(0, len(special), count)], np.where(choice == 1, wild, small))
    if dtype.is_float:
        mixed = np.where(choice == 3, np.rint(small), mixed)
    return mixed.astype(dtype.numpy)


def special_values(dtype: DType) -> Values:
    """Return the limits of the range, zeros, ones, infinities, NaN, and subnormal numbers."""
    if dtype.is_float:
        info = np.finfo(dtype.numpy)
        numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, np.inf, -np.inf, np.nan]
        limits = [info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal]
        return np.array([*numbers, *limits], dtype.numpy)
    limits_ = np.iinfo(dtype.numpy)
    signed = [-1, -2, -7, limits_.min + 1] if limits_.min < 0 else [5]
    return np.array([limits_.min, limits_.max, limits_.max - 1, 0, 1, 2, 3, 7, *signed], dtype.numpy)


def same(found: Values, expected: Values) -> Values:
    """Compare elementwise, including the signs of zeros; NaN equals NaN."""
    if expected.dtype.kind != "f":
        return np.asarray(found == expected)
    both_nan = np.isnan(found) & np.isnan(expected)
    return np.asarray(both_nan | ((found == expected) & (np.signbit(found) == np.signbit(expected))))


def first_difference(found: Values, expected: Values, *values: Values) -> str:
    """Describe the first difference with its operands, or return an empty string."""
    wrong = np.flatnonzero(~same(found, expected))
    if not len(wrong):
        return ""
    at = wrong[0]
    operands = ", ".join(repr(v[at]) for v in values)
    return f"{len(wrong)} of {len(expected)} differ, first for ({operands}): {found[at]!r}, expected {expected[at]!r}"
