"""Bincount (histogram) and min/max of dense vectors of integers.

Class "cpu" devices count parts of the vector independently and add the counts. GPUs count in shared memory and add the tables to
the result by atomics; integer sums don't depend on the order. Values outside the bins aren't counted.
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


# -- min and max


@vk.kernel(groups=lambda parts: parts.shape[0], local=lambda SIZE: SIZE, debug=False)
def min_max_of_parts(x: vk.In[T, "N"], parts: vk.Out[R, "P two"], length: vk.i64, SIZE: vk.Const[int]):
    """parts[p] = (min, max) of part p, by one workgroup of SIZE invocations.

    A part has `length` elements; the last one may be shorter.
    """
    wg, p, lane = vk.workgroup(), vk.group_id(0), vk.local_id(0)
    begin = p * length
    stop = vk.min(begin + length, x.shape[0])
    least, greatest = R(x[begin]), R(x[begin])
    for n in range(begin + lane, stop, SIZE):
        least = vk.min(least, R(x[n]))
        greatest = vk.max(greatest, R(x[n]))
    least, greatest = wg.min(least), wg.max(greatest)
    if lane == 0:
        parts[p, 0] = least
        parts[p, 1] = greatest


@vk.kernel(groups=lambda: 1, local=lambda SIZE: SIZE, debug=False)
def min_max_of_all(parts: vk.In[T, "P two"], y: vk.Out[T, "two"], SIZE: vk.Const[int]):
    """y = (min, max) over all parts, by one workgroup of SIZE invocations."""
    wg, lane = vk.workgroup(), vk.local_id(0)
    least, greatest = parts[0, 0], parts[0, 1]
    for p in range(lane, parts.shape[0], SIZE):
        least = vk.min(least, parts[p, 0])
        greatest = vk.max(greatest, parts[p, 1])
    least, greatest = wg.min(least), wg.max(greatest)
    if lane == 0:
        y[0] = least
        y[1] = greatest


def min_max(x: DeviceArray) -> DeviceArray:
    """Return the min and the max of a nonempty vector as two elements of i32, i64 or u64."""
    size, min_length = choose("ends", x.device)(x)
    count = x.shape[0]
    length = max(min_length, -(-count // 1024))
    result_type = vk.u64 if x.dtype is vk.u64 else vk.i64 if x.dtype.bits == 64 or x.dtype is vk.u32 else vk.i32
    parts = scratch((-(-count // length), 2), result_type, x.device)
    min_max_of_parts(x, parts, length, size)
    y = scratch((2,), result_type, x.device)
    min_max_of_all(parts, y, size)
    return y


@variant("ends", "gpu")
def _ends_gpu(x: DeviceArray) -> tuple[int, int]:  # noqa: ARG001  # all variants have the same signature
    return GROUP, 16 * GROUP


@variant("ends", "cpu")
def _ends_cpu(x: DeviceArray) -> tuple[int, int]:
    """Return (invocations of a workgroup, minimum number of elements per part)."""
    return x.device.caps.subgroup_size, MAX_CPU_ITERATIONS


# -- counts


@vk.kernel(groups=lambda parts: parts.shape[0], local=1, debug=False)
def count_parts(x: vk.In[T, "N"], parts: vk.Out[vk.i64, "P B"], length: vk.i64):
    """parts[p, b] = the number of occurrences of b in part p, which has `length` elements; one invocation per part."""
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
    """Add the number of occurrences of each bin b in x to y[b].

    A workgroup counts `length` elements; y has at most MAX_BINS bins.
    """
    table = vk.shared(vk.i32, MAX_BINS)
    lane, bins = vk.local_id(0), y.shape[0]
    for b in range(lane, bins, GROUP):
        table[b] = vk.i32(0)
    vk.barrier()
    begin = vk.i64(vk.group_id(0)) * length
    for n in range(begin + vk.i64(lane), vk.min(begin + length, vk.i64(x.shape[0])), GROUP):
        b = vk.i64(x[n])
        if b >= 0 and b < vk.i64(bins):
            vk.atomic.add(table, b, 1)
    vk.barrier()
    for b in range(lane, bins, GROUP):
        if table[b] > 0:
            vk.atomic.add(y, b, table[b])


def supports_bincount(x: DeviceArray, bins: int) -> bool:
    """True if `bincount` supports the vector and number of bins on its device; only LLVM CPU devices have no limit."""
    return bool(choose("counts_fit", x.device)(x, bins))


def bincount(x: DeviceArray, bins: int) -> DeviceArray:
    """Return the number of occurrences of each of 0 ... bins - 1 (i64 on class "cpu", i32 on GPUs)."""
    counts: DeviceArray = choose("count_numbers", x.device)(x, bins)
    return counts


def _length(x: DeviceArray, bins: int) -> int:
    """Return the elements per part, each counted by one invocation of a class "cpu" device."""
    if x.device.caps.kind == "llvm-cpu":
        return max(2 * bins, 1 << 14, -(-x.shape[0] // 64))
    return MAX_CPU_ITERATIONS // 2


@variant("counts_fit", "cpu")
def _fits_cpu(x: DeviceArray, bins: int) -> bool:
    if x.device.caps.kind == "llvm-cpu":
        return True
    return bins <= MAX_CPU_ITERATIONS // 2 and -(-x.shape[0] // _length(x, bins)) * bins <= 4 * x.shape[0]


@variant("count_numbers", "cpu")
def _count_cpu(x: DeviceArray, bins: int) -> DeviceArray:
    length = _length(x, bins)
    parts = scratch((-(-x.shape[0] // length), bins), vk.i64, x.device)
    count_parts(x, parts, length)
    if parts.shape[0] == 1:
        return DeviceArray(parts.buffer, parts.offset, vk.i64, (bins,), (1,))
    y = scratch((bins,), vk.i64, x.device)
    sum_partials(parts, y)
    return y


@variant("counts_fit", "gpu")
def _fits_gpu(x: DeviceArray, bins: int) -> bool:
    return bins <= MAX_BINS and x.shape[0] < 2**31


@variant("count_numbers", "gpu")
def _count_gpu(x: DeviceArray, bins: int) -> DeviceArray:
    y = scratch((bins,), vk.i32, x.device)
    fill(vk.i64)(0, y)
    count_shared(x, y, max(16 * GROUP, -(-x.shape[0] // 1024)))
    return y
