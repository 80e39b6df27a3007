"""Stable sorting along the last of two axes, top-k of each row, and binary search.

`vkjit.tensor.ops.sorting` launches these kernels. They sort arrays (L, N) of L rows, together with the original indices
of the elements: `x_indices` holds the original indices of the elements of the input x, `y_indices` those of the result
y. The sort needs no shared memory or barriers. `rank_sort_blocks` sorts each block of a row by ranks: the rank of an
element is the number of elements of the block that precede it in the sorted order. `merge_runs` then merges pairs of
adjacent sorted runs: the index of an element in the merged run is its index in its own run plus the number of elements
of the other run that precede it, found by binary search.

Elements are compared by keys, unsigned integers that order as the elements do. Const KEY is the device function that
computes the key of an element, one of the `key_*` functions. Const DESCENDING sorts in descending order, by
complemented keys. NaN is the greatest, zeros of both signs are equal, and equal elements keep their order.

T is the type of x and y, R that of the resulting indices in top-k and binary search, U that of the values of the binary
search. In the kernels, `thread` is an invocation's index in the workgroup.
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
    """Return an order-preserving u32 key of a float of up to 32 bits.

    As unsigned integers, the bits of positive floats order as their values; setting the sign bit makes them greater
    than those of negative floats. The bits of negative floats have the reverse order and are inverted. NaN has the
    greatest key, and both zeros have the key of +0.
    """
    y = vk.f32(x)
    bits = vk.bitcast(vk.u32, vk.where(y == 0, vk.f32(0), y))
    ordered = vk.where(bits >= 0x80000000, ~bits, bits | 0x80000000)
    return vk.where(y != y, vk.u32(0xFFFFFFFF), ordered)


@vk.func
def key_f64(x):
    """Return an order-preserving u64 key of an f64, computed as in `key_f32`."""
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


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda x, BLOCK: (vk.cdiv(x.shape[1], BLOCK), x.shape[0]), local=GROUP, debug=False)
def rank_sort_blocks(
    x: vk.In[T, "L N"],
    x_indices: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    y_indices: vk.Out[vk.i32, "L N"],
    BLOCK: vk.Const[int],
    KEY: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """Sort each block of BLOCK elements of a row by counting ranks, by one workgroup per block.

    The last block of a row may be shorter.
    """
    row, begin = vk.group_id(1), vk.group_id(0) * BLOCK
    count = vk.i32(vk.min(x.shape[1] - begin, BLOCK))
    for i in range(vk.i32(vk.local_id(0)), count, GROUP):
        key = ordered_key(x[row, begin + i], KEY, DESCENDING)
        rank = vk.i32(0)
        for q in range(count):
            other_key = ordered_key(x[row, begin + q], KEY, DESCENDING)
            precedes = (other_key < key) | ((q < i) & (other_key == key))
            rank += vk.where(precedes, 1, 0)
        y[row, begin + rank] = x[row, begin + i]
        y_indices[row, begin + rank] = x_indices[row, begin + i]


@vk.kernel(over="x", debug=False)
def merge_runs(
    x: vk.In[T, "L N"],
    x_indices: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    y_indices: vk.Out[vk.i32, "L N"],
    width: vk.i64,
    KEY: vk.Const[Any],
    DESCENDING: vk.Const[bool],
):
    """Merge pairs of sorted runs of `width` elements into runs of twice the width, by one invocation per element."""
    i, row = vk.i32(vk.global_id(0)), vk.global_id(1)
    n, run_length = vk.i32(x.shape[1]), vk.i32(width)
    run_number = i // run_length
    in_first_run = run_number % 2 == 0
    # Binary search in the pair's other run, which begins at `start`, for the number of elements that precede this one.
    # Of equal elements, those of the first run come first.
    start = vk.min(vk.where(in_first_run, (run_number + 1) * run_length, (run_number - 1) * run_length), n)
    low = start
    high = start + vk.min(run_length, n - start)
    key = ordered_key(x[row, i], KEY, DESCENDING)
    while low < high:
        middle = low + (high - low) // 2
        other_key = ordered_key(x[row, middle], KEY, DESCENDING)
        go_right = (other_key < key) | ((not in_first_run) & (other_key == key))
        low = vk.where(go_right, middle + 1, low)
        high = vk.where(go_right, high, middle)
    target = i + low - start - vk.where(in_first_run, 0, run_length)
    y[row, target] = x[row, i]
    y_indices[row, target] = x_indices[row, i]


@vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=lambda LOCAL: LOCAL, debug=False)
def top_k_per_workgroup(
    x: vk.In[T, "L S N"],
    x_indices: vk.In[vk.i32, "L S N"],
    y: vk.Out[T, "L S M"],
    y_indices: vk.Out[R, "L S M"],
    begin: vk.i64,
    FIRST: vk.Const[bool],
    LOCAL: vk.Const[int],
    KEY: vk.Const[Any],
    DESCENDING: vk.Const[bool],
    MAX_ITEMS: vk.Const[int],
):
    """Find the first M elements of each part in sorted order (top-k), by one workgroup of LOCAL invocations per part.

    x has L rows, each cut into S parts of N elements, where M <= N <= LOCAL * MAX_ITEMS. MAX_ITEMS is the maximum
    number of elements per invocation. The M elements are found one by one, each by a minimum over the workgroup.

    FIRST is true if x is the original array, or a slice of it that starts at element `begin` of each row. In this case,
    the original index of element i of part p is begin + p * N + i, and `x_indices` isn't read.
    """
    wg = vk.workgroup()
    row, part, thread = vk.group_id(1), vk.group_id(0), vk.i32(vk.local_id(0))
    n = vk.i32(x.shape[2])
    per_invocation = vk.min((n + LOCAL - 1) // LOCAL, MAX_ITEMS)
    last, last_index = ordered_key(x[row, part, 0], KEY, DESCENDING), vk.i32(-1)
    for j in range(vk.i32(y.shape[2])):
        # Among this invocation's elements, find the first one after the previous result, `last`, in (key, index) order;
        # best_index is n if there is none.
        best, best_index = last, n
        for r in range(per_invocation):
            i = r * LOCAL + thread
            key = ordered_key(x[row, part, vk.min(i, n - 1)], KEY, DESCENDING)
            later = (j == 0) | (key > last) | ((key == last) & (i > last_index))
            better = later & (i < n) & ((key < best) | (best_index == n))
            best = vk.where(better, key, best)
            best_index = vk.where(better, i, best_index)
        none_found = best_index == n
        # An invocation without such an element contributes ~(best & 0), the maximum of the key's type (u32 or u64).
        minimum = wg.min(vk.where(none_found, ~(best & 0), best))
        last_index = wg.min(vk.where((best == minimum) & ~none_found, best_index, n))
        last = minimum
        if thread == 0:
            y[row, part, j] = x[row, part, last_index]
            original = vk.i32(begin + vk.i64(part) * vk.i64(n)) + last_index
            y_indices[row, part, j] = R(original if FIRST else x_indices[row, part, last_index])


@vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=1, debug=False)
def top_k_per_invocation(
    x: vk.In[T, "L S N"],
    x_indices: vk.In[vk.i32, "L S N"],
    y: vk.Out[T, "L S M"],
    y_indices: vk.Out[R, "L S M"],
    begin: vk.i64,
    FIRST: vk.Const[bool],
    KEY: vk.Const[Any],
    BITS: vk.Const[Any],
    DESCENDING: vk.Const[bool],
    MAX_ITEMS: vk.Const[int],
):
    """Variant of `top_k_per_workgroup` for CPUs, with one invocation per part.

    The invocation reads its part once and keeps the first M elements in sorted order, by insertion. MAX_ITEMS is the
    capacity of its local arrays, at least M. BITS is the type of the keys, u32 or u64. `begin` and FIRST are described
    at `top_k_per_workgroup`.
    """
    row, part = vk.group_id(1), vk.group_id(0)
    keys, indices = vk.local(BITS, MAX_ITEMS), vk.local(vk.i32, MAX_ITEMS)
    size, count = vk.i32(y.shape[2]), vk.i32(0)
    last = BITS(0)
    for i in range(vk.i32(x.shape[2])):
        key = ordered_key(x[row, part, i], KEY, DESCENDING)
        if count < size or key < last:
            # shift greater keys by one, dropping the last one if the list is full
            j = vk.min(count, size - 1)
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                indices[j] = indices[j - 1]
                j -= 1
            keys[j] = key
            indices[j] = i
            count = vk.min(count + 1, size)
            if count == size:
                last = keys[size - 1]
    for j in range(size):
        y[row, part, j] = x[row, part, indices[j]]
        original = vk.i32(begin + vk.i64(part) * vk.i64(x.shape[2])) + indices[j]
        y_indices[row, part, j] = R(original if FIRST else x_indices[row, part, indices[j]])


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
    """Binary search: y[l, m] = the number of elements of bounds[l] that are less than values[l, m].

    If RIGHT, elements equal to values[l, m] are counted, too. The rows of `bounds` are sorted in ascending order.
    `bounds` and `values` are converted to the type C and compared by their keys. INDEX is an integer type wide enough
    for N.
    """
    m, row = vk.global_id(0), vk.global_id(1)
    key = KEY(C(values[row, m]))
    low = INDEX(0)
    high = INDEX(bounds.shape[1])
    while low < high:
        middle = low + ((high - low) >> 1)
        other_key = KEY(C(bounds[row, middle]))
        if RIGHT:
            go_right = other_key <= key
        else:
            go_right = other_key < key
        low = vk.where(go_right, middle + 1, low)
        high = vk.where(go_right, high, middle)
    y[row, m] = R(low)
