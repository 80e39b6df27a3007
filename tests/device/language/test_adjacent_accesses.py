"""Adjacent accesses are merged only if arrays and rows are aligned to 16 bytes; any view gives correct results."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.device import Device

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y", debug=False)
def products(x: vk.In[T, "M"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[2 * i] * x[2 * i + 1]


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 64), local=64, debug=False)
def swapped(x: vk.In[T, "R C"], y: vk.Out[T, "R C"]):
    """Reverse each group of four adjacent elements of a row."""
    i = vk.global_id(0)
    if i < x.shape[0]:
        for j in range(0, x.shape[1] - 3, 4):
            for n in range(4):
                y[i, j + n] = x[i, j + 3 - n]


def values(count: int, dtype: str) -> Any:
    return np.random.default_rng(0).integers(-8, 8, count).astype(dtype)


def on(device: Device, array: Any) -> Any:
    return vk.from_numpy(array, device=device)


@pytest.fixture(params=["own", "vectors"])
def driver(request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device unchanged, or without the quirk that disables vector loads."""
    quirks = device.caps.quirks - {"scalar_loads"}
    if request.param == "vectors":
        if quirks == device.caps.quirks:
            pytest.skip("the device gains from vectors as it is")
        monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, quirks=quirks))
        for kernel in (products, swapped):
            monkeypatch.setattr(kernel, "_plans", {})
            monkeypatch.setattr(kernel, "_forms", {})
    return device


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "int32", "float64"])
@pytest.mark.parametrize("first", [0, 1, 2, 4])
def test_pairs_of_views_with_offsets(driver: Device, dtype: str, first: int) -> None:
    if vk.from_numpy(values(1, dtype)).dtype.name not in driver.caps.dtypes:
        pytest.skip(f"no {dtype} on this device")
    x = values(2 * 100 + first, dtype)
    y = on(driver, np.zeros(100, dtype))
    products(on(driver, x)[first:], y)
    np.testing.assert_array_equal(y.numpy(), x[first::2] * x[first + 1 :: 2])


@pytest.mark.parametrize("columns", [8, 9, 10, 12])
@pytest.mark.parametrize("cut", [0, 1, 2, 4])
def test_rows_of_views(driver: Device, columns: int, cut: int) -> None:
    x = values(70 * columns, "float32").reshape(70, columns)
    y = on(driver, np.zeros((70, columns), np.float32))
    swapped(on(driver, x)[:, cut:], y[:, cut:])
    expected = np.zeros_like(x)
    for j in range(cut, columns - 3, 4):
        expected[:, j : j + 4] = x[:, j : j + 4][:, ::-1]
    np.testing.assert_array_equal(y.numpy(), expected)


def test_turned_and_backward_views(driver: Device) -> None:
    x = values(16 * 16, "float32").reshape(16, 16)
    for source in (x.T, x[::-1], x[:, ::-1], x[::2]):
        y = on(driver, np.zeros(source.shape, np.float32))
        swapped(on(driver, source), y)
        blocks = np.ascontiguousarray(source).reshape(source.shape[0], -1, 4)[:, :, ::-1]
        np.testing.assert_array_equal(y.numpy(), blocks.reshape(source.shape))


def test_one_kernel_takes_both_kinds_in_turn(driver: Device) -> None:
    x = values(201, "float32")
    given = on(driver, x)
    for _ in range(3):
        for first in (0, 1):
            y = on(driver, np.zeros(100, np.float32))
            products(given[first : first + 200], y)
            np.testing.assert_array_equal(y.numpy(), x[first : first + 200 : 2] * x[first + 1 : first + 201 : 2])
