"""Stable LSD radix sort on GPUs: 8-bit digits, ranking by match-any ballots in subgroups, scatter through shared
memory.

Rows (L, N) are reinterpreted as unsigned integers of the elements' size, so all bits are preserved; the results are the
sorted values and their original indices. Rows of a few thousand elements are sorted by one workgroup each, in a single
launch. Longer ones take one pass per digit: count the digits of each tile (upsweep), scan the counts into the first
output index of each digit in each tile, scatter the elements with coalesced stores where possible (downsweep). Each
subgroup owns a contiguous part of its tile. The rank of an element with digit d is the number of elements of the tile
with lower digits, plus those with digit d in preceding subgroups, plus those with digit d before it in its own
subgroup.

Workgroups never wait for each other (there is no decoupled look-back). Subgroups have at most 32 lanes.

Consts of the kernels: a workgroup has GROUPS subgroups of LANES lanes, and each invocation processes EACH elements. BITS,
SIGN, INFINITY and DOWN (descending order) are those of `key_of`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.runtime.device import Device, DeviceArray
from vkjit.stdlib.partial_sums import scratch

__all__ = ["max_row_length", "radix_sort", "sort_short_rows", "supports_ballot_ranking"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

BINS = 256
"""Number of digit values."""
SUBGROUPS = 8
"""Subgroups of a workgroup."""
ELEMENTS_PER_INVOCATION = 14
"""Elements of a tile per invocation."""
ROW_ELEMENTS_PER_INVOCATION = 8
"""Maximum number of elements per invocation in `sort_short_rows`, unless even a workgroup of SUBGROUPS subgroups needs more."""
SOFTWARE_ELEMENTS_PER_INVOCATION = 2
"""Both of these on software devices, which run these kernels only in tests: their compilers are slow on unrolled code.
"""
COUNTS_PER_INVOCATION = 8
"""Adjacent counts that an invocation adds up."""
MAX_ELEMENTS_SMALL_TILES = 1 << 21
"""Maximum number of elements that are sorted in smaller tiles, to occupy more workgroups."""
MAX_TILES_WITHOUT_SCAN = 32
"""Maximum number of tiles whose counts each tile adds up by itself, without a launch of `scan_tiles`."""


# -- keys and ranks


@vk.func
def key_of(x, BITS, SIGN, INFINITY, DOWN):
    """Return an unsigned integer of type BITS that orders like the number with the bits x.

    SIGN is the sign bit, 0 for unsigned types; INFINITY the bits of infinity, 0 for integers. NaN is the greatest,
    zeros of both signs are equal. Bits of the key above the width of x are undefined.
    """
    bits = BITS(x)
    key = bits ^ BITS(SIGN)
    if INFINITY:
        size = bits & BITS(SIGN - 1)
        key = vk.where(bits >= BITS(SIGN), ~bits, key)
        key = vk.where(size == BITS(0), BITS(SIGN), key)
        key = vk.where(size > BITS(INFINITY), BITS(2 * SIGN - 1), key)
    if DOWN:
        return ~key
    return key


@vk.func
def match_any(digit, LANES):
    """Return a mask of the lanes of the subgroup with this digit (match-any by ballots)."""
    sg = vk.subgroup()
    mask = vk.u32((1 << LANES) - 1)
    for b in vk.unroll(8):
        own = (digit & (1 << b)) != 0
        mask = mask & ~(vk.u32(sg.ballot(own)) ^ vk.where(own, vk.u32(0xFFFFFFFF), vk.u32(0)))
    return mask


@vk.func
def rank_in_subgroup(heads, row, digit, lane, LANES):
    """Return the number of preceding elements with this digit in the subgroup's part of the tile.

    heads[row * BINS + digit] counts the elements seen so far. All lanes must call it together.
    """
    mask = match_any(digit, LANES)
    before = vk.popcount(mask & ((vk.u32(1) << vk.u32(lane)) - vk.u32(1)))
    known = vk.i32(0)
    if before == 0:  # the first lane with this digit adds the count of all of them
        known = vk.atomic.add(heads, row * BINS + digit, vk.i32(vk.popcount(mask)), scope="workgroup")
    return vk.subgroup().shuffle(known, vk.ctz(mask)) + vk.i32(before)


# -- rows of many tiles


@vk.func
def digit_totals(counts, totals, line, d, s, COUNTED):
    """Return the number of elements with digit d in all tiles of a row, and in those before tile s.

    COUNTED: `totals` and `counts` hold these numbers already; otherwise `counts` are those of `count_tiles`.
    """
    if COUNTED:
        return totals[line, d], counts[line, d, s]
    total, before = vk.i32(0), vk.i32(0)
    for q in range(vk.i32(counts.shape[2])):
        here = counts[line, d, q]
        total += here
        before += vk.where(q < s, here, 0)
    return total, before


@vk.kernel(
    groups=lambda counts: (counts.shape[2], counts.shape[0]), local=lambda LANES, GROUPS: GROUPS * LANES, debug=False
)
def count_tiles(
    x: vk.In[T, "L N"],
    counts: vk.Out[vk.i32, "L B S"],
    shift: vk.i32,
    BITS: vk.Const[Any],
    SIGN: vk.Const[int],
    INFINITY: vk.Const[int],
    DOWN: vk.Const[bool],
    LANES: vk.Const[int],
    GROUPS: vk.Const[int],
    EACH: vk.Const[int],
):
    """counts[l, d, s] = the number of elements with digit d in tile s of row l."""
    SIDE = GROUPS * LANES
    table = vk.shared(vk.i32, BINS)
    lane, s, line = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.group_id(1)
    for d in range(lane, BINS, SIDE):
        table[d] = vk.i32(0)
    begin, last = s * (SIDE * EACH) + lane, vk.i32(x.shape[1]) - 1
    held = vk.local(T, EACH)
    for e in vk.unroll(EACH):
        held[e] = x[line, vk.min(begin + e * SIDE, last)]
    vk.barrier()
    for e in vk.unroll(EACH):
        digit = vk.i32((key_of(held[e], BITS, SIGN, INFINITY, DOWN) >> BITS(shift)) & BITS(255))
        if begin + e * SIDE <= last:
            vk.atomic.add(table, digit, vk.i32(1), scope="workgroup")
    vk.barrier()
    for d in range(lane, BINS, SIDE):
        counts[line, d, s] = table[d]


@vk.kernel(
    groups=lambda counts: (counts.shape[1], counts.shape[0]), local=lambda LANES, GROUPS: GROUPS * LANES, debug=False
)
def scan_tiles(
    counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"], LANES: vk.Const[int], GROUPS: vk.Const[int]
):
    """Exclusive scan in place: counts[l, d, s] = the number of elements with digit d in tiles before s; totals[l, d] =
    in all tiles.
    """
    SIDE = GROUPS * LANES
    wg, lane, d, line = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    held = vk.shared(
        vk.i32, SIDE * COUNTS_PER_INVOCATION * 33 // 32
    )  # padded by one element per 32 to avoid bank conflicts
    tiles, total = vk.i32(counts.shape[2]), vk.i32(0)
    for base in range(0, tiles, SIDE * COUNTS_PER_INVOCATION):
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = e * SIDE + lane
            held[i + (i >> 5)] = counts.get(line, d, base + i, pad=0)
        vk.barrier()
        own = vk.i32(0)
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = lane * COUNTS_PER_INVOCATION + e
            own += held[i + (i >> 5)]
        upto = wg.scan(own)
        before = total + upto - own
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = lane * COUNTS_PER_INVOCATION + e
            here = held[i + (i >> 5)]
            held[i + (i >> 5)] = before
            before += here
        total += wg.broadcast(upto, SIDE - 1)
        vk.barrier()
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = e * SIDE + lane
            counts.put(line, d, base + i, held[i + (i >> 5)])
        vk.barrier()
    if lane == 0:
        totals[line, d] = total


@vk.kernel(
    groups=lambda counts: (counts.shape[2], counts.shape[0]), local=lambda LANES, GROUPS: GROUPS * LANES, debug=False
)
def scatter_tiles(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    where: vk.InOut[R, "L N"],
    counts: vk.In[vk.i32, "L B S"],
    totals: vk.In[vk.i32, "L B"],
    shift: vk.i32,
    FIRST: vk.Const[bool],
    SCANNED: vk.Const[bool],
    BITS: vk.Const[Any],
    SIGN: vk.Const[int],
    INFINITY: vk.Const[int],
    DOWN: vk.Const[bool],
    LANES: vk.Const[int],
    GROUPS: vk.Const[int],
    EACH: vk.Const[int],
):
    """Scatter the elements of a tile to their output positions for the digit at bit `shift` of their keys.

    FIRST: this is the first pass; the input indices are 0, 1, 2..., and `places` isn't read. SCANNED: counts and
    totals have been scanned by `scan_tiles`; otherwise counts are those of `count_tiles`, and totals isn't read.
    """
    SIDE, PER = GROUPS * LANES, vk.cdiv(BINS, GROUPS * LANES)
    wg, sg = vk.workgroup(), vk.subgroup()
    heads, held = vk.shared(vk.i32, GROUPS * BINS), vk.shared(BITS, SIDE * EACH)
    offsets = vk.shared(vk.i32, BINS)
    thread, s, line = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.group_id(1)
    lane, row = vk.i32(sg.rank()), vk.i32(sg.id())
    tile, count = s * (SIDE * EACH), vk.i32(x.shape[1])
    begin, last = tile + row * (LANES * EACH) + lane, count - 1
    values, at = vk.local(T, EACH), vk.local(vk.i32, EACH)
    for e in vk.unroll(EACH):
        values[e] = x[line, vk.min(begin + e * LANES, last)]
    for d in vk.unroll(BINS * GROUPS // SIDE):
        heads[d * SIDE + thread] = vk.i32(0)
    vk.barrier()
    for e in vk.unroll(EACH):
        digit = vk.i32((key_of(values[e], BITS, SIGN, INFINITY, DOWN) >> BITS(shift)) & BITS(255))
        digit = vk.where(begin + e * LANES <= last, digit, BINS - 1)  # padding is sorted last
        at[e] = rank_in_subgroup(heads, row, digit, lane, LANES) | (digit << 16)  # a rank in a tile fits into 16 bits
    vk.barrier()
    # the first output index of each digit, in the row and in the tile
    lower, own = vk.i32(0), vk.i32(0)
    sums, starts = vk.local(vk.i32, PER), vk.local(vk.i32, PER)
    for p in vk.unroll(PER):
        d = thread * PER + p
        if d < BINS:
            sums[p], starts[p] = digit_totals(counts, totals, line, d, s, SCANNED)
            lower += sums[p]
            for g in vk.unroll(GROUPS):
                own += heads[g * BINS + d]
    lower, before = wg.scan(lower) - lower, wg.scan(own) - own
    for p in vk.unroll(PER):
        d = thread * PER + p
        if d < BINS:
            offsets[d] = lower - before + starts[p]
            lower += sums[p]
            for g in vk.unroll(GROUPS):
                here = heads[g * BINS + d]
                heads[g * BINS + d] = before
                before += here
    vk.barrier()
    for e in vk.unroll(EACH):
        at[e] = (at[e] & 0xFFFF) + heads[row * BINS + (at[e] >> 16)]
        held[at[e]] = BITS(values[e])
    vk.barrier()
    target = vk.local(vk.i32, EACH)
    for e in vk.unroll(EACH):
        i = e * SIDE + thread
        bits = held[i]
        digit = vk.i32((key_of(T(bits), BITS, SIGN, INFINITY, DOWN) >> BITS(shift)) & BITS(255))
        target[e] = offsets[digit] + i
        if tile + i <= last:
            y[line, target[e]] = T(bits)
    vk.barrier()
    for e in vk.unroll(EACH):
        n = begin + e * LANES
        held[at[e]] = BITS(n if FIRST else places[line, vk.min(n, last)])
    vk.barrier()
    for e in vk.unroll(EACH):
        i = e * SIDE + thread
        if tile + i <= last:
            where[line, target[e]] = R(held[i])


# -- rows of one tile


@vk.kernel(groups=lambda x: x.shape[0], local=lambda LANES, GROUPS: GROUPS * LANES, debug=False)
def sort_row_in_workgroup(
    x: vk.In[T, "L N"],
    y: vk.InOut[T, "L N"],
    where: vk.InOut[R, "L N"],
    WIDTH: vk.Const[int],
    BITS: vk.Const[Any],
    SIGN: vk.Const[int],
    INFINITY: vk.Const[int],
    DOWN: vk.Const[bool],
    LANES: vk.Const[int],
    GROUPS: vk.Const[int],
    EACH: vk.Const[int],
):
    """Sort a row of at most GROUPS * LANES * EACH elements of WIDTH bits."""
    SIDE, PER = GROUPS * LANES, vk.cdiv(BINS, GROUPS * LANES)
    wg, sg = vk.workgroup(), vk.subgroup()
    heads = vk.shared(vk.i32, GROUPS * BINS)
    held, held_places = vk.shared(BITS, SIDE * EACH), vk.shared(vk.i32, SIDE * EACH)
    thread, line = vk.i32(vk.local_id(0)), vk.group_id(0)
    lane, row = vk.i32(sg.rank()), vk.i32(sg.id())
    begin, last = row * (LANES * EACH) + lane, vk.i32(x.shape[1]) - 1
    keys, places = vk.local(BITS, EACH), vk.local(vk.i32, EACH)
    for e in vk.unroll(EACH):
        n = begin + e * LANES
        key = key_of(x[line, vk.min(n, last)], BITS, SIGN, INFINITY, DOWN)
        keys[e] = vk.where(n <= last, key, ~BITS(0))  # padding is sorted last
        places[e] = n
    for shift in range(0, WIDTH, 8):
        for d in vk.unroll(BINS * GROUPS // SIDE):
            heads[d * SIDE + thread] = vk.i32(0)
        vk.barrier()
        at = vk.local(vk.i32, EACH)
        for e in vk.unroll(EACH):
            digit = vk.i32((keys[e] >> BITS(shift)) & BITS(255))
            at[e] = rank_in_subgroup(heads, row, digit, lane, LANES)
        vk.barrier()
        own = vk.i32(0)
        for p in vk.unroll(PER):
            d = thread * PER + p
            if d < BINS:
                for g in vk.unroll(GROUPS):
                    own += heads[g * BINS + d]
        before = wg.scan(own) - own
        for p in vk.unroll(PER):
            d = thread * PER + p
            if d < BINS:
                for g in vk.unroll(GROUPS):
                    here = heads[g * BINS + d]
                    heads[g * BINS + d] = before
                    before += here
        vk.barrier()
        for e in vk.unroll(EACH):
            to = at[e] + heads[row * BINS + vk.i32((keys[e] >> BITS(shift)) & BITS(255))]
            held[to] = keys[e]
            held_places[to] = places[e]
        vk.barrier()
        for e in vk.unroll(EACH):
            keys[e] = held[begin + e * LANES]
            places[e] = held_places[begin + e * LANES]
    for e in vk.unroll(EACH):
        n = e * SIDE + thread
        if n <= last:
            place = held_places[n]
            y[line, n] = x[line, place]
            where[line, n] = R(place)


# -- launches


def supports_ballot_ranking(device: Device) -> bool:
    """True if the device's subgroups can rank elements by ballots."""
    caps = device.caps
    needed = {"subgroup_ballot", "subgroup_shuffle"}
    return (
        needed <= caps.features
        and 8 <= caps.subgroup_size <= 32
        and SUBGROUPS * caps.subgroup_size <= caps.max_invocations
    )


def max_row_length(lines: DeviceArray) -> int:
    """Return the maximum length of rows that one workgroup sorts."""
    device, wide = lines.device, lines.dtype.itemsize == 8
    side = SUBGROUPS * int(device.caps.subgroup_size)
    if _software(device):
        return side * SOFTWARE_ELEMENTS_PER_INVOCATION
    # besides the keys and indices, shared memory holds counts per subgroup and the scan's scratch space
    room = (device.caps.shared_bytes - (4 * SUBGROUPS * BINS + 2048)) // (12 if wide else 8)
    each = ROW_ELEMENTS_PER_INVOCATION * 2
    while side * each > room:
        each //= 2
    return side * each


def _software(device: Device) -> bool:
    return device.caps.kind in ("cpu", "llvm-cpu", "interpreter")


_RAW = {8: vk.u8, 16: vk.u16, 32: vk.u32, 64: vk.u64}
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def _raw(array: DeviceArray) -> DeviceArray:
    """Reinterpret an array as unsigned integers."""
    return DeviceArray(array.buffer, array.offset, _RAW[array.dtype.itemsize * 8], array.shape, array.strides)


def _options(dtype: DType, descending: bool) -> tuple[Any, ...]:
    """Return the arguments of `key_of`: BITS, SIGN, INFINITY, DOWN."""
    width = dtype.itemsize * 8
    signed = dtype.is_float or dtype.kind == "int"
    sign = 1 << (width - 1) if signed else 0
    return vk.u64 if width == 64 else vk.u32, sign, _INFINITY.get(dtype.name, 0), descending


def sort_short_rows(
    lines: DeviceArray, index_dtype: DType, descending: bool, groups: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Sort rows of at most `max_row_length` elements; return the values and their original indices, of integer type
    `index_dtype`.

    `groups` is the number of subgroups per workgroup, 0 for a choice by the row length.
    """
    lanes, n = lines.device.caps.subgroup_size, lines.shape[1]
    elements_per_invocation = (
        SOFTWARE_ELEMENTS_PER_INVOCATION if _software(lines.device) else ROW_ELEMENTS_PER_INVOCATION
    )
    groups = groups or min(SUBGROUPS, 1 << (-(-n // (lanes * elements_per_invocation)) - 1).bit_length())
    values, indices = (scratch(lines.shape, dtype, lines.device) for dtype in (lines.dtype, index_dtype))
    each = 1 << (-(-n // (groups * lanes)) - 1).bit_length()
    options = (lines.dtype.itemsize * 8, *_options(lines.dtype, descending), lanes)
    sort_row_in_workgroup(_raw(lines), _raw(values), indices, *options, groups, each)
    return values, indices


def radix_sort(
    lines: DeviceArray, index_dtype: DType, descending: bool, groups: int = SUBGROUPS, each: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Sort rows; return the values and their original indices, of integer type `index_dtype`.

    A workgroup has `groups` subgroups, whose invocations process `each` elements (0: the default for the device).
    """
    (rows, n), device = lines.shape, lines.device
    lanes, width = device.caps.subgroup_size, lines.dtype.itemsize * 8
    each = each or (
        SOFTWARE_ELEMENTS_PER_INVOCATION
        if _software(device)
        else ELEMENTS_PER_INVOCATION
        if rows * n > MAX_ELEMENTS_SMALL_TILES
        else 8
    )
    each = each if width < 64 else min(each, 8)  # shared memory holds a tile
    counts = scratch((rows, BINS, -(-n // (groups * lanes * each))), vk.i32, device)
    counted = counts.shape[2] > MAX_TILES_WITHOUT_SCAN
    totals = scratch((rows, BINS) if counted else (1, 1), vk.i32, device)
    totals = totals if counted else DeviceArray(totals.buffer, 0, vk.i32, (rows, BINS), (0, 0))  # not read
    options = (*_options(lines.dtype, descending), lanes, groups, each)
    source = _raw(lines)
    indices = DeviceArray(totals.buffer, 0, vk.i32, lines.shape, (0, 0))  # not read by the first pass
    for shift in range(0, width, 8):
        target = scratch(lines.shape, source.dtype, device)
        where = scratch(lines.shape, index_dtype if shift + 8 == width else vk.i32, device)
        count_tiles(source, counts, shift, *options)
        if counted:
            scan_tiles(counts, totals, lanes, groups)
        scatter_tiles(source, indices, target, where, counts, totals, shift, shift == 0, counted, *options)
        source, indices = target, where
    return DeviceArray(source.buffer, source.offset, lines.dtype, lines.shape, source.strides), indices
