"""Matrix products with cooperative matrices and vec4 f32 kernels, at sizes that aren't multiples of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.device import Device
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.matmul import cooperative_plan, vec4
from vkjit.stdlib.matmul.cooperative_plan import ACCUMULATORS, TileShape, fits
from vkjit.stdlib.registry import forcing_class
from vkjit.tensor.ops import matmul

TILES = [
    TileShape(64, 64, 32, 2, 2),
    TileShape(64, 128, 32, 2, 2, 2, early_loads=True),
    TileShape(256, 128, 32, 4, 2, 2, early_loads=True),
]
KINDS = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "i32": 0.0, "i8": 0.0, "u32": 0.0}
"""Half an ulp of 1, by element type."""


def numbers(shape: tuple[int, ...], kind: str) -> Any:
    rng = np.random.default_rng(sum(shape))
    if kind[0] in "iu":
        return rng.integers(0 if kind[0] == "u" else -100, 100, shape).astype(np.float32)
    return rng.standard_normal(shape).astype(np.float32)


def operands(
    shape: tuple[int, int, int, int], kind: str, transposed: tuple[bool, bool], device: Device
) -> tuple[Any, Any]:
    """Return operands (G, M, K) and (G, K, N); those that are `turned` are stored transposed."""
    g, m, n, k = shape
    made = []
    for rows, columns, is_turned in ((m, k, transposed[0]), (k, n, transposed[1])):
        held = (g, columns, rows) if is_turned else (g, rows, columns)
        tensor = vk.tensor(numbers(held, kind), dtype=getattr(vk, kind), device=device)
        made.append(tensor.transpose(1, 2) if is_turned else tensor)
    return made[0], made[1]


def close(found: Any, a: Any, b: Any, out: str) -> None:
    """Check that each element is within the rounding of the sums and of the result."""
    a, b = (x.to(vk.f64).numpy() for x in (a, b))
    want, scale, depth = np.matmul(a, b), np.matmul(np.abs(a), np.abs(b)), a.shape[-1]
    got = found.to(vk.f64).numpy()
    if out[0] in "iu":
        want = want.astype(np.int64).astype(np.dtype({"i8": "i1", "u8": "u1", "i32": "i4", "u32": "u4"}[out]))
    allowed = KINDS[out] * np.abs(want) + (depth + 1) * 2.0**-23 * scale if KINDS[out] else 0.0
    assert (np.abs(got - want) <= allowed).all()


CASES = [
    ("f16", "f16", (False, False), 0), ("f16", "f32", (True, False), 0), ("f16", "f16", (False, True), 1),
    ("bf16", "bf16", (True, True), 1), ("i8", "i8", (False, True), 0), ("i8", "i32", (True, False), 0),
    ("f16", "f32", (False, False), 2),
]  # fmt: skip
"""Operand type, result type, transposed operands, index of the tile shape."""


@pytest.mark.parametrize(("kind", "out", "transposed", "number"), CASES)
def test_products_on_matrices(kind: str, out: str, transposed: tuple[bool, bool], number: int, device: Device) -> None:
    accumulator, tile = ACCUMULATORS[kind], TILES[number]
    shape = native_shape(device.caps.matrices, kind, kind, accumulator)
    if shape is None:
        pytest.skip(f"the device has no cooperative matrices of {kind}")
    each = 16 // getattr(vk, kind).itemsize
    tile = TileShape(
        tile.rows,
        tile.columns,
        4 * each,
        tile.subgroup_rows,
        tile.subgroup_columns,
        tile.a_depth_factor,
        tile.early_loads,
    )
    assert fits(tile, shape, each, device.caps, (not transposed[0], transposed[1]))
    for size in ((1, 256, 128, 16 * each), (2, 80, 144, 9 * each), (1, each, each, each)):
        a, b = operands(size, kind, transposed, device)
        c = vk.zeros(size[:3], dtype=getattr(vk, out), device=device)
        assert cooperative_plan.multiply_coopmat_tile(
            a._array, b._array, c._array, getattr(vk, accumulator), shape, tile
        )
        close(c, a, b, out)


@pytest.mark.parametrize("transposed", [(False, False), (True, True)])
def test_products_in_vectors(transposed: tuple[bool, bool], device: Device) -> None:
    if device.caps.kind in ("cpu", "llvm-cpu"):
        pytest.skip("a kernel for GPUs: processors take long to compile it")
    size = (2, 132, 136, 20)
    a, b = operands(size, "f32", transposed, device)
    c = vk.zeros(size[:3], device=device)
    assert vec4.multiply_vec4(a._array, b._array, c._array)
    close(c, a, b, "f32")


@pytest.mark.parametrize("kind", ["f16", "bf16", "i8", "u8"])
def test_tensors_of_any_size(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands that cooperative matrices can't load are padded; result types match the plain kernel."""
    monkeypatch.setattr(matmul, "PADDING_THRESHOLD", 1)
    launches: list[object] = []
    launch = cooperative_plan._launch

    def spy(*args: Any) -> None:
        launches.append(args)
        launch(*args)

    monkeypatch.setattr(cooperative_plan, "_launch", spy)
    with vk.use_device("interpreter") as device, forcing_class("gpu"):
        for a_shape, b_shape in (
            ((70, 64), (64, 72)),
            ((33, 50), (50, 37)),
            ((2, 3, 5), (2, 5, 7)),
            ((3, 9, 24), (24, 8)),
        ):
            a, b = (vk.tensor(numbers(s, kind), dtype=getattr(vk, kind), device=device) for s in (a_shape, b_shape))
            before = len(launches)
            found = vk.matmul(a, b)
            assert len(launches) == before + 1
            if kind[0] in "iu":
                want = np.matmul(a.to(vk.f64).numpy(), b.to(vk.f64).numpy()).astype(np.int64)
                assert np.array_equal(found.numpy(), want.astype(np.int8 if kind == "i8" else np.uint8))
            else:
                close(found, a, b, kind)


def test_layouts_that_vectors_cannot_read_are_left_to_others() -> None:
    with vk.use_device("interpreter") as device:
        shape = native_shape(device.caps.matrices, "f16", "f16", "f32")
        assert shape is not None
        c = vk.zeros((1, 16, 16), dtype=vk.f16)
        for a in (vk.zeros((1, 16, 17), dtype=vk.f16)[:, :, 1:], vk.zeros((1, 16, 32), dtype=vk.f16)[:, :, ::2]):
            b = vk.zeros((1, 16, 16), dtype=vk.f16)
            assert not cooperative_plan.multiply_coopmat_tile(a._array, b._array, c._array, vk.f32, shape, TILES[0])
