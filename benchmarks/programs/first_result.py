"""A minimal program: import vkjit, run one kernel on the default device and check the result."""

from __future__ import annotations

import sys
from typing import TypeVar

import numpy as np

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def saxpy(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i] + y[i]


x = np.arange(1000, dtype=np.float32)
y = np.ones(1000, dtype=np.float32)
if vk.default_device().caps.kind == "interpreter":
    print("no Vulkan device on this machine")
    sys.exit(3)
saxpy(2.0, x, y)
if not np.array_equal(y, 2 * x + 1):
    sys.exit("wrong result")
