# mypy: disable-error-code="arg-type, index, no-untyped-call, no-untyped-def, operator, valid-type"
"""Operators and functions of short vectors give the scalar result in each lane, on every executor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk


def sums(a, b, s):
    return (2 - a) * s / (b + 4) - s + a + b


def floors(a, b, s):
    return a // b + a % b + a // s - s % b


def powers(a, b, s):
    return a**3 + vk.abs(a) ** b + 2**a + abs(a) ** s


def signs(a, b, s):
    return -a + +b - abs(a) + vk.sign(b)


def extremes(a, b, s):
    return vk.min(a, b) + vk.max(a, s) + min(a, 0.5) + max(b, a, s) + vk.clamp(a, -1, s) + np.minimum(s, a)


def rounding(a, b, s):
    return vk.floor(a) + vk.ceil(b) + vk.round(a) + vk.trunc(b) + math.floor(a) + np.rint(b)


def functions(a, b, s):
    return vk.exp(a) + vk.sin(b) + np.sqrt(vk.abs(a)) + vk.tanh(s) + vk.sigmoid(a) + vk.relu(b) + vk.log1p(vk.abs(b))


def pairs(a, b, s):
    return (
        vk.atan2(a, b)
        + vk.hypot(a, b)
        + vk.copysign(a, b)
        + vk.fmin(a, b)
        + vk.fma(a, b, s)
        + vk.fma(s, 2, a)
        + vk.fma(s, s, b)
        + vk.fma(s, a, 1)
        + np.square(a)
    )


def choices(a, b, s):
    return vk.where(a < b, a, b) + vk.where(a > 0, 1.0, 0.0) + vk.where(s > 0, a, b) + vk.where(b == b, s, a)


def conversions(a, b, s):
    return vk.f32(vk.i32(a)) + vk.f32(vk.u8(vk.abs(b))) + vk.f32(vk.f16(a)) + vk.f32(a > b) + float(int(b))


def conditional(a, b, s):
    c = a if s > 0 else b
    if s < 0:
        c = c + b
    for _ in range(2):
        c = c * 0.5
    return c


def bits(a, b, s):
    return (a & b) | (a ^ 5) + (~b) + (a << 2) - (b >> 1) + (s << (a & 7))


def integers(a, b, s):
    return a + b * 3 - s + a // b + a % b + a // 3 - a % -4 + vk.min(a, b) + vk.max(a, s) + abs(a) + vk.sign(b)


def divisions(a, b, s):
    return vk.i32(a / b * 8) + vk.truncdiv(a, b) + vk.truncrem(a, b) + vk.cdiv(a, b)


def comparisons(a, b, s):
    both = (a > 0) & ~(b > 0)
    return vk.i32(a <= b) + 2 * vk.i32(a != s) + 4 * vk.i32(both) + 8 * vk.i32(both | (b == a)) + 16 * vk.i32(s >= b)


def counts(a, b, s):
    return vk.popcount(a) + vk.clz(a) + vk.ctz(b)


OF_FLOATS = [
    sums, floors, powers, signs, extremes, rounding, functions, pairs, choices, conversions, conditional,
]  # fmt: skip
OF_INTEGERS = [bits, integers, divisions, comparisons, counts]
CASES = [(f, vk.f32, 3) for f in OF_FLOATS] + [(f, vk.i32, 4) for f in OF_INTEGERS]
CASES += [(sums, vk.f16, 2), (extremes, vk.f64, 4), (integers, vk.i64, 2), (integers, vk.i8, 3), (bits, vk.u16, 4)]


@pytest.mark.parametrize(("function", "kind", "size"), CASES, ids=lambda v: getattr(v, "__name__", None) or str(v))
def test_lanes_are_scalars(device: Any, function: Any, kind: Any, size: int) -> None:
    V = vk.vec(kind, size)
    inner = vk.func(function)

    @vk.kernel(over="s", strict=True)
    def of_vectors(a: vk.In[V, "N"], b: vk.In[V, "N"], s: vk.In[kind, "N"], y: vk.Out[V, "N"]):
        i = vk.global_id(0)
        y[i] = inner(a[i], b[i], s[i])

    @vk.kernel(over="y", strict=True)
    def of_scalars(a: vk.In[kind, "N M"], b: vk.In[kind, "N M"], s: vk.In[kind, "N"], y: vk.Out[kind, "N M"]):
        i, j = vk.index()
        y[i, j] = inner(a[i, j], b[i, j], s[i])

    rng = np.random.default_rng(1)
    if kind.is_float:
        a, b = (
            (rng.standard_normal((20, size)) * 3).astype(kind.numpy),
            rng.standard_normal((20, size)).astype(kind.numpy),
        )
    else:
        low = 0 if kind.kind == "uint" else -20
        a, b = (rng.integers(low, 20, (20, size)).astype(kind.numpy) for _ in range(2))
        b[b == 0] = 7
    s = b[:, 0].copy()
    expected = of_scalars(a, b, s)
    np.testing.assert_array_equal(of_vectors(a, b, s), expected)
    assert len(np.unique(expected)) > 3
