"""Stable sorting along the last of two axes without shared memory or barriers, top-k of each row, and binary search.

Kernels sort rows (L, N) together with the original indices of their elements. Elements are compared by keys, unsigned
integers in the same order: KEY(x), or with DOWN its complement. NaN is the greatest, zeros of both signs are equal,
equal elements keep their order. `count_ranks` sorts each block of a row by ranks: an element's rank is the number of
elements before it. `merge_runs` merges pairs of adjacent sorted runs: an element's rank is its rank in its own run plus
that in the other, found by binary search. `first_of_lines` finds the first k elements by one search each.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = [
    "count_ranks", "first_alone", "first_of_lines", "key_f32", "key_f64", "key_signed", "key_signed_long", "key_unsigned",
    "key_unsigned_long", "merge_runs", "search_sorted",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

GROUP = 64
"""Invocations that share a block."""


@vk.func
def key_f32(x):
    """Return an order-preserving u32 key of a float of up to 32 bits."""
    y = vk.f32(x)
    bits = vk.bitcast(vk.u32, vk.where(y == 0, vk.f32(0), y))
    ordered = vk.where(bits >= 0x80000000, ~bits, bits | 0x80000000)
    return vk.where(y != y, vk.u32(0xFFFFFFFF), ordered)


@vk.func
def key_f64(x):
    """Return an order-preserving u64 key of an f64."""
    bits = vk.bitcast(vk.u64, vk.where(x == 0, vk.f64(0), x))
    ordered = vk.where(bits >= 0x8000000000000000, ~bits, bits | 0x8000000000000000)
    return vk.where(x != x, vk.u64(0xFFFFFFFFFFFFFFFF), ordered)


@vk.func
def key_signed(x):
    """Return an order-preserving u32 key of a signed integer of up to 32 bits."""
    return vk.bitcast(vk.u32, vk.i32(x)) ^ 0x80000000


@vk.func
def key_signed_long(x):
    """Return an order-preserving u64 key of an i64."""
    return vk.bitcast(vk.u64, x) ^ 0x8000000000000000


@vk.func
def key_unsigned(x):
    """Return an order-preserving u32 key of an unsigned integer of up to 32 bits: its value."""
    return vk.u32(x)


@vk.func
def key_unsigned_long(x):
    """Return an order-preserving key of a u64: its value."""
    return x


@vk.func
def keyed(x, KEY, DOWN):
    """Return the key of x, or with DOWN its complement, which orders descending."""
    key = KEY(x)
    if DOWN:
        return ~key
    return key


@vk.kernel(groups=lambda x, BLOCK: (vk.cdiv(x.shape[1], BLOCK), x.shape[0]), local=GROUP, debug=False)
def count_ranks(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    where: vk.Out[vk.i32, "L N"],
    BLOCK: vk.Const[int],
    KEY: vk.Const[Any],
    DOWN: vk.Const[bool],
):
    """Sort blocks of BLOCK elements by counting ranks, one workgroup per block; a row's last block may be shorter."""
    line, begin = vk.group_id(1), vk.group_id(0) * BLOCK
    count = vk.i32(vk.min(x.shape[1] - begin, BLOCK))
    for i in range(vk.i32(vk.local_id(0)), count, GROUP):
        value = keyed(x[line, begin + i], KEY, DOWN)
        rank = vk.i32(0)
        for q in range(count):
            other = keyed(x[line, begin + q], KEY, DOWN)
            ahead = (other < value) | ((q < i) & (other == value))
            rank += vk.where(ahead, 1, 0)
        y[line, begin + rank] = x[line, begin + i]
        where[line, begin + rank] = places[line, begin + i]


@vk.kernel(over="x", debug=False)
def merge_runs(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    where: vk.Out[vk.i32, "L N"],
    width: vk.i64,
    KEY: vk.Const[Any],
    DOWN: vk.Const[bool],
):
    """Merge pairs of sorted runs of `width` elements into runs of twice the width."""
    i, line = vk.i32(vk.global_id(0)), vk.global_id(1)
    n, w = vk.i32(x.shape[1]), vk.i32(width)
    run = i // w
    first = run % 2 == 0
    start = vk.min(vk.where(first, (run + 1) * w, (run - 1) * w), n)
    low = start
    high = start + vk.min(w, n - start)
    value = keyed(x[line, i], KEY, DOWN)
    while low < high:
        middle = low + (high - low) // 2
        other = keyed(x[line, middle], KEY, DOWN)
        goes = (other < value) | ((not first) & (other == value))
        low = vk.where(goes, middle + 1, low)
        high = vk.where(goes, high, middle)
    target = i + low - start - vk.where(first, 0, w)
    y[line, target] = x[line, i]
    where[line, target] = places[line, i]


@vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=lambda LOCAL: LOCAL, debug=False)
def first_of_lines(
    x: vk.In[T, "L S N"],
    places: vk.In[vk.i32, "L S N"],
    y: vk.Out[T, "L S M"],
    where: vk.Out[R, "L S M"],
    begin: vk.i64,
    FIRST: vk.Const[bool],
    LOCAL: vk.Const[int],
    KEY: vk.Const[Any],
    DOWN: vk.Const[bool],
    MOST: vk.Const[int],
):
    """The first M elements of each row in sorted order (top-k), one workgroup per row.

    A row has at least M and at most LOCAL * MOST elements. FIRST: the index of element i of part p is begin + p * N +
    i, and `places` isn't read.
    """
    wg = vk.workgroup()
    line, part, lane = vk.group_id(1), vk.group_id(0), vk.i32(vk.local_id(0))
    n = vk.i32(x.shape[2])
    rounds = vk.min((n + LOCAL - 1) // LOCAL, MOST)
    last, last_place = keyed(x[line, part, 0], KEY, DOWN), vk.i32(-1)
    for j in range(vk.i32(y.shape[2])):
        best, place = last, n
        for r in range(rounds):
            i = r * LOCAL + lane
            key = keyed(x[line, part, vk.min(i, n - 1)], KEY, DOWN)
            later = (j == 0) | (key > last) | ((key == last) & (i > last_place))
            better = later & (i < n) & ((key < best) | (place == n))
            best = vk.where(better, key, best)
            place = vk.where(better, i, place)
        empty = place == n
        least = wg.min(vk.where(empty, ~(best & 0), best))
        last_place = wg.min(vk.where((best == least) & ~empty, place, n))
        last = least
        if lane == 0:
            y[line, part, j] = x[line, part, last_place]
            own = vk.i32(begin + vk.i64(part) * vk.i64(n)) + last_place
            where[line, part, j] = R(own if FIRST else places[line, part, last_place])


@vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=1, debug=False)
def first_alone(
    x: vk.In[T, "L S N"],
    places: vk.In[vk.i32, "L S N"],
    y: vk.Out[T, "L S M"],
    where: vk.Out[R, "L S M"],
    begin: vk.i64,
    FIRST: vk.Const[bool],
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DOWN: vk.Const[bool],
    MOST: vk.Const[int],
):
    """Variant of `first_of_lines` by one invocation per row, for CPUs.

    It reads the row once and keeps the first M <= MOST elements in order by insertion; keys have type BITS.
    """
    line, part = vk.group_id(1), vk.group_id(0)
    keys, at = vk.local(BITS, MOST), vk.local(vk.i32, MOST)
    size, filled = vk.i32(y.shape[2]), vk.i32(0)
    last = BITS(0)
    for i in range(vk.i32(x.shape[2])):
        key = keyed(x[line, part, i], KEY, DOWN)
        if filled < size or key < last:
            j = vk.min(filled, size - 1)
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                at[j] = at[j - 1]
                j -= 1
            keys[j] = key
            at[j] = i
            filled = vk.min(filled + 1, size)
            if filled == size:
                last = keys[size - 1]
    for j in range(size):
        y[line, part, j] = x[line, part, at[j]]
        own = vk.i32(begin + vk.i64(part) * vk.i64(x.shape[2])) + at[j]
        where[line, part, j] = R(own if FIRST else places[line, part, at[j]])


@vk.kernel(over="y", debug=False)
def search_sorted(
    bounds: vk.In[T, "L N"],
    values: vk.In[U, "L M"],
    y: vk.Out[R, "L M"],
    RIGHT: vk.Const[bool],
    C: vk.Const[Any],
    KEY: vk.Const[Any],
    INDEX: vk.Const[Any],
):
    """Binary search: y[l, m] = the number of bounds[l] below values[l, m], or with RIGHT not above it.

    Both are compared as type C. INDEX is an integer type wide enough for the number of bounds.
    """
    m, line = vk.global_id(0), vk.global_id(1)
    value = KEY(C(values[line, m]))
    low = INDEX(0)
    high = INDEX(bounds.shape[1])
    while low < high:
        middle = low + ((high - low) >> 1)
        other = KEY(C(bounds[line, middle]))
        if RIGHT:
            goes = other <= value
        else:
            goes = other < value
        low = vk.where(goes, middle + 1, low)
        high = vk.where(goes, high, middle)
    y[line, m] = R(low)
