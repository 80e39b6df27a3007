"""FlashAttention backward pass as tile kernels: scores are recomputed tile by tile and never reach memory.

`dispatch.gradients` launches the kernels. They take the arguments and results of `forward.attention` and `do`, the
gradient of o, and compute the gradients of q, k and v. With p = exp(score - lse), and delta, the row sums of o * do
(`row_dot_products`):

    dv = p.T @ do
    ds = p * (do @ v.T - delta)
    dq = ds @ k * scale
    dk = ds.T @ q * scale

Each workgroup of `query_gradient` owns a tile of BM queries and iterates over the keys, BN at a time. Each workgroup of
`key_gradients` owns a tile of BN keys and iterates over the queries, BM at a time, of all heads that share these keys.
There are no atomics, so results are deterministic. HOLD: the workgroup loads its own tiles once, before the loop, and
keeps them; otherwise it loads them again in each iteration, which needs less shared memory. SIZE, the padded head
dimension, CAUSAL, MASK, `mask` and `shift` are described in `forward`, as are the element types T, K and A; sums are in
A. Source: Dao, FlashAttention-2, 2023.
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
    """Return the grid of `key_gradients`: tiles of BN keys, heads of k, batches."""
    batch, heads, rows, _ = k.shape
    return vk.cdiv(rows, BN), heads, batch


@vk.kernel(groups=lambda x, BM: (vk.cdiv(x.shape[2], BM), x.shape[1], x.shape[0]), local=128)
def row_dot_products(
    x: vk.In[T, "B H M D"], y: vk.In[T, "B H M D"], z: vk.Out[A, "B H M"], SIZE: vk.Const[int], BM: vk.Const[int] = 16
) -> None:
    """Compute z, the sum of x * y along the last axis, for BM rows per workgroup. SIZE is the padded row length."""
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
    """Compute dq, the gradient of q; the module docstring describes the notation and the parameters."""
    wg, i, h, b = vk.workgroup(), vk.group_id(0) * BM, vk.group_id(1), vk.group_id(2)
    g, n = h // (q.shape[1] // k.shape[1]), k.shape[2]
    queries, grad_rows = q[b, h, i : i + BM, 0:SIZE], do[b, h, i : i + BM, 0:SIZE]
    if HOLD:
        queries, grad_rows = wg.load(queries), wg.load(grad_rows)
    row_lse, row_delta = wg.load(lse[b, h, i : i + BM])[:, None], wg.load(delta[b, h, i : i + BM])[:, None]
    row, acc = (i + shift + wg.arange(BM))[:, None], wg.zeros((BM, SIZE), A)
    # with CAUSAL, none of these queries attends to later keys
    for j in range(0, vk.min(n, i + BM + shift) if CAUSAL else n, BN):
        s = wg.mma(queries, k[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), A))
        mask_tile = wg.load(mask[b, h, i : i + BM, j : j + BN]) if MASK else 0
        p = vk.exp(score(s, scale, row, (j + wg.arange(BN))[None, :], n, mask_tile, CAUSAL, MASK) - row_lse)
        dp = wg.mma(grad_rows, v[b, g, j : j + BN, 0:SIZE].T, wg.zeros((BM, BN), A))
        acc = wg.mma(T(p * (dp - row_delta)), k[b, g, j : j + BN, 0:SIZE], acc)
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
    """Compute dk and dv, the gradients of k and v; the module docstring describes the notation and the parameters.

    Score tiles have keys along their rows, so that no tile has to be transposed.
    """
    wg, j, g, b = vk.workgroup(), vk.group_id(0) * BN, vk.group_id(1), vk.group_id(2)
    m, n, heads_per_group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    keys, values = k[b, g, j : j + BN, 0:SIZE], v[b, g, j : j + BN, 0:SIZE]
    if HOLD:
        keys, values = wg.load(keys), wg.load(values)
    column, dk_sum, dv_sum = (j + wg.arange(BN))[:, None], wg.zeros((BN, SIZE), A), wg.zeros((BN, SIZE), A)
    for h in range(g * heads_per_group, (g + 1) * heads_per_group):
        # with CAUSAL, no earlier query attends to these keys
        for i in range(vk.max(0, j - shift) // BM * BM if CAUSAL else 0, m, BM):
            s = wg.mma(keys, q[b, h, i : i + BM, 0:SIZE].T, wg.zeros((BN, BM), A))
            mask_tile = wg.load(mask[b, h, i : i + BM, j : j + BN].T) if MASK else 0
            row = (i + shift + wg.arange(BM))[None, :]
            p = vk.exp(
                score(s, scale, row, column, n, mask_tile, CAUSAL, MASK) - wg.load(lse[b, h, i : i + BM])[None, :]
            )
            dv_sum = wg.mma(T(p), do[b, h, i : i + BM, 0:SIZE], dv_sum)
            dp = wg.mma(values, do[b, h, i : i + BM, 0:SIZE].T, wg.zeros((BN, BM), A))
            ds = p * (dp - wg.load(delta[b, h, i : i + BM])[None, :])
            dk_sum = wg.mma(T(ds), q[b, h, i : i + BM, 0:SIZE], dk_sum)
    wg.store(dk[b, g, j : j + BN, 0:SIZE], dk_sum * scale)
    wg.store(dv[b, g, j : j + BN, 0:SIZE], dv_sum)
