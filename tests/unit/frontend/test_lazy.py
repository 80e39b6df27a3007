# mypy: disable-error-code="var-annotated"
"""Tests of lazy slices of any length, evaluated by collectives and `wg.store`."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import run
from vkjit.frontend import DeviceFunction

T = TypeVar("T", bound=vk.Element)
LOCAL = (8, 1, 1)


def softmax(x: vk.In[T, "R C"], y: vk.Out[T, "R C"]):
    wg, r = vk.workgroup(), vk.group_id(0)
    row = vk.f32(x[r, :])
    m = wg.max(row)
    e = vk.exp(row - m)
    wg.store(y[r, :], e / wg.sum(e))


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_softmax(columns: int, dtype: type) -> None:
    x = np.random.default_rng(columns).normal(size=(3, columns)).astype(dtype)
    y = np.zeros_like(x)
    run(softmax, x, y, groups=3, local=LOCAL, subgroup_size=4)
    e = np.exp(x.astype(np.float32) - x.max(axis=1, keepdims=True).astype(np.float32))
    unit = np.finfo(dtype).eps
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=8 * unit + 1e-5)


@DeviceFunction
def squared(v, scale=1):
    return v * v * scale


def reductions(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "K"]):
    wg = vk.workgroup()
    y[0] = wg.sum(squared(x[0, :], scale=2))
    y[1] = wg.prod(x[:, 1])
    y[2] = wg.min(x[:, :])
    y[3] = wg.argmin(x[:, :])
    y[4] = wg.argmax(x[1, :])
    y[5] = wg.any(x[1, :] > 100)
    y[6] = wg.all(x[1, :] < 100)
    y[7] = wg.sum(x[1:3, 2:-1])
    y[8] = wg.max(vk.where(x[0, :] > 0, x[0, :], 0))
    y[9] = wg.sum(x[-1, :] > 0)
    y[10] = wg.sum(x[0, 5:2])
    y[11] = wg.max(-x[2, 3:1000])
    y[12] = wg.sum(abs(x[0, :]) ** 2 // 1)


def test_reductions_of_slices() -> None:
    x = np.random.default_rng(5).normal(size=(4, 11)).astype(np.float32)
    y = np.zeros(13, np.float32)
    run(reductions, x, y, groups=1, local=LOCAL, subgroup_size=4)
    expected = [
        (2 * x[0] * x[0]).sum(), x[:, 1].prod(), x.min(), x.argmin(), x[1].argmax(), 0, 1, x[1:3, 2:-1].sum(),
        np.maximum(x[0], 0).max(), (x[-1] > 0).sum(), 0, (-x[2, 3:]).max(), np.floor(x[0] ** 2).sum(),
    ]  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def stores(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R C"]):
    wg = vk.workgroup()
    wg.store(y[:, :], 7)
    wg.barrier()
    wg.store(y[1:3, 2:4], x[0:2, 0:2] * 10)
    sg = vk.subgroup()
    if sg.id() == 0:
        sg.store(y[3, :], sg.sum(x[3, :]))


def test_stores_of_slices() -> None:
    x = np.arange(20, dtype=np.int32).reshape(4, 5)
    y = np.zeros_like(x)
    run(stores, x, y, groups=1, local=LOCAL, subgroup_size=4)
    expected = np.full_like(x, 7)
    expected[1:3, 2:4] = x[0:2, 0:2] * 10
    expected[3] = x[3].sum()
    np.testing.assert_array_equal(y, expected)


def nan_positions(x: vk.In[vk.f32, "C"], y: vk.Out[vk.i32, "K"]):
    wg = vk.workgroup()
    y[0] = wg.argmin(x[:])
    y[1] = wg.argmax(x[:])


@pytest.mark.parametrize("places", [[5, 30], [0], [], [17]])
def test_positions_with_nan(places: list[int]) -> None:
    x = np.linspace(1, -1, 40, dtype=np.float32)
    x[places] = np.nan
    y = np.zeros(2, np.int32)
    run(nan_positions, x, y, groups=1, local=LOCAL, subgroup_size=4)
    assert y.tolist() == [x.argmin(), x.argmax()]


def infinite(x: vk.In[vk.f32, "C"], y: vk.Out[vk.i32, "K"]):
    wg = vk.workgroup()
    y[0] = wg.argmin(x[:])


def test_position_when_all_are_the_neutral_element() -> None:
    y = np.full(1, -1, np.int32)
    run(infinite, np.full(20, np.inf, np.float32), y, groups=1, local=LOCAL, subgroup_size=4)
    assert y[0] == 0


def shared_slices(x: vk.In[vk.f32, "C"], y: vk.Out[vk.f32, "K"]):
    wg, i = vk.workgroup(), vk.local_id(0)
    s = vk.shared(vk.f32, (2, 8))
    s[0, i] = x[i]
    s[1, i] = x[i] * 2
    vk.barrier()
    y[0] = wg.sum(s[0, :] + s[1, :])


def test_slices_of_shared_memory() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(1, np.float32)
    run(shared_slices, x, y, groups=1, local=LOCAL, subgroup_size=4)
    assert y[0] == 3 * x.sum()


def test_a_store_over_what_is_still_to_be_read_is_an_error() -> None:
    @vk.kernel(groups=1, local=8)
    def shift(x: vk.InOut[vk.f32, "N"]):
        vk.workgroup().store(x[1:], x[0 : x.shape[0] - 1] * 1.0)

    with pytest.raises(vk.CompileError, match="reads elements of the array that it is stored to"):
        shift(np.arange(20, dtype=np.float32))


def test_a_store_in_place_is_right() -> None:
    @vk.kernel(groups=1, local=64)  # a multiple of every subgroup size
    def double(x: vk.InOut[vk.f32, "N"]):
        vk.workgroup().store(x[:], x[:] * 2.0)

    x = np.arange(150, dtype=np.float32)
    double(x)
    np.testing.assert_array_equal(x, 2 * np.arange(150))
