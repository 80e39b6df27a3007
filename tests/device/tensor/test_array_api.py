"""The array API namespace, where it differs from PyTorch's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import array_api as xp

X = np.array([[3.0, 0.0, -2.0], [np.inf, np.nan, 1.0]], np.float32)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "all", "any", "count_nonzero"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_no_axes_leave_each_element_alone(device: Any, name: str, keepdims: bool) -> None:
    found = getattr(xp, name)(vk.tensor(X, device=device), axis=(), keepdims=keepdims)
    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(X, axis=(), keepdims=keepdims)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_quotients_of_infinities(device: Any) -> None:
    x = vk.tensor(np.array([np.inf, -np.inf, 7.0], np.float32), device=device)
    assert xp.floor_divide(x, vk.full((3,), 2.0, device=device)).tolist() == [np.inf, -np.inf, 3.0]
