"""Tiled softmax, normalizations, reductions, searches, scans and transposes, on every executor, compared with float64.

Sums of n terms of size m are off by n * m * unit of the accumulator type; results are rounded to their own type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from tests.device.tiles.tile_errors import EXP, UNIT, as_numpy, check, values
from vkjit.runtime.device import Device
from vkjit.stdlib.elementwise.tile_transpose import transpose
from vkjit.stdlib.rows.tile_reduce import arg_reduce, identity, reduce, scan, tile_shape
from vkjit.stdlib.rows.tile_softmax_norm import layer_norm, log_softmax, rms_norm, softmax
from vkjit.stdlib.rows.tile_softmax_norm_backward import norm_gradient, norm_parameter_gradients, softmax_gradient

TYPES = [(vk.f32, True), (vk.f32, False), (vk.f16, True), (vk.bf16, False), (vk.f64, True)]
"""Types, and a flag that selects log-softmax over softmax, and layer norm over RMS norm."""
SIZES = [(3, 7), (0, 5), (1, 1), (2, 63), (5, 64)]
"""Rows and columns, for tiles of 64."""
EPS = 1e-5


def total_of(dtype: Any) -> Any:
    """Return the accumulator type."""
    return vk.f64 if dtype is vk.f64 else vk.f32


def number(value: float, dtype: Any) -> npt.NDArray[Any]:
    return np.asarray(value, total_of(dtype).numpy)


def sums(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(x.sum(axis=1, keepdims=True))


# -- softmax


@pytest.mark.parametrize(("dtype", "log"), TYPES)
def test_softmax_and_its_gradient(device: Device, dtype: Any, log: bool) -> None:
    u, kernel = UNIT[total_of(dtype)], log_softmax if log else softmax
    with vk.use_device(device):
        for r, c in SIZES:
            (x, a), (g, b) = values((r, c), dtype), values((r, c), dtype, 1)
            y, dx = vk.zeros_like(x), vk.zeros_like(x)
            kernel(x, y, SIZE=64, ACC=total_of(dtype))
            softmax_gradient(g, y, dx, SIZE=64, LOG=log, ACC=total_of(dtype))
            e = np.exp(a - a.max(axis=1, keepdims=True))
            wanted, spread = e / sums(e), np.abs(a).max(initial=0) * 2
            relative = u * (c + 3 * EXP + spread)
            check(y, np.log(wanted) if log else wanted, relative * (1 + spread if log else wanted), f"{r} x {c}")
            y64 = as_numpy(y)  # the gradient's own input
            found = b - np.exp(y64) * sums(b) if log else y64 * (b - sums(b * y64))
            size = np.abs(b) + sums(np.abs(b) * (1 if log else np.abs(y64)))
            check(dx, found, u * (c + 2 * EXP) * size * (np.exp(y64) + 1 if log else 1), f"gradient, {r} x {c}")


def test_a_row_of_infinities(device: Device) -> None:
    """A row of -inf gives NaN, as in PyTorch; other rows are unaffected."""
    x = np.zeros((3, 5), np.float32)
    x[1], x[2, 1] = -np.inf, -np.inf
    with vk.use_device(device):
        y = softmax(x, SIZE=64)
    np.testing.assert_allclose(y[[0, 2]], [[0.2] * 5, [0.25, 0, 0.25, 0.25, 0.25]], rtol=1e-6)
    assert np.isnan(y[1]).all()


def test_long_rows(device: Device) -> None:
    """A row with so many elements per invocation that CPUs keep them on the stack."""
    a = np.random.default_rng(7).normal(size=(3, 4090)).astype(np.float32)
    with vk.use_device(device):
        y, z = (
            softmax(a, SIZE=4096),
            layer_norm(a, np.ones(4090, np.float32), np.zeros(4090, np.float32), EPS, SIZE=4096),
        )
    e = np.exp(a - a.max(axis=1, keepdims=True).astype(np.float64))
    np.testing.assert_allclose(y, e / sums(e), rtol=1e-4)
    np.testing.assert_allclose(z, normalised(a.astype(np.float64), True)[0], rtol=1e-3, atol=1e-4)


@vk.kernel(groups=lambda x: x.shape[0], local=64)
def extremes(x: vk.In[vk.f32, "R C"], low: vk.Out[vk.f32, "R"], high: vk.Out[vk.f32, "R"], C: vk.Const[int]) -> None:
    wg, r = vk.workgroup(), vk.group_id(0)
    row = wg.load(x[r, 0:C])
    low[r], high[r] = wg.min(row), wg.max(row)


def test_extremes_of_special_numbers(device: Device) -> None:
    """NaN of either sign propagates, and -0 is less than +0."""
    nans, others = (
        [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF],
        [1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, 3e38, -3e38],
    )
    numbers = np.concatenate([np.array(nans, np.uint32), np.array(others, np.float32).view(np.uint32)])
    pairs = np.stack([np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))], axis=1)
    rows = np.repeat(pairs[:, :1], 100, axis=1)
    rows[:, 70] = pairs[:, 1]
    first, second = pairs.view(np.float32).T
    with vk.use_device(device):
        low, high = extremes(rows.view(np.float32), C=100)
    nan = np.isnan(first) | np.isnan(second)
    assert np.isnan(low[nan]).all()
    assert np.isnan(high[nan]).all()
    first, second = first[~nan], second[~nan]
    order = (first < second) | ((first == second) & np.signbit(first))
    for found, wanted in ((low, np.where(order, first, second)), (high, np.where(order, second, first))):
        np.testing.assert_array_equal(found[~nan].view(np.uint32), wanted.view(np.uint32))


# -- normalizations


def normalised(x: npt.NDArray[Any], center: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the normalized rows and 1 / deviation."""
    n = max(x.shape[1], 1)
    distance = x - sums(x) / n if center else x
    scale = 1 / np.sqrt(sums(distance * distance) / n + EPS)
    return distance * scale, scale


@pytest.mark.parametrize(("dtype", "center"), TYPES)
def test_norms_and_their_gradients(device: Device, dtype: Any, center: bool) -> None:
    u, total = UNIT[total_of(dtype)], total_of(dtype)
    with vk.use_device(device):
        for r, c in SIZES:
            (x, a), (g, b) = values((r, c), dtype), values((r, c), dtype, 1)
            (w, weight), (bias, added) = values((c,), dtype, 2), values((c,), dtype, 3)
            eps = number(EPS, dtype)
            y, dx = vk.zeros_like(x), vk.zeros_like(x)
            mean, scale = vk.zeros(r, dtype=total), vk.zeros(r, dtype=total)
            dw, db = vk.zeros(c, dtype=total), vk.zeros(c, dtype=total)
            if center:
                layer_norm(x, w, bias, y, eps, SIZE=64)
            else:
                rms_norm(x, w, y, eps, SIZE=64)
            norm_gradient(g, x, w, dx, mean, scale, eps, SIZE=64, CENTER=center)
            norm_parameter_gradients(g, x, mean, scale, dw, db)
            value, factor = normalised(a, center)
            # the mean is off by c units of the largest element, which `factor` magnifies
            off = u * (c + EXP) * (np.abs(value) + (np.abs(a).max(axis=1, initial=0, keepdims=True) + 1) * factor)
            check(y, value * weight + (added if center else 0), off * np.abs(weight) + u * np.abs(added), f"{r} x {c}")
            slope, n = b * weight, max(c, 1)
            rest_of_it = value * sums(slope * value) / n + (sums(slope) / n if center else 0)
            size = np.abs(slope) + (np.abs(value) + 1) * sums(np.abs(slope) * (np.abs(value) + 1)) / n
            error = (u * (c + EXP) * size + off * (size + sums(np.abs(slope)))) * factor
            check(dx, factor * (slope - rest_of_it), error, f"gradient, {r} x {c}")
            check(dw, (b * value).sum(axis=0), (np.abs(b) * (off + u * r * np.abs(value))).sum(axis=0), "weight")
            check(db, b.sum(axis=0), u * r * np.abs(b).sum(axis=0), "bias")


class RowsInTiles(vk.autograd.Function):
    """The kernels as differentiable functions on tensors, so that `check_grads` can use finite differences."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, b: Any, name: str) -> Any:
        y = vk.zeros_like(x)
        if name in ("softmax", "log_softmax"):
            (softmax if name == "softmax" else log_softmax)(x, y, SIZE=64, ACC=vk.f64)
        elif name == "layer_norm":
            layer_norm(x, w, b, y, number(EPS, vk.f64), SIZE=64)
        else:
            rms_norm(x, w, y, number(EPS, vk.f64), SIZE=64)
        ctx.name = name
        ctx.save_for_backward(x, w, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w, y = ctx.saved_tensors
        g, dx = g.contiguous(), vk.zeros_like(x)
        if "softmax" in ctx.name:
            softmax_gradient(g, y, dx, SIZE=64, LOG=ctx.name == "log_softmax", ACC=vk.f64)
            return dx, None, None, None
        mean, scale = (vk.zeros(x.shape[0], dtype=vk.f64) for _ in range(2))
        dw, db = vk.zeros_like(w), vk.zeros_like(w)
        norm_gradient(g, x, w, dx, mean, scale, number(EPS, vk.f64), SIZE=64, CENTER=ctx.name == "layer_norm")
        norm_parameter_gradients(g, x, mean, scale, dw, db)
        return dx, dw, db if ctx.name == "layer_norm" else None, None


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_gradients_against_differences(device: Device, name: str) -> None:
    if device.caps.kind != "llvm-cpu":
        pytest.skip("differences are taken in f64 on the device cpu; the other tests of this file compare devices")
    inputs = [values(shape, vk.f64, n)[1] for n, shape in enumerate([(3, 13), (13,), (13,)])]
    wrt = [0] if "softmax" in name else [0, 1, 2] if name == "layer_norm" else [0, 1]
    vk.testing.check_grads(lambda x, w, b: RowsInTiles.apply(x, w, b, name), inputs, wrt=wrt, device=device)


# -- along an axis

SHAPES = [(2, 19, 23), (1, 1, 1), (2, 16, 8), (1, 17, 9), (2, 0, 3), (3, 4, 0)]
"""Shapes for tiles of 16 along the axis and 8 across."""
OPS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def integers(shape: tuple[int, ...], dtype: Any, low: int = -3) -> npt.NDArray[Any]:
    return (
        np.random.default_rng(3).integers(max(low, 0) if dtype.numpy.kind == "u" else low, 4, shape).astype(dtype.numpy)
    )


def views(x: npt.NDArray[Any]) -> list[Any]:
    """Return the array contiguous, with an offset, with gaps, and in another order in memory."""
    wide = np.zeros((x.shape[0] + 1, x.shape[1], 2 * x.shape[2] + 1), x.dtype)
    wide[1:, :, 1::2] = x
    transposed = np.ascontiguousarray(x.transpose(2, 0, 1))
    return [vk.tensor(x), vk.tensor(wide)[1:, :, 1::2], vk.tensor(transposed).permute(1, 2, 0)]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("op", "dtype", "total"), [
    ("sum", vk.f32, vk.f32), ("sum", vk.f16, vk.f32), ("sum", vk.i8, vk.i32), ("prod", vk.f64, vk.f64),
    ("min", vk.i16, vk.i16), ("max", vk.bf16, vk.f32), ("max", vk.u8, vk.u8),
])  # fmt: skip
def test_reductions(device: Device, op: str, dtype: Any, total: Any, axis: int) -> None:
    with vk.use_device(device):
        for shape in SHAPES:
            if dtype.is_float:
                x, a = values(shape, dtype)
                y = vk.zeros((shape[0], shape[3 - axis]), dtype=total)
            else:
                a = integers(shape, dtype)
                x, y = vk.tensor(a), vk.zeros((shape[0], shape[3 - axis]), dtype=total)
            reduce(x, y, axis, op, identity(op, dtype), total, 16, 8)
            first = OPS[op].identity if op in ("sum", "prod") else identity(op, dtype)
            expected = OPS[op].reduce(a.astype(np.float64), axis=axis, initial=first)
            n, exact = shape[axis], op in ("min", "max") or not dtype.is_float
            size = np.abs(a).astype(np.float64).sum(axis=axis) if op == "sum" else np.abs(expected)
            if exact:
                np.testing.assert_array_equal(y.to(vk.f32).numpy(), expected)
            else:
                check(y, expected, UNIT[total] * n * size, f"{op} of {shape}")


@pytest.mark.parametrize("axis", [1, 2])
def test_views_of_all_kinds(device: Device, axis: int) -> None:
    a = integers((2, 21, 11), vk.f32)
    with vk.use_device(device):
        for x in views(a):
            size = (2, x.shape[3 - axis])
            y, place, line = vk.zeros(size), vk.zeros(size, dtype=vk.i32), vk.zeros(a.shape)
            reduce(x, y, axis, "sum", 0, vk.f32, 16, 8)
            arg_reduce(x, place, axis, "max", -np.inf, vk.f32, 16, 8)
            scan(x, line, axis, "sum", 0, vk.f32, 16, 8)
            np.testing.assert_array_equal(y.numpy(), a.sum(axis=axis))
            np.testing.assert_array_equal(place.numpy(), a.argmax(axis=axis))
            np.testing.assert_array_equal(line.numpy(), a.cumsum(axis=axis))


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("op", "dtype"), [("min", vk.f32), ("max", vk.i16), ("max", vk.f16)])
def test_places_of_extremes(device: Device, op: str, dtype: Any, axis: int) -> None:
    """Ties give the first index, the first NaN wins, and rows may consist of the minimum only."""
    with vk.use_device(device):
        for shape in SHAPES:
            if shape[axis] == 0:
                continue
            a = integers(shape, dtype)
            if dtype.is_float and shape[0] > 1 and a.size > 100:
                a[0, 5, 3] = a[0, 9, 3] = a[0, 5, 6] = np.nan
                a[1, 2], a[1, :, 1] = np.inf, np.inf
            y = vk.zeros((shape[0], shape[3 - axis]), dtype=vk.i64)
            arg_reduce(vk.tensor(a), y, axis, op, identity(op, dtype), dtype, 16, 8)
            np.testing.assert_array_equal(y.numpy(), getattr(np, f"arg{op}")(a, axis=axis))


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("op", "dtype", "total"), [
    ("sum", vk.f32, vk.f32), ("sum", vk.bf16, vk.f32), ("sum", vk.i16, vk.i64), ("prod", vk.f64, vk.f64), ("max", vk.f16, vk.f16),
])  # fmt: skip
def test_scans(device: Device, op: str, dtype: Any, total: Any, axis: int) -> None:
    with vk.use_device(device):
        for shape in SHAPES:
            a = integers(shape, dtype, -2) if op != "prod" else 1 + integers(shape, dtype) / 64
            y = vk.zeros(shape, dtype=total)
            scan(vk.tensor(a.astype(np.float32)).to(dtype), y, axis, op, identity(op, dtype), total, 16, 8)
            expected = OPS[op].accumulate(a.astype(np.float64), axis=axis)
            check(
                y, expected, UNIT[total] * shape[axis] * np.abs(expected) if op == "prod" else 0.0, f"{op} of {shape}"
            )


def test_blocks() -> None:
    assert tile_shape(1, 10**6) == (2048, 1)
    assert tile_shape(4096, 8192) == (64, 32)
    assert tile_shape(0, 0) == (1, 1)


# -- transposes


@pytest.mark.parametrize("dtype", [vk.f32, vk.i8, vk.f64])
def test_transposes(device: Device, dtype: Any) -> None:
    with vk.use_device(device):
        for shape in [(2, 37, 41), (1, 1, 33), (1, 32, 32), (2, 0, 3)]:
            a = integers(shape, dtype)
            for x in views(a)[:2]:
                y = vk.zeros((shape[0], shape[2], shape[1]), dtype=dtype)
                transpose(x, y)
                np.testing.assert_array_equal(y.numpy(), a.transpose(0, 2, 1))
