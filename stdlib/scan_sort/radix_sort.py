"""Stable LSD radix sort of rows (L, N), with the original indices of the elements: one digit of the keys per pass.

A pass has three steps. The first counts the elements with each digit value in each tile of a row. The second scans the
counts, which gives the first output index of each digit value in each tile. The third scatters the elements. On CPUs,
one invocation processes a tile, with digits of 8 bits. On GPUs, one workgroup does, with digits of 4 bits; in the third
step, each invocation processes a contiguous run of the tile. `vkjit.tensor.ops.sorting` calls `radix_sort` on the
"llvm-cpu" device, and on GPUs that `radix_sort_ballot` doesn't support.

Parameters that the kernels share:

- x_indices and y_indices: the original indices of the elements of the input x and of the output y.
- FIRST: true in the first pass, where the original indices are 0, 1, 2..., and `x_indices` isn't read.
- shift: the lowest bit of the pass's digit.
- length: the number of elements of a tile on CPUs.
- counts: an element per row (L), tile (S) and digit value (B), as (L, S, B) on CPUs and (L, B, S) on GPUs.
- KEY: a device function of `merge_sort` that computes the key of an element, of the unsigned type BITS. NaN has the
  greatest key, and zeros of both signs have the same key.
- DESCENDING: true to sort in descending order.

In the kernels for GPUs, `thread` is an invocation's index in the workgroup.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.partial_sums import scratch
from vkjit.stdlib.registry import choose, variant
from vkjit.stdlib.scan_sort.merge_sort import ordered_key

__all__ = ["radix_sort"]

T = TypeVar("T", bound=vk.Element)

CPU_DIGIT_BITS = 8
"""Width of a digit on CPUs."""
CPU_BINS = 256
"""Number of digit values on CPUs."""
MIN_CPU_TILE = 1 << 14
"""Minimum number of elements of a tile on CPUs."""
MAX_CPU_TILES = 64
"""Maximum number of tiles of a row on CPUs."""
WORKGROUP_SIZE = 256
"""Invocations of a workgroup on GPUs."""
ELEMENTS_PER_INVOCATION = 16
"""Elements per invocation on GPUs."""
GPU_DIGIT_BITS = 4
"""Width of a digit on GPUs."""
GPU_BINS = 16
"""Number of digit values on GPUs."""


@vk.func
def digit_of(x, shift, MASK, KEY, BITS, DESCENDING):
    """Return the digit that begins at bit `shift` of the key of x. MASK is the maximum value of a digit."""
    return vk.i32((ordered_key(x, KEY, DESCENDING) >> BITS(shift)) & BITS(MASK))


# -- CPUs: one invocation per tile


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=1, debug=False)
def count_digits(
    x: vk.In[T, "L N"],
    counts: vk.Out[vk.i32, "L S B"],
    length: vk.i64,
    shift: vk.i32,
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """counts[l, s, d] = the number of elements with digit d in tile s of row l, by one invocation per tile."""
    s, row = vk.group_id(0), vk.group_id(1)
    for d in range(vk.i32(CPU_BINS)):
        counts[row, s, d] = 0
    begin = s * length
    for n in range(begin, vk.min(begin + length, x.shape[1])):
        counts[row, s, digit_of(x[row, n], shift, CPU_BINS - 1, KEY, BITS, DESCENDING)] += 1


@vk.kernel(groups=lambda counts: counts.shape[0], local=1, debug=False)
def scan_digits(counts: vk.InOut[vk.i32, "L S B"]):
    """Turn the counts into output indices: an exclusive scan in place, by digit, then by tile.

    counts[l, s, d] = the output index of the first element with digit d in tile s of row l.
    """
    row = vk.group_id(0)
    total = vk.i32(0)
    for d in range(vk.i32(CPU_BINS)):
        for s in range(counts.shape[1]):
            count = counts[row, s, d]
            counts[row, s, d] = total
            total += count


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=1, debug=False)
def scatter_digits(
    x: vk.In[T, "L N"],
    x_indices: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    y_indices: vk.InOut[vk.i32, "L N"],
    counts: vk.InOut[vk.i32, "L S B"],
    length: vk.i64,
    shift: vk.i32,
    FIRST: vk.Const[bool],
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """Scatter the elements of a tile, in order, to the output indices of their digits, by one invocation per tile.

    `counts` is the result of `scan_digits`: the output index of the tile's first element with each digit. Each element
    increments the index of its digit, so that it becomes that of the next element.
    """
    s, row = vk.group_id(0), vk.group_id(1)
    begin = s * length
    for n in range(begin, vk.min(begin + length, x.shape[1])):
        value = x[row, n]
        d = digit_of(value, shift, CPU_BINS - 1, KEY, BITS, DESCENDING)
        target = counts[row, s, d]
        counts[row, s, d] = target + 1
        y[row, target] = value
        y_indices[row, target] = vk.i32(n) if FIRST else x_indices[row, n]


# -- GPUs: one workgroup per tile


@vk.kernel(groups=lambda counts: (counts.shape[2], counts.shape[0]), local=WORKGROUP_SIZE, debug=False)
def count_digits_workgroup(
    x: vk.In[T, "L N"],
    counts: vk.Out[vk.i32, "L B S"],
    shift: vk.i32,
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """counts[l, d, s] = the number of elements with digit d in tile s of row l, by one workgroup per tile.

    Each invocation counts its elements in its own column of the histogram `table`, so that it needs no atomics.
    """
    table = vk.shared(vk.i32, (GPU_BINS, WORKGROUP_SIZE))
    thread, s, row = vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    for d in vk.unroll(GPU_BINS):
        table[d, thread] = vk.i32(0)
    begin, count = s * (WORKGROUP_SIZE * ELEMENTS_PER_INVOCATION), x.shape[1]
    for e in range(ELEMENTS_PER_INVOCATION):
        n = begin + e * WORKGROUP_SIZE + thread
        if n < count:
            d = digit_of(x[row, n], shift, GPU_BINS - 1, KEY, BITS, DESCENDING)
            table[d, thread] += 1
    vk.barrier()
    # 16 (GPU_BINS) invocations sum the histogram row of each digit value, then one invocation adds their 16 sums
    bin_row, part = thread // GPU_BINS, thread % GPU_BINS
    total = vk.i32(0)
    for k in range(WORKGROUP_SIZE // GPU_BINS):
        total += table[bin_row, part * (WORKGROUP_SIZE // GPU_BINS) + k]
    vk.barrier()
    table[bin_row, part] = total
    vk.barrier()
    if thread < GPU_BINS:
        total = vk.i32(0)
        for k in range(GPU_BINS):
            total += table[thread, k]
        counts[row, thread, s] = total


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=WORKGROUP_SIZE, debug=False)
def scan_digits_workgroup(counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"]):
    """Exclusive scan in place: counts[l, d, s] = the number of elements with digit d in the tiles before s of row l.

    totals[l, d] = the number of elements with digit d in all tiles. One workgroup per row and digit.
    """
    wg, thread, d, row = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
    count = counts.shape[2]
    total = vk.i32(0)
    for base in range(0, count, WORKGROUP_SIZE):
        s = base + thread
        count_here = counts.get(row, d, s, pad=0)
        inclusive = wg.scan(count_here)
        counts.put(row, d, s, total + inclusive - count_here)
        total += wg.broadcast(inclusive, WORKGROUP_SIZE - 1)
    if thread == 0:
        totals[row, d] = total


@vk.kernel(groups=lambda counts: (counts.shape[2], counts.shape[0]), local=WORKGROUP_SIZE, debug=False)
def scatter_digits_workgroup(
    x: vk.In[T, "L N"],
    x_indices: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    y_indices: vk.InOut[vk.i32, "L N"],
    counts: vk.In[vk.i32, "L B S"],
    totals: vk.In[vk.i32, "L B"],
    shift: vk.i32,
    FIRST: vk.Const[bool],
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """Scatter the elements of a tile, in order, to the output indices of their digits, by one workgroup per tile.

    `counts` and `totals` are the results of `scan_digits_workgroup`.
    """
    wg = vk.workgroup()
    table = vk.shared(vk.i32, GPU_BINS * WORKGROUP_SIZE)
    starts = vk.shared(vk.i32, GPU_BINS)
    thread, s, row = vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    for d in vk.unroll(GPU_BINS):
        table[d * WORKGROUP_SIZE + thread] = vk.i32(0)
    begin, count = (
        vk.i32(s) * (WORKGROUP_SIZE * ELEMENTS_PER_INVOCATION) + thread * ELEMENTS_PER_INVOCATION,
        vk.i32(x.shape[1]),
    )
    for e in range(ELEMENTS_PER_INVOCATION):
        if begin + e < count:
            d = digit_of(x[row, begin + e], shift, GPU_BINS - 1, KEY, BITS, DESCENDING)
            table[d * WORKGROUP_SIZE + thread] += 1
    vk.barrier()
    # exclusive scan of the table in memory order (by digit, then by invocation): each invocation scans GPU_BINS
    # adjacent counts; afterwards table[d, thread] is the rank in the tile of this invocation's first element with digit
    # d
    own_total = vk.i32(0)
    for k in range(GPU_BINS):
        own_total += table[thread * GPU_BINS + k]
    offset = wg.scan(own_total) - own_total
    for k in range(GPU_BINS):
        own_count = table[thread * GPU_BINS + k]
        table[thread * GPU_BINS + k] = offset
        offset += own_count
    vk.barrier()
    if thread < GPU_BINS:  # starts[d] + the rank in the tile of an element with digit d = its output index
        lower_digits = vk.i32(0)
        for d in range(thread):
            lower_digits += totals[row, d]
        starts[thread] = lower_digits + counts[row, thread, s] - table[thread * WORKGROUP_SIZE]
    vk.barrier()
    for e in range(ELEMENTS_PER_INVOCATION):
        n = begin + e
        if n < count:
            value = x[row, n]
            d = digit_of(value, shift, GPU_BINS - 1, KEY, BITS, DESCENDING)
            rank = table[d * WORKGROUP_SIZE + thread]
            table[d * WORKGROUP_SIZE + thread] = rank + 1
            target = starts[d] + rank
            y[row, target] = value
            y_indices[row, target] = n if FIRST else x_indices[row, n]


# -- passes


def radix_sort(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    """Return the sorted values of the rows `lines` (L, N) and their original indices (i32).

    `key` is a device function of `merge_sort` that computes keys with `bits` significant bits. Rows have fewer than
    2**31 elements and are not modified.
    """
    result: tuple[DeviceArray, DeviceArray] = choose("sort_by_digits", lines.device)(lines, key, bits, descending)
    return result


def _pairs(lines: DeviceArray) -> list[tuple[DeviceArray, DeviceArray]]:
    """Allocate two pairs (values, indices), between which the passes alternate."""
    shape, device = lines.shape, lines.device
    return [(scratch(shape, lines.dtype, device), scratch(shape, vk.i32, device)) for _ in range(2)]


@variant("sort_by_digits", "llvm-cpu")
def _sort_cpu(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    rows, n = lines.shape
    length = max(MIN_CPU_TILE, -(-n // MAX_CPU_TILES))
    counts = scratch((rows, -(-n // length), CPU_BINS), vk.i32, lines.device)
    target, spare = _pairs(lines)
    source = (lines, spare[1])  # indices are not read by the first pass
    options = (key, vk.u64 if bits == 64 else vk.u32, descending)
    for shift in range(0, bits, CPU_DIGIT_BITS):
        count_digits(source[0], counts, length, shift, *options)
        scan_digits(counts)
        scatter_digits(*source, *target, counts, length, shift, shift == 0, *options)
        source, target, spare = target, spare, target  # the next pass reads this result and writes to the other pair
    return source


@variant("sort_by_digits", "gpu")
def _sort_gpu(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    rows, n = lines.shape
    counts = scratch((rows, GPU_BINS, -(-n // (WORKGROUP_SIZE * ELEMENTS_PER_INVOCATION))), vk.i32, lines.device)
    totals = scratch((rows, GPU_BINS), vk.i32, lines.device)
    target, spare = _pairs(lines)
    source = (lines, spare[1])  # indices are not read by the first pass
    options = (key, vk.u64 if bits == 64 else vk.u32, descending)
    for shift in range(0, bits, GPU_DIGIT_BITS):
        count_digits_workgroup(source[0], counts, shift, *options)
        scan_digits_workgroup(counts, totals)
        scatter_digits_workgroup(*source, *target, counts, totals, shift, shift == 0, *options)
        source, target, spare = target, spare, target  # the next pass reads this result and writes to the other pair
    return source
