"""Matrix multiplication by the tile kernels of `tiles`, c = activation(a @ b + bias): choose the tiling, and launch.

`variants` offers these kernels for tuning; `benchmarks` and docs/tiles.md call them directly. Arrays have three axes
and any strides; bias and activation are optional. The accumulator type can differ from that of the arrays. Products
with a large K and few results are split along K over several workgroups (split-K), whose partial sums are added in a
fixed order, so that results are reproducible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.array import ROW_ALIGNMENT
from vkjit.runtime.device import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.matmul.tiles import ACTIVATIONS, gemm_reduce_split_k, gemm_split_k, gemm_transposed
from vkjit.stdlib.partial_sums import scratch
from vkjit.stdlib.registry import MAX_CPU_ITERATIONS, choose, variant

__all__ = ["TilePlan", "multiply_by_tiles", "plan_tiles", "split_k_parts", "transposed"]


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Tiling of a product.

    Each workgroup of `threads` invocations computes a tile of `rows` x `columns`, in steps of `depth` along K. `parts`
    is the number of split-K parts. `prefetch` is the software pipelining mode of `wg.mma`: "", "early", "late",
    "overlap" or "overlap late" (docs/tiles.md).
    """

    rows: int
    columns: int
    depth: int
    threads: int
    parts: int = 1
    prefetch: str = ""

    def covers(self, a: DeviceArray, c: DeviceArray) -> bool:
        """True if the plan prefetches and all tiles lie within their matrices: the kernel then omits bounds checks."""
        exact = c.shape[1] % self.rows == 0 and c.shape[2] % self.columns == 0 and a.shape[2] % self.depth == 0
        return exact and self.prefetch != ""

    def __str__(self) -> str:
        ahead = f", {self.prefetch} prefetch" if self.prefetch else ""
        return f"{self.rows}x{self.columns}x{self.depth}, {self.threads} threads, {self.parts} parts{ahead}"


TARGET_GROUPS = 256
"""Number of workgroups that split-K aims at on GPUs: enough to keep a large one busy."""
MIN_GROUPS = 96
"""Minimum number of workgroups for which large tiles are used on GPUs."""
LARGE_TILE_SHARED_BYTES = 48 << 10
"""Bytes of shared memory required for the operands of a 256 x 128 tile."""
MIN_DEPTH = 512
"""Minimum K extent of a part at which another part is worth the additional sums."""
MAX_PARTS = 16
"""Maximum number of split-K parts, unless `max_depth` requires more."""
TARGET_GROUPS_CPU = 16
"""Number of workgroups that keeps the cores of a CPU evenly busy."""
INTEGER_ACTIVATIONS = ("", "relu")
"""The activations of `ACTIVATIONS` that don't need floats."""


def split_k_parts(tiles: int, depth: int, target_groups: int, max_depth: int = 0) -> int:
    """Return the number of split-K parts with which `tiles` output tiles yield about `target_groups` workgroups.

    `depth` is the extent of K. If `max_depth` isn't 0, there are enough parts that none exceeds that extent along K.
    """
    busy = min(target_groups // max(tiles, 1), depth // MIN_DEPTH, MAX_PARTS)
    return max(1, busy, vk.cdiv(depth, max_depth) if max_depth else 1)


def plan_tiles(a: DeviceArray, c: DeviceArray, accumulate: Any = None) -> TilePlan:
    """Choose the tiling for a product on the device of c. The accumulator type `accumulate` defaults to that of c."""
    plan: TilePlan = choose("gemm", c.device)(a, c, accumulate or c.dtype)
    return plan


def _count(c: DeviceArray, rows: int, columns: int) -> int:
    """Return the number of output tiles of `rows` x `columns`."""
    return c.shape[0] * vk.cdiv(c.shape[1], rows) * vk.cdiv(c.shape[2], columns)


@variant("gemm", "gpu")
def _on_gpu(a: DeviceArray, c: DeviceArray, accumulate: Any) -> TilePlan:
    """Choose large tiles if there are enough to fill the device, else small ones.

    Without cooperative matrices, 64-bit elements always use small tiles, and the steps along K are 64 bytes, or 128 for
    32-bit elements and accumulators.
    """
    for plan in _on_matrices(a, c, accumulate):
        if _count(c, plan.rows, plan.columns) >= MIN_GROUPS:
            return plan
    depth = max(16, 64 // a.dtype.itemsize)
    threads = 256 if a.dtype.itemsize >= 4 else 128
    size = 128 if _count(c, 128, 128) >= TARGET_GROUPS // 2 and a.dtype.itemsize < 8 else 64
    parts = split_k_parts(_count(c, size, size), a.shape[2], TARGET_GROUPS)
    if a.dtype.itemsize == accumulate.itemsize == 4 and c.device.caps.shared_bytes >= LARGE_TILE_SHARED_BYTES:
        return TilePlan(size, size, 2 * depth, threads, parts, prefetch="early")
    return TilePlan(size, size, depth, threads, parts)


def _on_matrices(a: DeviceArray, c: DeviceArray, accumulate: Any) -> Iterator[TilePlan]:
    """Yield the tilings for large products on cooperative matrices, largest first.

    Yield nothing if the device doesn't support matrices of these types. Steps along K are a cache line of 128 bytes, or
    half of it for the 256 x 256 tile of 16-bit accumulators. Iterations are software-pipelined ("overlap"). Each
    subgroup keeps 16 KiB of accumulators: 64 x 64 of 32 bits.
    """
    caps, type_name = c.device.caps, a.dtype.name
    if a.dtype.itemsize > 2 or native_shape(caps.matrices, type_name, type_name, accumulate.name) is None:
        return
    depth, threads = 128 // a.dtype.itemsize, 8 * caps.subgroup_size
    if caps.shared_bytes >= LARGE_TILE_SHARED_BYTES and caps.max_invocations >= threads:
        if accumulate.itemsize == 2:
            yield TilePlan(256, 256, depth // 2, threads, prefetch="overlap late")
        rows, columns = (128, 256) if accumulate.is_float else (256, 128)  # as measured
        yield TilePlan(rows, columns, depth, threads, prefetch="overlap")
    # half the invocations on half the results
    if caps.shared_bytes >= LARGE_TILE_SHARED_BYTES // 2:
        yield TilePlan(128, 128, depth, threads // 2, prefetch="overlap")


@variant("gemm", "cpu")
def _on_cpu(a: DeviceArray, c: DeviceArray, _accumulate: Any) -> TilePlan:
    """Choose tiles small enough for a subgroup's registers.

    Split-K parts extend over at most `MAX_CPU_ITERATIONS` elements of K, since drivers limit the iterations of a loop;
    in the interpreter, K isn't split.
    """
    if c.device.caps.kind == "interpreter":
        return TilePlan(64, 64, 64, 64)
    return TilePlan(16, 32, 32, 64, split_k_parts(_count(c, 16, 32), a.shape[2], TARGET_GROUPS_CPU, MAX_CPU_ITERATIONS))


@variant("gemm", "llvm-cpu")
def _on_llvm_cpu(a: DeviceArray, c: DeviceArray, _accumulate: Any) -> TilePlan:
    """Choose fixed tile sizes, and split-K parts that keep the cores busy."""
    return TilePlan(64, 64, 64, 64, split_k_parts(_count(c, 64, 64), a.shape[2], TARGET_GROUPS_CPU))


def transposed(array: DeviceArray) -> DeviceArray:
    """Return a view of the batch with every matrix transposed."""
    (g, m, n), (s, t, u) = array.shape, array.strides
    return DeviceArray(array.buffer, array.offset, array.dtype, (g, n, m), (s, u, t))


def _row_major(array: DeviceArray) -> tuple[DeviceArray, bool]:
    """Transpose the matrices if that makes their last axis contiguous; return the array, and True if transposed."""
    transpose = array.strides[2] != 1 and array.strides[1] == 1 and array.shape[1] > 1
    return (transposed(array), True) if transpose else (array, False)


def multiply_by_tiles(
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray,
    accumulate: Any,
    bias: DeviceArray | None = None,
    activation: str = "",
    plan: TilePlan | None = None,
) -> None:
    """Queue c = activation(a @ b + bias) on the device of c: a (G, M, K), b (G, K, N), c (G, M, N), bias (N,).

    `accumulate` is the accumulator type. `activation` is "" (none), "relu", "gelu" (by erf) or "silu". `plan` defaults
    to that of `plan_tiles`. Raises `ArgumentError` for any other activation, and for "gelu" and "silu" with integer
    accumulators.
    """
    allowed_names = ACTIVATIONS if accumulate.is_float else INTEGER_ACTIVATIONS
    if activation not in allowed_names:
        allowed = ", ".join(repr(name) for name in allowed_names)
        raise ArgumentError(f"no activation {activation!r} for sums of {accumulate!r}: expected one of {allowed}")
    if 0 in c.shape:
        return
    plan = plan or plan_tiles(a, c, accumulate)
    (left, a_transposed), (right, b_transposed) = _row_major(a), _row_major(b)
    biased, in_bounds = bias is not None, plan.covers(a, c)
    bias_or_placeholder = bias if bias is not None else _placeholder_bias(a, c, accumulate)
    if plan.parts <= 1 or a.shape[2] <= plan.depth:
        gemm_transposed(
            left, right, bias_or_placeholder, c, plan.rows, plan.columns, plan.depth, accumulate, a_transposed, b_transposed,
            activation, biased, plan.threads, plan.prefetch, in_bounds,
        )  # fmt: skip
        return
    chunk = vk.cdiv(vk.cdiv(a.shape[2], plan.parts), plan.depth) * plan.depth  # K extent of a part, in whole steps
    parts = scratch((vk.cdiv(a.shape[2], chunk), *c.shape), accumulate, c.device)
    gemm_split_k(
        left, right, parts, chunk, plan.rows, plan.columns, plan.depth, accumulate, a_transposed, b_transposed, plan.threads,
        plan.prefetch, in_bounds,
    )  # fmt: skip
    gemm_reduce_split_k(parts, bias_or_placeholder, c, ACC=accumulate, ACTIVATION=activation, BIASED=biased)


def _placeholder_bias(a: DeviceArray, c: DeviceArray, accumulate: Any) -> DeviceArray:
    """Return a placeholder for the bias, which isn't read: a broadcast element of a.

    An element of c would serve as well, but the compiler would then assume that every store to c may change the bias.
    Only if the buffer of a is too small, an element of c is used.
    """
    start = a.offset - a.offset % ROW_ALIGNMENT  # aligned, as arrays usually are
    if start + accumulate.itemsize > a.buffer.nbytes:
        return DeviceArray(c.buffer, c.offset, accumulate, (c.shape[2],), (0,))
    return DeviceArray(a.buffer, start, accumulate, (c.shape[2],), (0,))
