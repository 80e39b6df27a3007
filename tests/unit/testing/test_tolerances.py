"""Tests of derived tolerances: the formula, loop sizes, the measured spread of rounding errors."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.ir.ops import OPS
from vkjit.testing.cases.case import Case, array, out
from vkjit.testing.cases.schedules import PLAIN
from vkjit.testing.compare.outputs import Bounds, compare, ulps_between
from vkjit.testing.compare.tolerances import ErrorBudget, as_tolerance
from vkjit.testing.execution.shadow import Shadow, epsilon
from vkjit.testing.generate.usable_types import module_of

T = TypeVar("T", bound=vk.Element)
EPS = 2.0**-23
EXP = OPS["exp"].ulp or 0.0


@vk.kernel(over="y")
def dot_rows(x: vk.In[T, "M K"], z: vk.In[T, "M K"], y: vk.Out[T, "M"]):
    i = vk.global_id(0)
    acc = x.dtype(0)
    for k in range(x.shape[1]):
        acc += x[i, k] * z[i, k]
    y[i] = acc


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 32), local=32)
def total(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        vk.atomic.add(y, 0, x[i])


@vk.kernel(over="y")
def difference(x: vk.In[vk.f32, "N"], z: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.exp(x[i]) - z[i] * 3.0


def test_formula() -> None:
    assert vk.testing.tolerance(vk.f32, 10, operations=["mul", "add"]).relative == 2 * 10 * 1.0 * EPS + EPS
    assert vk.testing.tolerance(vk.f32, operations=["exp"]).relative == 2 * EXP * EPS + EPS
    assert vk.testing.tolerance(np.float16, 3, ulp=2).relative == (2 * 3 * 2 + 1) * 2.0**-10
    assert vk.testing.tolerance(vk.bf16, 0).relative == 2.0**-7
    assert vk.testing.tolerance(vk.i32, 100).relative == 0.0


@pytest.mark.parametrize(
    "wrong", [{"operations": ["frobnicate"]}, {"length": -1}, {"operations": ["load"]}], ids=lambda value: str(value)
)
def test_formula_refuses_what_has_no_bound(wrong: dict[str, Any]) -> None:
    with pytest.raises(vk.ArgumentError):
        vk.testing.tolerance(vk.f32, **wrong)


def test_given_tolerances() -> None:
    assert as_tolerance(1e-3).relative == 1e-3  # type: ignore[union-attr]
    assert as_tolerance((1e-3, 2.0)).absolute == 2.0  # type: ignore[union-attr]
    with pytest.raises(vk.ArgumentError):
        as_tolerance("exact")


def budget(kernel: vk.Kernel, types: dict[str, Any], ranks: dict[str, int]) -> ErrorBudget:
    return ErrorBudget(module_of(kernel, types, ranks, {}))


def test_loops_count_as_often_as_the_sizes_say() -> None:
    made = budget(dot_rows, {"T": vk.f32}, {"x": 2, "z": 2, "y": 1})
    extents = {0: (3, 40), 1: (3, 40), 2: (3,)}
    assert made.evaluate(extents, {}, (1, 1, 1)) == 40 * (0.5 + 0.5) * EPS
    assert made.evaluate({0: (3, 0), 1: (3, 0), 2: (3,)}, {}, (1, 1, 1)) == 0.0


def test_each_type_has_its_own_epsilon() -> None:
    half = budget(dot_rows, {"T": vk.f16}, {"x": 2, "z": 2, "y": 1})
    extents = {0: (3, 8), 1: (3, 8), 2: (3,)}
    assert half.evaluate(extents, {}, (1, 1, 1)) == 8 * 2.0**-10
    assert epsilon(vk.bf16) == 2.0**-7 and epsilon(vk.f64) == 2.0**-52


def test_atomic_sums_count_each_invocation() -> None:
    made = budget(total, {}, {"x": 1, "y": 1})
    assert made.evaluate({0: (100,), 1: (1,)}, {}, (4, 1, 1)) == 4 * 32 * 0.5 * EPS


def test_a_loop_of_unknown_length_has_no_budget() -> None:
    @vk.kernel(over="y")
    def halve(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        value = x[vk.global_id(0)]
        while value > 1.0:
            value = value * 0.3
        y[vk.global_id(0)] = value

    assert budget(halve, {}, {"x": 1, "y": 1}).evaluate({0: (4,), 1: (4,)}, {}, (1, 1, 1)) is None


def spread_of(kernel: vk.Kernel, arguments: dict[str, Any], name: str) -> Any:
    return Shadow(kernel).spread(Case({}, {}, arguments), PLAIN)[name]


def test_spread_knows_cancellation() -> None:
    x = np.array([0.0, 5.0], np.float32)
    z = np.array([-7.0, np.exp(np.float64(5.0)) / 3], np.float32)
    widest, undecided = spread_of(difference, {"x": array(x), "z": array(z), "y": out(vk.f32, (2,))}, "y")
    # exp(5) = 148.4 has an error of a few ULPs (of 2^-16), no matter what is subtracted from it
    assert EXP * 2.0**-16 <= widest[1] <= 4 * EXP * 2.0**-16
    assert not undecided.any()


def test_spread_leaves_exact_results_alone() -> None:
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    widest, _ = spread_of(dot_rows, {"x": array(x), "z": array(x), "y": out(vk.f32, (1,))}, "y")
    assert widest[0] == 0.0


def test_spread_of_sums_grows_with_their_length() -> None:
    found = []
    for length in (10, 1000):
        x = np.full((1, length), 0.1, np.float32)
        found.append(spread_of(dot_rows, {"x": array(x), "z": array(x), "y": out(vk.f32, (1,))}, "y")[0][0])
    assert found[1] > 100 * found[0]


def test_spread_covers_any_order_of_atomic_sums() -> None:
    x = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    widest, _ = spread_of(total, {"x": array(x), "y": array(np.zeros(1, np.float32))}, "y")
    exact = x.astype(np.float64).sum()
    for seed in range(5):
        acc = np.float32(0)
        for value in np.random.default_rng(seed).permutation(x):
            acc += value
        assert abs(float(acc) - exact) <= 8 * widest[0]


def test_results_that_a_rounding_decides_are_left_open() -> None:
    @vk.kernel(over="y")
    def bucket(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
        i = vk.global_id(0)
        y[i] = vk.i32(vk.floor(x[i] / 0.1))

    x = np.array([0.3, 0.35], np.float32)
    _, undecided = spread_of(bucket, {"x": array(x), "y": out(vk.i32, (2,))}, "y")
    assert undecided.tolist() == [True, False]


@pytest.mark.parametrize("seed", range(4))
def test_roundings_that_cancel_are_allowed_for(seed: int) -> None:
    @vk.kernel(over="y")
    def determinant(
        a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], c: vk.In[vk.f32, "N"], d: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]
    ):  # fmt: skip
        i = vk.global_id(0)
        y[i] = a[i] * b[i] - c[i] * d[i]

    near_one = dict.fromkeys("abcd", (1, 1.01))
    vk.testing.check_kernel(
        determinant, lambda a, b, c, d: a * b - c * d, elements=near_one, special=False, devices="interpreter", seed=seed,
        max_examples=20,
    )  # fmt: skip


def test_wide_runs_see_what_directed_ones_cancel() -> None:
    @vk.kernel(over="y")
    def determinant(x: vk.In[vk.f32, "4 N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[0, i] * x[1, i] - x[2, i] * x[3, i]

    rows = np.random.default_rng(0).uniform(1, 1.01, (4, 200)).astype(np.float32)
    wide = Shadow(determinant).wide_spread(Case({}, {}, {"x": array(rows), "y": out(vk.f32, (200,))}), PLAIN)["y"]
    assert (wide > 2.0**-24 / 20).all() and (wide < 2.0**-22).all()  # two roundings of numbers near 1


def plain(found: Any, expected: Any, dtype: Any = vk.f32, **bounds: Any) -> Any:
    return compare(np.asarray(found, dtype.numpy), np.asarray(expected), dtype, Bounds(lambda: 0.0, None, **bounds))


def test_comparison_of_special_values() -> None:
    nan, inf = np.nan, np.inf
    assert plain([nan, inf, -inf, 0.0], [nan, inf, -inf, -0.0]) is None
    assert plain([nan, 1.0, inf, 1.0], [1.0, nan, -inf, inf]).wrong.all()
    assert plain([65504.0, inf], [65504.0, 1e6], vk.f16) is None  # 1e6 overflows f16


def test_comparison_of_integers_is_exact() -> None:
    difference_found = plain([1, 2, 3], [1, 2, 4], vk.i32)
    assert difference_found.first == (2,)
    assert plain([44], [300], vk.u8) is None  # integers wrap
    assert plain([1, 2], [1.0, 2.5], vk.i32).wrong.tolist() == [False, True]
    assert plain([100], [103], vk.i32, given=as_tolerance((0.0, 5.0))) is None


def test_exact_comparison_tells_zeros_apart() -> None:
    assert plain([0.0], [-0.0], exact=True) is not None
    assert plain([1.5, np.nan], [1.5, np.nan], exact=True) is None


def test_ulps() -> None:
    assert ulps_between(1.0 + 2**-23, 1.0, vk.f32) == 1.0
    assert ulps_between(2.0, 4.0, vk.f16) == 512.0
    assert ulps_between(np.inf, 1.0, vk.f32) == np.inf and ulps_between(np.inf, np.inf, vk.f32) == 0.0
