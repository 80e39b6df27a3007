"""Fused (flash) attention and its gradients: choose tile sizes and launch the tile kernels.

The score matrix is never materialized. q is (B, H, M, D), k and v are (B, G, N, D) with H a multiple of G (grouped-query
attention), and the optional mask is (B, H, M, N). All may have any strides. Accumulators are f32 (f64 for f64). On
software drivers attention composed of whole matrix products is faster: `supports_tiles` decides.
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
"""Tile sizes (query rows, key rows), best first."""
_ACCUMULATORS = 64 * 128
"""Accumulators per product that a workgroup of 128 invocations keeps in registers."""
MATRIX_TILE, MATRIX_HEAD_SIZES, MATRIX_SHARED_BYTES = (64, 64, 256), (64, 128), 32 << 10
"""The tile for 16-bit floats on cooperative matrices (query rows, key rows, invocations), the padded head dimensions that
it is used for, and the bytes of shared memory that it requires.
"""


@dataclass(frozen=True, slots=True)
class Masking:
    """Attention masking.

    With `causal`, query row i sees the keys up to row i + `shift`. `kind` says how `mask` applies: "keep" the scores where
    it is true, or "add" it to the scores.
    """

    causal: bool = False
    shift: int = 0
    mask: DeviceArray | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes.

    `size` is the padded head dimension; `forward` and `backward` are (query rows, key rows). With `stage_operands`, the gradient
    kernels keep the operands of the workgroup's own tile in shared memory.
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
        # too small for cooperative matrices throughout: two kinds of products, which don't share their staging memory
        if itemsize == 2 and columns < 32:
            lines += max(rows, columns)
        weights = rows * (columns + 8) * itemsize
        exchange = 0 if itemsize > 2 else max(4 * rows * columns, 64 * (size + 8)) + 64 * rows
        return lines * (size * itemsize + 16) + weights + exchange <= shared_bytes

    forward = next((t for t in _SIZES if t[0] * size <= _ACCUMULATORS and fits(*t, sum(t))), None)
    resident = next((t for t in _SIZES[1:] if 2 * t[1] * size <= _ACCUMULATORS and fits(*t, 2 * sum(t))), None)
    streamed = next((t for t in _SIZES[1:] if 2 * t[1] * size <= _ACCUMULATORS and fits(*t, 2 * max(t))), None)
    if forward is None or streamed is None:
        return None
    if resident is None or (itemsize == 2 and streamed > resident):  # cooperative matrices favor large tiles
        return Tiles(size, forward, streamed, stage_operands=False)
    return Tiles(size, forward, resident, stage_operands=True)


def _tiles(q: DeviceArray) -> Tiles | None:
    return tiles_for(q.shape[-1], q.dtype.itemsize, q.device.caps.shared_bytes)


def _forward(q: DeviceArray, tiles: Tiles) -> tuple[int, int, int]:
    """Return (query rows, key rows, invocations) for the forward kernel."""
    caps, kind = q.device.caps, q.dtype.name
    large = tiles.size in MATRIX_HEAD_SIZES and q.dtype.itemsize == 2 and caps.shared_bytes >= MATRIX_SHARED_BYTES
    if large and caps.subgroup_size == 32 and native_shape(caps.matrices, kind, kind, "f32") is not None:
        return MATRIX_TILE
    return (*tiles.forward, 128)


def supports_tiles(q: Any, columns: int) -> bool:
    """True if attention of the query (..., M, D) over `columns` keys should run as tiles on its device.

    GPUs use tiles for every head dimension up to `MAX_HEAD_SIZE`, CPUs also require at least `MIN_CPU_SCORES` scores.
    """
    many = row_kernel_class(q.device) == "gpu" and math.prod(q.shape[:-1]) * columns >= MIN_CPU_SCORES
    return (many or device_class(q.device) == "gpu") and q.shape[-1] <= MAX_HEAD_SIZE and _tiles(q) is not None


def _require_tiles(q: DeviceArray) -> Tiles:
    tiles = _tiles(q)
    assert tiles is not None
    return tiles


def attend(
    q: DeviceArray, k: DeviceArray, v: DeviceArray, o: DeviceArray, scale: float, masking: Masking
) -> DeviceArray:
    """Compute o = softmax(q @ k.T * scale + mask) @ v; return the log-sum-exp of each row of scores, (B, H, M)."""
    kind = accumulator_type(q.dtype)
    lse, tiles, factor = scratch(q.shape[:3], kind, q.device), _require_tiles(q), np.asarray(scale, kind.numpy)
    if 0 not in lse.shape:
        mask, (rows, columns, threads) = q if masking.mask is None else masking.mask, _forward(q, tiles)
        run = attention_16bit if q.dtype.itemsize == 2 and device_class(q.device) == "gpu" else attention
        run(
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
    """Compute the gradients of q, k and v from `grad_output`, the gradient of o.

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
