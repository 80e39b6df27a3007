"""Scratch memory of host functions, and sums of partial results in a fixed order.

Long sums are split over invocations that each write a partial sum; `sum_parts` adds these up in order, so that results are the
same every time.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.runtime.interface import Device, DeviceArray, contiguous_strides

__all__ = ["accumulator", "dense", "flat", "index_type", "scratch", "sum_parts"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


def accumulator(dtype: DType) -> DType:
    """The type that sums of `dtype` are kept in: f64 for f64, else f32."""
    return vk.f64 if dtype is vk.f64 else vk.f32


def index_type(*arrays: DeviceArray) -> DType:
    """The integer type that counts the elements of each array: i32 where it is wide enough."""
    return vk.i32 if all(math.prod(a.shape) < 2**31 for a in arrays) else vk.i64


def scratch(shape: tuple[int, ...], dtype: DType, device: Device) -> DeviceArray:
    """Uninitialised memory in C order."""
    size = math.prod(shape) * dtype.itemsize
    return DeviceArray(device.allocate((size + 3) & ~3), 0, dtype, shape, contiguous_strides(shape))


def dense(array: DeviceArray) -> bool:
    """Whether the elements lie in C order without gaps."""
    step = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def flat(array: DeviceArray) -> DeviceArray:
    """A dense array as one axis."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (math.prod(array.shape),), (1,))


@vk.kernel(over="y", debug=False)
def _sum_parts(parts: vk.In[T, "P N"], y: vk.Out[R, "N"]):
    i = vk.global_id(0)
    total = T(0)
    for p in range(parts.shape[0]):
        total += parts[p, i]
    y[i] = R(total)


def sum_parts(parts: DeviceArray, y: DeviceArray) -> None:
    """y[n] = the sum of parts[:, n] in order. `y` is dense, of any shape with that many elements."""
    if 0 not in y.shape:
        _sum_parts(parts, flat(y))
