"""Variances of values close together but far from 0 aren't affected by the rounding of their mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

SHAPES = [((1000, 4), 0), ((50, 2), 0), ((4000,), 0), ((4, 1000), 1), ((30, 40), (0, 1)), ((3, 500, 2), 1)]


@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
@pytest.mark.parametrize("spread", [0.02, 0.002])
def test_far_from_zero(device: Any, shape: tuple[int, ...], axes: Any, spread: float) -> None:
    values = (10000.3 + spread * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    exact = values.astype(np.float64).var(axis=axes, ddof=1)
    x = vk.from_numpy(values, device=device)
    # sums of n deviations and squares are within sqrt(n) roundings; their mean is off by 0.02 at most
    count = values.size / exact.size
    away = (
        float(np.abs(values.astype(np.float64) - values.astype(np.float64).mean(axis=axes, keepdims=True)).max()) + 0.02
    )
    bound = 2 * count**0.5 * np.finfo(np.float32).eps * (away / np.sqrt(exact.min())) ** 2
    np.testing.assert_allclose(x.var(axes).numpy(), exact, rtol=bound)
    np.testing.assert_allclose(x.std(axes).numpy(), np.sqrt(exact), rtol=bound)


def test_equal_numbers_have_none(device: Any) -> None:
    x = vk.full((3, 700), 10000.3, device=device)
    assert (x.var(1).numpy() == 0).all() and (x.std(0).numpy() == 0).all()
