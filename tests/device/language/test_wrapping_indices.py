# mypy: disable-error-code="arg-type, attr-defined, misc, no-untyped-call, no-untyped-def, operator, valid-type"
"""Ids, extents and sums of them may wrap around: divisions, comparisons and bounds checks don't assume otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

N = 40_000
LARGE = 2**63 - 5


@vk.kernel(over="x")
def divided(x: vk.In[vk.i64, "N"], y: vk.Out[vk.i64, "8 N"]):
    i, n = vk.global_id(0), len(x)
    p = i * i * i * i * i
    y[0, i] = p % 1000003
    y[1, i] = p // 1000003
    y[2, i] = vk.truncdiv(p, 1000003)
    y[3, i] = vk.truncrem(p, 1000003)
    y[4, i] = (i + LARGE) // 16
    y[5, i] = (i * n * n * n * n) % 7
    y[6, i] = (i * 0 + x[i] + 5) // 3
    y[7, i] = (p // (i + 1)) % 8


def test_divisions_of_products_that_wrap(device: Any) -> None:
    values = np.where(np.arange(N) % 3 == 0, 2**63 - 3, np.arange(N))
    i = np.arange(N)
    with vk.use_device(device), np.errstate(over="ignore"):
        found = divided(values)
        p = i * i * i * i * i
        quotient = p // 1000003
        rest = p - quotient * 1000003
        up = (p < 0) & (rest != 0)
        n = np.int64(N)
        expected = [
            p % 1000003, quotient, quotient + up, rest - up * 1000003, (i + np.int64(LARGE)) // 16,
            (i * n * n * n * n) % 7, (values + 5) // 3, (p // (i + 1)) % 8,
        ]  # fmt: skip
    for row, (got, want) in enumerate(zip(found, expected, strict=True)):
        assert (got == want).all(), row


@vk.kernel(over="y")
def compared(y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    if i + LARGE > 0:
        y[i] += 1
    if 9 < i + LARGE:
        y[i] += 2
    for k in range(i + LARGE, LARGE + 4):
        y[i] += vk.i32(k - LARGE + 1) * 10


def test_comparisons_of_indices_that_wrap_within_a_vector(device: Any) -> None:
    with vk.use_device(device):
        y = np.zeros(64, np.int32)
        compared(y[:5])
    assert y[:5].tolist() == [3 + 10 * (1 + 2 + 3 + 4), 3 + 10 * (2 + 3 + 4), 3 + 10 * (3 + 4), 3 + 10 * 4, 3]

    with vk.use_device(device):
        wide = _signs(np.arange(64))
    assert wide.tolist() == [3] * 5 + [0] * 59


@vk.kernel(over="x")
def _signs(x: vk.In[vk.i64, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = 0
    if i + LARGE > 0:
        y[i] += 1
    if 9 < i + LARGE:
        y[i] += 2


@vk.kernel(over="y")
def product_index(x: vk.In[vk.f32, "M"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    k = i * i * i * i
    if k < len(x):
        y[i] = x[k]


@vk.kernel(over="v")
def sum_index(x: vk.In[vk.f32, "M"], v: vk.In[vk.i64, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if v[i] >= 0:
        k = 0 * i + v[i]
        if k >= 0 and k + 5 < len(x):
            y[i] = x[k + 5]


@vk.kernel(over="v")
def lowered_limit(x: vk.In[vk.f32, "M"], v: vk.In[vk.i64, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    k = 0 * i + v[i]
    if k >= 0 and k + 5 < len(x):
        y[i] = x[k]


@vk.kernel(over="v")
def lowered_start(x: vk.In[vk.f32, "M"], v: vk.In[vk.i64, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    k = 0 * i + v[i]
    if k - 5 >= 0 and k < len(x):
        y[i] = x[k]


@vk.kernel(over="v")
def scaled_in_loop(x: vk.In[vk.f32, "M"], v: vk.In[vk.i64, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    for r in range(2):
        k = (0 * i + v[i]) * (r + 2)
        if k < len(x):
            y[i] = x[k]


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        (sum_index, 2**63 - 3), (lowered_limit, 2**63 - 3), (lowered_start, -(2**63) + 2), (scaled_in_loop, 2**62),
    ],
    ids=lambda case: getattr(case, "name", ""),
)  # fmt: skip
def test_accesses_whose_index_wraps_are_checked(device: Any, kernel: Any, value: int) -> None:
    x, y = np.ones(16, np.float32), np.zeros(4, np.float32)
    checked = kernel.variant(debug=True)
    with vk.use_device(device):
        if kernel is not sum_index:
            checked(x, np.array([5, 6, 7, 8]), y)
            assert y.tolist() == ([1, 1, 1, 1] if kernel is not scaled_in_loop else [1, 1, 1, 0])
        with pytest.raises(vk.errors.BoundsError):
            checked(x, np.array([1, 2, 3, value]), y)


def test_products_of_ids_as_indices_are_checked(device: Any) -> None:
    with vk.use_device(device), pytest.raises(vk.errors.BoundsError):
        product_index.variant(debug=True)(np.ones(100, np.float32), np.zeros(100_000, np.float32))
