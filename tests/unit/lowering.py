"""Helpers of the tests of lowering passes: one operation as a kernel, lowered and run by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.interp import run_module
from vkjit.ir import semantics
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region
from vkjit.ir.ops import OPS
from vkjit.ir.types import Array, Scalar
from vkjit.ir.verify import verify
from vkjit.passes.lower_access import LowerAccess
from vkjit.passes.lower_arithmetic import LowerArithmetic
from vkjit.passes.lower_math import LowerMath

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
    """A kernel `y[i] = op(x0[i], x1[i]...)`; operands in `constants` are constants instead."""
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
    if "type" in OPS[name].attrs:
        extra["type"] = Scalar(result)
    build.op("store", body.args[-1], index, build.emit(name, *operands, **extra))
    build.op("return")
    kernel = Function("k", body, [], {"local_size": (LOCAL, 1, 1), **(flags or {})})
    return Module(kernel)


def lowered(module: Module) -> Module:
    """The module as emitters take it; checks that nothing is left that has no instruction."""
    verify(module)
    for step in (LowerAccess(), LowerMath(), LowerArithmetic()):
        module = step.run(module)
    verify(module, "primitive")
    return module


def run(module: Module, result: DType, *values: Values) -> Values:
    """The kernel over all elements, a multiple of the workgroup's size."""
    count = len(values[0])
    out = np.zeros(count, result.storage)
    with semantics.quiet():
        run_module(module, count // LOCAL, [*values, out])
    return out


def padded(values: Values) -> Values:
    """Values repeated from the start up to a multiple of the workgroup's size."""
    count = -(-len(values) // LOCAL) * LOCAL
    return np.resize(values, count)


def samples(dtype: DType, count: int, seed: int) -> Values:
    """Special values in random places among random bits and small numbers."""
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
    """Ends of the range, zeros, ones, infinities, NaN, subnormal numbers."""
    if dtype.is_float:
        info = np.finfo(dtype.numpy)
        numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, np.inf, -np.inf, np.nan]
        limits = [info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal]
        return np.array([*numbers, *limits], dtype.numpy)
    limits_ = np.iinfo(dtype.numpy)
    signed = [-1, -2, -7, limits_.min + 1] if limits_.min < 0 else [5]
    return np.array([limits_.min, limits_.max, limits_.max - 1, 0, 1, 2, 3, 7, *signed], dtype.numpy)


def same(found: Values, expected: Values) -> Values:
    """Equal with the signs of zeros; NaN equals NaN."""
    if expected.dtype.kind != "f":
        return np.asarray(found == expected)
    both_nan = np.isnan(found) & np.isnan(expected)
    return np.asarray(both_nan | ((found == expected) & (np.signbit(found) == np.signbit(expected))))


def first_difference(found: Values, expected: Values, *values: Values) -> str:
    """Where results differ first, with the operands; empty where they don't."""
    wrong = np.flatnonzero(~same(found, expected))
    if not len(wrong):
        return ""
    at = wrong[0]
    operands = ", ".join(repr(v[at]) for v in values)
    return f"{len(wrong)} of {len(expected)} differ, first for ({operands}): {found[at]!r}, expected {expected[at]!r}"
