# mypy: disable-error-code="arg-type, misc, no-untyped-call, no-untyped-def, valid-type"
"""Conversions to bf16 round once, on every executor and on the host."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)
TIE = 1 + 2.0**-8
"""Halfway between two bf16 values; the even one is 1."""
ABOVE = TIE + 2.0**-40
"""Rounded to f32, it is `TIE`."""


@vk.kernel(over="y")
def rounded(x: vk.In[T, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.f32(vk.bf16(x[i]))


@vk.kernel(over="y")
def constants(a: vk.bf16, y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.f32(a)
    if i == 1:
        y[i] = vk.f32(vk.bf16(1.0039062500009095))
    if i == 2:
        y[i] = vk.f32(vk.bf16(vk.f64(1.0039062500009095)))


def nearest(value: Any) -> float:
    """Return the bf16 nearest to a number, the even one of two."""
    exact = Fraction(int(value) if isinstance(value, np.integer) else float(value))
    bits = int(np.float32(value).view(np.uint32)) >> 16
    around = [float(np.uint32((bits + d) << 16).view(np.float32)) for d in (-1, 0, 1)]
    return min(
        zip(around, (bits - 1, bits, bits + 1), strict=True), key=lambda c: (abs(Fraction(c[0]) - exact), c[1] % 2)
    )[0]


def near_ties(dtype: type[Any]) -> Any:
    """Return numbers of all magnitudes at, just above and just below the middle between two bf16 values."""
    rng = np.random.default_rng(0)
    if dtype is np.float64:
        middle = (1 + (2 * rng.integers(0, 128, 300) + 1) / 256) * 2.0 ** rng.integers(-90, 90, 300)
        return middle * (1 + rng.integers(-1, 2, 300) * 2.0**-40) * rng.choice([-1, 1], 300)
    limits = np.iinfo(dtype)
    shifts = rng.integers(0, limits.bits - 10, 300)
    values = [
        (int(m) << int(s)) + int(d)
        for m, s, d in zip(rng.integers(256, 512, 300), shifts, rng.integers(-1, 2, 300), strict=True)
    ]
    signed = [v * int(sign) for v, sign in zip(values, rng.choice([limits.min and -1 or 1, 1], 300), strict=True)]
    return np.array([*signed, limits.max, limits.max - 1, limits.min + 1], dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint32, np.int64, np.uint64])
def test_conversions_round_once(device: Any, dtype: type[Any]) -> None:
    values = near_ties(dtype)
    expected = np.array([nearest(v) for v in values], np.float32)
    with vk.use_device(device):
        assert (rounded(values) == expected).all()
        assert (vk.tensor(values).to(vk.bf16).float().numpy() == expected).all()
        assert (vk.tensor(values, dtype=vk.bf16).float().numpy() == expected).all()


@pytest.mark.parametrize(("scalar", "expected"), [(ABOVE, 1 + 2.0**-7), (TIE, 1.0), (1.001, 1.0)])
def test_scalars_and_constants_round_once(device: Any, scalar: float, expected: float) -> None:
    with vk.use_device(device):
        y = vk.zeros(3)
        constants(0.0, y)
        constants(scalar, y)
        assert y.tolist() == [expected, 1 + 2.0**-7, 1 + 2.0**-7]
        with vk.capture(y=y) as graph:
            constants(0.0, y)
        graph.replay(**{"constants.a": scalar})
        assert y.tolist() == [expected, 1 + 2.0**-7, 1 + 2.0**-7]
