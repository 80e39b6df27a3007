"""Attention of few scores in one launch, and its gradients in another: no tiles, for the device "cpu" (LLVM).

For tiny operands, the launches and autograd nodes of attention made of separate operations take more time than its
arithmetic. `dispatch` launches these kernels for heads of at most `MAX_SCORES` scores. Arrays, `mask`, CAUSAL and MASK
are those of `forward`. A workgroup of SIZE invocations, one subgroup, processes a query in `attend_row` and one head of
keys in `gradients_of_head`. SCORES is the length of the shared arrays. Sums and softmax weights are of type A.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

from .forward import LOWEST, score

__all__ = ["MAX_SCORES", "attend_row", "gradients_of_head"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

MAX_SCORES = 1024
"""Maximum number of scores of a head."""


@vk.func
def masked_score(q, k, lse, b, h, g, i, j, shift, scale, mask, CAUSAL: vk.Const[bool], MASK: vk.Const[str]):
    """Return the masked score of query i of head h and key j of head g, in batch b, in the type of `lse`."""
    total = lse.dtype(0)
    for d in range(q.shape[3]):
        total += lse.dtype(q[b, h, i, d]) * lse.dtype(k[b, g, j, d])
    entry = True
    if MASK == "keep":
        entry = mask[b, h, i, j]
    if MASK == "add":
        entry = lse.dtype(mask[b, h, i, j])
    return score(total, scale, i + shift, j, k.shape[2], entry, CAUSAL, MASK)


@vk.kernel(groups=lambda q: (q.shape[2], q.shape[1], q.shape[0]), local=lambda SIZE: SIZE, debug=False)
def attend_row(
    q: vk.In[T, "B H M D"],
    k: vk.In[T, "B G N D"],
    v: vk.In[T, "B G N D"],
    mask: vk.In[K, "b h m n"],
    o: vk.Out[T, "B H M D"],
    lse: vk.Out[A, "B H M"],
    scale: A,
    shift: vk.i32,
    SIZE: vk.Const[int],
    SCORES: vk.Const[int],
    CAUSAL: vk.Const[bool],
    MASK: vk.Const[str],
):
    """Compute o = softmax(q @ k.T * scale) @ v and lse, as `forward.attention`, for one query per workgroup."""
    sg, lane = vk.subgroup(), vk.i32(vk.local_id(0))
    i, h, b = vk.i32(vk.group_id(0)), vk.i32(vk.group_id(1)), vk.i32(vk.group_id(2))
    g, n = h // vk.i32(q.shape[1] // k.shape[1]), vk.i32(k.shape[2])
    weights = vk.shared(A, SCORES)
    top = A(LOWEST)
    for j in range(lane, n, SIZE):
        s = masked_score(q, k, lse, b, h, g, i, j, shift, scale, mask, CAUSAL, MASK)
        weights[j] = s
        top = vk.where(s > top, s, top)
    top = sg.max(top)
    total = A(0)
    for j in range(lane, n, SIZE):
        weight = vk.exp(weights[j] - top)
        weights[j] = weight
        total += weight
    total = sg.sum(total)
    total = vk.where(total == 0, 1, total)  # queries that attend to nothing: 0 / 1
    vk.barrier()
    for d in range(lane, vk.i32(q.shape[3]), SIZE):
        value = A(0)
        for j in range(n):
            value += weights[j] * A(v[b, g, j, d])
        o[b, h, i, d] = T(value / total)
    if lane == 0:
        lse[b, h, i] = top + vk.log(total)


@vk.kernel(groups=lambda k: (k.shape[1], k.shape[0], 1), local=lambda SIZE: SIZE, debug=False)
def gradients_of_head(
    q: vk.In[T, "B H M D"],
    k: vk.In[T, "B G N D"],
    v: vk.In[T, "B G N D"],
    mask: vk.In[K, "b h m n"],
    grad: vk.In[T, "B H M D"],
    lse: vk.In[A, "B H M"],
    dq: vk.Out[T, "B H M D"],
    dk: vk.Out[T, "B G N D"],
    dv: vk.Out[T, "B G N D"],
    scale: A,
    shift: vk.i32,
    SIZE: vk.Const[int],
    SCORES: vk.Const[int],
    ITEMS: vk.Const[int],
    CAUSAL: vk.Const[bool],
    MASK: vk.Const[str],
):
    """Compute the gradients of q, k and v from `grad`, the gradient of o, for one head of keys per workgroup.

    ITEMS is the number of elements of dk and dv that an invocation sums: at least N * D / SIZE.
    """
    lane, g, b = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0)), vk.i32(vk.group_id(1))
    m, n, size = vk.i32(q.shape[2]), vk.i32(k.shape[2]), vk.i32(q.shape[3])
    group = vk.i32(q.shape[1] // k.shape[1])
    weights, slopes = vk.shared(A, SCORES), vk.shared(A, SCORES)  # softmax weights; gradients of scores
    of_key, of_value = vk.local(A, ITEMS), vk.local(A, ITEMS)
    for item in range(ITEMS):
        of_key[item], of_value[item] = A(0), A(0)
    for h in range(g * group, (g + 1) * group):
        vk.barrier()  # the weights and slopes of the previous head are read until here
        for e in range(lane, m * n, SIZE):
            i, j = e // n, e % n
            s = masked_score(q, k, lse, b, h, g, i, j, shift, scale, mask, CAUSAL, MASK)
            slope = A(0)
            for d in range(size):
                slope += A(grad[b, h, i, d]) * A(v[b, g, j, d])
            weights[e], slopes[e] = vk.exp(s - lse[b, h, i]), slope
        vk.barrier()
        for i in range(lane, m, SIZE):
            mean = A(0)
            for j in range(n):
                mean += weights[i * n + j] * slopes[i * n + j]
            for j in range(n):
                slopes[i * n + j] = weights[i * n + j] * (slopes[i * n + j] - mean) * scale
        vk.barrier()
        for e in range(lane, m * size, SIZE):
            i, d = e // size, e % size
            value = A(0)
            for j in range(n):
                value += slopes[i * n + j] * A(k[b, g, j, d])
            dq[b, h, i, d] = T(value)
        for item in range(vk.cdiv(n * size - lane, SIZE)):
            e = item * SIZE + lane
            j, d = e // size, e % size
            key, value = of_key[item], of_value[item]
            for i in range(m):
                key += slopes[i * n + j] * A(q[b, h, i, d])
                value += weights[i * n + j] * A(grad[b, h, i, d])
            of_key[item], of_value[item] = key, value
    for item in range(vk.cdiv(n * size - lane, SIZE)):
        e = item * SIZE + lane
        dk[b, g, e // size, e % size] = T(of_key[item])
        dv[b, g, e // size, e % size] = T(of_value[item])
