"""Stable LSD radix sort on GPUs: 8-bit digits, ranking by subgroup ballots, scatter through shared memory.

Rows (L, N) are reinterpreted as unsigned integers of the elements' size, so all bits are preserved; the results are the
sorted values and their original indices. Rows of a few thousand elements are sorted by one workgroup each, in a single
launch. Longer ones take one pass per digit: count the digits of each tile (upsweep), scan the counts into the first
output index of each digit in each tile, scatter the elements with coalesced stores where possible (downsweep). Each
subgroup owns a contiguous part of its tile. The rank of an element with digit d is the number of elements of the tile
with lower digits, plus those with digit d in preceding subgroups, plus those with digit d before it in its own
subgroup.

`vkjit.tensor.ops.sorting` calls `sort_short_rows` and `radix_sort` on GPUs that support this. Workgroups never wait for
each other (there is no decoupled look-back). Subgroups have at most 32 lanes.

Parameters of the kernels: a workgroup has SUBGROUPS subgroups of LANES lanes, and each invocation processes ITEMS elements
of a tile. BITS, SIGN, INFINITY and DESCENDING are those of `key_of`. `shift` is the lowest bit of the pass's digit. `counts`
has an element per row, digit value (B) and tile (S). `places` holds the original indices of the elements of the input
x, `where` those of the output y. In the kernels, `thread` is an invocation's index in the workgroup, `lane` its index
in the subgroup.
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
"""Maximum number of elements per invocation in `sort_short_rows`.

It is exceeded if even a workgroup of SUBGROUPS subgroups needs more.
"""
SOFTWARE_ELEMENTS_PER_INVOCATION = 2
"""Elements per invocation on software devices, instead of both previous constants. Software devices run these kernels
only in tests, and their compilers are slow on unrolled code.
"""
COUNTS_PER_INVOCATION = 8
"""Adjacent counts that an invocation of `scan_tiles` adds up per iteration."""
MAX_ELEMENTS_SMALL_TILES = 1 << 21
"""Maximum number of elements that are sorted in smaller tiles, to occupy more workgroups."""
MAX_TILES_WITHOUT_SCAN = 32
"""Maximum number of tiles whose counts each tile adds up by itself, without a launch of `scan_tiles`."""


# -- keys and ranks


@vk.func
def key_of(x, BITS, SIGN, INFINITY, DESCENDING):
    """Return an unsigned integer of type BITS that orders like the number with the bits x.

    SIGN is the sign bit, 0 for unsigned types; INFINITY the bits of infinity, 0 for integers. DESCENDING reverses the order.
    NaN is the greatest, zeros of both signs are equal. Bits of the key above the width of x are undefined.
    """
    bits = BITS(x)
    key = bits ^ BITS(SIGN)
    if INFINITY:
        magnitude = bits & BITS(SIGN - 1)
        key = vk.where(bits >= BITS(SIGN), ~bits, key)  # negative floats: more negative ones have larger bits
        key = vk.where(magnitude == BITS(0), BITS(SIGN), key)  # zeros
        key = vk.where(magnitude > BITS(INFINITY), BITS(2 * SIGN - 1), key)  # NaN
    if DESCENDING:
        return ~key
    return key


@vk.func
def match_any(digit, LANES):
    """Return a u32 mask of the lanes of the subgroup whose digit is that of the calling lane (match-any).

    Each of the 8 bits of the digit takes a ballot, which clears the lanes with another value of the bit.
    """
    sg = vk.subgroup()
    mask = vk.u32((1 << LANES) - 1)
    for b in vk.unroll(8):
        is_set = (digit & (1 << b)) != 0
        mask = mask & ~(vk.u32(sg.ballot(is_set)) ^ vk.where(is_set, vk.u32(0xFFFFFFFF), vk.u32(0)))
    return mask


@vk.func
def rank_in_subgroup(heads, subgroup_index, digit, lane, LANES):
    """Return the number of preceding elements with this digit in the subgroup's part of the tile.

    The lanes of subgroup `subgroup_index` call it together for the elements of a part, in order.
    heads[subgroup_index * BINS + digit] counts the elements of previous calls; this call adds its own.
    """
    mask = match_any(digit, LANES)
    before = vk.popcount(mask & ((vk.u32(1) << vk.u32(lane)) - vk.u32(1)))
    seen = vk.i32(0)
    if before == 0:  # the first lane with this digit adds the count of all of them
        seen = vk.atomic.add(heads, subgroup_index * BINS + digit, vk.i32(vk.popcount(mask)), scope="workgroup")
    return vk.subgroup().shuffle(seen, vk.ctz(mask)) + vk.i32(before)


# -- rows of many tiles


@vk.func
def digit_totals(counts, totals, line, d, s, SCANNED):
    """Return the number of elements with digit d in all tiles of a row, and in the tiles before s.

    If SCANNED, `totals` and `counts` are results of `scan_tiles`, which hold these numbers. Otherwise `counts` is the
    result of `count_tiles`, whose elements are added up here.
    """
    if SCANNED:
        return totals[line, d], counts[line, d, s]
    total, before = vk.i32(0), vk.i32(0)
    for q in range(vk.i32(counts.shape[2])):
        count = counts[line, d, q]
        total += count
        before += vk.where(q < s, count, 0)
    return total, before


@vk.kernel(
    groups=lambda counts: (counts.shape[2], counts.shape[0]),
    local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES,
    debug=False,
)
def count_tiles(
    x: vk.In[T, "L N"],
    counts: vk.Out[vk.i32, "L B S"],
    shift: vk.i32,
    BITS: vk.Const[Any],
    SIGN: vk.Const[int],
    INFINITY: vk.Const[int],
    DESCENDING: vk.Const[bool],
    LANES: vk.Const[int],
    SUBGROUPS: vk.Const[int],
    ITEMS: vk.Const[int],
):
    """counts[l, d, s] = the number of elements with digit d in tile s of row l, by one workgroup per tile."""
    WORKGROUP = SUBGROUPS * LANES
    table = vk.shared(vk.i32, BINS)
    thread, s, line = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.group_id(1)
    for d in range(thread, BINS, WORKGROUP):
        table[d] = vk.i32(0)
    begin, last = s * (WORKGROUP * ITEMS) + thread, vk.i32(x.shape[1]) - 1
    elements = vk.local(T, ITEMS)
    for e in vk.unroll(ITEMS):
        elements[e] = x[line, vk.min(begin + e * WORKGROUP, last)]
    vk.barrier()
    for e in vk.unroll(ITEMS):
        digit = vk.i32((key_of(elements[e], BITS, SIGN, INFINITY, DESCENDING) >> BITS(shift)) & BITS(255))
        if begin + e * WORKGROUP <= last:
            vk.atomic.add(table, digit, vk.i32(1), scope="workgroup")
    vk.barrier()
    for d in range(thread, BINS, WORKGROUP):
        counts[line, d, s] = table[d]


@vk.kernel(
    groups=lambda counts: (counts.shape[1], counts.shape[0]),
    local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES,
    debug=False,
)
def scan_tiles(
    counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"], LANES: vk.Const[int], SUBGROUPS: vk.Const[int]
):
    """Exclusive scan in place: counts[l, d, s] = the number of elements with digit d in the tiles before s of row l.

    totals[l, d] = the number of elements with digit d in all tiles. One workgroup per row and digit loads blocks of
    counts to shared memory with coalesced accesses, where each invocation adds up COUNTS_PER_INVOCATION adjacent ones.
    """
    WORKGROUP = SUBGROUPS * LANES
    wg, thread, d, line = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    # padded by one element per 32 to avoid bank conflicts: element i is at i + (i >> 5)
    staged = vk.shared(vk.i32, WORKGROUP * COUNTS_PER_INVOCATION * 33 // 32)
    tiles, total = vk.i32(counts.shape[2]), vk.i32(0)
    for base in range(0, tiles, WORKGROUP * COUNTS_PER_INVOCATION):
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = e * WORKGROUP + thread
            staged[i + (i >> 5)] = counts.get(line, d, base + i, pad=0)
        vk.barrier()
        own_total = vk.i32(0)
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = thread * COUNTS_PER_INVOCATION + e
            own_total += staged[i + (i >> 5)]
        inclusive = wg.scan(own_total)
        offset = total + inclusive - own_total
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = thread * COUNTS_PER_INVOCATION + e
            count = staged[i + (i >> 5)]
            staged[i + (i >> 5)] = offset
            offset += count
        total += wg.broadcast(inclusive, WORKGROUP - 1)
        vk.barrier()
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = e * WORKGROUP + thread
            counts.put(line, d, base + i, staged[i + (i >> 5)])
        vk.barrier()
    if thread == 0:
        totals[line, d] = total


@vk.kernel(
    groups=lambda counts: (counts.shape[2], counts.shape[0]),
    local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES,
    debug=False,
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
    DESCENDING: vk.Const[bool],
    LANES: vk.Const[int],
    SUBGROUPS: vk.Const[int],
    ITEMS: vk.Const[int],
):
    """Scatter the elements of a tile to their output indices for the current digit, by one workgroup per tile.

    FIRST is true in the first pass, where the original indices are 0, 1, 2..., and `places` isn't read. SCANNED is true
    if `scan_tiles` has scanned `counts` and computed `totals`; otherwise `counts` is the result of `count_tiles`, and
    `totals` isn't read.
    """
    WORKGROUP, BINS_PER_INVOCATION = SUBGROUPS * LANES, vk.cdiv(BINS, SUBGROUPS * LANES)
    wg, sg = vk.workgroup(), vk.subgroup()
    # heads: per subgroup and digit, the number of elements, then the index in the tile of the first one; offsets: per
    # digit, what is added to an element's index in the sorted tile to get its output index
    heads, staged = vk.shared(vk.i32, SUBGROUPS * BINS), vk.shared(BITS, WORKGROUP * ITEMS)
    offsets = vk.shared(vk.i32, BINS)
    thread, s, line = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.group_id(1)
    lane, subgroup_index = vk.i32(sg.rank()), vk.i32(sg.id())
    # indices in the row: of the tile's first element, of this lane's first element, of the row's last element
    tile, count = s * (WORKGROUP * ITEMS), vk.i32(x.shape[1])
    begin, last = tile + subgroup_index * (LANES * ITEMS) + lane, count - 1
    values, ranks = vk.local(T, ITEMS), vk.local(vk.i32, ITEMS)
    for e in vk.unroll(ITEMS):
        values[e] = x[line, vk.min(begin + e * LANES, last)]
    for d in vk.unroll(BINS * SUBGROUPS // WORKGROUP):
        heads[d * WORKGROUP + thread] = vk.i32(0)
    vk.barrier()
    for e in vk.unroll(ITEMS):
        digit = vk.i32((key_of(values[e], BITS, SIGN, INFINITY, DESCENDING) >> BITS(shift)) & BITS(255))
        digit = vk.where(begin + e * LANES <= last, digit, BINS - 1)  # elements past the end of the row come last
        # a rank in a tile fits into 16 bits; the digit is kept in the other 16
        ranks[e] = rank_in_subgroup(heads, subgroup_index, digit, lane, LANES) | (digit << 16)
    vk.barrier()
    # the first output index of each digit in the row (from `lower`, elements of lower digits in the row) and in the
    # tile (from `own_total`, elements of this invocation's digits in the tile)
    lower, own_total = vk.i32(0), vk.i32(0)
    sums, starts = vk.local(vk.i32, BINS_PER_INVOCATION), vk.local(vk.i32, BINS_PER_INVOCATION)
    for p in vk.unroll(BINS_PER_INVOCATION):
        d = thread * BINS_PER_INVOCATION + p
        if d < BINS:
            sums[p], starts[p] = digit_totals(counts, totals, line, d, s, SCANNED)
            lower += sums[p]
            for g in vk.unroll(SUBGROUPS):
                own_total += heads[g * BINS + d]
    lower, offset = wg.scan(lower) - lower, wg.scan(own_total) - own_total
    for p in vk.unroll(BINS_PER_INVOCATION):
        d = thread * BINS_PER_INVOCATION + p
        if d < BINS:
            offsets[d] = lower - offset + starts[p]
            lower += sums[p]
            for g in vk.unroll(SUBGROUPS):
                own_count = heads[g * BINS + d]
                heads[g * BINS + d] = offset
                offset += own_count
    vk.barrier()
    # sort the tile in shared memory: elements of equal digits, which are adjacent in the output, get adjacent, so that
    # their stores are coalesced
    for e in vk.unroll(ITEMS):
        ranks[e] = (ranks[e] & 0xFFFF) + heads[subgroup_index * BINS + (ranks[e] >> 16)]
        staged[ranks[e]] = BITS(values[e])
    vk.barrier()
    target = vk.local(vk.i32, ITEMS)
    for e in vk.unroll(ITEMS):
        i = e * WORKGROUP + thread
        bits = staged[i]
        digit = vk.i32((key_of(T(bits), BITS, SIGN, INFINITY, DESCENDING) >> BITS(shift)) & BITS(255))
        target[e] = offsets[digit] + i
        if tile + i <= last:
            y[line, target[e]] = T(bits)
    vk.barrier()
    # sort the tile's original indices in the same way
    for e in vk.unroll(ITEMS):
        n = begin + e * LANES
        staged[ranks[e]] = BITS(n if FIRST else places[line, vk.min(n, last)])
    vk.barrier()
    for e in vk.unroll(ITEMS):
        i = e * WORKGROUP + thread
        if tile + i <= last:
            where[line, target[e]] = R(staged[i])


# -- rows of one tile


@vk.kernel(groups=lambda x: x.shape[0], local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES, debug=False)
def sort_row_in_workgroup(
    x: vk.In[T, "L N"],
    y: vk.InOut[T, "L N"],
    where: vk.InOut[R, "L N"],
    WIDTH: vk.Const[int],
    BITS: vk.Const[Any],
    SIGN: vk.Const[int],
    INFINITY: vk.Const[int],
    DESCENDING: vk.Const[bool],
    LANES: vk.Const[int],
    SUBGROUPS: vk.Const[int],
    ITEMS: vk.Const[int],
):
    """Sort a row of at most SUBGROUPS * LANES * ITEMS elements of WIDTH bits, by one workgroup per row.

    The keys and original indices stay in registers and shared memory for all passes; the values are loaded again at the
    end.
    """
    WORKGROUP, BINS_PER_INVOCATION = SUBGROUPS * LANES, vk.cdiv(BINS, SUBGROUPS * LANES)
    wg, sg = vk.workgroup(), vk.subgroup()
    heads = vk.shared(vk.i32, SUBGROUPS * BINS)
    staged, staged_indices = vk.shared(BITS, WORKGROUP * ITEMS), vk.shared(vk.i32, WORKGROUP * ITEMS)
    thread, line = vk.i32(vk.local_id(0)), vk.group_id(0)
    lane, subgroup_index = vk.i32(sg.rank()), vk.i32(sg.id())
    begin, last = subgroup_index * (LANES * ITEMS) + lane, vk.i32(x.shape[1]) - 1
    keys, indices = vk.local(BITS, ITEMS), vk.local(vk.i32, ITEMS)
    for e in vk.unroll(ITEMS):
        n = begin + e * LANES
        key = key_of(x[line, vk.min(n, last)], BITS, SIGN, INFINITY, DESCENDING)
        keys[e] = vk.where(n <= last, key, ~BITS(0))  # elements past the end of the row come last
        indices[e] = n
    for shift in range(0, WIDTH, 8):
        # heads: per subgroup and digit, the number of elements, then the index of the first one in the sorted row
        for d in vk.unroll(BINS * SUBGROUPS // WORKGROUP):
            heads[d * WORKGROUP + thread] = vk.i32(0)
        vk.barrier()
        ranks = vk.local(vk.i32, ITEMS)
        for e in vk.unroll(ITEMS):
            digit = vk.i32((keys[e] >> BITS(shift)) & BITS(255))
            ranks[e] = rank_in_subgroup(heads, subgroup_index, digit, lane, LANES)
        vk.barrier()
        own_total = vk.i32(0)
        for p in vk.unroll(BINS_PER_INVOCATION):
            d = thread * BINS_PER_INVOCATION + p
            if d < BINS:
                for g in vk.unroll(SUBGROUPS):
                    own_total += heads[g * BINS + d]
        offset = wg.scan(own_total) - own_total
        for p in vk.unroll(BINS_PER_INVOCATION):
            d = thread * BINS_PER_INVOCATION + p
            if d < BINS:
                for g in vk.unroll(SUBGROUPS):
                    own_count = heads[g * BINS + d]
                    heads[g * BINS + d] = offset
                    offset += own_count
        vk.barrier()
        for e in vk.unroll(ITEMS):
            target = ranks[e] + heads[subgroup_index * BINS + vk.i32((keys[e] >> BITS(shift)) & BITS(255))]
            staged[target] = keys[e]
            staged_indices[target] = indices[e]
        vk.barrier()
        for e in vk.unroll(ITEMS):
            keys[e] = staged[begin + e * LANES]
            indices[e] = staged_indices[begin + e * LANES]
    for e in vk.unroll(ITEMS):
        n = e * WORKGROUP + thread
        if n <= last:
            index = staged_indices[n]
            y[line, n] = x[line, index]
            where[line, n] = R(index)


# -- launches


def supports_ballot_ranking(device: Device) -> bool:
    """True if the device supports this module's kernels: ballots and shuffles in subgroups of 8 to 32 lanes."""
    caps = device.caps
    needed = {"subgroup_ballot", "subgroup_shuffle"}
    return (
        needed <= caps.features
        and 8 <= caps.subgroup_size <= 32
        and SUBGROUPS * caps.subgroup_size <= caps.max_invocations
    )


def max_row_length(lines: DeviceArray) -> int:
    """Return the maximum length of rows that `sort_short_rows` supports on the device, by its shared memory."""
    device, is_64bit = lines.device, lines.dtype.itemsize == 8
    workgroup_size = SUBGROUPS * int(device.caps.subgroup_size)
    if _software(device):
        return workgroup_size * SOFTWARE_ELEMENTS_PER_INVOCATION
    # besides the keys and indices, shared memory holds counts per subgroup and the scan's scratch space
    available = (device.caps.shared_bytes - (4 * SUBGROUPS * BINS + 2048)) // (12 if is_64bit else 8)
    each = ROW_ELEMENTS_PER_INVOCATION * 2
    while workgroup_size * each > available:
        each //= 2
    return workgroup_size * each


def _software(device: Device) -> bool:
    """True if kernels run on a CPU."""
    return device.caps.kind in ("cpu", "llvm-cpu", "interpreter")


_RAW = {8: vk.u8, 16: vk.u16, 32: vk.u32, 64: vk.u64}
"""Unsigned integer types by width in bits."""
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
"""Bits of infinity by float type."""


def _raw(array: DeviceArray) -> DeviceArray:
    """Reinterpret an array as unsigned integers of the elements' size."""
    return DeviceArray(array.buffer, array.offset, _RAW[array.dtype.itemsize * 8], array.shape, array.strides)


def _options(dtype: DType, descending: bool) -> tuple[Any, ...]:
    """Return the arguments of `key_of` for an element type: (BITS, SIGN, INFINITY, DESCENDING)."""
    width = dtype.itemsize * 8
    signed = dtype.is_float or dtype.kind == "int"
    sign = 1 << (width - 1) if signed else 0
    return vk.u64 if width == 64 else vk.u32, sign, _INFINITY.get(dtype.name, 0), descending


def sort_short_rows(
    lines: DeviceArray, index_dtype: DType, descending: bool, groups: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Sort the rows `lines` (L, N), with N at most `max_row_length`, in one launch.

    Returns the sorted values and their original indices, of the integer type `index_dtype`. `groups` is the number of
    subgroups per workgroup; 0 chooses it by the row length.
    """
    lanes, n = lines.device.caps.subgroup_size, lines.shape[1]
    elements_per_invocation = (
        SOFTWARE_ELEMENTS_PER_INVOCATION if _software(lines.device) else ROW_ELEMENTS_PER_INVOCATION
    )
    # `groups` and `each` are rounded up to powers of two
    groups = groups or min(SUBGROUPS, 1 << (-(-n // (lanes * elements_per_invocation)) - 1).bit_length())
    values, indices = (scratch(lines.shape, dtype, lines.device) for dtype in (lines.dtype, index_dtype))
    each = 1 << (-(-n // (groups * lanes)) - 1).bit_length()
    options = (lines.dtype.itemsize * 8, *_options(lines.dtype, descending), lanes)
    sort_row_in_workgroup(_raw(lines), _raw(values), indices, *options, groups, each)
    return values, indices


def radix_sort(
    lines: DeviceArray, index_dtype: DType, descending: bool, groups: int = SUBGROUPS, each: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Sort the rows `lines` (L, N) of any length, in one pass per digit.

    Returns the sorted values and their original indices, of the integer type `index_dtype`. A workgroup has `groups`
    subgroups, whose invocations process `each` elements of a tile; 0 chooses a number for the device.
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
    scan_counts = counts.shape[2] > MAX_TILES_WITHOUT_SCAN
    totals = scratch((rows, BINS) if scan_counts else (1, 1), vk.i32, device)
    totals = totals if scan_counts else DeviceArray(totals.buffer, 0, vk.i32, (rows, BINS), (0, 0))  # not read
    options = (*_options(lines.dtype, descending), lanes, groups, each)
    source = _raw(lines)
    indices = DeviceArray(totals.buffer, 0, vk.i32, lines.shape, (0, 0))  # not read by the first pass
    for shift in range(0, width, 8):
        target = scratch(lines.shape, source.dtype, device)
        where = scratch(lines.shape, index_dtype if shift + 8 == width else vk.i32, device)
        count_tiles(source, counts, shift, *options)
        if scan_counts:
            scan_tiles(counts, totals, lanes, groups)
        scatter_tiles(source, indices, target, where, counts, totals, shift, shift == 0, scan_counts, *options)
        source, indices = target, where
    return DeviceArray(source.buffer, source.offset, lines.dtype, lines.shape, source.strides), indices
