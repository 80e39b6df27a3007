"""The same computation in Taichi with its Vulkan back end."""

from __future__ import annotations

import sys

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
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        y[i] = a * x[i] + y[i]


x = np.arange(1000, dtype=np.float32)
y = np.ones(1000, dtype=np.float32)
saxpy(2.0, x, y)
if not np.array_equal(y, 2 * x + 1):
    sys.exit("wrong result")
