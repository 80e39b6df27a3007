# mypy: disable-error-code="arg-type, misc, no-untyped-call, no-untyped-def, valid-type"
"""Collectives of workgroups whose size isn't a multiple of the subgroup size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk


def reductions(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "8 N"]):
    wg = vk.workgroup()
    i = wg.rank()
    y[0, i] = wg.sum(x[i])
    y[1, i] = wg.max(x[i])
    y[2, i] = wg.argmin(x[i])
    y[3, i] = wg.broadcast(x[i], len(x) - 1)
    y[4, i] = wg.any(i == len(x) - 1)
    y[5, i] = wg.all(i < len(x) - 1)
    y[6, i] = wg.scan(x[i], "add")
    y[7, i] = wg.scan(vk.i32(x[i]), "max", exclusive=True)


def repeated(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    """Collectives in a loop reuse their shared memory; the workgroup has two dimensions."""
    wg = vk.workgroup()
    total = 0.0
    for k in range(3):
        total += wg.sum(x[wg.rank()] + k)
    i = vk.local_id(1) * 3 + vk.local_id(0)
    y[i] = total + i


def softmax(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"]):
    wg, r = vk.workgroup(), vk.group_id(0)
    e = vk.exp(x[r, :] - wg.max(x[r, :]))
    wg.store(y[r, :], e / wg.sum(e))


@pytest.mark.parametrize("size", [3, 9, 31, 33, 36, 65, 100, 127, 129])
def test_reductions_of_odd_workgroups(device: Any, size: int) -> None:
    x = np.random.default_rng(size).permutation(size).astype(np.float32) - 3
    with vk.use_device(device):
        y = vk.kernel(groups=1, local=size)(reductions)(x)
    for row, expected in enumerate([x.sum(), x.max(), x.argmin(), x[-1], 1, 0, np.cumsum(x)]):
        assert (y[row] == expected).all(), row
    assert (y[7, 1:] == np.maximum.accumulate(x)[:-1]).all()


@pytest.mark.parametrize("rows", [1, 5, 11])
def test_repeated_reductions_of_two_dimensions(device: Any, rows: int) -> None:
    x, y = np.ones(3 * rows, np.float32), np.zeros(3 * rows, np.float32)
    with vk.use_device(device):
        vk.kernel(groups=1, local=(3, rows))(repeated)(x, y)
    assert (y == np.arange(3 * rows) + 3 * rows * 6).all()


@pytest.mark.parametrize("size", [5, 33])
def test_slices_of_odd_workgroups(device: Any, size: int) -> None:
    x = np.random.default_rng(1).normal(size=(4, 70)).astype(np.float32)
    with vk.use_device(device):
        y = vk.kernel(groups=lambda x: x.shape[0], local=size)(softmax)(x)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
