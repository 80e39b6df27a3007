"""FlashAttention backward pass on tiles: scores are recomputed tile by tile and never reach memory.

The kernels take the arguments and results of `forward.attention` and `do`, the gradient of o, and compute the
gradients of q, k and v. With p = exp(score - lse) and delta = the row sums of o * do (`row_dot_products`): dv = p.T @ do,
ds = p * (do @ v.T - delta), dq = ds @ k * scale and dk = ds.T @ q * scale. Each workgroup of `query_gradient` owns a
tile of queries and iterates over the keys; each of `key_gradients` owns a tile of keys and iterates over all queries of
all heads that share them. There are no atomics, so results are deterministic. With HOLD, the tiles that a workgroup
owns stay in shared memory, if there is room. Source: Dao, FlashAttention-2, 2023.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

from .forward import attention_grid, score

__all__ = ["key_gradients", "query_gradient", "row_dot_products"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


def _key_groups(k: Any, BN: int) -> tuple[int, int, int]:
    batch, heads, rows, _ = k.shape
    return vk.cdiv(rows, BN), heads, batch


@vk.kernel(groups=lambda x, BM: (vk.cdiv(x.shape[2], BM), x.shape[1], x.shape[0]), local=128)
def row_dot_products(
    x: vk.In[T, "B H M D"], y: vk.In[T, "B H M D"], z: vk.Out[A, "B H M"], SIZE: vk.Const[int], BM: vk.Const[int] = 16
) -> None:
    """Compute z, the sum of x * y along the last axis, for BM rows per workgroup."""
    wg, i, h, b = vk.workgroup(), vk.group_id(0) * BM, vk.group_id(1), vk.group_id(2)
    left, right = wg.load(x[b, h, i : i + BM, 0:SIZE]), wg.load(y[b, h, i : i + BM, 0:SIZE])
    wg.store(z[b, h, i : i + BM], wg.sum(A(left) * A(right), axis=1))


@vk.kernel(groups=attention_grid, local=128)
def query_gradient(
    q: vk.In[T, "B H M D"],
    k: vk.In[T, "B G N D"],
    v: vk.In[T, "B G N D"],
    mask: vk.In[K, "b h m n"],
    do: vk.In[T, "B H M D"],
    lse: vk.In[A, "B H M"],
    delta: vk.In[A, "B H M"],
    dq: vk.Out[T, "B H M D"],
    scale: A,
    shift: vk.i32,
    SIZE: vk.Const[int],
    BM: vk.Const[int] = 32,
    BN: vk.Const[int] = 32,
    CAUSAL: vk.Const[bool] = False,
    MASK: vk.Const[str] = "",
    HOLD: vk.Const[bool] = True,
) -> None:
    """Compute dq, the gradient of q, for BM queries per workgroup, with BN keys per iteration."""
    wg, i, h, b = vk.workgroup(), vk.group_id(0) * BM, vk.group_id(1), vk.group_id(2)
    g, n = h // (q.shape[1] // k.shape[1]), k.shape[2]
    rows, slopes = q[b, h, i : i + BM, 0:SIZE], do[b, h, i : i + BM, 0:SIZE]
    if HOLD:
        rows, slopes = wg.load(rows), wg.load(slopes)
    level, share = wg.load(lse[b, h, i : i + BM])[:, None], wg.load(delta[b, h, i : i + BM])[:, None]
    row, acc = (i + shift + wg.arange(BM))[:, None], wg.zeros((BM, SIZE), A)
    for j in range(0, vk.min(n, i + BM + shift) if CAUSAL else n, BN):
        s = wg.mma(rows, k[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), A))
        extra = wg.load(mask[b, h, i : i + BM, j : j + BN]) if MASK else 0
        p = vk.exp(score(s, scale, row, (j + wg.arange(BN))[None, :], n, extra, CAUSAL, MASK) - level)
        dp = wg.mma(slopes, v[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), A))
        acc = wg.mma(T(p * (dp - share)), k[b, g, j : j + BN, 0:SIZE], acc)
    wg.store(dq[b, h, i : i + BM, 0:SIZE], acc * scale)


@vk.kernel(groups=_key_groups, local=128)
def key_gradients(
    q: vk.In[T, "B H M D"],
    k: vk.In[T, "B G N D"],
    v: vk.In[T, "B G N D"],
    mask: vk.In[K, "b h m n"],
    do: vk.In[T, "B H M D"],
    lse: vk.In[A, "B H M"],
    delta: vk.In[A, "B H M"],
    dk: vk.Out[T, "B G N D"],
    dv: vk.Out[T, "B G N D"],
    scale: A,
    shift: vk.i32,
    SIZE: vk.Const[int],
    BM: vk.Const[int] = 32,
    BN: vk.Const[int] = 32,
    CAUSAL: vk.Const[bool] = False,
    MASK: vk.Const[str] = "",
    HOLD: vk.Const[bool] = True,
) -> None:
    """Compute the gradients of k and v. Score tiles have keys along rows, so that no tile has to be transposed."""
    wg, j, g, b = vk.workgroup(), vk.group_id(0) * BN, vk.group_id(1), vk.group_id(2)
    m, n, share = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    keys, values = k[b, g, j : j + BN, 0:SIZE], v[b, g, j : j + BN, 0:SIZE]
    if HOLD:
        keys, values = wg.load(keys), wg.load(values)
    column, key, value = (j + wg.arange(BN))[:, None], wg.zeros((BN, SIZE), A), wg.zeros((BN, SIZE), A)
    for h in range(g * share, (g + 1) * share):
        for i in range(vk.max(0, j - shift) // BM * BM if CAUSAL else 0, m, BM):
            s = wg.mma(keys, q[b, h, i : i + BM, 0:SIZE].T, wg.zeros((BN, BM), A))
            extra = wg.load(mask[b, h, i : i + BM, j : j + BN].T) if MASK else 0
            row = (i + shift + wg.arange(BM))[None, :]
            p = vk.exp(score(s, scale, row, column, n, extra, CAUSAL, MASK) - wg.load(lse[b, h, i : i + BM])[None, :])
            value = wg.mma(T(p), do[b, h, i : i + BM, 0:SIZE], value)
            dp = wg.mma(values, do[b, h, i : i + BM, 0:SIZE].T, wg.zeros((BN, BM), A))
            ds = p * (dp - wg.load(delta[b, h, i : i + BM])[None, :])
            key = wg.mma(T(ds), q[b, h, i : i + BM, 0:SIZE], key)
    wg.store(dk[b, g, j : j + BN, 0:SIZE], key * scale)
    wg.store(dv[b, g, j : j + BN, 0:SIZE], value)
