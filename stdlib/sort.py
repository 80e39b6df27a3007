"""Stable sorting along the last of two axes, without shared memory or barriers: blocks by counting, then merges.

Enters: lines (L, N), and the places of their elements. Leaves: values and places in order. `count_ranks` sorts each
block of a line: an element's place is the number of those before it. `merge_runs` merges neighbouring sorted runs: an
element's place is its own plus that in the other run, found by bisection. `top_of_blocks` keeps the first few of each
block. BEFORE(x, y) says whether x comes strictly before y; equal elements keep their order.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["ascending", "count_ranks", "descending", "merge_runs", "search_sorted", "top_of_blocks"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


@vk.func
def ascending(x, y):
    """x < y, NaN greatest."""
    return (x < y) | ((y != y) & (x == x))


@vk.func
def descending(x, y):
    """x > y, NaN greatest."""
    return (x > y) | ((x != x) & (y == y))


@vk.kernel(over="x", debug=False)
def count_ranks(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    where: vk.Out[vk.i32, "L N"],
    BLOCK: vk.Const[int],
    BEFORE: vk.Const[Any],
    C: vk.Const[Any],
):
    """Sorts blocks of BLOCK elements (the last of a line may be shorter)."""
    i, line = vk.global_id(0), vk.global_id(1)
    begin = i // BLOCK * BLOCK
    value = C(x[line, i])
    rank = vk.i32(0)
    for q in range(vk.min(x.shape[1] - begin, BLOCK)):
        other = C(x[line, begin + q])
        ahead = BEFORE(other, value) | ((begin + q < i) & ~BEFORE(value, other))
        rank += vk.where(ahead, 1, 0)
    y[line, begin + rank] = x[line, i]
    where[line, begin + rank] = places[line, i]


@vk.kernel(over="x", debug=False)
def merge_runs(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L N"],
    where: vk.Out[vk.i32, "L N"],
    width: vk.i64,
    BEFORE: vk.Const[Any],
    C: vk.Const[Any],
):
    """Merges sorted runs of `width` elements, two by two, into runs of twice the width."""
    i, line = vk.global_id(0), vk.global_id(1)
    n = x.shape[1]
    run = i // width
    first = run % 2 == 0
    start = vk.where(first, (run + 1) * width, (run - 1) * width)
    low = vk.min(start, n)
    high = vk.min(start + width, n)
    value = C(x[line, i])
    while low < high:
        middle = low + (high - low) // 2
        other = C(x[line, middle])
        goes = vk.where(first, BEFORE(other, value), ~BEFORE(value, other))
        low = vk.where(goes, middle + 1, low)
        high = vk.where(goes, high, middle)
    target = i + low - vk.min(start, n) - vk.where(first, 0, width)
    y[line, target] = x[line, i]
    where[line, target] = places[line, i]


@vk.kernel(over="x", debug=False)
def top_of_blocks(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i32, "L N"],
    y: vk.Out[T, "L M"],
    where: vk.Out[vk.i32, "L M"],
    KEEP: vk.Const[int],
    BLOCK: vk.Const[int],
    BEFORE: vk.Const[Any],
    C: vk.Const[Any],
):
    """The first KEEP elements of each block in order (all of a last block that is shorter)."""
    i, line = vk.global_id(0), vk.global_id(1)
    block = i // BLOCK
    begin = block * BLOCK
    value = C(x[line, i])
    rank = vk.i32(0)
    for q in range(vk.min(x.shape[1] - begin, BLOCK)):
        other = C(x[line, begin + q])
        ahead = BEFORE(other, value) | ((begin + q < i) & ~BEFORE(value, other))
        rank += vk.where(ahead, 1, 0)
    if rank < KEEP:
        y[line, block * KEEP + rank] = x[line, i]
        where[line, block * KEEP + rank] = places[line, i]


@vk.kernel(over="y", debug=False)
def search_sorted(
    bounds: vk.In[T, "L N"],
    values: vk.In[U, "L M"],
    y: vk.Out[R, "L M"],
    RIGHT: vk.Const[bool],
    C: vk.Const[Any],
):
    """y[l, m] = how many bounds[l] lie before values[l, m]: below it, or (RIGHT) not above it; NaN is greatest."""
    m, line = vk.global_id(0), vk.global_id(1)
    value = C(values[line, m])
    low = vk.i64(0)
    high = vk.i64(bounds.shape[1])
    while low < high:
        middle = low + (high - low) // 2
        other = C(bounds[line, middle])
        if RIGHT:
            goes = not ascending(value, other)
        else:
            goes = ascending(other, value)
        low = vk.where(goes, middle + 1, low)
        high = vk.where(goes, high, middle)
    y[line, m] = R(low)
