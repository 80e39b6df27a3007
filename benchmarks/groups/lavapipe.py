"""Tensor operations on Mesa's software driver, compared with NumPy. Results are checked before timing.

The targets exceed what any other library reached on this driver with buffers; the fastest hand-written shaders also
read 64 bits at a time. NumPy uses the CPU's vector instructions directly, without a driver in between.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target

BIG = 1 << 24
ROWS_OF_SOFTMAX, COLUMNS_OF_SOFTMAX = 4096, 1024
SIDE = 512
ROUNDS = 7


@functools.cache
def vk() -> Any:
    """Return vkjit; raises Absent if the driver is missing."""
    import vkjit

    try:
        vkjit.device("llvmpipe")
    except vkjit.VkjitError as error:
        raise Absent(f"no llvmpipe (Debian's mesa-vulkan-drivers): {error}") from error
    return vkjit


@functools.cache
def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


@functools.cache
def tensor(*shape: int, seed: int = 0) -> Any:
    return vk().from_numpy(numbers(*shape, seed=seed), device="llvmpipe")


def min_seconds(function: Callable[[], object]) -> float:
    """Return the minimum time of several calls; interference from other processes only makes calls slower."""
    function()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def seconds(operation: Callable[[], Any]) -> float:
    """Return the minimum time of an operation, until its result is available."""

    def call() -> None:
        operation().device.synchronize()

    return min_seconds(call)


def check(found: Any, expected: Any, bound: float) -> None:
    """Check that the largest error, relative to the largest value, is at most `bound`."""
    scale = float(np.abs(expected).max()) or 1.0
    error = float(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)).max()) / scale
    if not error <= bound:
        raise AssertionError(f"wrong result: relative error {error:.1e}, bound {bound:.1e}")


# -- y = a + b


def add_ours() -> float:
    a, b = tensor(BIG), tensor(BIG, seed=1)
    check((a + b).numpy(), numbers(BIG) + numbers(BIG, seed=1), 0)
    return 12 * BIG / seconds(lambda: a + b) / 1e9


def add_numpy() -> float:
    a, b = numbers(BIG), numbers(BIG, seed=1)
    return 12 * BIG / min_seconds(lambda: a + b) / 1e9


# -- sum of all elements


def sum_ours() -> float:
    x = tensor(BIG)
    check(x.sum().numpy(), numbers(BIG).sum(dtype=np.float64), 1e-6)
    return seconds(lambda: x.sum()) * 1e3


def sum_numpy() -> float:
    x = numbers(BIG)
    return min_seconds(lambda: x.sum()) * 1e3


# -- softmax along rows


def softmax_of(x: Any) -> Any:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def softmax_ours() -> float:
    shape = (ROWS_OF_SOFTMAX, COLUMNS_OF_SOFTMAX)
    x = tensor(*shape)
    check(x.softmax(1).numpy(), softmax_of(numbers(*shape).astype(np.float64)), 1e-6)
    return seconds(lambda: x.softmax(1)) * 1e3


def softmax_numpy() -> float:
    x = numbers(ROWS_OF_SOFTMAX, COLUMNS_OF_SOFTMAX)
    return min_seconds(lambda: softmax_of(x)) * 1e3


# -- matrix product


def matmul_ours() -> float:
    a, b = tensor(SIDE, SIDE), tensor(SIDE, SIDE, seed=1)
    exact = numbers(SIDE, SIDE).astype(np.float64) @ numbers(SIDE, SIDE, seed=1).astype(np.float64)
    check((a @ b).numpy(), exact, 1e-5)
    return 2 * SIDE**3 / seconds(lambda: a @ b) / 1e9


def matmul_numpy() -> float:
    a, b = numbers(SIDE, SIDE), numbers(SIDE, SIDE, seed=1)
    return 2 * SIDE**3 / min_seconds(lambda: a @ b) / 1e9


ROWS = [
    Row("a + b, 16M f32", "GB/s", add_ours, Target(value=2.0), "numpy", add_numpy),
    Row("sum of 16M f32", "ms", sum_ours, Target(value=60), "numpy", sum_numpy),
    Row("softmax of rows, 4096x1024", "ms", softmax_ours, Target(value=25), "numpy", softmax_numpy),
    Row("matrix product, 512^3", "GFLOP/s", matmul_ours, Target(value=5), "numpy", matmul_numpy),
]
