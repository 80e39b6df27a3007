"""The device "cpu" compared with NumPy, PyTorch and numba at the same thread count; results are checked first."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target, median_seconds

THREADS = 2
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
CHECKOUT = str(PROGRAMS.parent.parent)
BIG = 1 << 24


@functools.cache
def vk() -> Any:
    """Return vkjit with a device of `THREADS` threads as the default device."""
    try:
        import vkjit
        from vkjit.backends.cpu.runtime.device import CpuDevice

        vkjit.set_default_device(CpuDevice(threads=THREADS))
    except Exception as error:
        raise Absent(f"no CPU device: {error}") from error
    return vkjit


@functools.cache
def kernels() -> Any:
    vk()
    return importlib.import_module("benchmarks.cpu_kernels")


@functools.cache
def torch() -> Any:
    try:
        import torch as found
    except ImportError as error:
        raise Absent("PyTorch isn't installed") from error
    found.set_num_threads(THREADS)
    return found


@functools.cache
def numba() -> Any:
    try:
        found = importlib.import_module("benchmarks.numba_kernels")
    except ImportError as error:
        raise Absent("numba isn't installed") from error
    found.set_num_threads(THREADS)
    return found


@functools.cache
def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def tensor(values: Any) -> Any:
    return vk().from_numpy(values)


def check(found: Any, expected: Any, bound: float) -> None:
    """Check that the largest error, relative to the largest value, is below `bound`."""
    scale = float(np.abs(expected).max()) or 1.0
    error = float(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)).max()) / scale
    if not error <= bound:
        raise AssertionError(f"wrong result: relative error {error:.1e}, bound {bound:.1e}")


def seconds(function: Callable[[], object]) -> float:
    return median_seconds(function, seconds=1.0)


# -- memory-bound


@functools.cache
def _add_arrays() -> tuple[Any, ...]:
    a, b = numbers(BIG), numbers(BIG, seed=1)
    arrays = (tensor(a), tensor(b), tensor(np.empty_like(a)))
    kernels().add(*arrays)
    check(arrays[2].numpy(), a + b, 0)
    return arrays


def add_ours() -> float:
    arrays = _add_arrays()
    return 12 * BIG / seconds(lambda: kernels().add(*arrays)) / 1e9


def add_torch() -> float:
    a, b = (torch().from_numpy(numbers(BIG, seed=seed)) for seed in (0, 1))
    out = torch().empty_like(a)
    return 12 * BIG / seconds(lambda: torch().add(a, b, out=out)) / 1e9


def sum_ours() -> float:
    x = tensor(numbers(BIG))
    check(x.sum().numpy(), numbers(BIG).sum(dtype=np.float64), 1e-6)
    return 4 * BIG / seconds(lambda: x.sum()) / 1e9


def sum_torch() -> float:
    x = torch().from_numpy(numbers(BIG))
    return 4 * BIG / seconds(lambda: x.sum()) / 1e9


def softmax_ours(*, library: bool = False) -> float:
    x = numbers(4096, 1024)
    given, out = tensor(x), tensor(np.empty_like(x))
    shifted = np.exp(x - x.max(1, keepdims=True))
    if library:
        check(given.softmax(1).numpy(), shifted / shifted.sum(1, keepdims=True), 1e-6)
        return seconds(lambda: given.softmax(1)) * 1e3
    kernels().softmax(given, out)
    check(out.numpy(), shifted / shifted.sum(1, keepdims=True), 1e-6)
    return seconds(lambda: kernels().softmax(given, out)) * 1e3


def softmax_torch() -> float:
    x = torch().from_numpy(numbers(4096, 1024))
    return seconds(lambda: torch().softmax(x, 1)) * 1e3


def stencil_ours() -> float:
    x = numbers(4096, 4096)
    given, out = tensor(x), tensor(np.zeros_like(x))
    kernels().stencil(given, out)
    inner = x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    check(out.numpy()[1:-1, 1:-1], np.float32(0.2) * inner, 1e-6)
    return seconds(lambda: kernels().stencil(given, out)) * 1e3


def stencil_numba() -> float:
    x = numbers(4096, 4096)
    out = np.zeros_like(x)
    return seconds(lambda: numba().stencil(x, out)) * 1e3


# -- compute-bound

SIZE = 1024


def mandelbrot_ours() -> float:
    counts = tensor(np.zeros((SIZE, SIZE), np.int32))
    arguments = (-2.25, -1.5, 3 / SIZE, 200, counts)
    kernels().mandelbrot(*arguments)
    expected = np.zeros((SIZE, SIZE), np.int32)
    try:
        _mandelbrot_numba(expected)
    except Absent:
        expected = counts.numpy()
    if float(np.mean(counts.numpy() != expected)) > 0.01:  # points at the edge of the set differ due to rounding
        raise AssertionError("wrong result: more than 1 % of the points differ")
    return seconds(lambda: kernels().mandelbrot(*arguments)) * 1e3


def _mandelbrot_numba(counts: Any) -> None:
    f = np.float32
    numba().mandelbrot(f(-2.25), f(-1.5), f(3 / SIZE), 200, counts)


def mandelbrot_numba() -> float:
    counts = np.zeros((SIZE, SIZE), np.int32)
    return seconds(lambda: _mandelbrot_numba(counts)) * 1e3


@functools.cache
def _options() -> tuple[Any, ...]:
    rng = np.random.default_rng(6)
    spot, strike = rng.uniform(5, 30, (2, 1 << 21)).astype(np.float32)
    return spot, strike, rng.uniform(0.25, 10, 1 << 21).astype(np.float32)


def black_scholes_ours() -> float:
    given = [tensor(v) for v in _options()]
    call, put = (tensor(np.empty_like(_options()[0])) for _ in range(2))
    arguments = (*given, 0.02, 0.3, call, put)
    kernels().black_scholes(*arguments)
    spot, strike, years = (v.astype(np.float64) for v in _options())
    check(call.numpy() - put.numpy(), spot - strike * np.exp(-0.02 * years), 1e-5)  # put-call parity
    return seconds(lambda: kernels().black_scholes(*arguments)) * 1e3


def black_scholes_numba() -> float:
    given = _options()
    call, put = np.empty_like(given[0]), np.empty_like(given[0])
    rate, volatility = np.float32(0.02), np.float32(0.3)
    return seconds(lambda: numba().black_scholes(*given, rate, volatility, call, put)) * 1e3


BODIES = 8192


def nbody_ours() -> float:
    position, mass = numbers(3, BODIES), numbers(BODIES, seed=2)
    arguments = (tensor(position), tensor(mass), 0.01, tensor(np.empty_like(position)))
    kernels().nbody(*arguments)
    p, few = position.astype(np.float64), slice(0, 64)
    d = p[:, None, :] - p[:, few, None]
    expected = (mass * d * ((d**2).sum(0) + 0.01) ** -1.5).sum(-1)
    check(arguments[3].numpy()[:, few], expected, 1e-4)
    return seconds(lambda: kernels().nbody(*arguments)) * 1e3


def nbody_numba() -> float:
    position, mass = numbers(3, BODIES), numbers(BODIES, seed=2)
    out = np.empty_like(position)
    return seconds(lambda: numba().nbody(position, mass, np.float32(0.01), out)) * 1e3


# -- matrix products

FLOPS = 2 * 1024**3


def tiled_ours() -> float:
    a, b = numbers(1024, 1024), numbers(1024, 1024, seed=1)
    arguments = (tensor(a), tensor(b), tensor(np.empty_like(a)))
    launch = kernels().tiled_matmul[1024 // kernels().TILE, 1024 // kernels().TILE]
    launch(*arguments)
    check(arguments[2].numpy(), a @ b, 1e-5)
    return FLOPS / seconds(lambda: launch(*arguments)) / 1e9


def tiles_ours() -> float:
    a, b = numbers(1024, 1024), numbers(1024, 1024, seed=1)
    arguments = (tensor(a), tensor(b), tensor(np.empty_like(a)))
    kernels().tile_matmul(*arguments)
    check(arguments[2].numpy(), a @ b, 1e-5)
    return FLOPS / seconds(lambda: kernels().tile_matmul(*arguments)) / 1e9


def matmul_ours() -> float:
    a, b = numbers(1024, 1024), numbers(1024, 1024, seed=1)
    left, right = tensor(a), tensor(b)
    check((left @ right).numpy(), a @ b, 1e-5)
    return FLOPS / seconds(lambda: left @ right) / 1e9


def matmul_numpy() -> float:
    a, b = numbers(1024, 1024), numbers(1024, 1024, seed=1)
    return FLOPS / seconds(lambda: a @ b) / 1e9


def conv_ours() -> float:
    functional = importlib.import_module("vkjit.nn.functional")
    x, weight = numbers(8, 16, 64, 64), numbers(16, 16, 3, 3, seed=1)
    given = tensor(x), tensor(weight)
    try:
        expected = torch().nn.functional.conv2d(*map(torch().from_numpy, (x, weight)), padding=1).numpy()
        check(functional.conv2d(*given, padding=1).numpy(), expected, 1e-5)
    except Absent:
        pass
    return seconds(lambda: functional.conv2d(*given, padding=1)) * 1e3


def conv_torch() -> float:
    given = [torch().from_numpy(v) for v in (numbers(8, 16, 64, 64), numbers(16, 16, 3, 3, seed=1))]
    return seconds(lambda: torch().nn.functional.conv2d(*given, padding=1)) * 1e3


# -- compilation


def _printed(program: str, *arguments: str, folder: str) -> float:
    path = os.pathsep.join(part for part in (CHECKOUT, os.environ.get("PYTHONPATH", "")) if part)
    settings = os.environ | {"PYTHONPATH": path, "VKJIT_CACHE_DIR": folder}
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        raise Absent(done.stdout.strip())
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(done.stdout)


def _compile(which: str) -> float:
    vk()
    with tempfile.TemporaryDirectory() as folder:
        return min(_printed("compile_kernel.py", which, "cpu", folder=folder) for _ in range(3))


def compile_cached() -> float:
    vk()
    with tempfile.TemporaryDirectory() as folder:
        return min(_printed("compile_kernel.py", "small", "cpu", "cached", folder=folder) for _ in range(4))


def compile_numba() -> float:
    with tempfile.TemporaryDirectory() as folder:
        return min(_printed("compile_kernel_numba.py", folder=folder) for _ in range(2))


ROWS = [
    Row("add, 16M f32", "GB/s", add_ours, Target(ratio=0.9), "torch", add_torch),
    Row("sum, 16M f32", "GB/s", sum_ours, Target(ratio=0.8), "torch", sum_torch),
    Row("softmax of rows, 4096x1024", "ms", softmax_ours, Target(ratio=1.0), "torch", softmax_torch),
    Row(
        "softmax of the library, 4096x1024", "ms", lambda: softmax_ours(library=True), Target(ratio=1.0), "torch",
        softmax_torch,
    ),
    Row("5-point stencil, 4096x4096", "ms", stencil_ours, Target(ratio=0.8), "numba", stencil_numba),
    Row("mandelbrot, 1024x1024", "ms", mandelbrot_ours, Target(ratio=1.0), "numba", mandelbrot_numba),
    Row("Black-Scholes, 2M options", "ms", black_scholes_ours, Target(ratio=1.0), "numba", black_scholes_numba),
    Row("n-body, 8192", "ms", nbody_ours, Target(ratio=1.0), "numba", nbody_numba),
    Row("tiled product of a user, 1024^3", "GFLOP/s", tiled_ours, Target(value=10)),
    Row("product of tiles by a user, 1024^3", "GFLOP/s", tiles_ours, Target(ratio=0.6), "library", matmul_ours),
    Row("product of the library, 1024^3", "GFLOP/s", matmul_ours, Target(ratio=0.6), "numpy", matmul_numpy),
    Row("conv2d 8x16x64x64, k3", "ms", conv_ours, Target(ratio=1 / 3), "torch", conv_torch),
    Row("source to code, small kernel", "ms", lambda: _compile("small"), Target(value=30), "numba", compile_numba, 1),
    Row("source to code, 50 lines", "ms", lambda: _compile("fifty"), Target(value=80), rounds=1),
    Row("small kernel from the disk cache", "ms", compile_cached, Target(value=3), rounds=1),
]  # fmt: skip
