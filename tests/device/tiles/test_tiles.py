# mypy: disable-error-code="var-annotated"
"""Tile kernels on every executor, compared with float64: edges, empty arrays, views, types.

Bounds follow from the type and the length of sums: n additions of numbers up to m are off by n * m * unit at most.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit.runtime.device import Device
from vkjit.stdlib.attention.forward import attention
from vkjit.stdlib.matmul.tiles import gemm
from vkjit.stdlib.rows.tile_softmax_norm import layer_norm, log_softmax, rms_norm, softmax

T = TypeVar("T", bound=vk.Element)
LOCAL = 64  # a multiple of every device's subgroup


def unit(dtype: Any) -> float:
    return float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> npt.NDArray[Any]:
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)


# -- matrix products
SMALL: dict[str, Any] = {"BM": 16, "BN": 32, "BK": 8}


def product(device: Device, a: Any, b: Any, total: Any, **options: Any) -> None:
    """Check a product on a device."""
    with vk.use_device(device):
        bias = np.zeros(b.shape[2], total)
        c = np.full((a.shape[0], a.shape[1], b.shape[2]), 77, total)
        kind = {"f": vk.f32, "i": vk.i32}[np.dtype(total).kind] if np.dtype(total).itemsize < 8 else vk.f64
        gemm(a, b, bias, c, ACC=kind, **{**SMALL, **options})
    wide = [x.astype(np.float64) for x in (a, b)]
    bound = (a.shape[2] + 1) * unit(np.float32 if total == np.float16 else total) * np.matmul(
        *map(np.abs, wide)
    ) + unit(total) * np.abs(np.matmul(*wide))
    assert (np.abs(c - np.matmul(*wide)) <= bound + 1e-7 * unit(total)).all()


@pytest.mark.parametrize(
    ("m", "k", "n"), [(16, 8, 32), (1, 1, 1), (17, 9, 33), (13, 31, 7), (0, 3, 5), (3, 0, 5), (3, 5, 0), (40, 16, 64)]
)
def test_products_of_all_sizes(device: Device, m: int, k: int, n: int) -> None:
    product(device, numbers((1, m, k), np.float32), numbers((1, k, n), np.float32, 1), np.float32)


@pytest.mark.parametrize(
    ("factors", "total"),
    [
        (np.float16, np.float32),
        (np.float16, np.float16),
        (np.int8, np.int32),
        (np.uint8, np.int32),
        (np.float64, np.float64),
    ],
)
def test_products_of_all_types(device: Device, factors: Any, total: Any) -> None:
    name = vk.dtypes.from_numpy(np.dtype(factors)).name if hasattr(vk, "dtypes") else np.dtype(factors).name
    if name not in device.caps.dtypes and name in ("f64", "float64") and "f64" not in device.caps.dtypes:
        pytest.skip("the device has no f64")
    product(device, numbers((1, 17, 11), factors), numbers((1, 11, 19), factors, 1), total)


def test_products_of_views_and_batches(device: Device) -> None:
    a = numbers((3, 2 * 17, 24), np.float32)[:, ::2, 3:14]
    b = numbers((3, 19, 11), np.float32, 1).transpose(0, 2, 1)
    product(device, a, b, np.float32)


def test_epilogue(device: Device) -> None:
    a, b = numbers((1, 17, 9), np.float32), numbers((1, 9, 21), np.float32, 1)
    bias = numbers((21,), np.float32, 2)
    with vk.use_device(device):
        c = gemm(a, b, bias, BIASED=True, ACTIVATION="relu", **SMALL)
    exact = np.maximum(a.astype(np.float64) @ b + bias, 0)
    np.testing.assert_allclose(c, exact, atol=20 * unit(np.float32) * 9)


# -- rows
def rows_reference(x: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=1, keepdims=True))
    s = e / e.sum(axis=1, keepdims=True)
    centred = wide - wide.mean(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = np.log(s)
    normed = centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    return s, logs, normed, wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("columns", [1, 7, 127, 128])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows(device: Device, columns: int, dtype: Any) -> None:
    x = numbers((3, columns), dtype)
    one, zero = np.ones(columns, dtype), np.zeros(columns, dtype)
    with vk.use_device(device):
        found = (
            softmax(x, SIZE=128), log_softmax(x, SIZE=128), layer_norm(x, one, zero, eps=1e-5, SIZE=128),
            rms_norm(x, one, eps=1e-5, SIZE=128),
        )  # fmt: skip
    for got, wanted in zip(found, rows_reference(x), strict=True):
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(got, wanted, atol=scale * (columns + 20) * unit(np.float32) + scale * unit(dtype))


# -- attention
@pytest.mark.parametrize("causal", [False, True])
def test_attention(device: Device, causal: bool) -> None:
    m, n, d = 19, 27, 12
    q, k, v = (
        numbers((1, 4, m, d), np.float32),
        numbers((1, 2, n, d), np.float32, 1),
        numbers((1, 2, n, d), np.float32, 2),
    )
    with vk.use_device(device):
        o, lse = attention(q, k, v, q, scale=d**-0.5, shift=n - m, SIZE=16, BM=16, BN=16, CAUSAL=causal)
    keys, values = (np.repeat(x.astype(np.float64), 2, axis=1) for x in (k, v))
    s = q.astype(np.float64) @ keys.transpose(0, 1, 3, 2) * d**-0.5
    if causal:
        s = np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, s, -np.inf)
    highest = s.max(axis=-1, keepdims=True)
    p = np.exp(s - highest)
    total = p.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(o, p / total @ values, atol=40 * n * unit(np.float32))
    np.testing.assert_allclose(lse, (highest + np.log(total))[..., 0], atol=40 * n * unit(np.float32))


# -- other operations
@vk.kernel(groups=1, local=LOCAL)
def shapes(x: vk.In[T, "M N"], y: vk.Out[T, "N M"], s: vk.Out[T, "M N"], w: vk.Out[vk.i32, "M"], z: vk.Out[T, "N"]):
    wg = vk.workgroup()
    t = wg.load(x[0:8, 0:16])
    wg.store(y[0:16, 0:8], t.T)
    wg.store(s[0:8, 0:16], wg.cumsum(t, axis=1) - t + wg.reshape(wg.reshape(t, (16, 8)), (8, -1)))
    wg.store(w[0:8], vk.i32(wg.argmax(t, axis=1)))
    wg.store(z[0:16], wg.sum(t, axis=0) + wg.max(t) - t[1, 2] + vk.where(wg.any(t > 5, axis=0), 1, 0))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_shapes_and_scans(device: Device, dtype: Any) -> None:
    x = np.random.default_rng(3).integers(-9, 10, (8, 16)).astype(dtype)
    with vk.use_device(device):
        y, s, w, z = shapes(x)
    np.testing.assert_array_equal(y, x.T)
    np.testing.assert_array_equal(s, np.cumsum(x, axis=1))
    np.testing.assert_array_equal(w, x.argmax(axis=1))
    np.testing.assert_array_equal(z, x.sum(axis=0) + x.max() - x[1, 2] + (x > 5).any(axis=0))


@vk.func
def centred(wg, t, axis: vk.Const[int], SQUARED: vk.Const[bool]):
    """Return a tile with its mean along an axis subtracted, and the sums of squares along that axis."""
    t = t - wg.sum(t, axis=axis, keepdims=True) / t.shape[axis]
    return t, wg.sum(t * t, axis=axis) if SQUARED else wg.sum(t, axis=axis)


@vk.kernel(groups=1, local=LOCAL)
def by_functions(x: vk.In[vk.f32, "M N"], y: vk.Out[vk.f32, "M N"], a: vk.Out[vk.f32, "M"], b: vk.Out[vk.f32, "N"]):
    wg = vk.workgroup()
    rows, squares = centred(wg, wg.load(x[0:8, 0:16]), 1, SQUARED=True)
    both, columns = centred(wg, rows, 0, False)
    wg.store(y[0:8, 0:16], both)
    wg.store(a[0:8], squares)
    wg.store(b[0:16], columns)


def test_functions_with_the_workgroup_get_whole_tiles(device: Device) -> None:
    x = np.random.default_rng(8).integers(-9, 10, (8, 16)).astype(np.float32)
    with vk.use_device(device):
        y, a, b = by_functions(x)
    rows = x - x.mean(axis=1, keepdims=True)
    np.testing.assert_array_equal(y, rows - rows.mean(axis=0))
    np.testing.assert_array_equal(a, (rows * rows).sum(axis=1))
    np.testing.assert_array_equal(b, np.zeros(16))


@vk.kernel(groups=2, local=LOCAL)
def positions(x: vk.In[vk.f32, "N"], i: vk.In[vk.i32, "M"], y: vk.Out[vk.f32, "M"], n: vk.InOut[vk.i32, "K"]):
    wg, j = vk.workgroup(), vk.group_id(0) * 16
    at = wg.load(i[j : j + 16], pad=-1)
    wg.store(y[j : j + 16], wg.gather(x, at, pad=-7))
    wg.scatter(n, at, 1, atomic="add")


def test_positions(device: Device) -> None:
    x, i = numbers((11,), np.float32), np.random.default_rng(4).integers(-3, 14, 27).astype(np.int32)
    n = np.zeros(12, np.int32)
    with vk.use_device(device):
        y = positions(x, i, n=n)
    inside = (i >= 0) & (i < 11)
    np.testing.assert_array_equal(y, np.where(inside, x[np.clip(i, 0, 10)], np.float32(-7)))
    np.testing.assert_array_equal(n, np.bincount(i[(i >= 0) & (i < 12)], minlength=12))


@vk.kernel(groups=1, local=LOCAL)
def in_turn(x: vk.InOut[vk.f32, "N"]):
    wg = vk.workgroup()
    for _ in range(3):
        t = wg.load(x[0:32])
        wg.store(x[0:32], wg.reshape(wg.reshape(t, (4, 8)).T, 32) + 1)


def test_stores_are_seen_by_all(device: Device) -> None:
    x = np.arange(32, dtype=np.float32)
    expected = x
    for _ in range(3):
        expected = expected.reshape(4, 8).T.reshape(-1) + 1
    with vk.use_device(device):
        in_turn(x)
    np.testing.assert_array_equal(x, expected)


@vk.kernel(groups=2, local=LOCAL)
def by_subgroups(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    sg = vk.subgroup()
    row = vk.group_id(0) * sg.count() + sg.id()
    t = sg.full(16, 0, vk.f32) + x[row, 0:16]
    sg.store(y[row : row + 1], sg.sum(t * t, axis=0, keepdims=True))


def test_tiles_of_subgroups(device: Device) -> None:
    x = np.random.default_rng(5).integers(-5, 6, (2 * LOCAL, 13)).astype(np.float32)
    with vk.use_device(device):
        y = by_subgroups(x)
    rows = 2 * LOCAL // device.caps.subgroup_size
    np.testing.assert_array_equal(y[:rows], (x * x).sum(axis=1)[:rows])


@vk.kernel(groups=1, local=LOCAL)
def product_of_a_subgroup(a: vk.In[vk.f32, "M K"], b: vk.In[vk.f32, "K N"], c: vk.Out[vk.f32, "M N"]):
    sg = vk.subgroup()
    if sg.id() == 0:
        acc = sg.mma(sg.load(a[0:8, 0:4]), b[0:4, 0:8], sg.zeros((8, 8), vk.f32))
        acc = sg.mma(a[0:8, 4:8], sg.load(b[4:8, 0:8]), acc)
        sg.store(c[0:8, 0:8], acc - sg.sum(acc, axis=1, keepdims=True))


def test_products_of_subgroups(device: Device) -> None:
    a, b = (np.random.default_rng(s).integers(-5, 6, (8, 8)).astype(np.float32) for s in (6, 7))
    with vk.use_device(device):
        c = product_of_a_subgroup(a, b)
    np.testing.assert_array_equal(c, a @ b - (a @ b).sum(axis=1, keepdims=True))
