"""Matrix products as tile kernels (see docs/tiles.md): batches, transposed operands, bias and activation, split-K.

`tile_plan` chooses the parameters and launches the kernels. a is (batch x M x K), b (batch x K x N) and c (batch x M x
N), of any strides. The kernels share these parameters:

- BM, BN, BK: each workgroup of THREADS invocations computes one BM x BN tile of the result, or of one split-K part, in
  steps of BK along K.
- ACC: the type of products and sums. The order of additions depends on the device.
- A_TRANSPOSED, B_TRANSPOSED: the operand is passed with its last two axes swapped, (batch x K x M) or (batch x N x K),
  so that its last axis is contiguous in memory.
- ACTIVATION: a name in `ACTIVATIONS`. BIASED: `bias` is added; otherwise it is a placeholder that isn't read.
- PREFETCH: the software pipelining mode of `wg.mma`.
- IN_BOUNDS: the caller guarantees that all tiles lie within their matrices, which makes bounds checks unnecessary.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["ACTIVATIONS", "gemm", "gemm_grid", "gemm_reduce_split_k", "gemm_split_k", "gemm_transposed"]

T = TypeVar("T", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
P = TypeVar("P", bound=vk.Element)

ACTIVATIONS = ("", "relu", "gelu", "silu")
"""Activations that may follow the bias; "" is none, and "gelu" and "silu" need floats."""


def gemm_grid(c: Any, BM: int, BN: int) -> tuple[int, int, int]:
    """Return the grid for a result of shape (batch, M, N): one workgroup per BM x BN tile."""
    batch, m, n = c.shape
    return vk.cdiv(n, BN), vk.cdiv(m, BM), batch


def split_k_grid(parts: Any, BM: int, BN: int) -> tuple[int, int, int]:
    """Return the grid for `parts` of shape (split-K parts, batch, M, N): one workgroup per BM x BN tile of a part."""
    number, batch, m, n = parts.shape
    return vk.cdiv(n, BN), vk.cdiv(m, BM), batch * number


@vk.func
def apply_activation(x, activation: vk.Const[str]):
    """Apply an activation of `ACTIVATIONS` to an element or tile."""
    if activation == "relu":
        return vk.max(x, 0)
    if activation == "gelu":
        return 0.5 * x * (1 + vk.erf(x * 0.7071067811865476))
    if activation == "silu":
        return x / (1 + vk.exp(-x))
    return x


@vk.kernel(groups=gemm_grid, local=lambda THREADS: THREADS)
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
    IN_BOUNDS: vk.Const[bool] = False,
) -> None:
    """Compute c = activation(a @ b + bias) for each matrix of the batch, without transposed operands or split-K.

    T is the element type of a and b, R that of bias and c. The parameters are described in the module docstring.
    """
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    if IN_BOUNDS:
        vk.assume(i + BM <= a.shape[1])
        vk.assume(j + BN <= b.shape[2])
        vk.assume(i + BM <= c.shape[1])
        vk.assume(j + BN <= c.shape[2])
    acc = wg.zeros((BM, BN), ACC)
    for k in range(0, a.shape[2], BK):
        if IN_BOUNDS:
            vk.assume(k + BK <= a.shape[2])
            vk.assume(k + BK <= b.shape[1])
        acc = wg.mma(a[g, i : i + BM, k : k + BK], b[g, k : k + BK, j : j + BN], acc, prefetch=PREFETCH)
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = apply_activation(acc, ACTIVATION)
    wg.store(c[g, i : i + BM, j : j + BN], acc)


@vk.func
def tile_product(
    a, b, g, i, j, first, end, BM: vk.Const[int], BN: vk.Const[int], BK: vk.Const[int], ACC: vk.Const[Any],
    A_TRANSPOSED: vk.Const[bool], B_TRANSPOSED: vk.Const[bool], PREFETCH: vk.Const[str], IN_BOUNDS: vk.Const[bool],
):  # fmt: skip
    """Return the BM x BN tile of a[g] @ b[g] at row i, column j, summed over first <= k < end.

    `end` is K, or `first` plus a multiple of BK. The other parameters are described in the module docstring.
    """
    wg = vk.workgroup()
    if IN_BOUNDS:
        vk.assume(i + BM <= a.shape[2 if A_TRANSPOSED else 1])
        vk.assume(j + BN <= b.shape[1 if B_TRANSPOSED else 2])
    acc = wg.zeros((BM, BN), ACC)
    for k in range(first, end, BK):
        if IN_BOUNDS:
            vk.assume(k + BK <= a.shape[1 if A_TRANSPOSED else 2])
            vk.assume(k + BK <= b.shape[2 if B_TRANSPOSED else 1])
        if A_TRANSPOSED:
            left = a[g, k : k + BK, i : i + BM].T
        else:
            left = a[g, i : i + BM, k : k + BK]
        if B_TRANSPOSED:
            right = b[g, j : j + BN, k : k + BK].T
        else:
            right = b[g, k : k + BK, j : j + BN]
        acc = wg.mma(left, right, acc, prefetch=PREFETCH)
    return acc


@vk.kernel(groups=gemm_grid, local=lambda THREADS: THREADS, debug=False)
def gemm_transposed(
    a: vk.In[T, "_ _ _"],
    b: vk.In[T, "_ _ _"],
    bias: vk.In[P, "N"],
    c: vk.Out[R, "B M N"],
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    ACC: vk.Const[Any],
    A_TRANSPOSED: vk.Const[bool],
    B_TRANSPOSED: vk.Const[bool],
    ACTIVATION: vk.Const[str],
    BIASED: vk.Const[bool],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    PREFETCH: vk.Const[str] = "",
    IN_BOUNDS: vk.Const[bool] = False,
) -> None:
    """Variant of `gemm` with the parameters A_TRANSPOSED and B_TRANSPOSED, and with any type P of the bias.

    The other parameters are described in the module docstring.
    """
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    depth = a.shape[1] if A_TRANSPOSED else a.shape[2]
    acc = tile_product(a, b, g, i, j, 0, depth, BM, BN, BK, ACC, A_TRANSPOSED, B_TRANSPOSED, PREFETCH, IN_BOUNDS)
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = apply_activation(acc, ACTIVATION)
    if IN_BOUNDS:
        vk.assume(i + BM <= c.shape[1])
        vk.assume(j + BN <= c.shape[2])
    wg.store(c[g, i : i + BM, j : j + BN], acc)


@vk.kernel(groups=split_k_grid, local=lambda THREADS: THREADS, debug=False)
def gemm_split_k(
    a: vk.In[T, "_ _ _"],
    b: vk.In[T, "_ _ _"],
    parts: vk.Out[P, "S B M N"],
    chunk: vk.i32,
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    ACC: vk.Const[Any],
    A_TRANSPOSED: vk.Const[bool],
    B_TRANSPOSED: vk.Const[bool],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    PREFETCH: vk.Const[str] = "",
    IN_BOUNDS: vk.Const[bool] = False,
) -> None:
    """Compute the split-K parts: parts[s] = a @ b summed over s * chunk <= k < (s + 1) * chunk.

    T is the element type of a and b, P that of `parts`. `chunk` is a multiple of BK. The other parameters are described
    in the module docstring.
    """
    wg, batch = vk.workgroup(), parts.shape[1]
    g, part = vk.group_id(2) % batch, vk.group_id(2) // batch
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    depth = a.shape[1] if A_TRANSPOSED else a.shape[2]
    first = part * chunk
    end = vk.min(first + chunk, depth)
    acc = tile_product(a, b, g, i, j, first, end, BM, BN, BK, ACC, A_TRANSPOSED, B_TRANSPOSED, PREFETCH, IN_BOUNDS)
    if IN_BOUNDS:
        vk.assume(i + BM <= parts.shape[2])
        vk.assume(j + BN <= parts.shape[3])
    wg.store(parts[part, g, i : i + BM, j : j + BN], acc)


@vk.kernel(groups=gemm_grid, local=64, debug=False)
def gemm_reduce_split_k(
    parts: vk.In[P, "S B M N"],
    bias: vk.In[T, "N"],
    c: vk.Out[R, "B M N"],
    BM: vk.Const[int] = 16,
    BN: vk.Const[int] = 64,
    ACC: vk.Const[Any] = vk.f32,
    ACTIVATION: vk.Const[str] = "",
    BIASED: vk.Const[bool] = False,
) -> None:
    """Compute c = activation(sum of the split-K parts + bias); the parts are added in order.

    P, T and R are the element types of `parts`, bias and c. The parameters are described in the module docstring.
    """
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), ACC)
    for s in range(parts.shape[0]):
        acc = acc + ACC(parts[s, g, i : i + BM, j : j + BN])
    if BIASED:
        acc = acc + ACC(bias[j : j + BN])
    if ACTIVATION:
        acc = apply_activation(acc, ACTIVATION)
    wg.store(c[g, i : i + BM, j : j + BN], acc)
