"""FlashAttention forward pass as a tile kernel: one pass over keys and values with online softmax.

`dispatch.attend` launches the kernel. The scores never reach memory. q is (B x H x M x D), k and v are (B x G x N x D):
batches, heads, rows (queries or keys), head dimension. H is a multiple of G, so groups of heads share keys and values
(grouped-query attention). SIZE is the padded head dimension, a power of two and at least D.

A score is an element of q @ k.T * scale, with queries as rows and keys as columns. With CAUSAL, row i attends to
columns up to i + `shift`. `mask` (B x H x M x N) is read according to MASK: "keep" keeps the scores for which it is
true, "add" adds it to the scores, "" ignores it. With "", any array can be passed as `mask`; the kernels therefore
declare its extents by letters of their own. The result o has the shape of q, with zeros for rows that attend to
nothing; lse is the log-sum-exp of each row's scores, which the gradients need. T is the element type of q, k, v and o,
K that of the mask. Sums are in A, the type of scale and lse.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["attention", "attention_16bit", "attention_grid", "score"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)
LOWEST = -3.4028234663852886e38
"""Initial running maximum: with minus infinity, rows that attend to nothing would become NaN."""


def attention_grid(q: Any, BM: int) -> tuple[int, int, int]:
    """Return the grid for a query q: tiles of BM rows, heads, batches."""
    batch, heads, rows, _ = q.shape
    return vk.cdiv(rows, BM), heads, batch


@vk.func
def score(s, scale, row, column, columns, mask, CAUSAL: vk.Const[bool], MASK: vk.Const[str]):
    """Scale and mask s, a tile of products of queries and keys: minus infinity where a query must not attend to a key.

    `row` is the index of the query plus `shift`, `column` that of the key, `columns` the number of keys, `mask` the
    tile of the mask. CAUSAL and MASK are described in the module docstring.
    """
    visible = column < columns
    if CAUSAL:
        visible = visible & (column <= row)
    if MASK == "keep":
        visible = visible & mask
    s = s * scale
    if MASK == "add":
        s = s + mask
    return vk.where(visible, s, -float("inf"))


@vk.kernel(groups=attention_grid, local=lambda THREADS: THREADS)
def attention(
    q: vk.In[T, "B H M D"],
    k: vk.In[T, "B G N D"],
    v: vk.In[T, "B G N D"],
    mask: vk.In[K, "b h m n"],
    o: vk.Out[T, "B H M D"],
    lse: vk.Out[A, "B H M"],
    scale: A,
    shift: vk.i32,
    SIZE: vk.Const[int],
    BM: vk.Const[int] = 64,
    BN: vk.Const[int] = 32,
    CAUSAL: vk.Const[bool] = False,
    MASK: vk.Const[str] = "",
    THREADS: vk.Const[int] = 128,  # noqa: ARG001  # used by `local`
    PREFETCH: vk.Const[str] = "",
) -> None:
    """Compute o = softmax(q @ k.T * scale) @ v and lse for each head.

    A workgroup of THREADS invocations processes BM queries, and BN keys per iteration. PREFETCH is the software
    pipelining mode of `wg.mma` (docs/tiles.md). SIZE, CAUSAL and MASK are described in the module docstring.
    """
    wg, i, h, b = vk.workgroup(), vk.group_id(0) * BM, vk.group_id(1), vk.group_id(2)
    g, n = h // (q.shape[1] // k.shape[1]), k.shape[2]
    queries, row = wg.load(q[b, h, i : i + BM, 0:SIZE]), (i + shift + wg.arange(BM))[:, None]
    # `highest` is the maximum of each row of scores so far, `total` the sum of exp(score - highest)
    acc, total, highest = wg.zeros((BM, SIZE), A), wg.zeros(BM, A), wg.full(BM, LOWEST, A)
    # with CAUSAL, none of these queries attends to later keys
    for j in range(0, vk.min(n, i + BM + shift) if CAUSAL else n, BN):
        s = wg.mma(queries, k[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), A), prefetch=PREFETCH) * scale
        # the masking is that of `score`, but tiles in which every row attends to every column skip the comparisons
        if MASK == "add":
            s = s + wg.load(mask[b, h, i : i + BM, j : j + BN])
        elif MASK == "keep":
            s = vk.where(wg.load(mask[b, h, i : i + BM, j : j + BN]), s, -float("inf"))
        # the tile contains columns to which some row doesn't attend, because of CAUSAL or past the last key
        needs_mask = j + BN > (vk.min(n, i + shift + 1) if CAUSAL else n)
        if needs_mask:
            column = (j + wg.arange(BN))[None, :]
            visible = column < n
            if CAUSAL:
                visible = visible & (column <= row)
            s = vk.where(visible, s, -float("inf"))
        # online softmax: rescale the sums so far by exp(old maximum - new maximum)
        new_highest = vk.max(highest, wg.max(s, axis=1))
        p, decay = vk.exp(s - new_highest[:, None]), vk.exp(highest - new_highest)
        total = total * decay + wg.sum(p, axis=1)
        acc = wg.mma(T(p), v[b, g, j : j + BN, 0:SIZE], acc * decay[:, None], prefetch=PREFETCH)
        highest = new_highest
    total = vk.where(total > 0, total, 1)  # rows that attend to nothing: 0 / 1
    wg.store(o[b, h, i : i + BM, 0:SIZE], acc / total[:, None])
    wg.store(lse[b, h, i : i + BM], highest + vk.log(total))


attention_16bit = attention.variant(fast_math=True)
"""Variant of `attention` for 16-bit operands that uses the device's own exponential (`fast_math`).

Its error, 3 + 2 |x| ulp of exp(x) for x <= 0 in f32, is hidden by the rounding of the operands.
"""
