# mypy: disable-error-code="arg-type, assignment, index, no-untyped-def, operator, valid-type"
"""Failing inputs shrink to the minimum, even if sizes and values depend on each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

SETTINGS: dict[str, Any] = {"devices": "interpreter", "seed": 3}


@vk.kernel(over="y")
def leading(x: vk.In[vk.i32, "N"], n: vk.i32, y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if i < n and (n < 4 or i > 0) else 0


@vk.kernel(over="y")
def transposed(x: vk.In[vk.f32, "M N"], y: vk.Out[vk.f32, "M N"]):
    i, j = vk.global_id(1), vk.global_id(0)
    y[i, j] = x[j, i] if i < 5 or i != j else 7.0


@vk.kernel(over="y")
def between(x: vk.In[vk.i32, "N"], low: vk.i32, high: vk.i32, y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = 1 if x[i] >= low and x[i] < high and high - low < 3 else 0


@vk.kernel(over="y")
def row_sums(x: vk.In[vk.f32, "B N"], length: vk.In[vk.i32, "B"], y: vk.Out[vk.f32, "B"]):
    row, total = vk.global_id(0), vk.f32(0)
    for k in range(length[row]):
        total += x[row, k]
    y[row] = total if length[row] < 3 or length[row] != x.shape[1] else total + 1.0


@vk.kernel(over="y")
def every_second(x: vk.In[vk.f32, "M"], z: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "M"]):
    i = vk.global_id(0)
    y[i] = z[2 * i] + x[i] if x.shape[0] < 3 else 0.5


@vk.kernel(over="y")
def limited(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if x[i] < 37 else 0


def sums(x: Any, length: Any) -> Any:
    return np.array([row[:n].sum() for row, n in zip(x, length, strict=True)])


@pytest.mark.parametrize(
    ("kernel", "reference", "inputs", "dims", "arguments"),
    [
        (leading, lambda x, n: np.where(np.arange(len(x)) < n, x, 0), {"where": lambda x, n: n == len(x)},
         {"N": 4}, {"x": [1, 0, 0, 0], "n": 4}),
        (transposed, lambda x: x.T, {"where": lambda x: x.shape[0] == x.shape[1]}, {"M": 6, "N": 6}, {}),
        (between, lambda x, low, high: ((x >= low) & (x < high)).astype(np.int32),
         {"where": lambda low, high: low <= high, "elements": {"low": (-50, 50), "high": (-50, 50)}},
         {"N": 1}, {"x": [0], "low": 0, "high": 3}),
        (row_sums, sums, {"where": lambda x, length: (length <= x.shape[1]).all(), "elements": {"length": (0, 700)}},
         {"B": 1, "N": 3}, {"x": [[0, 0, 0]], "length": [3]}),
        (every_second, lambda x, z: z[::2] + x, {"where": lambda x, z: len(z) == 2 * len(x), "dims": {
            "M": [1, 2, 3, 4, 5], "N": [2, 4, 6, 8, 10]}}, {"M": 3, "N": 6}, {}),
        (limited, lambda x: x, {}, {"N": 1}, {"x": [37]}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_the_smallest_input_is_reached(kernel: Any, reference: Any, inputs: Any, dims: Any, arguments: Any) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(kernel, reference, **inputs, **SETTINGS)
    assert caught.value.dims == dims
    for name, value in arguments.items():
        assert np.array_equal(caught.value.arguments[name], value), name


@vk.kernel(over="y")
def bytes_limited(x: vk.In[vk.u8, "N"], y: vk.Out[vk.u8, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if x[i] < 37 else vk.u8(0)


def test_unsigned_numbers_come_down_to_the_threshold() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(bytes_limited, lambda x: x, **SETTINGS)
    assert caught.value.dims == {"N": 1} and caught.value.arguments["x"].tolist() == [37]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 64), local=64)
def differences(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        y[i] = x[i] - x[vk.max(i - 1, 0)]


def test_what_two_arrays_hold_in_common_becomes_zero() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(differences, aliases=[("x", "y")], **SETTINGS)
    assert caught.value.dims == {"N": 2}
    assert caught.value.arguments["x"].tolist() == caught.value.arguments["y"].tolist() == [0, 0]
