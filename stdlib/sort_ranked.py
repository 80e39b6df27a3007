"""Stable sorting by digits of 8 bits on GPUs: subgroups rank their elements by ballots, workgroups move them through shared
memory.

Enters: lines (L, N), taken as unsigned integers of the elements' size, so that all bits stay as they are. Leaves: values and
places in order. Lines of a few thousand elements are sorted by one workgroup each, in one launch. Longer ones take a pass per
digit, the least first: the digits of each tile are counted, the counts turned into where each tile's elements of a digit begin,
and the elements moved, neighbours to neighbouring places where they can be. In a tile each subgroup holds neighbouring elements;
the place of an element of digit d is the number of elements of lower digits, of those of d in subgroups before its own, and of
those of d before it in its own.

Workgroups never wait for each other. Subgroups have at most 32 lanes here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.runtime.interface import Device, DeviceArray
from vkjit.stdlib.partial import scratch

__all__ = ["most_of_row", "ranks_by_ballots", "sort_lines", "sort_rows"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

BINS = 256
"""Digits."""
GROUPS = 8
"""Subgroups of a workgroup."""
EACH = 14
"""Elements of a tile that an invocation takes."""
ROW_EACH = 8
"""Elements of a line sorted by one workgroup that an invocation takes, where the workgroup has enough of them."""
SOFTWARE_EACH = 2
"""Both of these on software devices, which only tests run these kernels on: their compilers are slow on what is unrolled."""
RUN = 8
"""Neighbouring counts that an invocation adds up."""
FEW_ELEMENTS = 1 << 21
"""Elements that are sorted in smaller tiles, to keep more workgroups busy."""
FEW_TILES = 32
"""Tiles whose counts each tile adds up by itself."""


# -- keys and ranks


@vk.func
def key_of(x, BITS, SIGN, INFINITY, DOWN):
    """An unsigned integer of type BITS in the order of the number whose bits x are. SIGN: the bit of its sign, 0 where it has
    none; INFINITY: the bits of infinity, 0 where it is no float. NaN is greatest, zeros are equal. Bits beyond x's have no
    meaning.
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
def alike(digit, LANES):
    """The lanes of the subgroup with this digit, a mask."""
    sg = vk.subgroup()
    mask = vk.u32((1 << LANES) - 1)
    for b in vk.unroll(8):
        own = (digit & (1 << b)) != 0
        mask = mask & ~(vk.u32(sg.ballot(own)) ^ vk.where(own, vk.u32(0xFFFFFFFF), vk.u32(0)))
    return mask


@vk.func
def rank_in_subgroup(heads, row, digit, lane, LANES):
    """How many elements of this digit came before in the subgroup; heads[row * BINS + digit] counts them. A step for all lanes."""
    mask = alike(digit, LANES)
    before = vk.popcount(mask & ((vk.u32(1) << vk.u32(lane)) - vk.u32(1)))
    known = vk.i32(0)
    if before == 0:  # the first of the lanes counts for all of them
        known = vk.atomic.add(heads, row * BINS + digit, vk.i32(vk.popcount(mask)), scope="workgroup")
    return vk.subgroup().shuffle(known, vk.ctz(mask)) + vk.i32(before)


# -- lines of many tiles


@vk.func
def known_of(counts, totals, line, d, s, COUNTED):
    """How often digit d occurs in all tiles, and in those before s."""
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
    """counts[l, d, s] = how often digit d occurs in tile s of line l."""
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
def begin_tiles(
    counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"], LANES: vk.Const[int], GROUPS: vk.Const[int]
):
    """counts[l, d, s] = how many elements of digit d lie in tiles before s; totals[l, d] = in all tiles."""
    SIDE = GROUPS * LANES
    wg, lane, d, line = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    held = vk.shared(vk.i32, SIDE * RUN * 33 // 32)  # each 32 with a gap behind them, for other banks
    tiles, total = vk.i32(counts.shape[2]), vk.i32(0)
    for base in range(0, tiles, SIDE * RUN):
        for e in vk.unroll(RUN):
            i = e * SIDE + lane
            held[i + (i >> 5)] = counts.get(line, d, base + i, pad=0)
        vk.barrier()
        own = vk.i32(0)
        for e in vk.unroll(RUN):
            i = lane * RUN + e
            own += held[i + (i >> 5)]
        upto = wg.scan(own)
        before = total + upto - own
        for e in vk.unroll(RUN):
            i = lane * RUN + e
            here = held[i + (i >> 5)]
            held[i + (i >> 5)] = before
            before += here
        total += wg.broadcast(upto, SIDE - 1)
        vk.barrier()
        for e in vk.unroll(RUN):
            i = e * SIDE + lane
            counts.put(line, d, base + i, held[i + (i >> 5)])
        vk.barrier()
    if lane == 0:
        totals[line, d] = total


@vk.kernel(
    groups=lambda counts: (counts.shape[2], counts.shape[0]), local=lambda LANES, GROUPS: GROUPS * LANES, debug=False
)
def move_tiles(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    where: vk.InOut[R, "L N"],
    counts: vk.In[vk.i32, "L B S"],
    totals: vk.In[vk.i32, "L B"],
    shift: vk.i32,
    FIRST: vk.Const[bool],
    COUNTED: vk.Const[bool],
    BITS: vk.Const[Any],
    SIGN: vk.Const[int],
    INFINITY: vk.Const[int],
    DOWN: vk.Const[bool],
    LANES: vk.Const[int],
    GROUPS: vk.Const[int],
    EACH: vk.Const[int],
):
    """Moves the elements of a tile. FIRST: places are 0, 1, 2... COUNTED: counts and totals are what `begin_tiles` makes of
    them, else the former are what `count_tiles` leaves.
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
        digit = vk.where(begin + e * LANES <= last, digit, BINS - 1)  # what lies past the end comes last
        at[e] = rank_in_subgroup(heads, row, digit, lane, LANES) | (digit << 16)  # a tile has fewer elements
    vk.barrier()
    # where the elements of a digit begin: in the line, and in the tile
    lower, own = vk.i32(0), vk.i32(0)
    sums, starts = vk.local(vk.i32, PER), vk.local(vk.i32, PER)
    for p in vk.unroll(PER):
        d = thread * PER + p
        if d < BINS:
            sums[p], starts[p] = known_of(counts, totals, line, d, s, COUNTED)
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


# -- lines of one tile


@vk.kernel(groups=lambda x: x.shape[0], local=lambda LANES, GROUPS: GROUPS * LANES, debug=False)
def sort_row(
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
    """Sorts a line of at most GROUPS * LANES * EACH elements of WIDTH bits."""
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
        keys[e] = vk.where(n <= last, key, ~BITS(0))  # what lies past the end comes last
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


def ranks_by_ballots(device: Device) -> bool:
    """Whether subgroups of a device can rank elements so."""
    caps = device.caps
    needed = {"subgroup_ballot", "subgroup_shuffle"}
    return (
        needed <= caps.features
        and 8 <= caps.subgroup_size <= 32
        and GROUPS * caps.subgroup_size <= caps.max_invocations
    )


def most_of_row(lines: DeviceArray) -> int:
    """Elements of a line that one workgroup sorts."""
    device, wide = lines.device, lines.dtype.itemsize == 8
    side = GROUPS * int(device.caps.subgroup_size)
    if _software(device):
        return side * SOFTWARE_EACH
    # keys and places of each element, beside counts for each subgroup and what a running sum takes
    room = (device.caps.shared_bytes - (4 * GROUPS * BINS + 2048)) // (12 if wide else 8)
    each = ROW_EACH * 2
    while side * each > room:
        each //= 2
    return side * each


def _software(device: Device) -> bool:
    return device.caps.kind in ("cpu", "llvm-cpu", "interpreter")


_RAW = {8: vk.u8, 16: vk.u16, 32: vk.u32, 64: vk.u64}
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def _raw(array: DeviceArray) -> DeviceArray:
    """The same memory as unsigned integers."""
    return DeviceArray(array.buffer, array.offset, _RAW[array.dtype.itemsize * 8], array.shape, array.strides)


def _options(dtype: DType, descending: bool) -> tuple[Any, ...]:
    """What `key_of` takes."""
    width = dtype.itemsize * 8
    signed = dtype.is_float or dtype.kind == "int"
    sign = 1 << (width - 1) if signed else 0
    return vk.u64 if width == 64 else vk.u32, sign, _INFINITY.get(dtype.name, 0), descending


def sort_rows(lines: DeviceArray, places: DType, descending: bool, groups: int = 0) -> tuple[DeviceArray, DeviceArray]:
    """Values and places (of an integer type) of lines of at most `most_of_row` elements in order; `groups` subgroups to a
    workgroup (0: as the length wants).
    """
    lanes, n = lines.device.caps.subgroup_size, lines.shape[1]
    most = SOFTWARE_EACH if _software(lines.device) else ROW_EACH
    groups = groups or min(GROUPS, 1 << (-(-n // (lanes * most)) - 1).bit_length())
    values, found = (scratch(lines.shape, dtype, lines.device) for dtype in (lines.dtype, places))
    each = 1 << (-(-n // (groups * lanes)) - 1).bit_length()
    options = (lines.dtype.itemsize * 8, *_options(lines.dtype, descending), lanes)
    sort_row(_raw(lines), _raw(values), found, *options, groups, each)
    return values, found


def sort_lines(
    lines: DeviceArray, places: DType, descending: bool, groups: int = GROUPS, each: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Values and places (of an integer type) of lines in order; a workgroup has `groups` subgroups, whose invocations take
    `each` elements (0: as the device wants).
    """
    (rows, n), device = lines.shape, lines.device
    lanes, width = device.caps.subgroup_size, lines.dtype.itemsize * 8
    each = each or (SOFTWARE_EACH if _software(device) else EACH if rows * n > FEW_ELEMENTS else 8)
    each = each if width < 64 else min(each, 8)  # shared memory holds a tile
    counts = scratch((rows, BINS, -(-n // (groups * lanes * each))), vk.i32, device)
    counted = counts.shape[2] > FEW_TILES
    totals = scratch((rows, BINS) if counted else (1, 1), vk.i32, device)
    totals = totals if counted else DeviceArray(totals.buffer, 0, vk.i32, (rows, BINS), (0, 0))  # aren't read
    options = (*_options(lines.dtype, descending), lanes, groups, each)
    source = _raw(lines)
    known = DeviceArray(totals.buffer, 0, vk.i32, lines.shape, (0, 0))  # the first pass reads no places
    for shift in range(0, width, 8):
        target = scratch(lines.shape, source.dtype, device)
        where = scratch(lines.shape, places if shift + 8 == width else vk.i32, device)
        count_tiles(source, counts, shift, *options)
        if counted:
            begin_tiles(counts, totals, lanes, groups)
        move_tiles(source, known, target, where, counts, totals, shift, shift == 0, counted, *options)
        source, known = target, where
    return DeviceArray(source.buffer, source.offset, lines.dtype, lines.shape, source.strides), known
