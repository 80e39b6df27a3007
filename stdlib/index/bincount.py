"""Bincount (histogram) and min/max of dense vectors of integers.

`bincount` counts how often each of the values 0 ... bins - 1 occurs; other values aren't counted. Devices of class
"cpu" split the vector into parts of `length` elements, count each part on its own, and add the counts. On GPUs each
workgroup counts a part in shared memory and adds its counts to the result by atomics, which is deterministic for
integers. The tensor operations call `min_max` first to find the number of bins.

In the kernels, T is the type of x, R the type in which `min_max` computes, and `thread` an invocation's index in the
workgroup.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.elementwise.maps import fill
from vkjit.stdlib.partial_sums import scratch, sum_partials
from vkjit.stdlib.registry import MAX_CPU_ITERATIONS, choose, variant

__all__ = ["bincount", "min_max", "supports_bincount"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

MAX_BINS = 4096
"""Maximum number of bins on GPUs: the size of the table in shared memory."""
GROUP = 256
"""Invocations of a workgroup on GPUs."""
MIN_GPU_PART = 16 * GROUP
"""Minimum number of elements per part on GPUs: 16 per invocation."""
MAX_PARTS = 1024
"""Maximum number of parts in `min_max`, and of `bincount` on GPUs: enough to occupy a device."""
MIN_LLVM_PART = 1 << 14
"""Minimum number of elements per part of `bincount` on "llvm-cpu"."""
MAX_LLVM_PARTS = 64
"""Maximum number of parts of `bincount` on "llvm-cpu", where each part is processed by one thread."""


# -- min and max


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda parts: parts.shape[0], local=lambda SIZE: SIZE, debug=False)
def min_max_of_parts(x: vk.In[T, "N"], parts: vk.Out[R, "P two"], length: vk.i64, SIZE: vk.Const[int]):
    """parts[p] = (min, max) of part p, by one workgroup of SIZE invocations.

    A part has `length` elements; the last part may be shorter.
    """
    wg, p, thread = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    begin = p * length
    stop = vk.min(begin + length, x.shape[0])
    minimum, maximum = R(x[begin]), R(x[begin])
    for n in range(begin + thread, stop, SIZE):
        minimum = vk.min(minimum, R(x[n]))
        maximum = vk.max(maximum, R(x[n]))
    minimum, maximum = wg.min(minimum), wg.max(maximum)
    if thread == 0:
        parts[p, 0] = minimum
        parts[p, 1] = maximum


@vk.kernel(groups=lambda: 1, local=lambda SIZE: SIZE, debug=False)
def min_max_of_all(parts: vk.In[T, "P two"], y: vk.Out[T, "two"], SIZE: vk.Const[int]):
    """y = (min, max) over all parts, by one workgroup of SIZE invocations."""
    wg, thread = vk.workgroup(), vk.local_id(0)
    minimum, maximum = parts[0, 0], parts[0, 1]
    for p in range(thread, parts.shape[0], SIZE):
        minimum = vk.min(minimum, parts[p, 0])
        maximum = vk.max(maximum, parts[p, 1])
    minimum, maximum = wg.min(minimum), wg.max(maximum)
    if thread == 0:
        y[0] = minimum
        y[1] = maximum


def min_max(x: DeviceArray) -> DeviceArray:
    """Return the min and the max of a nonempty vector, as an array of two elements.

    The result has a type that can represent any value of x: i32, i64 or u64.
    """
    size, min_length = choose("min_max_sizes", x.device)(x)
    count = x.shape[0]
    length = max(min_length, -(-count // MAX_PARTS))
    result_type = vk.u64 if x.dtype is vk.u64 else vk.i64 if x.dtype.bits == 64 or x.dtype is vk.u32 else vk.i32
    parts = scratch((-(-count // length), 2), result_type, x.device)
    min_max_of_parts(x, parts, length, size)
    y = scratch((2,), result_type, x.device)
    min_max_of_all(parts, y, size)
    return y


@variant("min_max_sizes", "gpu")
def _min_max_sizes_gpu(x: DeviceArray) -> tuple[int, int]:  # noqa: ARG001  # all variants have the same signature
    """Return the number of invocations per workgroup and the minimum number of elements per part, for `min_max`."""
    return GROUP, MIN_GPU_PART


@variant("min_max_sizes", "cpu")
def _min_max_sizes_cpu(x: DeviceArray) -> tuple[int, int]:
    """Return the number of invocations per workgroup and the minimum number of elements per part, for `min_max`."""
    return x.device.caps.subgroup_size, MAX_CPU_ITERATIONS


# -- counts


@vk.kernel(groups=lambda parts: parts.shape[0], local=1, debug=False)
def count_parts(x: vk.In[T, "N"], parts: vk.Out[vk.i64, "P B"], length: vk.i64):
    """parts[p, b] = the number of occurrences of the value b in part p of x, by one invocation per part.

    A part has `length` elements; the last part may be shorter.
    """
    p, bins = vk.group_id(0), vk.i64(parts.shape[1])
    for b in range(bins):
        parts[p, b] = vk.i64(0)
    begin = vk.i64(p) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        b = vk.i64(x[n])
        if b >= 0 and b < bins:
            parts[p, b] += 1


@vk.kernel(groups=lambda x, length: vk.cdiv(x.shape[0], length), local=GROUP, debug=False)
def count_shared(x: vk.In[T, "N"], y: vk.InOut[vk.i32, "B"], length: vk.i64):
    """Add the number of occurrences of each value b in x to y[b], for b < B, the number of bins (at most MAX_BINS).

    A workgroup counts a part of `length` elements.
    """
    table = vk.shared(vk.i32, MAX_BINS)
    thread, bins = vk.local_id(0), y.shape[0]
    for b in range(thread, bins, GROUP):
        table[b] = vk.i32(0)
    vk.barrier()
    begin = vk.i64(vk.group_id(0)) * length
    for n in range(begin + vk.i64(thread), vk.min(begin + length, vk.i64(x.shape[0])), GROUP):
        b = vk.i64(x[n])
        if b >= 0 and b < vk.i64(bins):
            vk.atomic.add(table, b, 1)
    vk.barrier()
    for b in range(thread, bins, GROUP):
        if table[b] > 0:
            vk.atomic.add(y, b, table[b])


def supports_bincount(x: DeviceArray, bins: int) -> bool:
    """True if `bincount` supports this vector and number of bins on its device; "llvm-cpu" has no limit."""
    return bool(choose("counts_fit", x.device)(x, bins))


def bincount(x: DeviceArray, bins: int) -> DeviceArray:
    """Return the number of occurrences in x of each value 0 ... bins - 1: i64 on class "cpu", i32 on GPUs."""
    counts: DeviceArray = choose("count_numbers", x.device)(x, bins)
    return counts


def _part_length(x: DeviceArray, bins: int) -> int:
    """Return the number of elements per part for `count_parts`, which runs on class "cpu".

    "llvm-cpu" has no limit of iterations; parts are long enough that clearing and adding up their counts, one per bin,
    costs less than counting. On the other devices, an invocation loops over the bins and over its part, so each of the
    two loops gets half of the iterations.
    """
    if x.device.caps.kind == "llvm-cpu":
        return max(2 * bins, MIN_LLVM_PART, -(-x.shape[0] // MAX_LLVM_PARTS))
    return MAX_CPU_ITERATIONS // 2


@variant("counts_fit", "cpu")
def _fits_cpu(x: DeviceArray, bins: int) -> bool:
    """True if the loop over the bins is short enough, and all parts together have at most 4 counts per element of x."""
    if x.device.caps.kind == "llvm-cpu":
        return True
    part_count = -(-x.shape[0] // _part_length(x, bins))
    return bins <= MAX_CPU_ITERATIONS // 2 and part_count * bins <= 4 * x.shape[0]


@variant("count_numbers", "cpu")
def _count_cpu(x: DeviceArray, bins: int) -> DeviceArray:
    length = _part_length(x, bins)
    parts = scratch((-(-x.shape[0] // length), bins), vk.i64, x.device)
    count_parts(x, parts, length)
    if parts.shape[0] == 1:  # its counts are the result
        return DeviceArray(parts.buffer, parts.offset, vk.i64, (bins,), (1,))
    y = scratch((bins,), vk.i64, x.device)
    sum_partials(parts, y)
    return y


@variant("counts_fit", "gpu")
def _fits_gpu(x: DeviceArray, bins: int) -> bool:
    """True if the counts fit in shared memory and can't overflow i32."""
    return bins <= MAX_BINS and x.shape[0] < 2**31


@variant("count_numbers", "gpu")
def _count_gpu(x: DeviceArray, bins: int) -> DeviceArray:
    y = scratch((bins,), vk.i32, x.device)
    fill(vk.i64)(0, y)
    count_shared(x, y, max(MIN_GPU_PART, -(-x.shape[0] // MAX_PARTS)))
    return y
