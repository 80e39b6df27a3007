"""Attention written with tiles: one pass over keys and values, scores never in memory.

Enters: q (B x H x M x D), k and v (B x G x N x D), H a multiple of G: heads share keys and values in groups. Leaves: o like q,
and for each row the logarithm of the sum of its exponentials, which the gradients need. D <= SIZE. With `CAUSAL`, row i sees
columns up to i + N - M.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["attention", "attention_groups"]

T = TypeVar("T", bound=vk.Element)
LOWEST = -1e30
"""Stands for minus infinity, which would make NaN of rows that see nothing."""


def attention_groups(q: Any, BM: int) -> tuple[int, int, int]:
    """Workgroups for a query: its tiles of rows, heads, batches."""
    batch, heads, rows, _ = q.shape
    return vk.cdiv(rows, BM), heads, batch


@vk.kernel(groups=attention_groups, local=128)
def attention(
    q: vk.In[T, "B H M D"],
    k: vk.In[T, "B G N D"],
    v: vk.In[T, "B G N D"],
    o: vk.Out[T, "B H M D"],
    lse: vk.Out[vk.f32, "B H M"],
    scale: vk.f32,
    SIZE: vk.Const[int],
    BM: vk.Const[int] = 64,
    BN: vk.Const[int] = 32,
    CAUSAL: vk.Const[bool] = False,
) -> None:
    """o = softmax(q @ k.T * scale) @ v, head by head."""
    wg, i, h, b = vk.workgroup(), vk.group_id(0) * BM, vk.group_id(1), vk.group_id(2)
    g, shift = h // (q.shape[1] // k.shape[1]), k.shape[2] - q.shape[2]
    rows = wg.load(q[b, h, i : i + BM, 0:SIZE])
    acc, total = wg.zeros((BM, SIZE), vk.f32), wg.zeros(BM, vk.f32)
    highest = wg.full(BM, LOWEST, vk.f32)
    last = vk.min(k.shape[2], i + BM + shift) if CAUSAL else k.shape[2]
    for j in range(0, last, BN):
        s = wg.mma(rows, k[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), vk.f32)) * scale
        column = (j + wg.arange(BN))[None, :]
        seen = column < k.shape[2]
        if CAUSAL:
            seen = seen & (column <= (i + shift + wg.arange(BM))[:, None])
        s = vk.where(seen, s, LOWEST)
        above = vk.max(highest, wg.max(s, axis=1))
        p = vk.where(seen, vk.exp(s - above[:, None]), 0)
        fade = vk.exp(highest - above)
        total = total * fade + wg.sum(p, axis=1)
        acc = wg.mma(T(p), v[b, g, j : j + BN, 0:SIZE], acc * fade[:, None])
        highest = above
    wg.store(o[b, h, i : i + BM, 0:SIZE], acc / vk.where(total > 0, total, 1)[:, None])
    wg.store(lse[b, h, i : i + BM], highest + vk.log(total))
