"""Tests of LowerMath: errors in units in the last place against exact values, and special values as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tests.unit.passes.lowering import Values, lowered, operation, padded, run, same, special_values
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import semantics
from vkjit.ir.ops import OPS, OpName
from vkjit.passes.lowering.lower_math import MATH_RULES, LowerMath

EXACT: dict[str, Callable[..., Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2),
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "pow": mpmath.power,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "atan2": mpmath.atan2,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": mpmath.atanh,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "hypot": mpmath.hypot,
}
UNIT = {"asin", "acos", "atanh"}  # defined on [-1, 1]
POSITIVE = {"log", "log2", "log10", "rsqrt"}
COUNT = 448
WIDE = (dtypes.f32, dtypes.f64)


def arguments(name: str, dtype: DType) -> list[Values]:
    """Return numbers of all magnitudes in the function's domain, many of them hard to compute."""
    random = np.random.default_rng(len(name) * 100 + dtype.bits)
    info = np.finfo(dtype.numpy)
    third = COUNT // 3
    if name in ("pow", "atan2", "hypot"):
        return pairs(name, dtype, random)
    close = random.normal(size=third) * 4
    near_one = 1 + random.normal(size=third) * 0.05
    rest = COUNT - 2 * third
    exponents = random.uniform(info.minexp, info.maxexp, rest)
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "erf", "erfc"):
        wild = random.uniform(-1, 1, rest) * (info.maxexp if name == "exp2" else info.maxexp * 0.7)
        if name == "erfc":
            wild = random.uniform(-3, 9.1 if dtype is dtypes.f32 else 26, rest)
    else:
        wild = np.exp2(exponents) * random.choice([-1, 1], rest)
    values = np.concatenate([close, near_one, wild])
    if name in UNIT:
        small = np.exp2(random.uniform(-30, 0, rest)) * random.choice([-1, 1], rest)
        values = np.concatenate([random.uniform(-1, 1, third), 1 - np.exp2(random.uniform(-20, -1, third)), small])
    if name in POSITIVE:
        values = np.abs(values)
    if name == "acosh":
        values = 1 + np.abs(values)
    if name == "log1p":
        values = np.where(values <= -1, -1 / values, values)
    return [padded(np.clip(values, info.min, info.max).astype(dtype.numpy))]


def pairs(name: str, dtype: DType, random: np.random.Generator) -> list[Values]:
    info = np.finfo(dtype.numpy)
    half = COUNT // 2
    if name == "pow":
        base = np.concatenate([np.exp2(random.uniform(-60, 60, half)), 1 + np.abs(random.normal(size=half)) * 0.1])
        base = base.astype(dtype.numpy).astype(np.float64)
        exponent = random.uniform(info.minexp, info.maxexp, COUNT) / np.log2(base)
        exponent[: half // 4] = random.integers(-9, 10, half // 4)
        return [padded(v.astype(dtype.numpy)) for v in (base, exponent)]
    first = np.concatenate(
        [random.normal(size=half), np.exp2(random.uniform(info.minexp + 30, info.maxexp - 30, half))]
    )
    second = np.concatenate([random.normal(size=half), first[half:] * np.exp2(random.uniform(-25, 25, half))])
    signs = random.choice([-1, 1], COUNT)
    return [padded(v.astype(dtype.numpy)) for v in (first, second * signs)]


def worst_error(name: str, found: Values, values: list[Values]) -> tuple[float, str]:
    """Return the largest error in ULP over the results that are normal numbers, and the call that has it."""
    info = np.finfo(found.dtype)
    worst, where = 0.0, ""
    with mpmath.workprec(160):
        for row, result in enumerate(found):
            operands = [mpmath.mpf(float(v[row])) for v in values]
            try:
                exact = EXACT[name](*operands)
            except (ZeroDivisionError, ValueError):
                continue
            if isinstance(exact, mpmath.mpc) or not info.tiny <= abs(exact) < info.max:
                continue
            unit = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(exact), 2)) - info.nmant)
            error = float(abs(mpmath.mpf(float(result)) - exact) / unit) if np.isfinite(result) else np.inf
            if error > worst:
                worst, where = error, f"{name}({', '.join(repr(v[row]) for v in values)}) = {result!r}"
    return worst, where


def test_every_function_has_an_exact_value() -> None:
    assert set(EXACT) == set(MATH_RULES)


@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
@pytest.mark.parametrize("name", sorted(EXACT))
def test_error_is_within_the_bound_of_the_op_table(name: OpName, dtype: DType) -> None:
    bound = OPS[name].ulp
    assert bound is not None
    values = arguments(name, dtype)
    found = run(lowered(operation(name, [dtype] * len(values), dtype)), dtype, *values)
    worst, where = worst_error(name, found, values)
    assert 0 < worst <= bound, where


@pytest.mark.parametrize("dtype", [dtypes.f16, *WIDE], ids=lambda d: d.name)
@pytest.mark.parametrize("name", sorted(EXACT))
def test_special_values(name: OpName, dtype: DType) -> None:
    """Signed zeros, infinities, NaN and domain errors are as in NumPy; other results are within the bound."""
    special = np.concatenate([special_values(dtype), np.array([1000, -1000, 1e-4], dtype.numpy)])
    values = [special] if len(OPS[name].operands) == 1 else [v.ravel() for v in np.meshgrid(special, special)]
    values = [padded(v) for v in values]
    with semantics.silence_warnings():
        expected = np.asarray(OPS[name].meaning(*values))  # type: ignore[misc]
        found = run(lowered(operation(name, [dtype] * len(values), dtype)), dtype, *values)
        tolerance = (1 + (OPS[name].ulp or 0)) * np.spacing(np.abs(expected))
        near = (np.abs(found.astype(np.float64) - expected) <= tolerance) & np.isfinite(expected) & (expected != 0)
    wrong = np.flatnonzero(~(same(found, expected) | near))
    assert not len(wrong), f"{[v[wrong[0]] for v in values]}: {found[wrong[0]]!r}, expected {expected[wrong[0]]!r}"


@pytest.mark.parametrize("name", sorted(EXACT))
def test_half_precision_is_rounded_once_more(name: str) -> None:
    """Results are within one f16 ULP of the exact value."""
    with semantics.silence_warnings():
        values = [v.astype(np.float16) for v in arguments(name, dtypes.f32)]
    usable = np.logical_and.reduce([np.isfinite(v) & (v != 0) for v in values])
    values = [np.where(usable, v, np.float16(1)) for v in values]
    found = run(lowered(operation(name, [dtypes.f16] * len(values), dtypes.f16)), dtypes.f16, *values)
    worst, where = worst_error(name, found, values)
    assert worst <= 1, where


HARD = np.array(
    [
        16367173.0 * 2.0**72,
        6381956970095103.0 * 2.0**60,
        1e22,
        1e30,
        3.4e38,
        2.0**100,
        710.0,
        1e5,
        33.0,
        np.pi,
        np.pi / 2,
    ]
)  # the first two are the f32 and f64 numbers closest to multiples of pi/2


@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_near_multiples_of_half_pi(name: OpName, dtype: DType) -> None:
    multiples = np.arange(1, 500) * (np.pi / 2)
    random = np.random.default_rng(1)
    far = np.rint(np.exp2(random.uniform(10, 50 if dtype is dtypes.f64 else 23, 400))) * (np.pi / 2)
    values = padded(np.concatenate([HARD, -HARD, multiples, far]).astype(dtype.numpy))
    found = run(lowered(operation(name, [dtype], dtype)), dtype, values)
    worst, where = worst_error(name, found, [values])
    assert worst <= (OPS[name].ulp or 0), where


def test_exact_results_stay_exact() -> None:
    powers = padded(np.exp2(np.arange(-126, 128)).astype(np.float32))
    exponents = run(lowered(operation("log2", [dtypes.f32], dtypes.f32)), dtypes.f32, powers)
    np.testing.assert_array_equal(exponents, np.log2(powers))
    back = run(lowered(operation("exp2", [dtypes.f32], dtypes.f32)), dtypes.f32, exponents)
    np.testing.assert_array_equal(back, powers)
    tens = padded(np.array([10.0**k for k in range(11)], np.float32))
    logarithms = run(lowered(operation("log10", [dtypes.f32], dtypes.f32)), dtypes.f32, tens)
    np.testing.assert_array_equal(logarithms, padded(np.arange(11, dtype=np.float32)))
    base, squares = padded(np.arange(64, dtype=np.float32)), padded(np.full(64, 2, np.float32))
    np.testing.assert_array_equal(
        run(lowered(operation("pow", [dtypes.f32] * 2, dtypes.f32)), dtypes.f32, base, squares), base * base
    )


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0])
def test_constant_exponents(exponent: float) -> None:
    values = padded(np.concatenate([special_values(dtypes.f32), np.linspace(-9, 9, 100, dtype=np.float32)]))
    with semantics.silence_warnings():
        expected = np.power(values, np.full_like(values, exponent))  # an array: NumPy has shortcuts for scalars
        found = run(lowered(operation("pow", [dtypes.f32] * 2, dtypes.f32, {1: exponent})), dtypes.f32, values, values)
        close = np.abs(found - expected) <= 4 * np.spacing(np.abs(expected))
    assert np.all(same(found, expected) | close)


def test_fast_math_keeps_what_devices_have() -> None:
    def names(name: str, dtype: DType) -> set[str]:
        module = operation(name, [dtype], dtype, flags={"fast_math": True})
        return {op.name for op in LowerMath().run(module).kernel.body.walk()}

    assert "sin" in names("sin", dtypes.f32)
    assert "sin" in names("sin", dtypes.f16)
    assert "sin" not in names("sin", dtypes.f64)
    assert {"log2", "mul"} <= names("log10", dtypes.f32)
    assert "erf" not in names("erf", dtypes.f32)


def test_expansions_stay_compact() -> None:
    """The first launch compiles the expansions: about 200 operations at most for f32, and no control flow."""
    for name in MATH_RULES:
        sources = [dtypes.f32] * len(OPS[name].operands)
        ops = list(lowered(operation(name, sources, dtypes.f32)).kernel.body.walk())
        assert sum(op.name != "const" for op in ops) <= 210, name
        assert not any(op.regions for op in ops), name


def test_angles_take_a_short_way_where_branches_are_harmless() -> None:
    for name in ("sin", "cos", "tan"):
        module = LowerMath(branches=True).run(operation(name, [dtypes.f32], dtypes.f32))
        assert sum(bool(op.regions) for op in module.kernel.body.walk()) == 1, name
        wide = LowerMath(branches=True).run(operation(name, [dtypes.f64], dtypes.f64))
        assert not any(op.regions for op in wide.kernel.body.walk()), name
