# mypy: disable-error-code="var-annotated"
"""Tests of tiles: matrices distributed over a workgroup."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import lower, run
from vkjit.errors import CompileError

T = TypeVar("T", bound=vk.Element)


def gemm(
    a: vk.In[T, "M K"],
    b: vk.In[T, "K N"],
    c: vk.Out[vk.f32, "M N"],
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
):
    wg = vk.workgroup()
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), vk.f32)
    for k in range(0, a.shape[1], BK):
        acc = wg.mma(a[i : i + BM, k : k + BK], b[k : k + BK, j : j + BN], acc)
    wg.store(c[i : i + BM, j : j + BN], acc)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("local", "tile", "sizes"),
    [
        (8, (8, 8, 4), (16, 8, 16)),
        (8, (8, 8, 4), (13, 7, 9)),
        (8, (4, 16, 3), (5, 5, 17)),
        (8, (3, 5, 2), (7, 4, 11)),
        (16, (2, 2, 2), (3, 3, 3)),
        (4, (8, 4, 8), (1, 1, 1)),
    ],
)
def test_products(dtype: type, local: int, tile: tuple[int, int, int], sizes: tuple[int, int, int]) -> None:
    (m, k, n), (bm, bn, bk) = sizes, tile
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    c = np.full((m, n), np.nan, np.float32)
    run(gemm, a, b, c, bm, bn, bk, groups=(-(-n // bn), -(-m // bm)), local=(local, 1, 1), subgroup_size=4)
    expected = np.zeros((m, n), np.float32)
    for inner in range(k):
        expected += a[:, inner : inner + 1].astype(np.float32) * b[inner].astype(np.float32)
    np.testing.assert_array_equal(c, expected)


def epilogue(x: vk.In[vk.f32, "M N"], y: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    t = wg.load(x[0:4, 0:6])
    if x[0, 0] > 0:
        t = t * 2
    else:
        t = t - 1
    t = vk.max(t + y[0:4, 0:6], wg.full((4, 6), -0.5, vk.f32))
    wg.store(y[0:4, 0:6], t)


@pytest.mark.parametrize("shape", [(4, 6), (3, 4)])
@pytest.mark.parametrize("sign", [1, -1])
def test_elementwise_and_branches(shape: tuple[int, int], sign: int) -> None:
    rng = np.random.default_rng(8)
    x, y = (sign * np.abs(rng.normal(size=shape)).astype(np.float32) for _ in range(2))
    expected = np.maximum((x * 2 if sign > 0 else x - 1) + y, np.float32(-0.5))
    run(epilogue, x, y, local=(8, 1, 1), subgroup_size=4)
    np.testing.assert_array_equal(y, expected)


def wrong_shape(x: vk.InOut[vk.f32, "M N"]):
    vk.workgroup().zeros((4, x.shape[0]), vk.f32)


def too_large(x: vk.InOut[vk.f32, "M N"]):
    vk.workgroup().zeros((2048, 1024), vk.f32)


def unknown_sizes(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    wg.mma(x[:, 0:4], x[0:4, 0:4], wg.zeros((4, 4), vk.f32))


def sizes_disagree(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    wg.mma(x[0:4, 0:4], x[0:2, 0:4], wg.zeros((4, 4), vk.f32))


def no_tile(x: vk.InOut[vk.f32, "M N"]):
    vk.workgroup().mma(x[0:4, 0:4], x[0:4, 0:4], 0)


def tiles_disagree(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    wg.zeros((4, 4), vk.f32) + wg.zeros((4, 8), vk.f32)


def store_disagrees(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    wg.store(x[0:4, 0:8], wg.zeros((4, 4), vk.f32))


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        (wrong_shape, "sizes known at compile time"),
        (too_large, "more than a workgroup can hold"),
        (unknown_sizes, "must be known at compile time"),
        (sizes_disagree, "they don't go together"),
        (no_tile, "acc is a tile"),
        (tiles_disagree, "a tile of 4 x 4 and a tile of 4 x 8 can't be combined"),
        (store_disagrees, "isn't as large"),
    ],
)
def test_errors(kernel, part: str) -> None:
    with pytest.raises(CompileError, match=part):
        lower(kernel, np.zeros((4, 8), np.float32), local=(8, 1, 1))
