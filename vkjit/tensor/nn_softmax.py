"""Softmax, log-softmax and scaled dot-product attention.

Enters: tensors of floats. Leaves: new tensors of the same type; 16-bit floats are computed in f32. A row of -inf alone gives
NaN, as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..stdlib import softmax as kernels
from . import creation
from .arithmetic import where
from .dispatch import operation
from .nn_common import dense, floats, outer_inner, result, shaped
from .reductions import amax
from .tensor import Tensor
from .views import axis_of

__all__ = ["log_softmax", "scaled_dot_product_attention", "softmax", "softmin"]


def _run(x: Tensor, axis: int, *, log: bool) -> Tensor:
    y = result(x.shape, x.dtype, x)
    rows = outer_inner(x.shape, axis) if x.ndim else (1, 1, 1)
    kernels.softmax(shaped(dense(x), *rows), shaped(y._array, *rows), log=log)
    return y


@operation("softmax")
def _softmax(x: Tensor, *, axis: int) -> Tensor:
    return _run(x, axis, log=False)


@operation("log_softmax")
def _log_softmax(x: Tensor, *, axis: int) -> Tensor:
    return _run(x, axis, log=True)


def _gradient(g: Tensor, y: Tensor, axis: int, *, log: bool) -> Tensor:
    z = result(y.shape, y.dtype, y)
    rows = outer_inner(y.shape, axis) if y.ndim else (1, 1, 1)
    kernels.gradient(shaped(dense(g), *rows), shaped(dense(y), *rows), shaped(z._array, *rows), log=log)
    return z


def softmax_gradient(g: Tensor, y: Tensor, *, axis: int, log: bool) -> Tensor:
    """The gradient of the input from that of y = softmax(x), or log_softmax(x); not recorded."""
    return _gradient(g, y, axis, log=log)


def _prepared(x: Any, dim: int, dtype: Any, name: str) -> tuple[Tensor, int]:
    if dtype is not None and isinstance(x, Tensor):
        x = x.to(dtype)
    return floats(x, name), axis_of(dim, max(x.ndim, 1), name)


def softmax(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """exp(x) divided by its sum along an axis; `dtype` converts x first."""
    x, axis = _prepared(x, dim, dtype, "softmax")
    return _softmax(x, axis=axis)


def log_softmax(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax(x), without overflow; `dtype` converts x first."""
    x, axis = _prepared(x, dim, dtype, "log_softmax")
    return _log_softmax(x, axis=axis)


def softmin(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """softmax(-x)."""
    return softmax(-x, dim, dtype=dtype)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value over the last two axes.

    query: (..., L, E), key: (..., S, E), value: (..., S, V); gives (..., L, V). `attn_mask` broadcasts to (..., L, S): bool says
    which keys may be looked at, floats are added. `is_causal`: query i looks at keys up to i. `scale`: 1 / sqrt(E) where not given.
    A query whose mask leaves no key gets zeros.
    """
    q: Any = floats(query, "scaled_dot_product_attention", "the query")
    k: Any = floats(key, "scaled_dot_product_attention", "the key")
    v: Any = floats(value, "scaled_dot_product_attention", "the value")
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention(): query {q.shape}, key {k.shape}, value {v.shape}; expected (..., L, E), (..., S, E), "
            f"(..., S, V)"
        )
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention() takes attn_mask or is_causal=True, not both")
    scores = (q * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)) @ k.mT
    mask: Any = attn_mask
    if is_causal:
        length, width = scores.shape[-2:]
        rows = creation.arange(length, device=q.device).reshape(-1, 1)
        mask = rows >= creation.arange(width, device=q.device)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype.kind == "bool" else scores + mask
    if attn_mask is None or 0 in scores.shape:
        weights: Any = softmax(scores, -1)
    else:  # a query that may look at nothing gets zeros, and gives no gradient
        empty = amax(scores.detach(), -1, True) == -math.inf
        weights = where(empty, 0.0, softmax(where(empty, 0.0, scores), -1))
    if dropout_p:
        from .nn_embedding import dropout

        weights = dropout(weights, dropout_p)
    return weights @ v  # type: ignore[no-any-return]
