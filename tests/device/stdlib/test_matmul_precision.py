"""`set_matmul_precision`: errors of f32 products with (emulated) cooperative matrices and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.device import Device
from vkjit.stdlib.matmul import precision as matmul_precision
from vkjit.stdlib.registry import forcing_class

Floats = npt.NDArray[np.float32]


@pytest.fixture(autouse=True)
def _small_products_and_the_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(matmul_precision, "MIN_MULTIPLY_ADDS", 1)
    yield
    vk.set_matmul_precision("highest")


def bound(precision: str, depth: int) -> float:
    """Return the documented error bound, relative to the sum of the products' magnitudes."""
    unit = 2.0**-23
    found: dict[str, float] = {
        "highest": (depth + 1) * unit,
        "high": 2.0**-14.3 + (3 * depth + 1) * unit,
        "medium": 2.0**-6.99 + (depth + 1) * unit,
    }
    return found[precision]


def product(a: Floats, b: Floats, precision: str) -> Floats:
    with vk.use_device("interpreter"), forcing_class("gpu"):
        vk.set_matmul_precision(precision)
        found: Any = vk.matmul(vk.tensor(a), vk.tensor(b)).numpy()
    return found  # type: ignore[no-any-return]


def operands(shape: tuple[int, int, int, int], spread: float) -> tuple[Floats, Floats]:
    """Return operands with magnitudes spread within 2**+-spread."""
    g, m, k, n = shape
    random = np.random.default_rng(k)
    made = []
    for size in ((g, m, k), (g, k, n)):
        made.append((random.normal(size=size) * 2 ** random.uniform(-spread, spread, size)).astype(np.float32))
    return made[0], made[1]


@pytest.mark.parametrize(("shape", "spread"), [((1, 16, 40, 24), 0.0), ((2, 9, 33, 12), 8.0), ((1, 5, 100, 8), 40.0)])
def test_errors_stay_below_their_bounds(shape: tuple[int, int, int, int], spread: float) -> None:
    a, b = operands(shape, spread)
    exact = np.matmul(a.astype(np.float64), b)
    scale = np.matmul(np.abs(a).astype(np.float64), np.abs(b))
    worst = {}
    for precision in ("highest", "high", "medium"):
        off = np.abs(product(a, b, precision) - exact) / scale
        worst[precision] = float(off.max())
        assert worst[precision] <= bound(precision, shape[2])
    assert worst["highest"] < worst["high"] < worst["medium"]  # so each precision was used


def test_the_default_never_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands((1, 16, 40, 24), 0.0)
    calls: list[int] = []
    monkeypatch.setattr(matmul_precision, "multiply_coopmat", lambda *_: calls.append(1))
    assert vk.get_matmul_precision() == "highest"
    exact = np.matmul(a.astype(np.float64), b)
    off = np.abs(product(a, b, "highest") - exact)
    assert (off <= bound("highest", 40) * np.matmul(np.abs(a), np.abs(b))).all()
    assert not calls


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_infinities_nan_and_large_numbers(precision: str) -> None:
    a = np.ones((3, 8), np.float32)
    a[0, 1], a[1, 2], a[2, 3] = np.inf, np.nan, 3.398e38  # the last one rounds to infinity in bf16
    b = np.eye(8, dtype=np.float32)[:, :4] + np.float32(1 / 3)
    b[3] = 0
    b[3, 0] = 1
    found = product(a, b, precision)
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b
    assert (np.isnan(found) == np.isnan(wanted)).all()
    assert (np.isposinf(found) == np.isposinf(wanted)).all()
    finite = np.isfinite(wanted)
    scale = np.abs(a).astype(np.float64)
    scale = np.where(np.isfinite(scale), scale, 0) @ np.abs(b)
    assert (np.abs(found[finite] - wanted[finite]) <= bound(precision, 8) * scale[finite]).all()


def test_only_products_of_f32_that_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.use_device("interpreter") as device, forcing_class("gpu"):
        vk.set_matmul_precision("medium")
        x, half = vk.ones((1, 8, 8))._array, vk.ones((1, 8, 8), dtype=vk.f16)._array
        odd = vk.ones((1, 8, 6))._array
        reduced = matmul_precision.multiply_reduced
        assert reduced(x, x, vk.zeros((1, 8, 8))._array)
        assert not reduced(half, half, half)
        assert not reduced(x, odd, odd)
        monkeypatch.setattr(matmul_precision, "MIN_MULTIPLY_ADDS", 8**3 + 1)
        assert not reduced(x, x, x)
        assert device.caps.kind == "interpreter"


def test_devices_without_matrices_stay_as_they_are(device: Device) -> None:
    a, b = operands((1, 12, 20, 8), 0.0)
    with vk.use_device(device):
        found = []
        for precision in ("highest", "medium"):
            vk.set_matmul_precision(precision)
            found.append(vk.matmul(vk.tensor(a), vk.tensor(b)).numpy())
    if not device.caps.matrices or device.caps.kind in ("cpu", "llvm-cpu", "interpreter"):
        np.testing.assert_array_equal(found[0], found[1])


def test_words_that_there_are_not() -> None:
    with pytest.raises(ArgumentError, match="one of 'highest', 'high', 'medium', found 'low'"):
        vk.set_matmul_precision("low")
    vk.set_matmul_precision("high")
    assert vk.get_matmul_precision() == "high"
