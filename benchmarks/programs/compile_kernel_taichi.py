"""Print the milliseconds of Taichi's first call of a kernel minus those of the second, with its Vulkan back end."""

from __future__ import annotations

import sys
import time

import numpy as np

try:
    import taichi as ti
except ImportError:
    print("taichi isn't installed")
    sys.exit(3)

ti.init(arch=ti.vulkan, offline_cache=False, log_level=ti.ERROR)
if ti.lang.impl.current_cfg().arch != ti.vulkan:
    print("taichi finds no Vulkan device")
    sys.exit(3)


@ti.kernel
def warm_up(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        y[i] = x[i]


@ti.kernel
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        y[i] = a * x[i] + y[i]


x = np.ones(64, dtype=np.float32)
y = np.zeros(64, dtype=np.float32)
warm_up(x, y)
start = time.perf_counter()
saxpy(2.0, x, y)
first = time.perf_counter()
saxpy(2.0, x, y)
second = time.perf_counter()
print(((first - start) - (second - first)) * 1e3)
