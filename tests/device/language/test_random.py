"""Random tensors: identical values on every device and from any offset of a stream; moments of the distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk

COUNT = 20_000

DRAWS: dict[str, tuple[Callable[[int], vk.Tensor], float, float, float, float]] = {
    "rand": (lambda n: vk.rand(n), 0.5, 1 / 12, 0.0, 1.0),
    "rand f64": (lambda n: vk.rand(n, dtype=vk.f64), 0.5, 1 / 12, 0.0, 1.0),
    "rand f16": (lambda n: vk.rand(n, dtype=vk.f16), 0.5, 1 / 12, 0.0, 1.0),
    "randn": (lambda n: vk.randn(n), 0.0, 1.0, -7.0, 7.0),
    "normal": (lambda n: vk.normal(3.0, 0.5, (n,)), 3.0, 0.25, -1.0, 7.0),
    "randint": (lambda n: vk.randint(-3, 5, (n,)), 0.5, 63 / 12, -3.0, 4.0),
    "bernoulli": (lambda n: vk.bernoulli(vk.full((n,), 0.3)), 0.3, 0.21, 0.0, 1.0),
}
"""Generator, mean, variance, minimum and maximum, by name."""


@pytest.mark.parametrize("name", DRAWS)
def test_moments_and_bounds(name: str, device: Any) -> None:
    draw, mean, variance, low, high = DRAWS[name]
    with vk.use_device(device):
        vk.manual_seed(5)
        found = draw(COUNT).numpy().astype(np.float64)
    assert found.min() >= low and found.max() <= high
    assert abs(found.mean() - mean) < 5 * math.sqrt(variance / COUNT)
    assert abs(found.var() - variance) < 0.05 * variance
    neighbours = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert abs(neighbours) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 67, 1030])
def test_devices_draw_the_same(name: str, count: int, device: Any) -> None:
    draw = DRAWS[name][0]
    found = []
    for where in (device, "interpreter"):
        with vk.use_device(where):
            vk.manual_seed(11)
            found.append(np.concatenate([draw(count).numpy(), draw(7).numpy()]))
    if name in ("randn", "normal"):
        np.testing.assert_allclose(
            found[0], found[1], rtol=1e-5, atol=1e-6
        )  # logarithms and cosines differ in the last bits
    else:
        np.testing.assert_array_equal(found[0], found[1])


def test_whole_numbers_are_even(device: Any) -> None:
    with vk.use_device(device):
        vk.manual_seed(3)
        counts = np.bincount(vk.randint(0, 7, (COUNT,)).numpy(), minlength=7)
    expected = COUNT / 7
    assert len(counts) == 7 and np.sum((counts - expected) ** 2 / expected) < 25  # chi-square, 6 degrees: 1 in 3,000
