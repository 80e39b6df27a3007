"""The README's first kernel on every executor, launched on the default device that the fixture sets."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.device import Device

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def saxpy(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i] + y[i]


@pytest.mark.parametrize("count", [0, 1, 7, 64, 1000, 4097])
def test_saxpy_is_exact_on_small_integers(device: Device, count: int) -> None:
    x = np.arange(count, dtype=np.float32)
    y = np.ones(count, dtype=np.float32)
    saxpy(2.0, x, y)
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_the_fixture_sets_the_default_device(device: Device) -> None:
    assert vk.default_device() is device
