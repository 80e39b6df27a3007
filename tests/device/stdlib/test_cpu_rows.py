"""Row kernels on the CPU device: loops over vectors, exponentials kept between loops, reductions of several vectors.
The results match the interpreter's bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.interp.runtime.device import InterpreterDevice
from vkjit.runtime.device import Device

cpu_device = pytest.importorskip("vkjit.backends.cpu.runtime.device")
pytest.importorskip("llvmlite")

LENGTHS = (0, 1, 15, 255, 256, 257, 1000, 1024)


@vk.kernel(groups=lambda x: x.shape[0], local=lambda SIZE: SIZE)
def softmax(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"], SIZE: vk.Const[int]):
    wg, r = vk.workgroup(), vk.group_id(0)
    row = vk.f32(x[r, :])
    e = vk.exp(row - wg.max(row))
    wg.store(y[r, :], e / wg.sum(e))


@vk.kernel(groups=lambda x: x.shape[0], local=lambda SIZE: SIZE, strict=True)
def statistics(
    x: vk.In[vk.f32, "R C"],
    n: vk.In[vk.i32, "R C"],
    d: vk.In[vk.f64, "R C"],
    f: vk.Out[vk.f32, "R 3"],
    i: vk.Out[vk.i32, "R 3"],
    g: vk.Out[vk.f64, "R 3"],
    SIZE: vk.Const[int],
):
    wg, r = vk.workgroup(), vk.group_id(0)
    a, b, c = wg.sum(x[r, :]), wg.min(x[r, :]), wg.max(x[r, :])
    s, t, u = wg.sum(n[r, :]), wg.min(n[r, :]), wg.max(n[r, :])
    v, w, z = wg.sum(d[r, :]), wg.min(d[r, :]), wg.max(d[r, :])
    if wg.rank() == 0:
        f[r, 0], f[r, 1], f[r, 2] = a, b, c
        i[r, 0], i[r, 1], i[r, 2] = s, t, u
        g[r, 0], g[r, 1], g[r, 2] = v, w, z


@pytest.fixture(scope="module")
def cpu() -> Device:
    device: Device = cpu_device.CpuDevice(threads=2)
    return device


@pytest.mark.parametrize("size", [16, 48, 64, 256, 512])
def test_bits_are_the_interpreters(cpu: Device, size: int) -> None:
    rng = np.random.default_rng(size)
    for length in LENGTHS[::3] if size != 256 else LENGTHS:
        x = rng.standard_normal((3, length)).astype(np.float32)
        n = rng.integers(-(2**31), 2**31, (3, length), dtype=np.int32)
        d = rng.standard_normal((3, length))
        if length > 2:
            x[1, 2], d[1, 2] = np.nan, -np.inf
            x[2, :] = np.where(np.arange(length) % 2, np.float32(-0.0), np.float32(0.0))
        found = []
        for device in (cpu, InterpreterDevice()):
            with vk.use_device(device):
                found.append(statistics(x, n, d, SIZE=size))
        for a, b in zip(*found, strict=True):
            assert np.array_equal(np.isnan(a), np.isnan(b))
            assert np.where(np.isnan(a), 0, a).tobytes() == np.where(np.isnan(b), 0, b).tobytes(), length


@pytest.mark.parametrize("length", [*LENGTHS[1:], 8191, 8193, 20000])
def test_softmax(cpu: Device, length: int) -> None:
    x = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32) * 30
    with vk.use_device(cpu):
        y = softmax(x, SIZE=256)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)


def test_rows_of_different_lengths_are_not_held(cpu: Device) -> None:
    """Exponentials aren't kept if the second loop may run longer than the first."""

    @vk.kernel(groups=lambda x: x.shape[0], local=256)
    def longer(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"], part: vk.i32):
        wg, r = vk.workgroup(), vk.group_id(0)
        total = wg.sum(vk.exp(x[r, 0:part]))
        wg.store(y[r, :], vk.exp(x[r, :]) / total)

    x = np.random.default_rng(5).standard_normal((2, 1000)).astype(np.float32)
    with vk.use_device(cpu):
        for part in (1, 300, 999, 1000):
            y = longer(x, part=part)
            e = np.exp(x.astype(np.float64))
            assert np.allclose(y, e / e[:, :part].sum(1, keepdims=True), rtol=1e-5), part


@pytest.mark.parametrize("divisor", [3.0, 2.0**127, -(2.0**-127), 2.0**-140, np.inf, 0.0, np.nan])
def test_divisors_of_all_sizes(cpu: Device, divisor: float) -> None:
    """Repeated division by a constant multiplies by its reciprocal if that is a normal number."""

    @vk.kernel(groups=lambda x: x.shape[0], local=64)
    def divided(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"], by: vk.f32):
        wg, r = vk.workgroup(), vk.group_id(0)
        wg.store(y[r, :], x[r, :] / by)

    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-38, 3e38, 1.0, -7.0]
    x = np.array([special * 30], dtype=np.float32)
    with vk.use_device(cpu):
        y = divided(x, by=divisor)
    with np.errstate(all="ignore"):
        exact = x / np.float32(divisor)
    assert np.array_equal(np.isnan(y), np.isnan(exact))
    good = np.isfinite(exact)
    assert np.array_equal(y[~good & ~np.isnan(y)], exact[~good & ~np.isnan(y)])
    assert np.array_equal(np.signbit(y[~np.isnan(y)]), np.signbit(exact[~np.isnan(y)]))
    assert np.all(np.abs(y[good] - exact[good]) <= 2.5 * np.spacing(np.abs(exact[good])))


def test_large_results_go_past_the_caches(cpu: Device) -> None:
    """Aligned results of more than 32 MiB use streaming stores, except for the last vector; unaligned views don't."""

    @vk.kernel(over="y")
    def doubled(x: vk.In[vk.u8, "N"], y: vk.Out[vk.f64, "N"]):
        i = vk.global_id(0)
        y[i] = vk.f64(x[i]) * 2.0

    count = (1 << 22) + 21
    x = np.random.default_rng(1).integers(0, 256, count, dtype=np.uint8)
    with vk.use_device(cpu):
        assert np.array_equal(doubled(x), x * 2.0)
        out = np.full(count + 1, -1.0)
        doubled(x, out[1:])
        assert np.array_equal(out[1:], x * 2.0)
        assert out[0] == -1.0
