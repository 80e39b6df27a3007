"""Mathematical functions on each executor: within the op table's bounds, special values as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit.ir.ops import OPS
from vkjit.ir.semantics import MEANING, quiet

T = TypeVar("T", bound=vk.Element)
Values = npt.NDArray[Any]

ONE = [
    vk.exp, vk.exp2, vk.expm1, vk.log, vk.log2, vk.log10, vk.log1p, vk.sin, vk.cos, vk.tan, vk.asin, vk.acos, vk.atan,
    vk.sinh, vk.cosh, vk.tanh, vk.asinh, vk.acosh, vk.atanh, vk.erf, vk.erfc, vk.sqrt, vk.rsqrt,
]  # fmt: skip
TWO = [vk.pow, vk.atan2, vk.hypot]
DTYPES = [np.float16, np.float32, np.float64]
SLACK = {np.float16: 0.6, np.float32: 0.01, np.float64: 1.0}
"""What the reference itself may be off by, in ULP: f64 is compared with NumPy's own functions."""


def of_one(function: Any) -> Any:
    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = function(x[i])

    return kernel


def of_two(function: Any) -> Any:
    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = function(x[i], z[i])

    return kernel


def special(dtype: Any) -> Values:
    most = np.finfo(dtype).max
    numbers = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 2.5, -2.5, np.inf, -np.inf, np.nan, most, -most, 1000, -1000]
    return np.array(numbers, dtype)


def ordinary(dtype: Any, seed: int) -> Values:
    random = np.random.default_rng(seed)
    spread = np.exp2(random.uniform(-12, 12, 700)) * random.choice([-1, 1], 700)
    return np.concatenate([random.normal(size=700), random.uniform(-9, 9, 700), spread]).astype(dtype)


def exact(name: str, values: list[Values], dtype: Any) -> Values:
    """In f64 for narrower types; NumPy's own for f64, in extended precision where the platform has it."""
    meaning: Callable[..., Any] = MEANING[name]
    with quiet():
        if dtype is np.float64 and name not in ("erf", "erfc"):
            return np.asarray(meaning(*(v.astype(np.longdouble) for v in values)))
        return np.asarray(meaning(*(v.astype(np.float64) for v in values)))


def check(device: Any, name: str, found: Values, values: list[Values], dtype: Any) -> None:
    """The interpreter takes NumPy's functions, which promise 4 ULP."""
    wide = exact(name, values, dtype)
    info, bound = np.finfo(dtype), (OPS[name].ulp or 0) + SLACK[dtype]
    if device.caps.kind == "interpreter":
        bound = max(bound, 4 + SLACK[dtype])
    with quiet():
        expected = wide.astype(dtype)
        same = (np.isnan(found) & np.isnan(expected)) | (
            (found == expected) & (np.signbit(found) == np.signbit(expected))
        )
        distance = np.abs(found.astype(wide.dtype) - wide)
        near = np.isfinite(expected) & (expected != 0) & (distance <= bound * np.spacing(np.abs(expected)))
        subnormal = (np.abs(wide) < info.tiny) & (distance <= info.tiny)  # devices may flush these
        edge = (np.abs(wide) >= float(info.max) * (1 - 8 * info.eps)) & np.isinf(found)
    wrong = np.flatnonzero(~(same | near | subnormal | edge))
    assert not len(wrong), f"{name}{[v[wrong[0]] for v in values]} = {found[wrong[0]]!r}, expected {wide[wrong[0]]!r}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("function", ONE, ids=lambda f: f.__name__)
def test_functions_of_one(device: Any, function: Any, dtype: Any) -> None:
    x = np.concatenate([special(dtype), ordinary(dtype, 1)])
    check(device, function.__name__, of_one(function)(x), [x], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("function", TWO, ids=lambda f: f.__name__)
def test_functions_of_two(device: Any, function: Any, dtype: Any) -> None:
    first, second = (grid.ravel() for grid in np.meshgrid(special(dtype), special(dtype)))
    x, z = np.concatenate([first, ordinary(dtype, 2)]), np.concatenate([second, ordinary(dtype, 3)])
    check(device, function.__name__, of_two(function)(x, z), [x, z], dtype)


@pytest.mark.parametrize("function", [vk.sin, vk.cos, vk.tan], ids=lambda f: f.__name__)
def test_huge_angles(device: Any, function: Any) -> None:
    random = np.random.default_rng(4)
    x = np.concatenate([np.exp2(random.uniform(10, 127, 500)), np.arange(1, 500) * np.pi / 2]).astype(np.float32)
    check(device, function.__name__, of_one(function)(x), [x], np.float32)
