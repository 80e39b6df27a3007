"""Stable sorting by digits: lines (L, N) of elements with their places, one digit of their keys per pass, the least first.

Enters: lines, and the places of their elements (at first 0, 1, 2...). Leaves: values and places in order. A pass counts the
digits of each tile of a line, turns the counts into where each tile's elements of a digit begin, and moves the elements. On
a processor one invocation takes a tile, with digits of 8 bits; on a GPU a workgroup does, with digits of 4 bits, in each of
which neighbouring invocations hold neighbouring elements. Keys are those of `sort`: NaN is greatest, zeros are equal.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib.partial import scratch
from vkjit.stdlib.registry import choose, variant
from vkjit.stdlib.sort import keyed

__all__ = ["sort_by_digits"]

T = TypeVar("T", bound=vk.Element)

BINS = 256
"""Digits on a processor."""
SIDE = 256
"""Invocations of a workgroup of a GPU."""
EACH = 16
"""Elements that each of them takes."""
FEW = 16
"""Digits on a GPU."""


@vk.func
def digit_of(x, shift, MASK, KEY, BITS, DOWN):
    """The digit that begins at bit `shift` of an element's key, of type BITS."""
    return vk.i32((keyed(x, KEY, DOWN) >> BITS(shift)) & BITS(MASK))


# -- processors: an invocation per tile


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=1, debug=False)
def count_digits(
    x: vk.In[T, "L N"],
    counts: vk.Out[vk.i32, "L S B"],
    length: vk.i64,
    shift: vk.i32,
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DOWN: vk.Const[bool],
):
    """counts[l, s, d] = how often digit d occurs in tile s of line l."""
    s, line = vk.group_id(0), vk.group_id(1)
    for d in range(vk.i32(BINS)):
        counts[line, s, d] = 0
    begin = s * length
    for n in range(begin, vk.min(begin + length, x.shape[1])):
        counts[line, s, digit_of(x[line, n], shift, BINS - 1, KEY, BITS, DOWN)] += 1


@vk.kernel(groups=lambda counts: counts.shape[0], local=1, debug=False)
def begin_digits(counts: vk.InOut[vk.i32, "L S B"]):
    """counts[l, s, d] = where the elements of digit d of tile s begin."""
    line = vk.group_id(0)
    total = vk.i32(0)
    for d in range(vk.i32(BINS)):
        for s in range(counts.shape[1]):
            here = counts[line, s, d]
            counts[line, s, d] = total
            total += here


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=1, debug=False)
def move_digits(
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
    DOWN: vk.Const[bool],
):
    """Moves the elements of a tile, in order, to where their digits' elements begin; FIRST: places are 0, 1, 2..."""
    s, line = vk.group_id(0), vk.group_id(1)
    begin = s * length
    for n in range(begin, vk.min(begin + length, x.shape[1])):
        value = x[line, n]
        d = digit_of(value, shift, BINS - 1, KEY, BITS, DOWN)
        at = counts[line, s, d]
        counts[line, s, d] = at + 1
        y[line, at] = value
        where[line, at] = vk.i32(n) if FIRST else places[line, n]


# -- GPUs: a workgroup per tile


@vk.kernel(groups=lambda counts: (counts.shape[2], counts.shape[0]), local=SIDE, debug=False)
def count_digits_together(
    x: vk.In[T, "L N"],
    counts: vk.Out[vk.i32, "L B S"],
    shift: vk.i32,
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DOWN: vk.Const[bool],
):
    """counts[l, d, s] = how often digit d occurs in tile s of line l."""
    table = vk.shared(vk.i32, (FEW, SIDE))
    lane, s, line = vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    for d in vk.unroll(FEW):
        table[d, lane] = vk.i32(0)
    begin, count = s * (SIDE * EACH), x.shape[1]
    for e in range(EACH):
        n = begin + e * SIDE + lane
        if n < count:
            d = digit_of(x[line, n], shift, FEW - 1, KEY, BITS, DOWN)
            table[d, lane] += 1
    vk.barrier()
    # sixteen invocations add up each digit's row, then one of them adds up theirs
    row, part = lane // FEW, lane % FEW
    total = vk.i32(0)
    for k in range(SIDE // FEW):
        total += table[row, part * (SIDE // FEW) + k]
    vk.barrier()
    table[row, part] = total
    vk.barrier()
    if lane < FEW:
        total = vk.i32(0)
        for k in range(FEW):
            total += table[lane, k]
        counts[line, lane, s] = total


@vk.kernel(groups=lambda counts: (counts.shape[1], counts.shape[0]), local=SIDE, debug=False)
def begin_digits_together(counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"]):
    """counts[l, d, s] = how many elements of digit d lie in tiles before s; totals[l, d] = in all tiles."""
    wg, lane, d, line = vk.workgroup(), vk.local_id(0), vk.group_id(0), vk.group_id(1)
    count = counts.shape[2]
    total = vk.i32(0)
    for base in range(0, count, SIDE):
        s = base + lane
        own = counts.get(line, d, s, pad=0)
        upto = wg.scan(own)
        counts.put(line, d, s, total + upto - own)
        total += wg.broadcast(upto, SIDE - 1)
    if lane == 0:
        totals[line, d] = total


@vk.kernel(groups=lambda counts: (counts.shape[2], counts.shape[0]), local=SIDE, debug=False)
def move_digits_together(
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
    DOWN: vk.Const[bool],
):
    """Moves the elements of a tile; FIRST: places are 0, 1, 2..."""
    wg = vk.workgroup()
    table = vk.shared(vk.i32, FEW * SIDE)
    starts = vk.shared(vk.i32, FEW)
    lane, s, line = vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    for d in vk.unroll(FEW):
        table[d * SIDE + lane] = vk.i32(0)
    begin, count = vk.i32(s) * (SIDE * EACH) + lane * EACH, vk.i32(x.shape[1])
    for e in range(EACH):
        if begin + e < count:
            d = digit_of(x[line, begin + e], shift, FEW - 1, KEY, BITS, DOWN)
            table[d * SIDE + lane] += 1
    vk.barrier()
    # running counts, first by digit, then by invocation
    own = vk.i32(0)
    for k in range(FEW):
        own += table[lane * FEW + k]
    before = wg.scan(own) - own
    for k in range(FEW):
        here = table[lane * FEW + k]
        table[lane * FEW + k] = before
        before += here
    vk.barrier()
    if lane < FEW:  # what a digit's elements add to their place within the tile
        lower = vk.i32(0)
        for d in range(lane):
            lower += totals[line, d]
        starts[lane] = lower + counts[line, lane, s] - table[lane * SIDE]
    vk.barrier()
    for e in range(EACH):
        n = begin + e
        if n < count:
            value = x[line, n]
            d = digit_of(value, shift, FEW - 1, KEY, BITS, DOWN)
            within = table[d * SIDE + lane]
            table[d * SIDE + lane] = within + 1
            at = starts[d] + within
            y[line, at] = value
            where[line, at] = n if FIRST else places[line, n]


# -- passes


def sort_by_digits(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    """Values and places (i32) of lines (L, N) in order; `key` gives keys of so many bits. Lines have fewer than 2**31
    elements, and aren't changed.
    """
    made: tuple[DeviceArray, DeviceArray] = choose("sort_by_digits", lines.device)(lines, key, bits, descending)
    return made


def _pairs(lines: DeviceArray) -> list[tuple[DeviceArray, DeviceArray]]:
    return [(scratch(lines.shape, lines.dtype, lines.device), scratch(lines.shape, vk.i32, lines.device)) for _ in "ab"]


@variant("sort_by_digits", "llvm-cpu")
def _sort_cpu(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    rows, n = lines.shape
    length = max(1 << 14, -(-n // 64))
    counts = scratch((rows, -(-n // length), BINS), vk.i32, lines.device)
    target, other = _pairs(lines)
    source = (lines, other[1])  # the first pass reads no places
    options = (key, vk.u64 if bits == 64 else vk.u32, descending)
    for shift in range(0, bits, 8):
        count_digits(source[0], counts, length, shift, *options)
        begin_digits(counts)
        move_digits(*source, *target, counts, length, shift, shift == 0, *options)
        source, target, other = target, other, target
    return source


@variant("sort_by_digits", "gpu")
def _sort_gpu(lines: DeviceArray, key: Any, bits: int, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    rows, n = lines.shape
    counts = scratch((rows, FEW, -(-n // (SIDE * EACH))), vk.i32, lines.device)
    totals = scratch((rows, FEW), vk.i32, lines.device)
    target, other = _pairs(lines)
    source = (lines, other[1])  # the first pass reads no places
    options = (key, vk.u64 if bits == 64 else vk.u32, descending)
    for shift in range(0, bits, 4):
        count_digits_together(source[0], counts, shift, *options)
        begin_digits_together(counts, totals)
        move_digits_together(*source, *target, counts, totals, shift, shift == 0, *options)
        source, target, other = target, other, target
    return source
