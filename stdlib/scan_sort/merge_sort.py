"""Stable sorting along the last of two axes, top-k of each row, and binary search.

The sorting kernels need no shared memory or barriers. They sort rows (L, N) together with the original indices of the
elements: `places` holds those of the input x, `where` those of the result y. Elements are compared by keys: unsigned
integers in the same order, KEY(x), or its complement to sort in descending order (Const DOWN). NaN is the greatest,
zeros of both signs are equal, equal elements keep their order. `rank_sort_blocks` sorts each block of a row by ranks:
an element's rank is the number of elements before it. `merge_runs` merges pairs of adjacent sorted runs: an element's
rank is its rank in its own run plus that in the other, found by binary search. `top_k_per_workgroup` finds the first
k elements one by one, each by a minimum over the workgroup.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = [
    "key_f32",
    "key_f64",
    "key_i64",
    "key_signed",
    "key_u64",
    "key_unsigned",
    "merge_runs",
    "rank_sort_blocks",
    "search_sorted",
    "top_k_per_invocation",
    "top_k_per_workgroup",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

GROUP = 64
"""Invocations of the workgroup that sorts a block."""


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
def key_i64(x):
    """Return an order-preserving u64 key of an i64."""
    return vk.bitcast(vk.u64, x) ^ 0x8000000000000000


@vk.func
def key_unsigned(x):
    """Return an order-preserving u32 key of an unsigned integer of up to 32 bits: its value."""
    return vk.u32(x)


@vk.func
def key_u64(x):
    """Return an order-preserving key of a u64: its value."""
    return x


@vk.func
def ordered_key(x, KEY, DESCENDING):
    """Return the key of x, or if DESCENDING its complement, which reverses the order."""
    key = KEY(x)
    if DESCENDING:
        return ~key
    return key


@vk.kernel(groups=lambda x, BLOCK: (vk.cdiv(x.shape[1], BLOCK), x.shape[0]), local=GROUP, debug=False)
def rank_sort_blocks(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    where: vk.Out[vk.i32, "L N"],
    BLOCK: vk.Const[int],
    KEY: vk.Const[Any],
    DOWN: vk.Const[bool],
):
    """Sort blocks of BLOCK elements by counting ranks, one workgroup per block.

    A row's last block may be shorter. DOWN: sort in descending order.
    """
    line, begin = vk.group_id(1), vk.group_id(0) * BLOCK
    count = vk.i32(vk.min(x.shape[1] - begin, BLOCK))
    for i in range(vk.i32(vk.local_id(0)), count, GROUP):
        value = ordered_key(x[line, begin + i], KEY, DOWN)
        rank = vk.i32(0)
        for q in range(count):
            other = ordered_key(x[line, begin + q], KEY, DOWN)
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
    """Merge pairs of sorted runs of `width` elements into runs of twice the width, one invocation per element.

    DOWN: sort in descending order.
    """
    i, line = vk.i32(vk.global_id(0)), vk.global_id(1)
    n, w = vk.i32(x.shape[1]), vk.i32(width)
    run = i // w
    first = run % 2 == 0
    # Binary search in the other run of the pair, which begins at `start`. Equal elements of the first run go first.
    start = vk.min(vk.where(first, (run + 1) * w, (run - 1) * w), n)
    low = start
    high = start + vk.min(w, n - start)
    value = ordered_key(x[line, i], KEY, DOWN)
    while low < high:
        middle = low + (high - low) // 2
        other = ordered_key(x[line, middle], KEY, DOWN)
        goes = (other < value) | ((not first) & (other == value))
        low = vk.where(goes, middle + 1, low)
        high = vk.where(goes, high, middle)
    target = i + low - start - vk.where(first, 0, w)
    y[line, target] = x[line, i]
    where[line, target] = places[line, i]


@vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=lambda LOCAL: LOCAL, debug=False)
def top_k_per_workgroup(
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
    """Find the first M elements of each row in sorted order (top-k), one workgroup of LOCAL invocations per row.

    x has L lines of S parts; each part is a row of N elements, at least M and at most LOCAL * MOST. MOST is the maximum
    number of elements per invocation. FIRST: x is the original array (or a slice that starts at element `begin` of each
    line): the original index of element i of part p is begin + p * N + i, and `places` isn't read. DOWN: sort in
    descending order.
    """
    wg = vk.workgroup()
    line, part, lane = vk.group_id(1), vk.group_id(0), vk.i32(vk.local_id(0))
    n = vk.i32(x.shape[2])
    rounds = vk.min((n + LOCAL - 1) // LOCAL, MOST)
    last, last_place = ordered_key(x[line, part, 0], KEY, DOWN), vk.i32(-1)
    for j in range(vk.i32(y.shape[2])):
        # Find the first element after the previous result in (key, index) order. `place` is n while none is found.
        best, place = last, n
        for r in range(rounds):
            i = r * LOCAL + lane
            key = ordered_key(x[line, part, vk.min(i, n - 1)], KEY, DOWN)
            later = (j == 0) | (key > last) | ((key == last) & (i > last_place))
            better = later & (i < n) & ((key < best) | (place == n))
            best = vk.where(better, key, best)
            place = vk.where(better, i, place)
        empty = place == n
        # ~(best & 0) is the maximum of the key's type, u32 or u64: invocations that found none don't affect the minimum.
        least = wg.min(vk.where(empty, ~(best & 0), best))
        last_place = wg.min(vk.where((best == least) & ~empty, place, n))
        last = least
        if lane == 0:
            y[line, part, j] = x[line, part, last_place]
            own = vk.i32(begin + vk.i64(part) * vk.i64(n)) + last_place
            where[line, part, j] = R(own if FIRST else places[line, part, last_place])


@vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=1, debug=False)
def top_k_per_invocation(
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
    """Variant of `top_k_per_workgroup` with one invocation per row, for CPUs.

    It reads the row once and keeps the first M elements, sorted by insertion. MOST is the capacity of the local arrays,
    at least M. BITS is the type of the keys. `begin`, FIRST and DOWN are those of `top_k_per_workgroup`.
    """
    line, part = vk.group_id(1), vk.group_id(0)
    keys, at = vk.local(BITS, MOST), vk.local(vk.i32, MOST)
    size, filled = vk.i32(y.shape[2]), vk.i32(0)
    last = BITS(0)
    for i in range(vk.i32(x.shape[2])):
        key = ordered_key(x[line, part, i], KEY, DOWN)
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

    The rows of `bounds` are sorted. Both arrays are compared by KEY after conversion to type C.
    INDEX is an integer type wide enough for the number of bounds.
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
