"""Multi-head attention out of products and a softmax."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import ArgumentError, ShapeError
from ..tensor import arithmetic, creation, views
from ..tensor.linalg import matmul
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """softmax(q k^T / sqrt(head size)) v for several heads, between linear maps of query, key and value, and of the
    result.

    in_proj_weight: (3 embed_dim, embed_dim), in_proj_bias: (3 embed_dim,), out_proj: Linear(embed_dim, embed_dim).
    """

    in_proj_weight: Parameter
    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"embed_dim {embed_dim} has to be a multiple of num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.in_proj_weight = Parameter(creation.empty(3 * embed_dim, embed_dim, dtype=dtype, device=device))
        made = Parameter(creation.empty(3 * embed_dim, dtype=dtype, device=device)) if bias else None
        self.register_parameter("in_proj_bias", made)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier's uniform weights, zero biases."""
        init.xavier_uniform_(self.in_proj_weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(L, N, E), (S, N, E), (S, N, E) (batch_first: N first) -> (L, N, E) and the mean weights (N, L, S) or None.

        Masks: bool (true: not looked at) or float (added). attn_mask: (L, S) or (N heads, L, S), key_padding_mask:
        (N, S).
        """
        if query.ndim != 3 or query.shape[-1] != self.embed_dim:
            raise ShapeError(
                f"expected a query of 3 axes, the last of size {self.embed_dim}, found shape {query.shape}"
            )
        if not self.batch_first:
            query, key, value = (views.transpose(x, 0, 1) for x in (query, key, value))
        q, k, v = self._projected(query, key, value)
        scores = matmul(q * (1 / math.sqrt(self.head_dim)), views.mT(k))
        weights = F.softmax(self._masked(scores, attn_mask, key_padding_mask), -1)
        if self.training and self.dropout:
            weights = F.dropout(weights, self.dropout, True)
        heads = views.transpose(matmul(weights, v), 1, 2)
        result = self.out_proj(views.reshape(heads, (*query.shape[:2], self.embed_dim)))
        if not self.batch_first:
            result = views.transpose(result, 0, 1)
        return result, weights.mean(1) if need_weights else None

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value as (N, heads, length, head size)."""
        if query is key and key is value:
            parts = views.chunk(F.linear(query, self.in_proj_weight, self.in_proj_bias), 3, -1)
        else:
            biases = (None,) * 3 if self.in_proj_bias is None else views.chunk(self.in_proj_bias, 3)
            weights = views.chunk(self.in_proj_weight, 3)
            parts = tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        q, k, v = (
            views.transpose(views.reshape(x, (*x.shape[:2], self.num_heads, self.head_dim)), 1, 2) for x in parts
        )
        return q, k, v

    def _masked(self, scores: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor:
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = views.reshape(attn_mask, scores.shape)
            scores = _add_mask(scores, attn_mask)
        if key_padding_mask is not None:
            batch, length = key_padding_mask.shape
            scores = _add_mask(scores, views.reshape(key_padding_mask, (batch, 1, 1, length)))
        return scores

    def _get_name(self) -> str:
        return "MultiheadAttention"


def _add_mask(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype is dtypes.boolean:
        return arithmetic.masked_fill(scores, mask, -math.inf)
    return arithmetic.add(scores, mask)
