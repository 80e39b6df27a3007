"""Print the compile time of a kernel (`small` or `fifty`) in milliseconds, from source to code.

The result is the median of nine compilations, each of which rereads the source; the kernel is compiled once before. A
second argument names the device ("cpu": LLVM); by default, the first Vulkan device is used (SPIR-V). With `cached` as
the third argument, the kernel's code comes from the disk cache, and the result is the time of the first launch minus
that of the second.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TypeVar

CACHED = "cached" in sys.argv
os.environ["VKJIT_CACHE"] = "1" if CACHED else "0"
os.environ["VKJIT_SPIRV_VAL"] = "0"

import numpy as np

import vkjit as vk
from vkjit.compiler import driver
from vkjit.frontend import source

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def warm_up(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


@vk.kernel(over="y")
def small(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i] + y[i]


@vk.kernel(over="y")
def fifty(x: vk.In[T, "N"], y: vk.InOut[T, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    value = vk.f32(x[i])
    total = vk.f32(0)
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
        shifted = scaled + vk.f32(k)
        if shifted > 100.0:
            break
        root = vk.sqrt(abs(shifted) + 1.0)
        wave = vk.exp(-root)
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
    mean = total / vk.f32(max(steps, 1))
    inner = vk.f32(0)
    for a in range(3):
        for b in range(3):
            weight = vk.f32(a * 3 + b)
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
    result = sign * ratio + vk.f32(count)
    result = result + lower * 0.25
    result = result + upper * 0.125
    y[i] = result


def spent() -> float:
    """Return the milliseconds this process has spent compiling."""
    return driver.TIMES.frontend + driver.TIMES.passes + driver.TIMES.emit


def choose_device() -> bool:
    """Set the requested device as the default; False if it isn't present."""
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    for info in vk.devices():
        if info.name == wanted or (not wanted and info.kind not in ("llvm-cpu", "interpreter") and not info.missing):
            vk.set_default_device(info.index)
            return True
    print(f"no device {wanted or 'of a Vulkan driver'} on this machine")
    return False


def main() -> int:
    """Compile a warm-up kernel, so that the compiler itself is loaded, then measure the requested one."""
    x = np.ones(64, dtype=np.float32)
    y = np.zeros(64, dtype=np.float32)
    if not choose_device():
        return 3
    warm_up(x, y)

    def launch() -> None:
        if sys.argv[1] == "small":
            small(2.0, x, y)
        else:
            fifty(x, y, 4)

    start = time.perf_counter()
    launch()
    first = time.perf_counter() - start
    launch()
    second = time.perf_counter() - start - first
    print((first - second) * 1e3 if CACHED else compilations(small if sys.argv[1] == "small" else fifty))
    return 0


def compilations(kernel: vk.Kernel) -> float:
    """Return the median time of nine compilations for the signature of the kernel's launch."""
    times = []
    for _ in range(9):
        source._SOURCES.clear()
        before = spent()
        code, *_ = kernel._plans.values()
        driver.compile_kernel(kernel.spec, code.signature, code.plan.device.caps)
        times.append(spent() - before)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
