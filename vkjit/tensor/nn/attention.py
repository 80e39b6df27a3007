"""Scaled dot-product attention.

On GPUs, and on CPUs when the score matrix would take much memory, a fused kernel iterates over keys and values without
materializing the scores, in both forward and backward; the device "cpu" (LLVM) also fuses attention of few scores.
Everywhere else, and for unsupported cases (dropout, a mask that requires a gradient, head dimensions above 256),
attention is composed of two matrix products and a softmax. 16-bit floats are computed in f32 on all paths; only the
result is rounded.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.stdlib.attention import dispatch as kernels

from ..autograd.mode import modes
from ..dispatch import operation
from ..op_cache import cached
from ..ops import creation
from ..ops.arithmetic import where
from ..ops.reductions import amax
from ..ops.repetition import repeat_interleave
from ..ops.triangles import tril
from ..tensor import Tensor
from .common import allocate_like, check_float
from .softmax import softmax

__all__ = ["scaled_dot_product_attention"]


def _masking(mask: Tensor | None, causal: bool) -> kernels.Masking:
    """Return the kernels' description of an optional mask, bool or float, and of causal masking."""
    if mask is None:
        return kernels.Masking(causal)
    # 0: no shift of the causal mask
    return kernels.Masking(causal, 0, mask._array, "keep" if mask.dtype.kind == "bool" else "add")


@operation("attention")
def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, M, D) and the log-sum-exp of each query's scores, by the fused kernel.

    q: (B, H, M, D), k and v: (B, G, N, D), mask: (B, H, M, N) or None. M is the number of queries and N that of keys, H
    is the number of query heads and G that of key and value heads, and D is the head size.
    """
    o = allocate_like(q.shape, q.dtype, q)
    return o, Tensor(kernels.attend(q._array, k._array, v._array, o._array, scale, _masking(mask, causal)))


def attention_gradients(
    g: Tensor,
    operands: tuple[Any, ...],
    results: tuple[Tensor, Tensor],
    needs: tuple[bool, ...],
    scale: float,
    causal: bool,
) -> tuple[Any, ...]:
    """Return the gradients of query, key and value, None where not needed. Autograd doesn't record the call.

    g: gradient of the output; operands: query, key, value and mask; results: the two results of `_attention`; needs:
    True for each operand whose gradient is needed.
    """
    q, k, v, mask = operands
    query = allocate_like(q.shape, q.dtype, q) if needs[0] else None
    # the kernels compute the gradients of key and value together
    key_value = (
        (allocate_like(k.shape, k.dtype, k), allocate_like(v.shape, v.dtype, v))
        if needs[1] or needs[2]
        else (None, None)
    )
    targets = tuple(None if t is None else t._array for t in (query, *key_value))
    arrays = tuple(t._array for t in (q, k, v))
    kernels.gradients(arrays, (results[0]._array, results[1]._array), g._array, targets, scale, _masking(mask, causal))  # type: ignore[arg-type]
    return query, key_value[0] if needs[1] else None, key_value[1] if needs[2] else None


def composed_weights(q: Any, k: Any, mask: Any, scale: float, causal: bool) -> Any:
    """Return the attention weights softmax(q @ k.T * scale + mask), (..., L, S), computed by tensor operations.

    q: (..., L, E), k: (..., S, E). Queries with all keys masked out get zero weights.
    """
    scores = (q * scale) @ k.mT
    has_mask = mask is not None
    if causal:
        visible = tril(creation.ones(scores.shape[-2:], dtype=dtypes.boolean, device=q.device))
        scores = where(visible, scores, -math.inf)
    if has_mask:
        scores = where(mask, scores, -math.inf) if mask.dtype.kind == "bool" else scores + mask
    if not has_mask or 0 in scores.shape:  # without a mask, each query has a visible key: causal masking leaves key 0
        return softmax(scores, -1)
    # softmax of a row of only -inf would be NaN
    fully_masked = amax(scores.detach(), -1, True) == -math.inf
    return where(fully_masked, 0.0, softmax(where(fully_masked, 0.0, scores), -1))


def _checked(query: Any, key: Any, value: Any, mask: Any, causal: bool, enable_gqa: bool) -> tuple[Any, Any, Any]:
    """Check types and shapes of the operands; return query, key and value."""
    name = "scaled_dot_product_attention"
    q: Any = check_float(query, name, "the query")
    k: Any = check_float(key, name, "the key")
    v: Any = check_float(value, name, "the value")
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{name}(): query {q.shape}, key {k.shape}, value {v.shape}; expected (..., L, E), (..., S, E), (..., S, V)"
        )
    if causal and mask is not None:
        raise ArgumentError(f"{name}() takes attn_mask or is_causal=True, not both")
    if enable_gqa and (
        min(q.ndim, k.ndim, v.ndim) < 3 or k.shape[-3] != v.shape[-3] or not k.shape[-3] or q.shape[-3] % k.shape[-3]
    ):
        raise ShapeError(
            f"{name}(enable_gqa=True): query {q.shape}, key {k.shape}, value {v.shape}; expected heads before the last two "
            f"axes, of the query a multiple of those of key and value"
        )
    return q, k, v


def _for_kernels(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any, Any] | None:
    """Return the operands of `_attention`, each with four axes, or None if the fused kernels don't support them."""
    operands_match = q.dtype is k.dtype is v.dtype and q.shape[-1] == v.shape[-1] and k.device is q.device is v.device
    leading_shapes = [t.shape[:-3] for t in (q, k, v)]  # the axes before the heads
    if (
        not operands_match
        or q.ndim > 4
        or len(set(leading_shapes)) > 1  # the kernels don't broadcast
        or len({t.ndim for t in (q, k, v)}) > 1
        or k.shape != v.shape
    ):
        return None
    if 0 in q.shape or 0 in k.shape or not kernels.supports(q, k.shape[-2]):
        return None
    if mask is not None:
        if mask.requires_grad or not (mask.dtype.kind == "bool" or mask.dtype.is_float):
            return None
        mask = mask.expand((*q.shape[:-1], k.shape[-2]))
    operands_4d = [
        t if t is None or t.ndim == 4 else t.reshape((1,) * (4 - t.ndim) + tuple(t.shape)) for t in (q, k, v, mask)
    ]
    return operands_4d[0], operands_4d[1], operands_4d[2], operands_4d[3]


@cached("scaled_dot_product_attention()")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(query @ key.T * scale + mask) @ value over the last two axes.

    query: (..., L, E), key: (..., S, E), value: (..., S, V); the result is (..., L, V). `attn_mask` broadcasts to
    (..., L, S): a boolean mask is True for the keys that take part, a float mask is added to the scores. `is_causal`:
    query i attends to keys 0 to i. `scale` defaults to 1 / sqrt(E). `enable_gqa`: grouped-query attention; axis -3 has
    the heads, and each group of query heads shares one key and value head. If all keys of a query are masked out, its
    result is zero.
    """
    q, k, v = _checked(query, key, value, attn_mask, is_causal, enable_gqa)
    factor = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale
    repeats_heads = enable_gqa and k.shape[-3] != q.shape[-3]
    if not dropout_p and (enable_gqa or q.shape[:-2] == k.shape[:-2]):
        kernel_operands = _for_kernels(q, k, v, attn_mask)
        if kernel_operands is not None:
            return _attention(*kernel_operands, scale=float(factor), causal=is_causal)[0].reshape(q.shape)
    if repeats_heads:
        k, v = (repeat_interleave(t, q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    # 16-bit floats are computed in f32 and rounded once, at the end; autocast chooses the types itself
    is_16_bit = q.dtype.itemsize == 2 and q.dtype is k.dtype is v.dtype
    rounded_type = q.dtype if is_16_bit and modes.get().autocast is None else None
    if rounded_type is not None:
        q, k, v = (t.to(dtypes.f32) for t in (q, k, v))
    weights = composed_weights(q, k, attn_mask, factor, is_causal)
    if dropout_p:
        from .embedding import dropout

        weights = dropout(weights, dropout_p)
    output = weights @ v
    return output if rounded_type is None else output.to(rounded_type)  # type: ignore[no-any-return]
