"""Fused (flash) attention and its gradients: choose tile sizes and launch the tile kernels of `forward` and `backward`.

`vkjit.tensor.nn.attention` calls these functions where `supports_tiles` is true; elsewhere, as on software drivers,
attention composed of whole matrix products is faster. The score matrix q @ k.T is never materialized. q is (B, H, M,
D), k and v are (B, G, N, D): batches, heads, rows (queries or keys), head dimension. H is a multiple of G
(grouped-query attention). The optional mask is (B, H, M, N). All arrays may have any strides. Accumulators are f32 (f64
for f64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit.runtime.device import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape

from ..partial_sums import accumulator_type, scratch
from ..registry import device_class, row_kernel_class
from .backward import key_gradients, query_gradient, row_dot_products
from .forward import attention, attention_16bit

__all__ = ["MAX_HEAD_SIZE", "Masking", "Tiles", "attend", "gradients", "supports_tiles", "tiles_for"]

MAX_HEAD_SIZE = 256
"""Largest head dimension D."""
MIN_CPU_SCORES = 1 << 27
"""Minimum number of scores for tiles on CPUs: half a GiB in f32. Below it, whole matrix products are faster."""
_SIZES = ((64, 32), (32, 32), (32, 16), (16, 16), (16, 8), (8, 8))
"""Tile sizes (query rows, key rows), the fastest first."""
_ACCUMULATORS = 64 * 128
"""Accumulators per product that a workgroup of 128 invocations keeps in registers."""
MATRIX_TILE, MATRIX_HEAD_SIZES, MATRIX_SHARED_BYTES = (64, 64, 256), (64, 128), 32 << 10
"""The forward kernel's tile for 16-bit floats on cooperative matrices, as (query rows, key rows, invocations); the
padded head dimensions for which it is used; the bytes of shared memory that it requires.
"""


@dataclass(frozen=True, slots=True)
class Masking:
    """Attention masking.

    With `causal`, query row i attends to the keys up to row i + `shift`. `kind` says how `mask` applies: "keep" keeps
    the scores where it is true, "add" adds it to the scores, and "" means that there is none.
    """

    causal: bool = False
    shift: int = 0
    mask: DeviceArray | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes of the forward and the gradient kernels.

    `size` is the padded head dimension; `forward` and `backward` are (query rows, key rows). `stage_operands` is the
    parameter HOLD of the gradient kernels: a workgroup keeps its own tiles in shared memory instead of loading them in
    each iteration.
    """

    size: int
    forward: tuple[int, int]
    backward: tuple[int, int]
    stage_operands: bool


def tiles_for(head: int, itemsize: int, shared_bytes: int) -> Tiles | None:
    """Choose the largest tiles whose operands fit into shared memory; None if none fit.

    `head` is the head dimension in elements, `itemsize` and `shared_bytes` are in bytes.
    """
    size = max(16, 1 << max(head - 1, 0).bit_length())

    def fits(rows: int, columns: int, lines: int) -> bool:
        """True if a tile of rows x columns scores fits, with `lines` rows of operands of the head dimension staged."""
        # narrow tiles: not all products run on cooperative matrices, and the two kinds don't share their staging memory
        if itemsize == 2 and columns < 32:
            lines += max(rows, columns)
        # `weights` are the bytes of a tile of softmax weights, `exchange` those for layout conversions of accumulators
        weights = rows * (columns + 8) * itemsize
        exchange = 0 if itemsize > 2 else max(4 * rows * columns, 64 * (size + 8)) + 64 * rows
        return lines * (size * itemsize + 16) + weights + exchange <= shared_bytes

    forward = next((t for t in _SIZES if t[0] * size <= _ACCUMULATORS and fits(*t, sum(t))), None)
    # gradient tiles with a workgroup's own operands kept in shared memory (`stage_operands`), and without
    resident = next((t for t in _SIZES[1:] if 2 * t[1] * size <= _ACCUMULATORS and fits(*t, 2 * sum(t))), None)
    streamed = next((t for t in _SIZES[1:] if 2 * t[1] * size <= _ACCUMULATORS and fits(*t, 2 * max(t))), None)
    if forward is None or streamed is None:
        return None
    if resident is None or (itemsize == 2 and streamed > resident):  # cooperative matrices favor large tiles
        return Tiles(size, forward, streamed, stage_operands=False)
    return Tiles(size, forward, resident, stage_operands=True)


def _tiles(q: DeviceArray) -> Tiles | None:
    """Return the tiles for a query on its device; None if none fit."""
    return tiles_for(q.shape[-1], q.dtype.itemsize, q.device.caps.shared_bytes)


def _forward(q: DeviceArray, tiles: Tiles) -> tuple[int, int, int]:
    """Return (query rows, key rows, invocations) for the forward kernel."""
    caps, kind = q.device.caps, q.dtype.name
    large = tiles.size in MATRIX_HEAD_SIZES and q.dtype.itemsize == 2 and caps.shared_bytes >= MATRIX_SHARED_BYTES
    if large and caps.subgroup_size == 32 and native_shape(caps.matrices, kind, kind, "f32") is not None:
        return MATRIX_TILE
    return (*tiles.forward, 128)


def supports_tiles(q: Any, columns: int) -> bool:
    """True if attention of the query q (..., M, D) over `columns` keys should use the tile kernels on its device.

    GPUs use tiles for every head dimension up to `MAX_HEAD_SIZE` for which tiles fit. The device "cpu" also requires at
    least `MIN_CPU_SCORES` scores. Other devices never use tiles.
    """
    enough_scores = row_kernel_class(q.device) == "gpu" and math.prod(q.shape[:-1]) * columns >= MIN_CPU_SCORES
    return (enough_scores or device_class(q.device) == "gpu") and q.shape[-1] <= MAX_HEAD_SIZE and _tiles(q) is not None


def _require_tiles(q: DeviceArray) -> Tiles:
    """Return the tiles for a query for which `supports_tiles` is true."""
    tiles = _tiles(q)
    assert tiles is not None
    return tiles


def attend(
    q: DeviceArray, k: DeviceArray, v: DeviceArray, o: DeviceArray, scale: float, masking: Masking
) -> DeviceArray:
    """Queue o = softmax(q @ k.T * scale) @ v, with the scores masked by `masking`.

    Return the log-sum-exp of each row of scores, (B, H, M), which `gradients` needs.
    """
    kind = accumulator_type(q.dtype)
    lse, tiles, factor = scratch(q.shape[:3], kind, q.device), _require_tiles(q), np.asarray(scale, kind.numpy)
    if 0 not in lse.shape:
        mask, (rows, columns, threads) = q if masking.mask is None else masking.mask, _forward(q, tiles)
        kernel = attention_16bit if q.dtype.itemsize == 2 and device_class(q.device) == "gpu" else attention
        kernel(
            q, k, v, mask, o, lse, factor, masking.shift, tiles.size, rows, columns, masking.causal, masking.kind, threads,
            "late" if threads == MATRIX_TILE[2] else "early"
        )  # fmt: skip
    return lse


def gradients(
    qkv: tuple[DeviceArray, DeviceArray, DeviceArray],
    results: tuple[DeviceArray, DeviceArray],
    grad_output: DeviceArray,
    targets: tuple[DeviceArray | None, DeviceArray | None, DeviceArray | None],
    scale: float,
    masking: Masking,
) -> None:
    """Queue the gradients of q, k and v from `grad_output`, the gradient of the result o of `attend`.

    `qkv` are (q, k, v); `results` are o and the log-sum-exp that `attend` returned. `targets` receive the gradients of
    q, k and v; None skips one, and those of k and v are computed together or not at all.
    """
    q, kind, tiles = qkv[0], accumulator_type(grad_output.dtype), _require_tiles(grad_output)
    delta, factor = scratch(q.shape[:3], kind, q.device), np.asarray(scale, kind.numpy)
    if 0 not in delta.shape:
        row_dot_products(results[0], grad_output, delta, tiles.size)
    mask = q if masking.mask is None else masking.mask
    inputs = (*qkv, mask, grad_output, results[1], delta)
    options = (factor, masking.shift, tiles.size, *tiles.backward, masking.causal, masking.kind, tiles.stage_operands)
    query, key, value = targets
    if query is not None and 0 not in query.shape:
        query_gradient(*inputs, query, *options)
    if key is not None and value is not None and 0 not in key.shape:
        key_gradients(*inputs, key, value, *options)
