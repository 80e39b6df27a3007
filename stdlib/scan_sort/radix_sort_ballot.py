"""Stable LSD radix sort on GPUs: 8-bit digits, ranking by subgroup ballots, scatter through shared memory.

The elements of rows (L, N) are reinterpreted as unsigned integers of their size, so all bits are preserved. The results
are the sorted values and their original indices. Rows of a few thousand elements are sorted by one workgroup each, in a
single launch (`sort_row_in_workgroup`). Longer rows take one pass per digit, of three launches: `count_tiles` counts
the elements with each digit value in each tile of a row, `scan_tiles` scans the counts, which gives the first output
index of each digit value in each tile, and `scatter_tiles` moves the elements. Each subgroup processes a contiguous
part of its workgroup's tile. The rank of an element with digit d is its index in the tile sorted by digit: the number
of elements of the tile with lower digits, plus those with digit d in preceding subgroups, plus those with digit d
before it in its own subgroup.

`vkjit.tensor.ops.sorting` calls `sort_short_rows` and `radix_sort` on GPUs that `supports_ballot_ranking` accepts.
Workgroups never wait for each other (there is no decoupled look-back). Subgroups have at most 32 lanes.

Parameters that the kernels share:

- SUBGROUPS, LANES, ITEMS: a workgroup has SUBGROUPS subgroups of LANES lanes; each invocation processes ITEMS elements
  of a tile.
- BITS, SIGN, INFINITY, DESCENDING: described at `key_of`.
- shift: the lowest bit of the pass's digit.
- counts: an element per row (L), digit value (B) and tile (S).
- x_indices and y_indices: the original indices of the elements of the input x and of the output y. T is the type of x
  and y, R that of `y_indices`.

In the kernels, `thread` is an invocation's index in the workgroup, `lane` its index in the subgroup.
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
"""Number of elements per invocation for which `sort_short_rows` chooses the number of subgroups, at most SUBGROUPS.

Rows that need more than SUBGROUPS subgroups get more elements per invocation instead.
"""
SOFTWARE_ELEMENTS_PER_INVOCATION = 2
"""Elements per invocation on devices that run on the CPU, instead of ELEMENTS_PER_INVOCATION and
ROW_ELEMENTS_PER_INVOCATION. They run these kernels only in tests, and their compilers are slow on unrolled code.
"""
COUNTS_PER_INVOCATION = 8
"""Adjacent counts that an invocation of `scan_tiles` adds up per iteration."""
SMALL_TILE_ELEMENTS_PER_INVOCATION = 8
"""Elements per invocation in smaller tiles, which fit in shared memory for elements of 64 bits, too."""
MAX_ELEMENTS_SMALL_TILES = 1 << 21
"""Maximum number of elements that are sorted in smaller tiles, to occupy more workgroups."""
MAX_TILES_WITHOUT_SCAN = 32
"""Maximum number of tiles whose counts each tile adds up by itself, without a launch of `scan_tiles`."""


# -- keys and ranks


@vk.func
def key_of(x, BITS, SIGN, INFINITY, DESCENDING):
    """Return the key of the element with the bits x: an unsigned integer of type BITS that orders as the elements do.

    SIGN is a mask of the element type's sign bit, 0 for unsigned types. INFINITY is the bits of infinity, 0 for
    integers. DESCENDING reverses the order. NaN has the greatest key, and zeros of both signs have the same key. Bits
    of the key above the width of x are undefined.
    """
    bits = BITS(x)
    key = bits ^ BITS(SIGN)
    if INFINITY:
        magnitude = bits & BITS(SIGN - 1)  # the bits of the absolute value
        key = vk.where(bits >= BITS(SIGN), ~bits, key)  # negative floats: more negative ones have larger bits
        key = vk.where(magnitude == BITS(0), BITS(SIGN), key)  # zeros
        key = vk.where(magnitude > BITS(INFINITY), BITS(2 * SIGN - 1), key)  # NaN
    if DESCENDING:
        return ~key
    return key


@vk.func
def match_any(digit, LANES):
    """Return a u32 mask of the lanes of the subgroup whose digit equals that of the calling lane (match-any).

    For each of the 8 bits of the digit, a ballot finds the lanes with another value of the bit, which are removed from
    the mask.
    """
    sg = vk.subgroup()
    mask = vk.u32((1 << LANES) - 1)
    for b in vk.unroll(8):
        is_set = (digit & (1 << b)) != 0
        mask = mask & ~(vk.u32(sg.ballot(is_set)) ^ vk.where(is_set, vk.u32(0xFFFFFFFF), vk.u32(0)))
    return mask


@vk.func
def rank_in_subgroup(heads, subgroup_index, digit, lane, LANES):
    """Return the number of elements with the calling lane's digit that precede its element in the subgroup's part.

    The lanes of subgroup `subgroup_index` call it together, each with one element of the subgroup's part of the tile;
    repeated calls go through the part in order. heads[subgroup_index * BINS + digit] is the number of elements with
    `digit` in previous calls, to which this call adds its own.
    """
    mask = match_any(digit, LANES)
    before = vk.popcount(mask & ((vk.u32(1) << vk.u32(lane)) - vk.u32(1)))
    first_rank = vk.i32(0)
    if before == 0:  # the first lane with this digit adds the number of lanes with this digit
        first_rank = vk.atomic.add(heads, subgroup_index * BINS + digit, vk.i32(vk.popcount(mask)), scope="workgroup")
    return vk.subgroup().shuffle(first_rank, vk.ctz(mask)) + vk.i32(before)


# -- rows of many tiles


@vk.func
def digit_totals(counts, totals, row, d, s, SCANNED):
    """Return two numbers of elements with digit d: in all tiles of a row, and in the tiles before tile s.

    If SCANNED, `totals` and `counts` are results of `scan_tiles`, which hold these numbers. Otherwise `counts` is the
    result of `count_tiles`, whose elements are added up here, and `totals` isn't read.
    """
    if SCANNED:
        return totals[row, d], counts[row, d, s]
    total, before = vk.i32(0), vk.i32(0)
    for q in range(vk.i32(counts.shape[2])):
        count = counts[row, d, q]
        total += count
        before += vk.where(q < s, count, 0)
    return total, before


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
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
    thread, s, row = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.group_id(1)
    for d in range(thread, BINS, WORKGROUP):
        table[d] = vk.i32(0)
    begin, last = s * (WORKGROUP * ITEMS) + thread, vk.i32(x.shape[1]) - 1
    elements = vk.local(T, ITEMS)
    for e in vk.unroll(ITEMS):
        elements[e] = x[row, vk.min(begin + e * WORKGROUP, last)]
    vk.barrier()
    for e in vk.unroll(ITEMS):
        digit = vk.i32((key_of(elements[e], BITS, SIGN, INFINITY, DESCENDING) >> BITS(shift)) & BITS(255))
        if begin + e * WORKGROUP <= last:
            vk.atomic.add(table, digit, vk.i32(1), scope="workgroup")
    vk.barrier()
    for d in range(thread, BINS, WORKGROUP):
        counts[row, d, s] = table[d]


@vk.kernel(
    groups=lambda counts: (counts.shape[1], counts.shape[0]),
    local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES,
    debug=False,
)
def scan_tiles(
    counts: vk.InOut[vk.i32, "L B S"], totals: vk.Out[vk.i32, "L B"], LANES: vk.Const[int], SUBGROUPS: vk.Const[int]
):
    """Exclusive scan in place: counts[l, d, s] = the number of elements with digit d in the tiles before s of row l.

    totals[l, d] = the number of elements with digit d in all tiles. There is one workgroup per row and digit value. It
    loads blocks of counts to shared memory with coalesced accesses. There, each invocation scans COUNTS_PER_INVOCATION
    adjacent counts.
    """
    WORKGROUP = SUBGROUPS * LANES
    wg, thread, d, row = vk.workgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    # padded by one element per 32 to avoid bank conflicts: element i is at i + (i >> 5)
    staged = vk.shared(vk.i32, WORKGROUP * COUNTS_PER_INVOCATION * 33 // 32)
    tile_count, total = vk.i32(counts.shape[2]), vk.i32(0)
    for base in range(0, tile_count, WORKGROUP * COUNTS_PER_INVOCATION):
        for e in vk.unroll(COUNTS_PER_INVOCATION):
            i = e * WORKGROUP + thread
            staged[i + (i >> 5)] = counts.get(row, d, base + i, pad=0)
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
            counts.put(row, d, base + i, staged[i + (i >> 5)])
        vk.barrier()
    if thread == 0:
        totals[row, d] = total


@vk.kernel(
    groups=lambda counts: (counts.shape[2], counts.shape[0]),
    local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES,
    debug=False,
)
def scatter_tiles(
    x: vk.In[T, "L N"],
    x_indices: vk.In[vk.i32, "L N"],
    y: vk.InOut[T, "L N"],
    y_indices: vk.InOut[R, "L N"],
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

    FIRST is true in the first pass, where the original indices are 0, 1, 2..., and `x_indices` isn't read. SCANNED is
    true if `scan_tiles` has scanned `counts` and computed `totals`; otherwise `counts` is the result of `count_tiles`,
    and `totals` isn't read.
    """
    WORKGROUP, BINS_PER_INVOCATION = SUBGROUPS * LANES, vk.cdiv(BINS, SUBGROUPS * LANES)
    wg, sg = vk.workgroup(), vk.subgroup()
    # heads[subgroup, digit]: at first the number of elements, later the rank of the first one
    # offsets[digit]: the difference between the output index and the rank of the elements with this digit
    # staged: the sorted tile
    heads, staged = vk.shared(vk.i32, SUBGROUPS * BINS), vk.shared(BITS, WORKGROUP * ITEMS)
    offsets = vk.shared(vk.i32, BINS)
    thread, s, row = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.group_id(1)
    lane, subgroup_index = vk.i32(sg.rank()), vk.i32(sg.id())
    # indices in the row: of the tile's first element, of this lane's first element, of the row's last element
    tile_start, count = s * (WORKGROUP * ITEMS), vk.i32(x.shape[1])
    begin, last = tile_start + subgroup_index * (LANES * ITEMS) + lane, count - 1
    values, ranks = vk.local(T, ITEMS), vk.local(vk.i32, ITEMS)
    for e in vk.unroll(ITEMS):
        values[e] = x[row, vk.min(begin + e * LANES, last)]
    for d in vk.unroll(BINS * SUBGROUPS // WORKGROUP):
        heads[d * WORKGROUP + thread] = vk.i32(0)
    vk.barrier()
    for e in vk.unroll(ITEMS):
        digit = vk.i32((key_of(values[e], BITS, SIGN, INFINITY, DESCENDING) >> BITS(shift)) & BITS(255))
        digit = vk.where(begin + e * LANES <= last, digit, BINS - 1)  # elements past the end of the row come last
        # a rank in a tile fits into 16 bits; the digit is kept in the other 16
        ranks[e] = rank_in_subgroup(heads, subgroup_index, digit, lane, LANES) | (digit << 16)
    vk.barrier()
    # Each invocation handles BINS_PER_INVOCATION adjacent digit values. Scans over the workgroup give the numbers of
    # elements with digits below the first of these values: in the row (`lower_digits`) and in the tile (`offset`).
    lower_digits, own_total = vk.i32(0), vk.i32(0)
    sums, starts = vk.local(vk.i32, BINS_PER_INVOCATION), vk.local(vk.i32, BINS_PER_INVOCATION)
    for p in vk.unroll(BINS_PER_INVOCATION):
        d = thread * BINS_PER_INVOCATION + p
        if d < BINS:
            sums[p], starts[p] = digit_totals(counts, totals, row, d, s, SCANNED)
            lower_digits += sums[p]
            for subgroup_number in vk.unroll(SUBGROUPS):
                own_total += heads[subgroup_number * BINS + d]
    lower_digits, offset = wg.scan(lower_digits) - lower_digits, wg.scan(own_total) - own_total
    for p in vk.unroll(BINS_PER_INVOCATION):
        d = thread * BINS_PER_INVOCATION + p
        if d < BINS:
            offsets[d] = lower_digits - offset + starts[p]
            lower_digits += sums[p]
            for subgroup_number in vk.unroll(SUBGROUPS):
                own_count = heads[subgroup_number * BINS + d]
                heads[subgroup_number * BINS + d] = offset
                offset += own_count
    vk.barrier()
    # sort the tile by digit in shared memory: elements with the same digit, which are adjacent in the output, become
    # adjacent in the tile, so that their stores are coalesced
    for e in vk.unroll(ITEMS):
        ranks[e] = (ranks[e] & 0xFFFF) + heads[subgroup_index * BINS + (ranks[e] >> 16)]
        staged[ranks[e]] = BITS(values[e])
    vk.barrier()
    targets = vk.local(vk.i32, ITEMS)
    for e in vk.unroll(ITEMS):
        i = e * WORKGROUP + thread
        bits = staged[i]
        digit = vk.i32((key_of(T(bits), BITS, SIGN, INFINITY, DESCENDING) >> BITS(shift)) & BITS(255))
        targets[e] = offsets[digit] + i
        if tile_start + i <= last:
            y[row, targets[e]] = T(bits)
    vk.barrier()
    # sort the tile's original indices in the same way
    for e in vk.unroll(ITEMS):
        n = begin + e * LANES
        staged[ranks[e]] = BITS(n if FIRST else x_indices[row, vk.min(n, last)])
    vk.barrier()
    for e in vk.unroll(ITEMS):
        i = e * WORKGROUP + thread
        if tile_start + i <= last:
            y_indices[row, targets[e]] = R(staged[i])


# -- rows of one tile


@vk.kernel(groups=lambda x: x.shape[0], local=lambda LANES, SUBGROUPS: SUBGROUPS * LANES, debug=False)
def sort_row_in_workgroup(
    x: vk.In[T, "L N"],
    y: vk.InOut[T, "L N"],
    y_indices: vk.InOut[R, "L N"],
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
    thread, row = vk.i32(vk.local_id(0)), vk.group_id(0)
    lane, subgroup_index = vk.i32(sg.rank()), vk.i32(sg.id())
    begin, last = subgroup_index * (LANES * ITEMS) + lane, vk.i32(x.shape[1]) - 1
    keys, indices = vk.local(BITS, ITEMS), vk.local(vk.i32, ITEMS)
    for e in vk.unroll(ITEMS):
        n = begin + e * LANES
        key = key_of(x[row, vk.min(n, last)], BITS, SIGN, INFINITY, DESCENDING)
        keys[e] = vk.where(n <= last, key, ~BITS(0))  # elements past the end of the row come last
        indices[e] = n
    for shift in range(0, WIDTH, 8):
        # heads[subgroup, digit]: at first the number of elements, later the index of the first one in the sorted row
        for d in vk.unroll(BINS * SUBGROUPS // WORKGROUP):
            heads[d * WORKGROUP + thread] = vk.i32(0)
        vk.barrier()
        ranks = vk.local(vk.i32, ITEMS)
        for e in vk.unroll(ITEMS):
            digit = vk.i32((keys[e] >> BITS(shift)) & BITS(255))
            ranks[e] = rank_in_subgroup(heads, subgroup_index, digit, lane, LANES)
        vk.barrier()
        # Each invocation handles BINS_PER_INVOCATION adjacent digit values; a scan over the workgroup gives `offset`,
        # the number of elements with digits below the first of these values.
        own_total = vk.i32(0)
        for p in vk.unroll(BINS_PER_INVOCATION):
            d = thread * BINS_PER_INVOCATION + p
            if d < BINS:
                for subgroup_number in vk.unroll(SUBGROUPS):
                    own_total += heads[subgroup_number * BINS + d]
        offset = wg.scan(own_total) - own_total
        for p in vk.unroll(BINS_PER_INVOCATION):
            d = thread * BINS_PER_INVOCATION + p
            if d < BINS:
                for subgroup_number in vk.unroll(SUBGROUPS):
                    own_count = heads[subgroup_number * BINS + d]
                    heads[subgroup_number * BINS + d] = offset
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
            y[row, n] = x[row, index]
            y_indices[row, n] = R(index)


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
    """Return the maximum length of rows that `sort_short_rows` supports on the device: what fits in shared memory."""
    device, is_64bit = lines.device, lines.dtype.itemsize == 8
    workgroup_size = SUBGROUPS * int(device.caps.subgroup_size)
    if _software(device):
        return workgroup_size * SOFTWARE_ELEMENTS_PER_INVOCATION
    # shared memory holds the counts of digits per subgroup, 2048 bytes for the scan, and a key and an index per element
    counts_bytes, scan_bytes = 4 * SUBGROUPS * BINS, 2048
    bytes_per_element = 12 if is_64bit else 8
    max_elements = (device.caps.shared_bytes - (counts_bytes + scan_bytes)) // bytes_per_element
    each = ROW_ELEMENTS_PER_INVOCATION * 2  # elements per invocation
    while workgroup_size * each > max_elements:
        each //= 2
    return workgroup_size * each


def _software(device: Device) -> bool:
    """True if the device runs kernels on a CPU."""
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


def _next_power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n, for a positive n."""
    return 1 << (n - 1).bit_length()


def sort_short_rows(
    lines: DeviceArray, index_dtype: DType, descending: bool, groups: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Sort the rows `lines` (L, N), with N at most `max_row_length`, in one launch.

    Returns the sorted values and their original indices, of the integer type `index_dtype`. `groups` is the number of
    subgroups per workgroup; 0 chooses it by the row length.
    """
    lanes, n = lines.device.caps.subgroup_size, lines.shape[1]
    if not groups:
        each = SOFTWARE_ELEMENTS_PER_INVOCATION if _software(lines.device) else ROW_ELEMENTS_PER_INVOCATION
        groups = min(SUBGROUPS, _next_power_of_two(-(-n // (lanes * each))))
    each = _next_power_of_two(-(-n // (groups * lanes)))  # elements per invocation
    values, indices = (scratch(lines.shape, dtype, lines.device) for dtype in (lines.dtype, index_dtype))
    options = (lines.dtype.itemsize * 8, *_options(lines.dtype, descending), lanes)
    sort_row_in_workgroup(_raw(lines), _raw(values), indices, *options, groups, each)
    return values, indices


def radix_sort(
    lines: DeviceArray, index_dtype: DType, descending: bool, groups: int = SUBGROUPS, each: int = 0
) -> tuple[DeviceArray, DeviceArray]:
    """Sort the rows `lines` (L, N) of any length, in one pass per digit.

    Returns the sorted values and their original indices, of the integer type `index_dtype`. A workgroup has `groups`
    subgroups, and each invocation processes `each` elements of a tile; `each` = 0 chooses a number for the device.
    """
    (rows, n), device = lines.shape, lines.device
    lanes, width = device.caps.subgroup_size, lines.dtype.itemsize * 8
    if not each:
        if _software(device):
            each = SOFTWARE_ELEMENTS_PER_INVOCATION
        elif rows * n > MAX_ELEMENTS_SMALL_TILES:
            each = ELEMENTS_PER_INVOCATION
        else:
            each = SMALL_TILE_ELEMENTS_PER_INVOCATION
    if width == 64:
        each = min(each, SMALL_TILE_ELEMENTS_PER_INVOCATION)  # a tile has to fit in shared memory
    counts = scratch((rows, BINS, -(-n // (groups * lanes * each))), vk.i32, device)
    scan_counts = counts.shape[2] > MAX_TILES_WITHOUT_SCAN
    if scan_counts:
        totals = scratch((rows, BINS), vk.i32, device)
    else:  # `totals` isn't read: a single element, repeated by strides of 0
        totals = DeviceArray(scratch((1, 1), vk.i32, device).buffer, 0, vk.i32, (rows, BINS), (0, 0))
    options = (*_options(lines.dtype, descending), lanes, groups, each)
    source = _raw(lines)
    source_indices = DeviceArray(totals.buffer, 0, vk.i32, lines.shape, (0, 0))  # not read by the first pass
    for shift in range(0, width, 8):
        target = scratch(lines.shape, source.dtype, device)
        is_last = shift + 8 == width
        target_indices = scratch(lines.shape, index_dtype if is_last else vk.i32, device)
        count_tiles(source, counts, shift, *options)
        if scan_counts:
            scan_tiles(counts, totals, lanes, groups)
        scatter_tiles(
            source, source_indices, target, target_indices, counts, totals, shift, shift == 0, scan_counts, *options
        )
        source, source_indices = target, target_indices
    return DeviceArray(source.buffer, source.offset, lines.dtype, lines.shape, source.strides), source_indices
