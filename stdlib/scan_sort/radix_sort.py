"""Stable LSD radix sort of rows (L, N), with the original indices of the elements: one digit of the keys per pass.

A pass counts the digits of each tile of a row (upsweep), scans the counts into the first output index of each digit in
each tile, and scatters the elements (downsweep). On CPUs one invocation processes a tile, with digits of 8 bits. On
GPUs one workgroup does, with digits of 4 bits; for the scatter each invocation owns a contiguous run of the tile.
`vkjit.tensor.ops.sorting` calls it on the "llvm-cpu" device, and on GPUs that `radix_sort_ballot` doesn't support.

Parameters of the kernels: `places` holds the original indices of the elements of the input x, `where` those of the
output y; FIRST is true in the first pass, where the indices are 0, 1, 2..., and `places` isn't read. `shift` is the
lowest bit of the pass's digit, `length` the number of elements of a tile. `counts` has an element per row, tile (S) and
digit value (B). KEY computes the key of an element, of the unsigned type BITS; DESCENDING sorts in descending order. Keys are
those of `merge_sort`: NaN is the greatest, zeros of both signs are equal.
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

CPU_BINS = 256
"""Number of digit values on CPUs."""
WORKGROUP_SIZE = 256
"""Invocations of a workgroup on GPUs."""
ELEMENTS_PER_INVOCATION = 16
"""Elements per invocation on GPUs."""
GPU_BINS = 16
"""Number of digit values on GPUs."""


@vk.func
def digit_of(x, shift, MASK, KEY, BITS, DESCENDING):
    """Return the digit from bit `shift` on of an element's key. MASK is the maximum value of a digit."""
    return vk.i32((ordered_key(x, KEY, DESCENDING) >> BITS(shift)) & BITS(MASK))


# -- CPUs: one invocation per tile


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
    s, line = vk.group_id(0), vk.group_id(1)
    for d in range(vk.i32(CPU_BINS)):
        counts[line, s, d] = 0
    begin = s * length
    for n in range(begin, vk.min(begin + length, x.shape[1])):
        counts[line, s, digit_of(x[line, n], shift, CPU_BINS - 1, KEY, BITS, DESCENDING)] += 1


@vk.kernel(groups=lambda counts: counts.shape[0], local=1, debug=False)
def scan_digits(counts: vk.InOut[vk.i32, "L S B"]):
    """Turn the counts into output indices: an exclusive scan in place, by digit, then by tile.

    counts[l, s, d] = the output index of the first element with digit d in tile s of row l.
    """
    line = vk.group_id(0)
    total = vk.i32(0)
    for d in range(vk.i32(CPU_BINS)):
        for s in range(counts.shape[1]):
            count = counts[line, s, d]
            counts[line, s, d] = total
            total += count


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=1, debug=False)
def scatter_digits(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    where: vk.InOut[vk.i32, "L N"],
    counts: vk.InOut[vk.i32, "L S B"],
    length: vk.i64,
    shift: vk.i32,
    FIRST: vk.Const[bool],
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """Scatter the elements of a tile, in order, to the output indices of their digits, by one invocation per tile.

    `counts` is the result of `scan_digits`; an element increments the count of its digit, to the next output index.
    """
    s, line = vk.group_id(0), vk.group_id(1)
    begin = s * length
    for n in range(begin, vk.min(begin + length, x.shape[1])):
        value = x[line, n]
        d = digit_of(value, shift, CPU_BINS - 1, KEY, BITS, DESCENDING)
        target = counts[line, s, d]
        counts[line, s, d] = target + 1
        y[line, target] = value
        where[line, target] = vk.i32(n) if FIRST else places[line, n]


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
    lane, s, line = vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    for d in vk.unroll(GPU_BINS):
        table[d, lane] = vk.i32(0)
    begin, count = s * (WORKGROUP_SIZE * ELEMENTS_PER_INVOCATION), x.shape[1]
    for e in range(ELEMENTS_PER_INVOCATION):
        n = begin + e * WORKGROUP_SIZE + lane
        if n < count:
            d = digit_of(x[line, n], shift, GPU_BINS - 1, KEY, BITS, DESCENDING)
            table[d, lane] += 1
    vk.barrier()
    # sixteen invocations sum each digit's histogram row, then one of them adds their sums
    row, part = lane // GPU_BINS, lane % GPU_BINS
    total = vk.i32(0)
    for k in range(WORKGROUP_SIZE // GPU_BINS):
        total += table[row, part * (WORKGROUP_SIZE // GPU_BINS) + k]
    vk.barrier()
    table[row, part] = total
    vk.barrier()
    if lane < GPU_BINS:
        total = vk.i32(0)
        for k in range(GPU_BINS):
            total += table[lane, k]
        counts[line, lane, s] = total


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=WORKGROUP_SIZE, debug=False)
def scan_digits_workgroup(counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"]):
    """Exclusive scan in place: counts[l, d, s] = the number of elements with digit d in the tiles before s of row l.

    totals[l, d] = the number of elements with digit d in all tiles. One workgroup per row and digit.
    """
    wg, lane, d, line = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
    count = counts.shape[2]
    total = vk.i32(0)
    for base in range(0, count, WORKGROUP_SIZE):
        s = base + lane
        count_here = counts.get(line, d, s, pad=0)
        inclusive = wg.scan(count_here)
        counts.put(line, d, s, total + inclusive - count_here)
        total += wg.broadcast(inclusive, WORKGROUP_SIZE - 1)
    if lane == 0:
        totals[line, d] = total


@vk.kernel(groups=lambda counts: (counts.shape[2], counts.shape[0]), local=WORKGROUP_SIZE, debug=False)
def scatter_digits_workgroup(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    where: vk.InOut[vk.i32, "L N"],
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
    lane, s, line = vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    for d in vk.unroll(GPU_BINS):
        table[d * WORKGROUP_SIZE + lane] = vk.i32(0)
    begin, count = (
        vk.i32(s) * (WORKGROUP_SIZE * ELEMENTS_PER_INVOCATION) + lane * ELEMENTS_PER_INVOCATION,
        vk.i32(x.shape[1]),
    )
    for e in range(ELEMENTS_PER_INVOCATION):
        if begin + e < count:
            d = digit_of(x[line, begin + e], shift, GPU_BINS - 1, KEY, BITS, DESCENDING)
            table[d * WORKGROUP_SIZE + lane] += 1
    vk.barrier()
    # exclusive scan of the counts, by digit, then by invocation
    own_total = vk.i32(0)
    for k in range(GPU_BINS):
        own_total += table[lane * GPU_BINS + k]
    offset = wg.scan(own_total) - own_total
    for k in range(GPU_BINS):
        own_count = table[lane * GPU_BINS + k]
        table[lane * GPU_BINS + k] = offset
        offset += own_count
    vk.barrier()
    if lane < GPU_BINS:  # the offset from an element's rank in the tile to its output index, by digit
        lower = vk.i32(0)
        for d in range(lane):
            lower += totals[line, d]
        starts[lane] = lower + counts[line, lane, s] - table[lane * WORKGROUP_SIZE]
    vk.barrier()
    for e in range(ELEMENTS_PER_INVOCATION):
        n = begin + e
        if n < count:
            value = x[line, n]
            d = digit_of(value, shift, GPU_BINS - 1, KEY, BITS, DESCENDING)
            rank = table[d * WORKGROUP_SIZE + lane]
            table[d * WORKGROUP_SIZE + lane] = rank + 1
            target = starts[d] + rank
            y[line, target] = value
            where[line, target] = n if FIRST else places[line, n]


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
    return [(scratch(lines.shape, lines.dtype, lines.device), scratch(lines.shape, vk.i32, lines.device)) for _ in "ab"]


@variant("sort_by_digits", "llvm-cpu")
def _sort_cpu(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    rows, n = lines.shape
    length = max(1 << 14, -(-n // 64))
    counts = scratch((rows, -(-n // length), CPU_BINS), vk.i32, lines.device)
    target, spare = _pairs(lines)
    source = (lines, spare[1])  # indices are not read by the first pass
    options = (key, vk.u64 if bits == 64 else vk.u32, descending)
    for shift in range(0, bits, 8):
        count_digits(source[0], counts, length, shift, *options)
        scan_digits(counts)
        scatter_digits(*source, *target, counts, length, shift, shift == 0, *options)
        source, target, spare = target, spare, target
    return source


@variant("sort_by_digits", "gpu")
def _sort_gpu(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    rows, n = lines.shape
    counts = scratch((rows, GPU_BINS, -(-n // (WORKGROUP_SIZE * ELEMENTS_PER_INVOCATION))), vk.i32, lines.device)
    totals = scratch((rows, GPU_BINS), vk.i32, lines.device)
    target, spare = _pairs(lines)
    source = (lines, spare[1])  # indices are not read by the first pass
    options = (key, vk.u64 if bits == 64 else vk.u32, descending)
    for shift in range(0, bits, 4):
        count_digits_workgroup(source[0], counts, shift, *options)
        scan_digits_workgroup(counts, totals)
        scatter_digits_workgroup(*source, *target, counts, totals, shift, shift == 0, *options)
        source, target, spare = target, spare, target
    return source
