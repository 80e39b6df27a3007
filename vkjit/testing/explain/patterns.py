"""Describe the pattern of the wrong elements of an array, which often shows the bug.

The recognized patterns along an axis are: a range, the elements after the last full block, one block, every k-th
element, and the same elements of every block. A block is a tile or the elements of one workgroup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["pattern_of"]

Mask = npt.NDArray[np.bool_]


def pattern_of(wrong: Mask, tiles: Sequence[int] = ()) -> str:
    """Return a description of the pattern of wrong elements; "" if none is recognized.

    `wrong` is the mask of wrong elements. `tiles` are possible block sizes of the kernel, the most likely first.
    """
    count = int(wrong.sum())
    if count == 0 or wrong.ndim == 0:
        return ""
    if count == wrong.size:
        return "all of them" if count > 1 else "the only one"
    # a wrong last element of a 1D array may be the tail after the last full block, which is described below
    may_be_tail = wrong.ndim == 1 and wrong[-1] and any(1 < t < wrong.size for t in tiles)
    if count == 1 and not may_be_tail:
        return _single(wrong)
    coordinates = [np.unique(axis) for axis in np.nonzero(wrong)]
    # if the wrong elements are all combinations of some indices along each axis, describe each axis on its own
    if math.prod(len(c) for c in coordinates) == count:
        parts = [_along(axis, c, n, tiles) for axis, (c, n) in enumerate(zip(coordinates, wrong.shape, strict=True))]
        descriptions = [p for p in parts if p]
        if all(p is not None for p in parts) and descriptions:
            return _combined(descriptions, wrong.ndim)
    flat = np.flatnonzero(wrong)
    flat_description = _along(0, flat, wrong.size, tiles) if wrong.ndim > 1 else None
    return f"in C order, {flat_description[1]}" if flat_description else ""


def _combined(descriptions: Sequence[tuple[int, str]], rank: int) -> str:
    """Combine the descriptions of several axes, given as (axis, text)."""
    if rank == 1:
        return descriptions[0][1]
    names = {0: "rows", 1: "columns"} if rank == 2 else {}
    return ", ".join(f"{names.get(axis, f'axis {axis}')}: {text}" for axis, text in descriptions)


def _single(wrong: Mask) -> str:
    """Describe a single wrong element."""
    index = np.unravel_index(int(np.flatnonzero(wrong)[0]), wrong.shape)
    flat = int(np.flatnonzero(wrong)[0])
    if flat == wrong.size - 1:
        return "only the last one"
    if flat == 0:
        return "only the first one"
    shown = int(index[0]) if len(index) == 1 else tuple(int(i) for i in index)
    return f"only the one at {shown}"


def _along(axis: int, indices: Any, extent: int, tiles: Sequence[int]) -> Any:
    """Describe the indices of wrong elements along an axis of length `extent`, as (axis, text).

    Returns () if all indices of the axis are among `indices`, None if no pattern is recognized.
    """
    if len(indices) == extent:
        return ()
    text = _runs(indices, extent, tiles) or _steps(indices, extent, tiles)
    return (axis, text) if text else None


def _runs(indices: Any, extent: int, tiles: Sequence[int]) -> str:
    """Describe the indices if they are a contiguous range; "" otherwise."""
    first, last, count = int(indices[0]), int(indices[-1]), len(indices)
    if last - first + 1 != count:
        return ""
    for tile in tiles:
        if tile > 1 and extent > tile and first == extent // tile * tile and last == extent - 1:
            return f"the tail from {first} on: what is left after the last full {tile}"
    for tile in tiles:
        if tile > 1 and first % tile == 0 and count == tile:
            return f"{first} to {last}: one block of {tile}"
    if last == extent - 1:
        for tile in tiles:
            if tile > 1 and first and first % tile == 0:
                blocks = f"{first // tile} blocks" if first > tile else "block"
                return f"from {first} on: all but the first {blocks} of {tile}"
        return f"from {first} on" if count > 1 else "the last one"
    if first == 0:
        return f"up to {last}" if count > 1 else "the first one"
    return f"{first} to {last}" if count > 1 else f"only {first}"


def _steps(indices: Any, extent: int, tiles: Sequence[int]) -> str:
    """Describe the indices if they are evenly spaced, or the same contiguous part of every block; "" otherwise."""
    gaps = np.diff(indices)
    step, first = int(gaps[0]), int(indices[0])
    if (gaps == step).all() and first < step and int(indices[-1]) + step >= extent:
        if step in tiles:
            lane = f"lane {first}" if first != step - 1 else f"the last lane ({first})"
            return f"{lane} of every block of {step}"
        return f"every {_ordinal(step)} one, from {first} on"
    for tile in tiles:
        if tile <= 1 or extent < 2 * tile:
            continue
        lanes = np.unique(indices % tile)  # the positions in a block at which an element is wrong
        expected = np.flatnonzero(np.isin(np.arange(extent) % tile, lanes))
        if len(lanes) < tile and len(expected) == len(indices) and lanes[-1] - lanes[0] + 1 == len(lanes):
            return f"lanes {int(lanes[0])} to {int(lanes[-1])} of every block of {tile}"
    return ""


def _ordinal(number: int) -> str:
    """Return an ordinal number as text, such as "2nd"."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
