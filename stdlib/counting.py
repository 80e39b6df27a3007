"""How often whole numbers occur, and between which they lie.

Enters: a vector of integers without gaps. Leaves: counts (i64) of 0, 1, 2...; the least and the greatest element. Counts are
whole numbers, so that they are the same in any order: processors count parts of the vector side by side, a GPU counts parts in
shared memory and adds these up by atomics. Numbers outside the bins aren't counted.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib.elementwise import fill
from vkjit.stdlib.partial import scratch, sum_parts
from vkjit.stdlib.registry import CPU_LOOP, choose, variant

__all__ = ["count_numbers", "counts_fit", "ends"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

TABLE = 4096
"""Bins that a workgroup of a GPU counts in shared memory."""
SIDE = 256
"""Invocations of such a workgroup."""


# -- the least and the greatest


@vk.kernel(groups=lambda parts: parts.shape[0], local=lambda SIZE: SIZE, debug=False)
def ends_of_parts(x: vk.In[T, "N"], parts: vk.Out[R, "P two"], length: vk.i64, SIZE: vk.Const[int]):
    """The ends of each part of `length` elements; the last one may be shorter."""
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
def ends_of_ends(parts: vk.In[T, "P two"], y: vk.Out[T, "two"], SIZE: vk.Const[int]):
    """The ends of all parts."""
    wg, lane = vk.workgroup(), vk.local_id(0)
    least, greatest = parts[0, 0], parts[0, 1]
    for p in range(lane, parts.shape[0], SIZE):
        least = vk.min(least, parts[p, 0])
        greatest = vk.max(greatest, parts[p, 1])
    least, greatest = wg.min(least), wg.max(greatest)
    if lane == 0:
        y[0] = least
        y[1] = greatest


def ends(x: DeviceArray) -> DeviceArray:
    """The least and the greatest of a vector that isn't empty, as two elements of i32, i64 or u64."""
    size, most = choose("ends", x.device)(x)
    count = x.shape[0]
    length = max(most, -(-count // 1024))
    wide = vk.u64 if x.dtype is vk.u64 else vk.i64 if x.dtype.bits == 64 or x.dtype is vk.u32 else vk.i32
    parts = scratch((-(-count // length), 2), wide, x.device)
    ends_of_parts(x, parts, length, size)
    y = scratch((2,), wide, x.device)
    ends_of_ends(parts, y, size)
    return y


@variant("ends", "gpu")
def _ends_gpu(x: DeviceArray) -> tuple[int, int]:  # noqa: ARG001  # all variants take the same
    return SIDE, 16 * SIDE


@variant("ends", "cpu")
def _ends_cpu(x: DeviceArray) -> tuple[int, int]:
    """Invocations of a workgroup, and elements of a part."""
    return x.device.caps.subgroup_size, CPU_LOOP


# -- counts


@vk.kernel(groups=lambda parts: parts.shape[0], local=1, debug=False)
def count_parts(x: vk.In[T, "N"], parts: vk.Out[vk.i64, "P B"], length: vk.i64):
    """parts[p, b] = how often b occurs in part p, of `length` elements."""
    p, bins = vk.group_id(0), vk.i64(parts.shape[1])
    for b in range(bins):
        parts[p, b] = vk.i64(0)
    begin = vk.i64(p) * length
    for n in range(begin, vk.min(begin + length, vk.i64(x.shape[0]))):
        b = vk.i64(x[n])
        if b >= 0 and b < bins:
            parts[p, b] += 1


@vk.kernel(groups=lambda x, length: vk.cdiv(x.shape[0], length), local=SIDE, debug=False)
def count_shared(x: vk.In[T, "N"], y: vk.InOut[vk.i32, "B"], length: vk.i64):
    """y[b] grows by how often b occurs; a workgroup counts `length` elements, of at most TABLE bins."""
    table = vk.shared(vk.i32, TABLE)
    lane, bins = vk.local_id(0), y.shape[0]
    for b in range(lane, bins, SIDE):
        table[b] = vk.i32(0)
    vk.barrier()
    begin = vk.i64(vk.group_id(0)) * length
    for n in range(begin + vk.i64(lane), vk.min(begin + length, vk.i64(x.shape[0])), SIDE):
        b = vk.i64(x[n])
        if b >= 0 and b < vk.i64(bins):
            vk.atomic.add(table, b, 1)
    vk.barrier()
    for b in range(lane, bins, SIDE):
        if table[b] > 0:
            vk.atomic.add(y, b, table[b])


def counts_fit(x: DeviceArray, bins: int) -> bool:
    """Whether `count_numbers` takes the vector: with few bins beside its elements."""
    return bool(choose("counts_fit", x.device)(x, bins))


def count_numbers(x: DeviceArray, bins: int) -> DeviceArray:
    """How often each of 0 ... bins - 1 occurs (i64 or i32)."""
    counts: DeviceArray = choose("count_numbers", x.device)(x, bins)
    return counts


def _length(x: DeviceArray, bins: int) -> int:
    """Elements of a part that one invocation of a processor counts."""
    if x.device.caps.kind == "llvm-cpu":
        return max(2 * bins, 1 << 14, -(-x.shape[0] // 64))
    return CPU_LOOP // 2


@variant("counts_fit", "cpu")
def _fits_cpu(x: DeviceArray, bins: int) -> bool:
    if x.device.caps.kind == "llvm-cpu":
        return True
    return bins <= CPU_LOOP // 2 and -(-x.shape[0] // _length(x, bins)) * bins <= 4 * x.shape[0]


@variant("count_numbers", "cpu")
def _count_cpu(x: DeviceArray, bins: int) -> DeviceArray:
    length = _length(x, bins)
    parts = scratch((-(-x.shape[0] // length), bins), vk.i64, x.device)
    count_parts(x, parts, length)
    if parts.shape[0] == 1:
        return DeviceArray(parts.buffer, parts.offset, vk.i64, (bins,), (1,))
    y = scratch((bins,), vk.i64, x.device)
    sum_parts(parts, y)
    return y


@variant("counts_fit", "gpu")
def _fits_gpu(x: DeviceArray, bins: int) -> bool:
    return bins <= TABLE and x.shape[0] < 2**31


@variant("count_numbers", "gpu")
def _count_gpu(x: DeviceArray, bins: int) -> DeviceArray:
    y = scratch((bins,), vk.i32, x.device)
    fill(vk.i64)(0, y)
    count_shared(x, y, max(16 * SIDE, -(-x.shape[0] // 1024)))
    return y
