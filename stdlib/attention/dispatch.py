"""Fused (flash) attention and its gradients: choose tile sizes and launch the tile kernels of `forward` and `backward`.

`vkjit.tensor.nn.attention` calls these functions where `supports` is true; elsewhere, for example on software
drivers, attention composed of whole matrix products is faster. The score matrix q @ k.T is never materialized. Few
scores on the device "cpu" are computed by the kernels of `small`. q is (B, H, M, D), k and v are (B, G, N, D): batches,
heads, rows (queries or keys), head dimension. H is a multiple of G
(grouped-query attention). The optional mask is (B, H, M, N). All arrays may have any strides. Accumulators are f32 (f64
for f64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape

from ..partial_sums import accumulator_type, scratch
from ..registry import device_class, forced_class, row_kernel_class
from . import small
from .backward import key_gradients, query_gradient, row_dot_products
from .forward import attention, attention_16bit

__all__ = ["MAX_HEAD_SIZE", "Masking", "Tiles", "attend", "gradients", "supports", "tiles_for"]

MAX_HEAD_SIZE = 256
"""Largest head dimension D."""
MIN_CPU_SCORES = 1 << 27
"""Minimum number of scores for tiles on CPUs: half a GiB in f32. Below it, whole matrix products are faster."""
MAX_SMALL_WORK = 1 << 13
"""Maximum number of multiplications of q @ k.T for the kernels of `small`."""
THREADS = 128
"""Invocations per workgroup, except for `MATRIX_TILE`."""
_SIZES = ((64, 32), (32, 32), (32, 16), (16, 16), (16, 8), (8, 8))
"""Tile sizes (query rows, key rows), the fastest and largest first."""
_MAX_ACCUMULATORS = 64 * 128
"""Maximum number of accumulators that a workgroup of `THREADS` invocations keeps in registers: 64 per invocation."""
MATRIX_TILE = (64, 64, 256)
"""The forward kernel's tile for 16-bit floats on cooperative matrices: (query rows, key rows, invocations)."""
MATRIX_HEAD_SIZES = (64, 128)
"""The padded head dimensions for which `MATRIX_TILE` is used."""
MATRIX_SHARED_BYTES = 32 << 10
"""The bytes of shared memory that `MATRIX_TILE` requires."""


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

    `size` is the head dimension, padded to a power of two and at least 16; `forward` and `backward` are (query rows,
    key rows). `stage_operands` is the parameter HOLD of the gradient kernels: a workgroup keeps its own tiles in shared
    memory instead of loading them in each iteration.
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

    def fits(rows: int, columns: int, staged_rows: int) -> bool:
        """True if a tile of rows x columns scores fits into shared memory.

        `staged_rows` is the number of rows of operands, of `size` elements each, that are in shared memory at a time.
        """
        # In narrow tiles, some products run on cooperative matrices and others don't; the two kinds of products stage
        # their operands in separate memory.
        if itemsize == 2 and columns < 32:
            staged_rows += max(rows, columns)
        # Against bank conflicts, rows of operands are padded by 16 bytes, rows of the softmax weights by 8 elements.
        operand_bytes = staged_rows * (size * itemsize + 16)
        weight_bytes = rows * (columns + 8) * itemsize
        # 16-bit operands are multiplied on cooperative matrices of 16 x 16, whose f32 accumulators reach registers
        # through shared memory: the scores in one step, the output or a gradient in steps of 16 rows (64 bytes per
        # column, 8 columns of padding). The two don't happen at the same time. A further array repeats the factor by
        # which each row of the output is rescaled over the 16 columns of a matrix (64 bytes per row).
        score_bytes = 4 * rows * columns
        output_bytes = 64 * (size + 8)
        factor_bytes = 64 * rows
        exchange_bytes = 0 if itemsize > 2 else max(score_bytes, output_bytes) + factor_bytes
        return operand_bytes + weight_bytes + exchange_bytes <= shared_bytes

    # the forward kernel has query rows x size accumulators, and stages one tile of queries and one of keys or values
    forward = next((t for t in _SIZES if t[0] * size <= _MAX_ACCUMULATORS and fits(*t, sum(t))), None)
    # Gradient tiles. The first size is left to the forward kernel, because the gradient kernels have more tiles of
    # scores in registers. `key_gradients` has two accumulators of key rows x size.
    sizes = [t for t in _SIZES[1:] if 2 * t[1] * size <= _MAX_ACCUMULATORS]
    # `resident`: the workgroup keeps its own two operands in shared memory, beside the two of the current iteration.
    resident = next((t for t in sizes if fits(*t, 2 * sum(t))), None)
    # `streamed`: only the two operands of one product are staged. All products reuse the same two arrays, each of which
    # has room for the longer operand.
    streamed = next((t for t in sizes if fits(*t, 2 * max(t))), None)
    if forward is None or streamed is None:
        return None
    # cooperative matrices favor large tiles (a larger size is also a larger tuple)
    if resident is None or (itemsize == 2 and streamed > resident):
        return Tiles(size, forward, streamed, stage_operands=False)
    return Tiles(size, forward, resident, stage_operands=True)


def _tiles(q: DeviceArray) -> Tiles | None:
    """Return the tiles for a query on its device; None if none fit."""
    return tiles_for(q.shape[-1], q.dtype.itemsize, q.device.caps.shared_bytes)


def _forward_tile(q: DeviceArray, tiles: Tiles) -> tuple[int, int, int]:
    """Return (query rows, key rows, invocations) for the forward kernel: `MATRIX_TILE` or `tiles.forward`."""
    caps, type_name = q.device.caps, q.dtype.name
    fits = tiles.size in MATRIX_HEAD_SIZES and q.dtype.itemsize == 2 and caps.shared_bytes >= MATRIX_SHARED_BYTES
    # the invocations of MATRIX_TILE are meant as 8 subgroups of 32
    if fits and caps.subgroup_size == 32 and native_shape(caps.matrices, type_name, type_name, "f32") is not None:
        return MATRIX_TILE
    return (*tiles.forward, THREADS)


def supports(q: Any, columns: int) -> bool:
    """True if attention of the query q (..., M, D) over `columns` keys should use the kernels here on its device.

    GPUs use tiles for every head dimension up to `MAX_HEAD_SIZE` for which tiles fit. The device "cpu" (LLVM) uses
    tiles for at least `MIN_CPU_SCORES` scores, and the kernels of `small` for few. Other devices use neither.
    """
    if _is_small(q, columns):
        return True
    is_gpu = device_class(q.device) == "gpu"
    # the row kernels of GPUs also run on the device "cpu"
    is_gpu_or_llvm = row_kernel_class(q.device) == "gpu"
    enough_scores = math.prod(q.shape[:-1]) * columns >= MIN_CPU_SCORES
    worthwhile = is_gpu or (is_gpu_or_llvm and enough_scores)
    return worthwhile and q.shape[-1] <= MAX_HEAD_SIZE and _tiles(q) is not None


def _is_small(q: Any, columns: int) -> bool:
    """True if the kernels of `small` should compute attention of the query q (..., M, D) over `columns` keys."""
    return (
        q.device.caps.kind == "llvm-cpu"
        and forced_class() is None
        and q.shape[-2] * columns <= small.MAX_SCORES
        and math.prod(q.shape) * columns <= MAX_SMALL_WORK
    )


def _small_options(q: DeviceArray, columns: int) -> tuple[int, int]:
    """Return SIZE and SCORES of the kernels of `small` for `columns` scores per row or head; few different ones."""
    return q.device.caps.subgroup_size, max(64, 1 << (columns - 1).bit_length())


def _require_tiles(q: DeviceArray) -> Tiles:
    """Return the tiles for a query for which `supports` is true."""
    tiles = _tiles(q)
    assert tiles is not None
    return tiles


def attend(
    q: DeviceArray, k: DeviceArray, v: DeviceArray, o: DeviceArray, scale: float, masking: Masking
) -> DeviceArray:
    """Queue o = softmax(q @ k.T * scale) @ v, with the scores masked by `masking`.

    Return the log-sum-exp of each row of scores, (B, H, M), which `gradients` needs.
    """
    accumulate = accumulator_type(q.dtype)
    lse = scratch(q.shape[:3], accumulate, q.device)
    factor = np.asarray(scale, accumulate.numpy)
    columns = k.shape[2]
    if 0 not in q.shape and _is_small(q, columns):
        mask, options = _mask_or_placeholder(q, masking), _small_options(q, columns)
        small.attend_row(q, k, v, mask, o, lse, factor, masking.shift, *options, masking.causal, masking.kind)
    elif 0 not in lse.shape:
        tiles = _require_tiles(q)
        mask = _mask_or_placeholder(q, masking)
        rows, columns, threads = _forward_tile(q, tiles)
        kernel = attention_16bit if q.dtype.itemsize == 2 and device_class(q.device) == "gpu" else attention
        # only MATRIX_TILE has so many invocations; it is faster if its loads are issued late
        prefetch = "late" if threads == MATRIX_TILE[2] else "early"
        kernel(
            q, k, v, mask, o, lse, factor, masking.shift, tiles.size, rows, columns, masking.causal, masking.kind, threads,
            prefetch,
        )  # fmt: skip
    return lse


def _mask_or_placeholder(q: DeviceArray, masking: Masking) -> DeviceArray:
    """Return the mask; without one q, as a placeholder for the kernels' argument, which they then don't read."""
    return q if masking.mask is None else masking.mask


def gradients(
    qkv: tuple[DeviceArray, DeviceArray, DeviceArray],
    results: tuple[DeviceArray, DeviceArray],
    grad_output: DeviceArray,
    targets: tuple[DeviceArray | None, DeviceArray | None, DeviceArray | None],
    scale: float,
    masking: Masking,
) -> None:
    """Queue the computation of the gradients of q, k and v from `grad_output`, the gradient of the result of `attend`.

    `qkv` are (q, k, v); `results` are o and the log-sum-exp that `attend` returned. `targets` are the arrays for the
    gradients of q, k and v. A gradient whose target is None is skipped; those of k and v are skipped if either is None.
    """
    q = qkv[0]
    o, lse = results
    accumulate = accumulator_type(grad_output.dtype)
    factor = np.asarray(scale, accumulate.numpy)
    columns = qkv[1].shape[2]
    if 0 not in q.shape and columns and _is_small(q, columns):
        outputs = [scratch(x.shape, x.dtype, x.device) if t is None else t for x, t in zip(qkv, targets, strict=True)]
        size, scores = _small_options(q, q.shape[2] * columns)
        items = vk.cdiv(columns * q.shape[3], size)
        small.gradients_of_head(
            *qkv, _mask_or_placeholder(q, masking), grad_output, lse, *outputs, factor, masking.shift, size, scores,
            1 << (items - 1).bit_length(), masking.causal, masking.kind,
        )  # fmt: skip
        return
    tiles = _require_tiles(grad_output)
    delta = scratch(q.shape[:3], accumulate, q.device)
    if 0 not in delta.shape:
        row_dot_products(o, grad_output, delta, tiles.size)
    inputs = (*qkv, _mask_or_placeholder(q, masking), grad_output, lse, delta)
    options = (factor, masking.shift, tiles.size, *tiles.backward, masking.causal, masking.kind, tiles.stage_operands)
    dq, dk, dv = targets
    if dq is not None and 0 not in dq.shape:
        query_gradient(*inputs, dq, *options)
    if dk is not None and dv is not None and 0 not in dk.shape:
        key_gradients(*inputs, dk, dv, *options)
