"""Matrix products on tiles: transposed operands, batches, a fused bias and activation (epilogue), split-K.

a is (batch x M x K), b is (batch x K x N), of any strides, c is (batch x M x N). With A_TURNED or B_TURNED, the last
two axes of an operand are passed swapped, so that its last axis is contiguous in memory. Each workgroup computes one BM
x BN tile of the result, or of one split-K part. Products and sums are in ACC; the order of additions depends on the
device. `tile_plan` chooses tile sizes and the split.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["ACTIVATIONS", "gemm", "gemm_groups", "gemm_of_parts", "gemm_of_views", "gemm_parts"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
P = TypeVar("P", bound=vk.Element)

ACTIVATIONS = ("", "relu", "gelu", "silu")
"""Activations that may follow the bias; all but "" and "relu" need floats."""


def gemm_groups(c: Any, BM: int, BN: int) -> tuple[int, int, int]:
    """Return the grid for a result of shape (batch, M, N)."""
    batch, m, n = c.shape
    return vk.cdiv(n, BN), vk.cdiv(m, BM), batch


def parts_groups(parts: Any, BM: int, BN: int) -> tuple[int, int, int]:
    """Return the grid for split-K parts of shape (number, batch, M, N)."""
    number, batch, m, n = parts.shape
    return vk.cdiv(n, BN), vk.cdiv(m, BM), batch * number


@vk.func
def activated(x, activation: vk.Const[str]):
    """Apply the activation to an element."""
    if activation == "relu":
        return vk.max(x, 0)
    if activation == "gelu":
        return 0.5 * x * (1 + vk.erf(x * 0.7071067811865476))
    if activation == "silu":
        return x / (1 + vk.exp(-x))
    return x


@vk.kernel(groups=gemm_groups, local=lambda THREADS: THREADS)
def gemm(
    a: vk.In[T, "B M K"],
    b: vk.In[T, "B K N"],
    bias: vk.In[R, "N"],
    c: vk.Out[R, "B M N"],
    BM: vk.Const[int] = 128,
    BN: vk.Const[int] = 128,
    BK: vk.Const[int] = 16,
    ACC: vk.Const[Any] = vk.f32,
    ACTIVATION: vk.Const[str] = "",
    BIASED: vk.Const[bool] = False,
    THREADS: vk.Const[int] = 256,  # noqa: ARG001  # used by `local`
    PREFETCH: vk.Const[str] = "",
    WHOLE: vk.Const[bool] = False,
) -> None:
    """c = activation(a @ b + bias), batch by batch. `bias` is read only if BIASED.

    WHOLE: all tiles are assumed to lie within their matrices, which makes bounds checks unnecessary.
    """
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    if WHOLE:
        vk.assume(i + BM <= a.shape[1])
        vk.assume(j + BN <= b.shape[2])
        vk.assume(i + BM <= c.shape[1])
        vk.assume(j + BN <= c.shape[2])
    acc = wg.zeros((BM, BN), ACC)
    for k in range(0, a.shape[2], BK):
        if WHOLE:
            vk.assume(k + BK <= a.shape[2])
            vk.assume(k + BK <= b.shape[1])
        acc = wg.mma(a[g, i : i + BM, k : k + BK], b[g, k : k + BK, j : j + BN], acc, prefetch=PREFETCH)
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = activated(acc, ACTIVATION)
    wg.store(c[g, i : i + BM, j : j + BN], acc)


@vk.func
def sums_of_tile(
    a, b, g, i, j, first, end, BM: vk.Const[int], BN: vk.Const[int], BK: vk.Const[int], ACC: vk.Const[Any],
    A_TURNED: vk.Const[bool], B_TURNED: vk.Const[bool], PREFETCH: vk.Const[str], WHOLE: vk.Const[bool],
):  # fmt: skip
    """Return the tile of a[g] @ b[g] at row i, column j, summed over first <= k < end.

    `end` is K, or `first` plus a multiple of BK. WHOLE: all tiles are assumed to lie within their matrices.
    """
    wg = vk.workgroup()
    if WHOLE:
        vk.assume(i + BM <= a.shape[2 if A_TURNED else 1])
        vk.assume(j + BN <= b.shape[1 if B_TURNED else 2])
    acc = wg.zeros((BM, BN), ACC)
    for k in range(first, end, BK):
        if WHOLE:
            vk.assume(k + BK <= a.shape[1 if A_TURNED else 2])
            vk.assume(k + BK <= b.shape[2 if B_TURNED else 1])
        if A_TURNED:
            left = a[g, k : k + BK, i : i + BM].T
        else:
            left = a[g, i : i + BM, k : k + BK]
        if B_TURNED:
            right = b[g, j : j + BN, k : k + BK].T
        else:
            right = b[g, k : k + BK, j : j + BN]
        acc = wg.mma(left, right, acc, prefetch=PREFETCH)
    return acc


@vk.kernel(groups=gemm_groups, local=lambda THREADS: THREADS, debug=False)
def gemm_of_views(
    a: vk.In[T, "_ _ _"],
    b: vk.In[T, "_ _ _"],
    bias: vk.In[P, "N"],
    c: vk.Out[R, "B M N"],
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    ACC: vk.Const[Any],
    A_TURNED: vk.Const[bool],
    B_TURNED: vk.Const[bool],
    ACTIVATION: vk.Const[str],
    BIASED: vk.Const[bool],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    PREFETCH: vk.Const[str] = "",
    WHOLE: vk.Const[bool] = False,
) -> None:
    """Variant of `gemm` for operands that may be transposed."""
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    depth = a.shape[1] if A_TURNED else a.shape[2]
    acc = sums_of_tile(a, b, g, i, j, 0, depth, BM, BN, BK, ACC, A_TURNED, B_TURNED, PREFETCH, WHOLE)
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = activated(acc, ACTIVATION)
    if WHOLE:
        vk.assume(i + BM <= c.shape[1])
        vk.assume(j + BN <= c.shape[2])
    wg.store(c[g, i : i + BM, j : j + BN], acc)


@vk.kernel(groups=parts_groups, local=lambda THREADS: THREADS, debug=False)
def gemm_parts(
    a: vk.In[T, "_ _ _"],
    b: vk.In[T, "_ _ _"],
    parts: vk.Out[P, "S B M N"],
    chunk: vk.i32,
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    ACC: vk.Const[Any],
    A_TURNED: vk.Const[bool],
    B_TURNED: vk.Const[bool],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    PREFETCH: vk.Const[str] = "",
    WHOLE: vk.Const[bool] = False,
) -> None:
    """parts[s] = the product summed over the `chunk` elements of K from s * chunk on; `chunk` is a multiple of BK."""
    wg, batch = vk.workgroup(), parts.shape[1]
    g, part = vk.group_id(2) % batch, vk.group_id(2) // batch
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    depth = a.shape[1] if A_TURNED else a.shape[2]
    first = part * chunk
    end = vk.min(first + chunk, depth)
    acc = sums_of_tile(a, b, g, i, j, first, end, BM, BN, BK, ACC, A_TURNED, B_TURNED, PREFETCH, WHOLE)
    if WHOLE:
        vk.assume(i + BM <= parts.shape[2])
        vk.assume(j + BN <= parts.shape[3])
    wg.store(parts[part, g, i : i + BM, j : j + BN], acc)


@vk.kernel(groups=gemm_groups, local=64, debug=False)
def gemm_of_parts(
    parts: vk.In[P, "S B M N"],
    bias: vk.In[T, "N"],
    c: vk.Out[R, "B M N"],
    BM: vk.Const[int] = 16,
    BN: vk.Const[int] = 64,
    ACC: vk.Const[Any] = vk.f32,
    ACTIVATION: vk.Const[str] = "",
    BIASED: vk.Const[bool] = False,
) -> None:
    """c = activation(the sum of the split-K parts in order + bias)."""
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), ACC)
    for s in range(parts.shape[0]):
        acc = acc + ACC(parts[s, g, i : i + BM, j : j + BN])
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = activated(acc, ACTIVATION)
    wg.store(c[g, i : i + BM, j : j + BN], acc)
