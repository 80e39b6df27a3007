"""Tests of the library's kernels in both variants, for GPUs and for software drivers, on every executor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.stdlib import registry
from vkjit.stdlib.matmul.shared_tiles import multiply_large_tiles

KINDS = ("cpu", "gpu")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (64, 16, 64), (65, 17, 66), (3, 70, 130), (128, 33, 5)])
def test_products(device: Any, kind: str, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (2, m, k)).astype(np.float32), rng.integers(-4, 5, (2, k, n)).astype(np.float32)
    with registry.forcing_class(kind):
        assert np.array_equal((vk.tensor(a) @ vk.tensor(b)).numpy(), a @ b)
        left, right = vk.tensor(a.swapaxes(1, 2).copy()).mT, vk.tensor(b.swapaxes(1, 2).copy()).mT
        assert np.array_equal((left @ right).numpy(), a @ b)
        half = vk.tensor(a, dtype=vk.f16) @ vk.tensor(b, dtype=vk.f16)
        assert np.array_equal(half.numpy(), (a @ b).astype(np.float16))


@pytest.mark.parametrize("rows", [True, False])
def test_products_of_large_tiles(device: Any, rows: bool) -> None:
    if device.caps.kind == "llvm-cpu":
        pytest.skip("never used there, and takes that compiler long")
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (1, 130, 35)).astype(np.float32), rng.integers(-4, 5, (1, 35, 140)).astype(np.float32)
    x = vk.tensor(a) if rows else vk.tensor(a.swapaxes(1, 2).copy()).mT
    y = vk.tensor(b) if rows else vk.tensor(b.swapaxes(1, 2).copy()).mT
    found = vk.zeros(1, 130, 140)
    multiply_large_tiles(x, y, found, vk.f32, rows, rows)
    assert np.array_equal(found.numpy(), a @ b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1,), (63,), (64,), (1030,), (9001,), (3, 300), (300, 3), (2, 70, 5), (70, 3, 65)])
def test_reductions(device: Any, kind: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32)
    x = vk.tensor(values)
    with registry.forcing_class(kind):
        for axes in (None, *range(len(shape))):
            assert np.array_equal(x.sum(axes).numpy(), values.sum(axes))
            assert np.array_equal(x.amax(axes).numpy(), values.max(axes))
            assert np.array_equal(x.argmin(axes).numpy(), values.argmin(axes))
            assert np.array_equal(x.any(axes).numpy(), values.any(axes))
        assert math.isclose(x.norm().item(), float(np.sqrt((values.astype(np.float64) ** 2).sum())), rel_tol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_over_two_axes_apart(device: Any, kind: str) -> None:
    values = np.random.default_rng(2).integers(-9, 10, (6, 5, 70)).astype(np.float32)
    with registry.forcing_class(kind):
        assert np.array_equal(vk.tensor(values).sum((0, 2)).numpy(), values.sum((0, 2)))
        assert np.array_equal(vk.tensor(values).permute(2, 0, 1).sum((0, 1)).numpy(), values.sum((0, 2)))


def test_an_operation_has_one_variant_per_class() -> None:
    with pytest.raises(vk.InternalError, match="already"):
        registry.variant("matmul", "gpu")(lambda: None)
