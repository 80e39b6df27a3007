"""Scratch memory for host functions, and summation of partial results in a fixed order.

Long sums are split over invocations that each write a partial sum. `sum_partials` adds these deterministically:
sequentially, or with a tree if there are many partial sums, few results, and the device is a GPU.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.runtime.device import Device, DeviceArray, contiguous_strides

from .registry import device_class

__all__ = [
    "accumulator_type",
    "flattened",
    "index_type",
    "is_dense",
    "scratch",
    "sum_partials",
    "sum_partials_into_two",
]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

GROUP = 256
"""Invocations of a workgroup."""
MIN_PARTS_FOR_TREE = 16
"""Minimum number of partial sums for which several invocations share a result."""
MAX_SUMS_FOR_TREE = 1 << 16
"""Maximum number of results for the tree: with more, one invocation per result keeps a GPU busy."""


def accumulator_type(dtype: DType) -> DType:
    """Return the type in which `dtype` is accumulated: f64 for f64, else f32."""
    return vk.f64 if dtype is vk.f64 else vk.f32


def index_type(*arrays: DeviceArray) -> DType:
    """Return the integer type that can index every element of each array: i32 if it is wide enough, else i64."""
    return vk.i32 if all(math.prod(a.shape) < 2**31 for a in arrays) else vk.i64


def scratch(shape: tuple[int, ...], dtype: DType, device: Device) -> DeviceArray:
    """Allocate uninitialized memory in C order."""
    size = math.prod(shape) * dtype.itemsize
    return DeviceArray(device.allocate((size + 3) & ~3), 0, dtype, shape, contiguous_strides(shape))


def is_dense(array: DeviceArray) -> bool:
    """True if the elements are contiguous in C order."""
    step = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def flattened(array: DeviceArray) -> DeviceArray:
    """Return a dense array flattened to one axis."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (math.prod(array.shape),), (1,))


@vk.kernel(over="y", debug=False)
def _sum_parts(parts: vk.In[T, "P N"], y: vk.Out[R, "N"]):
    i = vk.global_id(0)
    total = T(0)
    for p in range(parts.shape[0]):
        total += parts[p, i]
    y[i] = R(total)


@vk.func
def slice_sum(parts, i, first, step):
    """Return the sum of parts[first::step, i]; 0 past the last column."""
    total = parts.dtype(0)
    if i < parts.shape[1]:
        for p in range(first, parts.shape[0], step):
            total += parts[p, i]
    return total


@vk.func
def sum_slices(shared, lane, doublings: vk.Const[int]):
    """Tree reduction in shared memory: add the upper half of the workgroup's values to the lower half, `doublings`
    times.
    """
    for d in vk.unroll(doublings):
        vk.barrier()
        if lane < GROUP >> (d + 1):
            shared[lane] += shared[lane + (GROUP >> (d + 1))]


@vk.kernel(groups=lambda y, SLICES: vk.cdiv(y.shape[0], GROUP // SLICES), local=GROUP, debug=False)
def _sum_parts_tree(parts: vk.In[T, "P N"], y: vk.Out[R, "N"], SLICES: vk.Const[int], DOUBLINGS: vk.Const[int]):
    """Variant of `_sum_parts` in which SLICES = 2**DOUBLINGS invocations share a result.

    Each sums every SLICES-th part; a tree reduction in shared memory adds their sums.
    """
    COLUMNS = GROUP // SLICES
    shared, lane = vk.shared(T, GROUP), vk.local_id(0)
    i = vk.group_id(0) * COLUMNS + lane % COLUMNS
    shared[lane] = slice_sum(parts, i, lane // COLUMNS, SLICES)
    sum_slices(shared, lane, DOUBLINGS)
    if lane < COLUMNS and i < y.shape[0]:
        y[i] = R(shared[lane])


@vk.kernel(groups=lambda parts, SLICES: vk.cdiv(parts.shape[1], GROUP // SLICES), local=GROUP, debug=False)
def _sum_parts_of_two(
    parts: vk.In[T, "P N"], y: vk.Out[R, "Y"], z: vk.Out[R, "Z"], SLICES: vk.Const[int], DOUBLINGS: vk.Const[int]
):
    """Variant of `_sum_parts_tree` that stores the first sums to y and the remaining ones to z."""
    COLUMNS = GROUP // SLICES
    shared, lane = vk.shared(T, GROUP), vk.local_id(0)
    i, first = vk.group_id(0) * COLUMNS + lane % COLUMNS, y.shape[0]
    shared[lane] = slice_sum(parts, i, lane // COLUMNS, SLICES)
    sum_slices(shared, lane, DOUBLINGS)
    if lane < COLUMNS:
        if i < first:
            y[i] = R(shared[lane])
        elif i - first < z.shape[0]:
            z[i - first] = R(shared[lane])


def sum_partials(parts: DeviceArray, y: DeviceArray) -> None:
    """Compute y[n] = the sum of parts[:, n] in a fixed order. `y` is dense, of any shape with that many elements."""
    if 0 in y.shape:
        return
    count, length = parts.shape
    if count >= MIN_PARTS_FOR_TREE and length <= MAX_SUMS_FOR_TREE and device_class(y.device) == "gpu":
        _sum_parts_tree(parts, flattened(y), *_slices(count, length))
        return
    _sum_parts(parts, flattened(y))


def sum_partials_into_two(parts: DeviceArray, y: DeviceArray, z: DeviceArray) -> None:
    """As `sum_partials`, for GPUs: store the first sums to y and the remaining ones to z, both dense and not empty."""
    _sum_parts_of_two(parts, flattened(y), flattened(z), *_slices(*parts.shape))


def _slices(count: int, length: int) -> tuple[int, int]:
    """Return SLICES and DOUBLINGS, its log2: the number of invocations that share a result, less for many results."""
    doublings = (
        5
        if length * 8 <= MAX_SUMS_FOR_TREE and count >= 8 * MIN_PARTS_FOR_TREE
        else 3
        if count >= MIN_PARTS_FOR_TREE
        else 0
    )
    return 1 << doublings, doublings
