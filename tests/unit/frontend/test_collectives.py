# mypy: disable-error-code="no-any-return, no-untyped-call"
"""Tests of collectives of workgroups and subgroups, at several subgroup sizes."""

from __future__ import annotations

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import run

SIZES = (4, 8, 32)
LOCAL = (64, 1, 1)


def reductions(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "K N"]):
    wg, i = vk.workgroup(), vk.global_id(0)
    y[0, i] = wg.sum(x[i])
    y[1, i] = wg.prod(1 + x[i] / 64)
    y[2, i] = wg.min(x[i])
    y[3, i] = wg.max(x[i])
    y[4, i] = wg.argmin(x[i])
    y[5, i] = wg.argmax(x[i])
    y[6, i] = wg.any(x[i] > 6)
    y[7, i] = wg.all(x[i] > -100)
    y[8, i] = wg.broadcast(x[i], 3)
    y[9, i] = wg.rank()
    y[10, i] = wg.size()


def butterfly_sum(x: np.ndarray) -> np.float32:
    while x.size > 1:
        x = x[0::2] + x[1::2]
    return x[0]


@pytest.mark.parametrize("subgroup", SIZES)
@pytest.mark.parametrize("local", [(64, 1, 1), (4, 4, 8), (256, 1, 1), (4, 1, 1)])
def test_reductions_of_a_workgroup(subgroup: int, local: tuple[int, int, int]) -> None:
    size = int(np.prod(local))
    if size < subgroup or (local[1] > 1):
        pytest.skip("the workgroup is no multiple of the subgroup, or global_id(0) isn't the rank")
    x = np.random.default_rng(1).normal(size=2 * size).astype(np.float32)
    y = np.zeros((11, 2 * size), np.float32)
    run(reductions, x, y, groups=2, local=local, subgroup_size=subgroup)
    for group in range(2):
        part, out = x[group * size : (group + 1) * size], y[:, group * size : (group + 1) * size]
        assert (out[:9] == out[:9, :1]).all()
        assert out[0, 0] == butterfly_sum(part)
        assert out[2, 0] == part.min()
        assert out[3, 0] == part.max()
        assert out[4, 0] == part.argmin()
        assert out[5, 0] == part.argmax()
        assert out[6, 0] == (part > 6).any()
        assert out[7, 0]
        assert out[8, 0] == part[3]
        assert (out[9] == np.arange(size)).all()
        assert (out[10] == size).all()


def in_a_loop(x: vk.In[vk.i32, "M N"], y: vk.Out[vk.i32, "M"]):
    wg = vk.workgroup()
    i = vk.local_id(0)
    for row in range(x.shape[0]):
        total = wg.sum(x[row, i])
        if i == 0:
            y[row] = total


@pytest.mark.parametrize("subgroup", SIZES)
def test_a_collective_in_a_loop(subgroup: int) -> None:
    x = np.arange(5 * 64, dtype=np.int32).reshape(5, 64)
    y = np.zeros(5, np.int32)
    run(in_a_loop, x, y, local=LOCAL, subgroup_size=subgroup)
    np.testing.assert_array_equal(y, x.sum(axis=1))


def scans(x: vk.In[vk.f32, "N"], n: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"], z: vk.Out[vk.i32, "K N"]):
    wg, i = vk.workgroup(), vk.global_id(0)
    y[i] = wg.scan(x[i])
    z[0, i] = wg.scan(n[i], exclusive=True)
    z[1, i] = wg.scan(n[i], "max")
    z[2, i] = wg.scan(n[i], "min", exclusive=True)


@pytest.mark.parametrize("subgroup", SIZES)
def test_scans_of_a_workgroup(subgroup: int) -> None:
    rng = np.random.default_rng(2)
    x, n = rng.normal(size=64).astype(np.float32), rng.integers(-9, 9, 64, np.int32)
    y, z = np.zeros(64, np.float32), np.zeros((3, 64), np.int32)
    run(scans, x, n, y, z, local=LOCAL, subgroup_size=subgroup)
    expected = x.copy()
    for half in (1, 2, 4, 8, 16, 32):
        blocks = expected.reshape(-1, 2, half)
        blocks[:, 1] = blocks[:, :1, -1] + blocks[:, 1]
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(z[0], np.concatenate([[0], np.cumsum(n)[:-1]]))
    np.testing.assert_array_equal(z[1], np.maximum.accumulate(n))
    np.testing.assert_array_equal(z[2], np.concatenate([[2**31 - 1], np.minimum.accumulate(n)[:-1]]))


def subgroup_operations(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "K N"], b: vk.Out[vk.u64, "N"]):
    sg, i = vk.subgroup(), vk.global_id(0)
    y[0, i] = sg.sum(x[i])
    y[1, i] = sg.shuffle(x[i], (sg.rank() + 1) % sg.size())
    y[2, i] = sg.shuffle_xor(x[i], 1)
    y[3, i] = sg.broadcast(x[i], 3)
    y[4, i] = sg.elect()
    y[5, i] = sg.id() * 100 + sg.count()
    y[6, i] = sg.argmax(x[i])
    y[7, i] = sg.any(x[i] > 8) + 2 * sg.all(x[i] > -100)
    b[i] = sg.ballot(x[i] > 0)


@pytest.mark.parametrize("subgroup", SIZES)
def test_subgroups(subgroup: int) -> None:
    x = np.random.default_rng(3).integers(-9, 9, 64, np.int32)
    y, b = np.zeros((8, 64), np.int32), np.zeros(64, np.uint64)
    run(subgroup_operations, x, y, b, local=LOCAL, subgroup_size=subgroup)
    parts = x.reshape(-1, subgroup)
    each = lambda values: np.repeat(np.asarray(values), subgroup)
    np.testing.assert_array_equal(y[0], each(parts.sum(axis=1)))
    np.testing.assert_array_equal(y[1], np.roll(parts, -1, axis=1).ravel())
    np.testing.assert_array_equal(y[2], x.reshape(-1, 2)[:, ::-1].ravel())
    np.testing.assert_array_equal(y[3], each(parts[:, 3]))
    assert y[4].reshape(-1, subgroup).sum(axis=1).tolist() == [1] * len(parts)
    np.testing.assert_array_equal(y[5], each(np.arange(len(parts)) * 100 + len(parts)))
    np.testing.assert_array_equal(y[6], each(parts.argmax(axis=1)))
    np.testing.assert_array_equal(y[7], each((parts > 8).any(axis=1) + 2))
    np.testing.assert_array_equal(b, each((parts > 0) @ (np.uint64(1) << np.arange(subgroup, dtype=np.uint64))))


def nan_positions(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "K"]):
    wg, i = vk.workgroup(), vk.local_id(0)
    low, high = wg.argmin(x[i]), wg.argmax(x[i])
    if i == 0:
        y[0] = low
        y[1] = high


def test_nan_is_the_extremum() -> None:
    x = np.arange(64, dtype=np.float32)
    x[[20, 40]] = np.nan
    y = np.zeros(2, np.int32)
    run(nan_positions, x, y, local=LOCAL)
    assert y.tolist() == [20, 20]
