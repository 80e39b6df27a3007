"""Matrix products with tile kernels and split-K, on every executor, compared with NumPy in float64.

Error bounds: n additions of products are off by up to (n + 1) units of the accumulator type times the sum of the
magnitudes; operations after the sum add some units of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.launch.host_arrays import overlapping
from vkjit.runtime.device import Device, DeviceArray
from vkjit.stdlib import partial_sums
from vkjit.stdlib.matmul import by_rule, split_k, tile_plan
from vkjit.stdlib.matmul.tile_plan import TilePlan, multiply_by_tiles, plan_tiles, split_k_parts
from vkjit.stdlib.registry import forcing_class

SMALL = TilePlan(16, 32, 16, 64)
UNIT = 2.0**-24
Floats = npt.NDArray[np.float64]


def numbers(shape: tuple[int, ...], seed: int, kind: Any = np.float32) -> npt.NDArray[Any]:
    random = np.random.default_rng(seed)
    if np.dtype(kind).kind == "f":
        return random.normal(size=shape).astype(kind)
    return random.integers(-9, 10, shape).astype(kind)


def after(sums: Floats, activation: str) -> Any:
    if activation == "relu":
        return np.maximum(sums, 0)
    if activation == "silu":
        return sums / (1 + np.exp(-sums))
    if activation == "gelu":
        from math import erf

        return 0.5 * sums * (1 + np.vectorize(erf, otypes=[np.float64])(sums / np.sqrt(2)))
    return sums


def check(
    a: vk.Tensor, b: vk.Tensor, plan: TilePlan | None, *, out: Any = vk.f32, bias: bool = False, activation: str = ""
) -> None:
    """Check the product of two tensors (G, M, K) and (G, K, N) with any strides."""
    wide, other = (x.to(vk.f64).numpy() for x in (a, b))
    shape = (a.shape[0], a.shape[1], b.shape[2])
    added = numbers(shape[2:], 5) if bias else np.zeros(shape[2:], np.float32)
    c, given = vk.full(shape, 77, dtype=out), vk.tensor(added, dtype=out)
    total = vk.f32 if out.is_float else out
    multiply_by_tiles(a._array, b._array, c._array, total, given._array if bias else None, activation, plan)
    sums = np.matmul(wide, other) + given.to(vk.f64).numpy()
    scale = (a.shape[2] + 4) * np.matmul(np.abs(wide), np.abs(other)) + 8 * (np.abs(sums) + np.abs(added))
    rounding = {"f32": 0.0, "f16": 2.0**-11}.get(out.name, 0.0) * np.abs(sums)
    allowed = (2 * UNIT * scale + rounding) * 1.2 if out.is_float else 0.0  # the activations have slopes up to 1.13
    assert (np.abs(c.to(vk.f64).numpy() - after(sums, activation)) <= allowed).all()


@pytest.mark.parametrize(
    ("transposed", "parts", "activation"),
    [((False, False), 1, "gelu"), ((True, False), 1, ""), ((False, True), 3, "silu"), ((True, True), 1, "relu")],
)
def test_transposed_factors(transposed: tuple[bool, bool], parts: int, activation: str, device: Device) -> None:
    with vk.use_device(device):
        made = [
            vk.tensor(numbers((2, columns, rows) if flip else (2, rows, columns), seed)).transpose(1, 2 if flip else 1)
            for seed, (rows, columns, flip) in enumerate(((17, 50, transposed[0]), (50, 33, transposed[1])))
        ]
        plan = TilePlan(SMALL.rows, SMALL.columns, SMALL.depth, SMALL.threads, parts)
        check(made[0], made[1], plan, bias=bool(activation), activation=activation)


def test_no_bias_shares_no_memory_with_results(device: Device) -> None:
    """If it did, the compiler would have to assume that stores change operands, which prevents prefetching."""
    with vk.use_device(device):
        a, b, c = (vk.zeros(shape) for shape in ((1, 40, 24), (1, 24, 40), (1, 40, 40)))
        for view in (a._array, a[:, 1:]._array):
            bias = tile_plan._placeholder_bias(view, c._array, vk.f64)
            assert bias.shape == (40,)
            assert not overlapping([view, b._array, bias, c._array], [False, False, False, True])
            assert bias.spec_class.aligned or c.device.caps.kind == "interpreter"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_tiles_that_cover_their_matrices(transposed: bool, parts: int, device: Device) -> None:
    with vk.use_device(device):
        plan = TilePlan(16, 32, 16, 64, parts, "early")
        a, b = (vk.tensor(numbers(shape, n)) for n, shape in enumerate(((2, 64, 32), (2, 64, 64))))
        left = a.transpose(1, 2) if transposed else vk.tensor(numbers((2, 32, 64), 5))
        assert plan.covers(left._array, vk.empty((2, 32, 64))._array)
        check(left, b.transpose(1, 2) if transposed else b, plan)
        assert not plan.covers(left._array, vk.empty((2, 32, 65))._array)


@pytest.mark.parametrize("sizes", [(0, 4, 5), (3, 0, 5), (1, 1, 1), (16, 16, 32), (17, 97, 1)])
def test_sizes(sizes: tuple[int, int, int], device: Device) -> None:
    m, k, n = sizes
    with vk.use_device(device):
        a, b = vk.tensor(numbers((1, m, k), 1)), vk.tensor(numbers((1, k, n), 2))
        check(a, b, TilePlan(16, 32, 16, 64, 4, "early"), bias=True, activation="relu")


def test_views(device: Device) -> None:
    """Strided, offset and broadcast operands are read without copies."""
    with vk.use_device(device):
        a = vk.tensor(numbers((3, 2 * 17, 24), 3))[:, ::2, 3:14]
        b = vk.tensor(numbers((11, 40), 4))[:, 2:21].expand(3, 11, 19)
        assert not a.is_contiguous()
        check(a, b, SMALL)


def test_types(device: Device) -> None:
    with vk.use_device(device):
        a, b = numbers((1, 9, 40), 6), numbers((1, 40, 21), 7)
        check(vk.tensor(a, dtype=vk.f16), vk.tensor(b, dtype=vk.f16), TilePlan(16, 32, 16, 64, 2), out=vk.f16)
        whole = [vk.tensor(numbers(x.shape, 8, np.int8)) for x in (a, b)]
        check(whole[0], whole[1], SMALL, out=vk.i32, activation="relu")


def test_the_plan_is_chosen_by_device(device: Device) -> None:
    with vk.use_device(device):
        a, b = vk.tensor(numbers((1, 5, 1100), 9)), vk.tensor(numbers((1, 1100, 33), 10))
        plan = plan_tiles(a._array, vk.empty((1, 5, 33))._array)
        assert plan.parts == (1 if device.caps.kind == "interpreter" else 2)
        check(a, b, None)


@pytest.mark.parametrize(
    ("kind", "total", "side", "plan"),
    [
        ("f16", "f32", 4096, TilePlan(128, 256, 64, 256, prefetch="overlap")),
        ("bf16", "f32", 1024, TilePlan(64, 64, 32, 128)),
        ("f16", "f32", 1536, TilePlan(128, 128, 64, 128, prefetch="overlap")),
        ("f16", "f16", 4096, TilePlan(256, 256, 32, 256, prefetch="overlap late")),
        ("i8", "i32", 4096, TilePlan(256, 128, 128, 256, prefetch="overlap")),
        ("f32", "f32", 4096, TilePlan(128, 128, 32, 256, prefetch="early")),
    ],
)
def test_large_products_on_matrices_overlap(kind: str, total: str, side: int, plan: TilePlan) -> None:
    with vk.use_device("interpreter") as device, forcing_class("gpu"):
        x = vk.zeros(64, device=device)._array
        a, c = (DeviceArray(x.buffer, 0, getattr(vk, dtype), (1, side, side), (0, 0, 0)) for dtype in (kind, total))
        assert plan_tiles(a, c) == plan
        assert plan_tiles(a, c, vk.f64).prefetch == ""


def test_activations_that_there_are_not() -> None:
    with vk.use_device("interpreter"):
        x = vk.ones((1, 4, 4))._array
        with pytest.raises(
            ArgumentError, match="no activation 'tanh' for sums of .*f32: expected one of '', 'relu', 'gelu'"
        ):
            multiply_by_tiles(x, x, x, vk.f32, activation="tanh")
        with pytest.raises(ArgumentError, match="no activation 'gelu' for sums of .*i32: expected one of '', 'relu'$"):
            multiply_by_tiles(x, x, x, vk.i32, activation="gelu")


def test_how_many_parts() -> None:
    assert [split_k_parts(tiles, 4096, 256) for tiles in (1, 32, 64, 128, 129, 4096)] == [8, 8, 4, 2, 1, 1]
    assert split_k_parts(1000, 20000, 256, max_depth=8192) == 3
    with vk.use_device("interpreter"):
        c = vk.empty((1, 16, 4096))._array
    assert [split_k.split_k_parts(c, depth) for depth in (1024, 2048, 4096)] == [1, 4, 8]


# -- split-K and copies
@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_in_parts(kind: str, transposed: bool) -> None:
    """Split-K on views of the K dimension, with a remainder; layouts that can't be split are rejected."""
    with vk.use_device("interpreter") as device, forcing_class("gpu"):
        dtype = getattr(vk, kind)
        held = numbers((1, 176, 8) if transposed else (1, 8, 176), 11)
        a = vk.tensor(held, dtype=dtype, device=device)
        a = a.transpose(1, 2) if transposed else a
        b = vk.tensor(numbers((1, 176, 24), 12), dtype=dtype, device=device)
        c = vk.zeros((1, 8, 24), dtype=dtype)
        shapes: list[Any] = []

        def spy(x: Any, y: Any, z: Any, total: Any) -> None:
            shapes.append(x.shape)
            by_rule.multiply_without_split_k(x, y, z, total)

        assert split_k.multiply_split_k(a._array, b._array, c._array, vk.f32, 3, spy)
        assert shapes == [(2, 8, 64), (1, 8, 48)]
        wide, other = (x.to(vk.f64).numpy() for x in (a, b))
        exact, scale = np.matmul(wide, other), np.matmul(np.abs(wide), np.abs(other))
        rounding = 2.0**-11 * np.abs(exact) if kind == "f16" else 0.0
        assert (np.abs(c.to(vk.f64).numpy() - exact) <= rounding + 2 * 180 * UNIT * scale).all()
        wider = DeviceArray(c._array.buffer, 0, dtype, (1, 4, 24), (0, 48, 1))
        assert not split_k.multiply_split_k(a._array, b._array, wider, vk.f32, 3, spy)


def test_long_products_with_few_results_take_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_k, "MIN_DEPTH", 128)
    monkeypatch.setattr(split_k, "MIN_PART_DEPTH", 64)
    with vk.use_device("interpreter"), forcing_class("gpu"):
        a, b = numbers((4, 130), 13), numbers((130, 4), 14)
        summed: list[int] = []

        def spy(x: DeviceArray, y: DeviceArray) -> None:
            summed.append(x.shape[0])
            partial_sums.sum_partials(x, y)

        monkeypatch.setattr(split_k, "sum_partials", spy)
        c = vk.tensor(a) @ vk.tensor(b)
        assert summed == [2]  # parts of 128 and 2 along the K dimension
        off = np.abs(c.numpy() - a.astype(np.float64) @ b)
        assert (off <= 2 * 131 * UNIT * (np.abs(a) @ np.abs(b))).all()
