"""Attention whose scores never lie in memory, and its gradients: which devices take it, with tiles of which sizes.

Enters: q (B, H, M, D), k and v (B, G, N, D), H a multiple of G, of any strides, and maybe a mask (B, H, M, N). Leaves: the arrays
that the caller gives. Sums are in f32 (f64 for f64). On software drivers products of whole matrices are faster: `suits` says
where tiles are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit.runtime.interface import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape

from .partial import accumulator, scratch
from .registry import device_class, rows_class
from .tile_attention import attention, attention_of_halves
from .tile_attention_gradient import key_gradients, query_gradient, row_products

__all__ = ["MOST", "Seen", "Tiles", "attend", "gradients", "suits", "tiles_for"]

MOST = 256
"""The largest size of a head."""
MANY = 1 << 27
"""Scores from which on processors take tiles: half a GiB and more in f32. With fewer, products of whole matrices are faster."""
_SIZES = ((64, 32), (32, 32), (32, 16), (16, 16), (16, 8), (8, 8))
"""Rows of queries and of keys in a tile, from the best to the smallest."""
_SUMS = 64 * 128
"""Sums that a workgroup of 128 keeps in registers for each product."""
LARGE, LARGE_HEADS, LARGE_SHARED = (64, 64, 256), (64, 128), 32 << 10
"""For halves on matrices: rows of queries, rows of keys and invocations, the heads that they suit, and the memory they take."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Which scores count: with `causal` those of keys up to the query's place + shift, and what a mask does ("keep", "add")."""

    causal: bool = False
    shift: int = 0
    mask: DeviceArray | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The sizes of tiles; `hold`: whether what a workgroup owns of the gradients' factors stays in shared memory."""

    size: int
    forward: tuple[int, int]
    backward: tuple[int, int]
    hold: bool


def tiles_for(head: int, itemsize: int, shared_bytes: int) -> Tiles | None:
    """Tiles whose factors fit into shared memory; None where none do."""
    size = max(16, 1 << max(head - 1, 0).bit_length())

    def fits(rows: int, columns: int, lines: int) -> bool:
        if itemsize == 2 and columns < 32:  # too small for matrices: two kinds of products, which don't share memory
            lines += max(rows, columns)
        weights = rows * (columns + 8) * itemsize
        exchange = 0 if itemsize > 2 else max(4 * rows * columns, 64 * (size + 8)) + 64 * rows
        return lines * (size * itemsize + 16) + weights + exchange <= shared_bytes

    forward = next((t for t in _SIZES if t[0] * size <= _SUMS and fits(*t, sum(t))), None)
    held = next((t for t in _SIZES[1:] if 2 * t[1] * size <= _SUMS and fits(*t, 2 * sum(t))), None)
    loose = next((t for t in _SIZES[1:] if 2 * t[1] * size <= _SUMS and fits(*t, 2 * max(t))), None)
    if forward is None or loose is None:
        return None
    if held is None or (itemsize == 2 and loose > held):  # cooperative matrices want large tiles
        return Tiles(size, forward, loose, hold=False)
    return Tiles(size, forward, held, hold=True)


def _tiles(q: DeviceArray) -> Tiles | None:
    return tiles_for(q.shape[-1], q.dtype.itemsize, q.device.caps.shared_bytes)


def _forward(q: DeviceArray, tiles: Tiles) -> tuple[int, int, int]:
    """Rows of queries, rows of keys and invocations of `attend`."""
    caps, kind = q.device.caps, q.dtype.name
    large = tiles.size in LARGE_HEADS and q.dtype.itemsize == 2 and caps.shared_bytes >= LARGE_SHARED
    if large and caps.subgroup_size == 32 and native_shape(caps.matrices, kind, kind, "f32") is not None:
        return LARGE
    return (*tiles.forward, 128)


def suits(q: Any, columns: int) -> bool:
    """Whether the device of a query (..., M, D) takes attention over so many keys by tiles: GPUs do for all heads of up to
    MOST elements, processors where the scores are many.
    """
    many = rows_class(q.device) == "gpu" and math.prod(q.shape[:-1]) * columns >= MANY
    return (many or device_class(q.device) == "gpu") and q.shape[-1] <= MOST and _tiles(q) is not None


def _known(q: DeviceArray) -> Tiles:
    found = _tiles(q)
    assert found is not None
    return found


def attend(q: DeviceArray, k: DeviceArray, v: DeviceArray, o: DeviceArray, scale: float, seen: Seen) -> DeviceArray:
    """o = softmax(q @ k.T * scale + mask) @ v; returns the logarithms of the sums of exponentials (B, H, M)."""
    kind = accumulator(q.dtype)
    lse, tiles, factor = scratch(q.shape[:3], kind, q.device), _known(q), np.asarray(scale, kind.numpy)
    if 0 not in lse.shape:
        mask, (rows, columns, threads) = q if seen.mask is None else seen.mask, _forward(q, tiles)
        run = attention_of_halves if q.dtype.itemsize == 2 and device_class(q.device) == "gpu" else attention
        run(
            q, k, v, mask, o, lse, factor, seen.shift, tiles.size, rows, columns, seen.causal, seen.kind, threads,
            "late" if threads == LARGE[2] else "early"
        )  # fmt: skip
    return lse


def gradients(
    factors: tuple[DeviceArray, DeviceArray, DeviceArray],
    results: tuple[DeviceArray, DeviceArray],
    slope: DeviceArray,
    targets: tuple[DeviceArray | None, DeviceArray | None, DeviceArray | None],
    scale: float,
    seen: Seen,
) -> None:
    """The gradients of q, k, v from `slope`, that of o, into the arrays of `targets` that are there (k's and v's together).

    factors: q, k, v; results: o and what `attend` returned.
    """
    q, kind, tiles = factors[0], accumulator(slope.dtype), _known(slope)
    delta, factor = scratch(q.shape[:3], kind, q.device), np.asarray(scale, kind.numpy)
    if 0 not in delta.shape:
        row_products(results[0], slope, delta, tiles.size)
    mask = q if seen.mask is None else seen.mask
    given = (*factors, mask, slope, results[1], delta)
    options = (factor, seen.shift, tiles.size, *tiles.backward, seen.causal, seen.kind, tiles.hold)
    query, key, value = targets
    if query is not None and 0 not in query.shape:
        query_gradient(*given, query, *options)
    if key is not None and value is not None and 0 not in key.shape:
        key_gradients(*given, key, value, *options)
