"""FlashAttention forward pass on tiles: one pass over keys and values with online softmax; scores never reach memory.

q is (B x H x M x D), k and v are (B x G x N x D), D <= SIZE; H is a multiple of G, so groups of heads share keys and
values (grouped-query attention). With CAUSAL, row i attends to columns up to i + shift. `mask` (B x H x M x N) is read
according to MASK: "keep" keeps the scores for which it is true, "add" adds it to the scores, "" ignores it. o has the
shape of q, with zeros for rows that attend to nothing; lse is the logsumexp of each row's scores, which the gradients
need. Sums are in the type of scale and lse.
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
    """Return the grid of a query: tiles of rows, heads, batches."""
    batch, heads, rows, _ = q.shape
    return vk.cdiv(rows, BM), heads, batch


@vk.func
def score(s, scale, row, column, columns, mask, CAUSAL: vk.Const[bool], MASK: vk.Const[str]):
    """Scale and mask the product of a query and a key: minus infinity where the query must not attend to the key."""
    seen = column < columns
    if CAUSAL:
        seen = seen & (column <= row)
    if MASK == "keep":
        seen = seen & mask
    s = s * scale
    if MASK == "add":
        s = s + mask
    return vk.where(seen, s, -float("inf"))


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
    """Compute o = softmax(q @ k.T * scale) @ v for each head.

    A workgroup of THREADS invocations processes BM queries, and BN keys per iteration. PREFETCH is the software pipelining
    mode of `wg.mma`.
    """
    wg, i, h, b = vk.workgroup(), vk.group_id(0) * BM, vk.group_id(1), vk.group_id(2)
    g, n = h // (q.shape[1] // k.shape[1]), k.shape[2]
    rows, row = wg.load(q[b, h, i : i + BM, 0:SIZE]), (i + shift + wg.arange(BM))[:, None]
    acc, total, highest = wg.zeros((BM, SIZE), A), wg.zeros(BM, A), wg.full(BM, LOWEST, A)
    for j in range(0, vk.min(n, i + BM + shift) if CAUSAL else n, BN):
        s = wg.mma(rows, k[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), A), prefetch=PREFETCH) * scale
        if MASK == "add":
            s = s + wg.load(mask[b, h, i : i + BM, j : j + BN])
        elif MASK == "keep":
            s = vk.where(wg.load(mask[b, h, i : i + BM, j : j + BN]), s, -float("inf"))
        beyond = j + BN > (vk.min(n, i + shift + 1) if CAUSAL else n)
        if beyond:  # in other tiles every row attends to all columns
            column = (j + wg.arange(BN))[None, :]
            seen = column < n
            if CAUSAL:
                seen = seen & (column <= row)
            s = vk.where(seen, s, -float("inf"))
        above = vk.max(highest, wg.max(s, axis=1))
        p, fade = vk.exp(s - above[:, None]), vk.exp(highest - above)
        total = total * fade + wg.sum(p, axis=1)
        acc = wg.mma(T(p), v[b, g, j : j + BN, 0:SIZE], acc * fade[:, None], prefetch=PREFETCH)
        highest = above
    total = vk.where(total > 0, total, 1)
    wg.store(o[b, h, i : i + BM, 0:SIZE], acc / total[:, None])
    wg.store(lse[b, h, i : i + BM], highest + vk.log(total))


attention_16bit = attention.variant(fast_math=True)
"""Variant for 16-bit operands, which hide the error of the device's own exponential: 3 + 2 |x| ulp of exp(x), x <= 0.
"""
