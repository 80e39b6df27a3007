"""Matrix products written with tiles: transposed operands, batches, a bias and an activation at the end.

Enters: a (batch x M x K) and b (batch x K x N), either with its last two axes swapped in memory. Leaves: c (batch x M x N).
Each workgroup computes one BM x BN tile of the result. Products and sums are in `ACC`; the order of the additions is the
device's.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["gemm", "gemm_groups"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


def gemm_groups(c: Any, BM: int, BN: int) -> tuple[int, int, int]:
    """Workgroups for a result of shape (batch, M, N)."""
    batch, m, n = c.shape
    return vk.cdiv(n, BN), vk.cdiv(m, BM), batch


@vk.func
def activated(x, activation: vk.Const[str]):
    """An element after the activation."""
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
    THREADS: vk.Const[int] = 256,  # noqa: ARG001  `local` asks for it
) -> None:
    """c = activation(a @ b + bias), batch by batch; `bias` isn't read unless `BIASED`."""
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), ACC)
    for k in range(0, a.shape[2], BK):
        acc = wg.mma(a[g, i : i + BM, k : k + BK], b[g, k : k + BK, j : j + BN], acc)
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = activated(acc, ACTIVATION)
    wg.store(c[g, i : i + BM, j : j + BN], acc)
