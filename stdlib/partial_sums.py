"""Summation of partial sums in a fixed order, and array helpers of the standard library's host functions.

Kernels split a long sum over invocations, each of which writes a partial sum. `sum_partials` adds the partial sums of
each result in an order that depends only on their shape, so results are reproducible: one invocation adds them
sequentially, or, on GPUs with many partial sums and few results, several invocations share a result.

The kernels that let several invocations share a result (`_sum_parts_tree`, `_sum_parts_of_two`) have two constants.
SLICES is the number of invocations per result, and SLICES = 2**DOUBLINGS. A slice consists of the partial sums that one
of these invocations adds: every SLICES-th one. `thread` is an invocation's index in the workgroup. T is the type of
partial sums, R that of results.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.runtime.array import ROW_ALIGNMENT
from vkjit.runtime.device import Device, DeviceArray, contiguous_strides

from .registry import device_class

__all__ = [
    "accumulator_type",
    "flattened",
    "index_type",
    "is_dense",
    "placeholder",
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


def placeholder(array: DeviceArray, dtype: DType | None = None) -> DeviceArray:
    """Return an empty vector at the array's memory, for an argument that a constant of the kernel switches off.

    Being empty, it overlaps no output, so that the compiler may still assume that arrays don't alias.
    """
    # aligned, as arrays usually are: the alignment of an argument is part of a kernel's specialization
    return DeviceArray(array.buffer, array.offset - array.offset % ROW_ALIGNMENT, dtype or array.dtype, (0,), (1,))


def scratch(shape: tuple[int, ...], dtype: DType, device: Device) -> DeviceArray:
    """Allocate an uninitialized array in C order; its memory is rounded up to a multiple of 4 bytes."""
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
    """Return a view of a dense array with one axis."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (math.prod(array.shape),), (1,))


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(over="y", debug=False)
def _sum_parts(parts: vk.In[T, "P N"], y: vk.Out[R, "N"]):
    """y[n] = the sum of parts[:, n], by one invocation per result."""
    i = vk.global_id(0)
    total = T(0)
    for p in range(parts.shape[0]):
        total += parts[p, i]
    y[i] = R(total)


@vk.func
def slice_sum(parts, i, first, step):
    """Return the sum of parts[first::step, i], or 0 if column i doesn't exist."""
    total = parts.dtype(0)
    if i < parts.shape[1]:
        for p in range(first, parts.shape[0], step):
            total += parts[p, i]
    return total


@vk.func
def sum_slices(shared, thread, levels: vk.Const[int]):
    """Reduce the GROUP values in `shared` to n = GROUP / 2**levels sums: shared[i] = shared[i] + shared[i + n] + ...

    In each of `levels` steps the upper half of the remaining values is added to the lower half.
    """
    for d in vk.unroll(levels):
        vk.barrier()
        if thread < GROUP >> (d + 1):
            shared[thread] += shared[thread + (GROUP >> (d + 1))]


@vk.kernel(groups=lambda y, SLICES: vk.cdiv(y.shape[0], GROUP // SLICES), local=GROUP, debug=False)
def _sum_parts_tree(parts: vk.In[T, "P N"], y: vk.Out[R, "N"], SLICES: vk.Const[int], DOUBLINGS: vk.Const[int]):
    """y[n] = the sum of parts[:, n]; SLICES invocations share a result.

    Each of them adds every SLICES-th part; a tree reduction in shared memory then adds the SLICES sums of a result.
    """
    COLUMNS = GROUP // SLICES  # results per workgroup
    shared, thread = vk.shared(T, GROUP), vk.local_id(0)
    # the invocations thread, thread + COLUMNS, thread + 2 * COLUMNS... share result i
    i = vk.group_id(0) * COLUMNS + thread % COLUMNS
    shared[thread] = slice_sum(parts, i, thread // COLUMNS, SLICES)
    sum_slices(shared, thread, DOUBLINGS)
    if thread < COLUMNS and i < y.shape[0]:
        y[i] = R(shared[thread])


@vk.kernel(groups=lambda parts, SLICES: vk.cdiv(parts.shape[1], GROUP // SLICES), local=GROUP, debug=False)
def _sum_parts_of_two(
    parts: vk.In[T, "P N"], y: vk.Out[R, "Y"], z: vk.Out[R, "Z"], SLICES: vk.Const[int], DOUBLINGS: vk.Const[int]
):
    """Variant of `_sum_parts_tree` that stores the first Y sums to y and the next Z sums to z."""
    COLUMNS = GROUP // SLICES
    shared, thread = vk.shared(T, GROUP), vk.local_id(0)
    i, y_length = vk.group_id(0) * COLUMNS + thread % COLUMNS, y.shape[0]
    shared[thread] = slice_sum(parts, i, thread // COLUMNS, SLICES)
    sum_slices(shared, thread, DOUBLINGS)
    if thread < COLUMNS:
        if i < y_length:
            y[i] = R(shared[thread])
        elif i - y_length < z.shape[0]:
            z[i - y_length] = R(shared[thread])


def sum_partials(parts: DeviceArray, y: DeviceArray) -> None:
    """Compute y[n] = the sum of parts[:, n] in a fixed order.

    `parts` is (P, N); `y` is dense, of any shape with N elements.
    """
    if 0 in y.shape:
        return
    count, length = parts.shape
    if count >= MIN_PARTS_FOR_TREE and length <= MAX_SUMS_FOR_TREE and device_class(y.device) == "gpu":
        _sum_parts_tree(parts, flattened(y), *_slices(count, length))
        return
    _sum_parts(parts, flattened(y))


def sum_partials_into_two(parts: DeviceArray, y: DeviceArray, z: DeviceArray) -> None:
    """Sum parts (P, N) over the first axis and store the first sums to y and the remaining ones to z; for GPUs.

    y and z are dense and not empty, with N elements together.
    """
    _sum_parts_of_two(parts, flattened(y), flattened(z), *_slices(*parts.shape))


def _slices(count: int, length: int) -> tuple[int, int]:
    """Return (SLICES, DOUBLINGS) for `count` parts of `length` results: fewer slices for few parts or many results."""
    if count >= 8 * MIN_PARTS_FOR_TREE and length * 8 <= MAX_SUMS_FOR_TREE:
        doublings = 5
    elif count >= MIN_PARTS_FOR_TREE:
        doublings = 3
    else:
        doublings = 0
    return 1 << doublings, doublings
