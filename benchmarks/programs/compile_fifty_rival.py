"""Print the compile time of the 50-line kernel in another compiler: the first call minus the second, in milliseconds.

The argument names the compiler: taichi, quadrants (both with their Vulkan back ends), numba or warp (on the CPU).
Another kernel is compiled first, so that the compiler itself is loaded. Exits with code 3 if the compiler isn't
installed or finds no device.
"""

# ruff: noqa: C901, PLR0915, UP018, RUF046  the kernels are as long as ours, and Warp's variables need float(0.0)
# no `from __future__ import annotations`: these compilers need evaluated annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def absent(reason: str) -> None:
    """Exit the program because the measurement isn't possible."""
    print(reason)
    sys.exit(3)


def load(name: str, package: str = "") -> Any:
    """Import and return a module; exits if it isn't installed."""
    try:
        return importlib.import_module(package or name)
    except ImportError:
        absent(f"{name} isn't installed")


def taichi_like(name: str) -> Callable[[Any, Any, int], Any]:
    """Return the kernel in Taichi, or in Quadrants, which derives from it."""
    ti = load(name)
    ti.init(arch=ti.vulkan, offline_cache=False, log_level=ti.ERROR)
    if ti.lang.impl.current_cfg().arch != ti.vulkan:
        absent(f"{name} finds no Vulkan device")

    @ti.kernel
    def warm_up(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(64):
            y[i] = x[i]

    @ti.kernel
    def fifty(x: ti.types.ndarray(), y: ti.types.ndarray(), rounds: ti.i32):
        for i in range(64):
            value = ti.cast(x[i], ti.f32)
            total = 0.0
            largest = value
            steps = 0
            for k in range(rounds):
                scaled = value * 0.5 + 1.0
                if scaled > 2.0:
                    scaled = scaled - 1.0
                    steps += 1
                elif scaled < -2.0:
                    scaled = scaled + 1.0
                    steps += 2
                else:
                    scaled = scaled * scaled
                shifted = scaled + ti.cast(k, ti.f32)
                if shifted > 100.0:
                    break
                root = ti.sqrt(abs(shifted) + 1.0)
                wave = ti.exp(-root)
                if wave < 1e-6:
                    continue
                total += wave * root
                largest = max(largest, wave)
                value = value * 0.75 + wave
            count = 0
            rest = steps
            while rest > 0:
                if rest % 2 == 1:
                    count += 1
                rest = rest // 2
            mean = total / ti.cast(max(steps, 1), ti.f32)
            inner = 0.0
            for a in range(3):
                for b in range(3):
                    weight = ti.cast(a * 3 + b, ti.f32)
                    inner += weight * value
                    if inner > 50.0:
                        inner = inner - 50.0
            lower = min(mean, largest)
            upper = max(mean, largest)
            spread = upper - lower
            if spread > 1.0:
                spread = 1.0
            ratio = inner / (spread + 1.0)
            sign = 1.0 if value >= 0.0 else -1.0
            result = sign * ratio + ti.cast(count, ti.f32)
            result = result + lower * 0.25
            result = result + upper * 0.125
            y[i] = result

    warm_up(np.ones(64, np.float32), np.ones(64, np.float32))
    return fifty


def numba() -> Callable[[Any, Any, int], Any]:
    """Return the kernel in Numba, parallel on the CPU."""
    module = load("numba")
    prange, f32 = module.prange, np.float32

    @module.njit(parallel=True)
    def warm_up(x, y):
        for i in prange(y.shape[0]):
            y[i] = x[i]

    @module.njit(parallel=True)
    def fifty(x, y, rounds):
        for i in prange(y.shape[0]):
            value = x[i]
            total = f32(0)
            largest = value
            steps = 0
            for k in range(rounds):
                scaled = value * f32(0.5) + f32(1)
                if scaled > 2.0:
                    scaled = scaled - f32(1)
                    steps += 1
                elif scaled < -2.0:
                    scaled = scaled + f32(1)
                    steps += 2
                else:
                    scaled = scaled * scaled
                shifted = scaled + f32(k)
                if shifted > 100.0:
                    break
                root = np.sqrt(abs(shifted) + f32(1))
                wave = np.exp(-root)
                if wave < 1e-6:
                    continue
                total += wave * root
                largest = max(largest, wave)
                value = value * f32(0.75) + wave
            count = 0
            rest = steps
            while rest > 0:
                if rest % 2 == 1:
                    count += 1
                rest = rest // 2
            mean = total / f32(max(steps, 1))
            inner = f32(0)
            for a in range(3):
                for b in range(3):
                    weight = f32(a * 3 + b)
                    inner += weight * value
                    if inner > 50.0:
                        inner = inner - f32(50)
            lower = min(mean, largest)
            upper = max(mean, largest)
            spread = upper - lower
            if spread > 1.0:
                spread = f32(1)
            ratio = inner / (spread + f32(1))
            sign = f32(1) if value >= 0.0 else f32(-1)
            result = sign * ratio + f32(count)
            result = result + lower * f32(0.25)
            result = result + upper * f32(0.125)
            y[i] = result

    warm_up(np.ones(64, np.float32), np.ones(64, np.float32))
    return fifty


def warp() -> Callable[[Any, Any, int], Any]:
    """Return the kernel in Warp, on the CPU, with an empty cache."""
    wp = load("warp")
    wp.config.quiet = True
    wp.config.kernel_cache_dir = tempfile.mkdtemp(prefix="warp-cache-")
    wp.init()

    @wp.kernel(module="unique")
    def warm_up(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = x[i]

    @wp.kernel(module="unique")
    def fifty(x: wp.array(dtype=float), y: wp.array(dtype=float), rounds: int):
        i = wp.tid()
        value = x[i]
        total = float(0.0)
        largest = value
        steps = int(0)
        for k in range(rounds):
            scaled = value * 0.5 + 1.0
            if scaled > 2.0:
                scaled = scaled - 1.0
                steps += 1
            elif scaled < -2.0:
                scaled = scaled + 1.0
                steps += 2
            else:
                scaled = scaled * scaled
            shifted = scaled + float(k)
            if shifted > 100.0:
                break
            root = wp.sqrt(wp.abs(shifted) + 1.0)
            wave = wp.exp(-root)
            if wave < 1.0e-6:
                continue
            total += wave * root
            largest = wp.max(largest, wave)
            value = value * 0.75 + wave
        count = int(0)
        rest = int(steps)
        while rest > 0:
            if rest % 2 == 1:
                count += 1
            rest = rest // 2
        mean = total / float(wp.max(steps, 1))
        inner = float(0.0)
        for a in range(3):
            for b in range(3):
                weight = float(a * 3 + b)
                inner += weight * value
                if inner > 50.0:
                    inner = inner - 50.0
        lower = wp.min(mean, largest)
        upper = wp.max(mean, largest)
        spread = upper - lower
        if spread > 1.0:
            spread = 1.0
        ratio = inner / (spread + 1.0)
        sign = float(-1.0)
        if value >= 0.0:
            sign = 1.0
        result = sign * ratio + float(count)
        result = result + lower * 0.25
        result = result + upper * 0.125
        y[i] = result

    def launch(x: Any, y: Any, rounds: int) -> None:
        arrays = [wp.array(values, dtype=float, device="cpu") for values in (x, y)]
        wp.launch(fifty, dim=64, inputs=[*arrays, rounds], device="cpu")
        wp.synchronize()

    arrays = [wp.zeros(64, dtype=float, device="cpu") for _ in range(2)]
    wp.launch(warm_up, dim=64, inputs=arrays, device="cpu")
    return launch


def main() -> int:
    name = sys.argv[1]
    os.environ["TI_LOG_LEVEL"] = "error"
    fifty = {"numba": numba, "warp": warp}[name]() if name in ("numba", "warp") else taichi_like(name)
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        fifty(x, y, 4)
        times.append(time.perf_counter() - start)
    print((times[0] - times[1]) * 1e3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
