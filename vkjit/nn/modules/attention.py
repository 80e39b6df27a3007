"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.tensor.ops import arithmetic, copies, creation, views
from vkjit.tensor.ops.matmul import matmul
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .linear import Linear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Multi-head attention: softmax(q k^T / sqrt(head size)) v per head.

    q, k and v are linear projections of query, key and value; the output is projected as well. in_proj_weight: (3
    embed_dim, embed_dim), in_proj_bias: (3 embed_dim,), out_proj: Linear(embed_dim, embed_dim). If kdim or vdim differs
    from embed_dim, three weights replace in_proj_weight: q_proj_weight (embed_dim, embed_dim), k_proj_weight
    (embed_dim, kdim) and v_proj_weight (embed_dim, vdim).

    add_bias_kv appends a learned key and value (bias_k, bias_v) to the sequence of keys and values; add_zero_attn
    appends a key and value of zeros.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"embed_dim {embed_dim} has to be a multiple of num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn

        def new(*shape: int) -> Parameter:
            return Parameter(creation.empty(shape, dtype=dtype, device=device))

        packed = self.kdim == embed_dim and self.vdim == embed_dim  # the three projections in one weight
        widths = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        for name, width in widths.items():
            self.register_parameter(name, None if packed else new(embed_dim, width))
        self.register_parameter("in_proj_weight", new(3 * embed_dim, embed_dim) if packed else None)
        self.register_parameter("in_proj_bias", new(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, new(1, 1, embed_dim) if add_bias_kv else None)
        self.reset_parameters()

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments. bias and add_bias_kv are True if the parameters exist."""
        return {
            "embed_dim": self.embed_dim, "num_heads": self.num_heads, "dropout": self.dropout,
            "bias": self.in_proj_bias is not None, "add_bias_kv": self.bias_k is not None,
            "add_zero_attn": self.add_zero_attn, "kdim": self.kdim, "vdim": self.vdim, "batch_first": self.batch_first,
            "dtype": self.out_proj.weight.dtype,
        }  # fmt: skip

    def reset_parameters(self) -> None:
        """Initialize weights by Xavier uniform, biases to zero, bias_k and bias_v by Xavier normal."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = self._parameters[name]
            if weight is not None:
                init.xavier_uniform_(weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Query (L, N, E), key (S, N, kdim) and value (S, N, vdim) -> (L, N, E) and the attention weights.

        L and S are the numbers of queries and keys, N the batch size, E embed_dim. With batch_first N comes first;
        without N the inputs are a single example. The weights are the average over the heads, (N, L, S), or those of
        each head, (N, heads, L, S), with average_attn_weights=False. They are None with need_weights=False.

        Masks are bool (True: position is masked out) or float (added to the scores). attn_mask: (L, S) or (N * heads,
        L, S); key_padding_mask: (N, S). is_causal: each query attends to keys up to its own position; ignored if
        attn_mask is given.
        """
        single = query.ndim == 2
        if query.ndim not in (2, 3) or query.shape[-1] != self.embed_dim:
            raise ShapeError(
                f"expected a query of 2 or 3 axes, the last of size {self.embed_dim}, found shape {query.shape}"
            )
        # by id, so that a tensor passed as query, key and value stays one object, which _projected takes advantage of
        by_id = {id(x): views.unsqueeze(x, 0) if single else x for x in (query, key, value)}
        if not single and not self.batch_first:
            by_id = {identity: views.transpose(x, 0, 1) for identity, x in by_id.items()}
        query, key, value = by_id[id(query)], by_id[id(key)], by_id[id(value)]
        if single and key_padding_mask is not None:
            key_padding_mask = views.unsqueeze(key_padding_mask, 0)
        q, k, v = self._projected(query, key, value)
        k, v, added = self._with_extras(k, v)
        masks = self._masks(attn_mask, key_padding_mask, added)
        causal = is_causal and attn_mask is None
        # the fused attention can apply the causal mask itself if nothing else is to be masked
        fused_causal = causal and not masks and not added and not need_weights
        if causal and not fused_causal:
            masks.append(_with_added_keys(_causal(query.shape[1], key.shape[1], query), added))
        if need_weights:
            result, weights = self._attend(q, k, v, masks)
        else:
            dropout_probability = self.dropout if self.training else 0.0
            result = F.scaled_dot_product_attention(
                q, k, v, _combined_mask(masks, q), dropout_p=dropout_probability, is_causal=fused_causal
            )
            weights = None
        heads = views.transpose(result, 1, 2)
        out: Any = self.out_proj(views.reshape(heads, (*query.shape[:2], self.embed_dim)))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return views.squeeze(out, 0), None if weights is None else views.squeeze(weights, 0)
        return (out if self.batch_first else views.transpose(out, 0, 1)), weights

    def _attend(self, q: Any, k: Any, v: Any, masks: list[Any]) -> tuple[Any, Any]:
        """Return softmax(q k^T / sqrt(head size)) v and the softmax itself.

        Used if the caller needs the weights, which the fused attention kernel doesn't return.
        """
        scores: Any = matmul(q * (1 / math.sqrt(self.head_dim)), views.mT(k))
        for mask in masks:
            scores = arithmetic.where(mask, -math.inf, scores) if mask.dtype.kind == "bool" else scores + mask
        weights: Any = F.softmax(scores, -1)
        if self.training and self.dropout:
            weights = F.dropout(weights, self.dropout, True)
        return matmul(weights, v), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Any, Any, Any]:
        """Return the projected query, key and value as (N, heads, length, head size)."""
        biases: Any = (None,) * 3 if self.in_proj_bias is None else views.chunk(self.in_proj_bias, 3)
        if self.in_proj_weight is None:
            weights: Any = [self._parameters[f"{name}_proj_weight"] for name in "qkv"]
        elif query is key and key is value:  # self-attention: one matrix product for all three projections
            chunks: Any = views.chunk(F.linear(query, self.in_proj_weight, self.in_proj_bias), 3, -1)
            return self._split(chunks[0]), self._split(chunks[1]), self._split(chunks[2])
        else:
            weights = views.chunk(self.in_proj_weight, 3)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return self._split(q), self._split(k), self._split(v)

    def _split(self, x: Any) -> Any:
        """(N, length, E) -> (N, heads, length, head size)."""
        shaped = views.reshape(x, (x.shape[0], x.shape[1], self.num_heads, self.head_dim))
        return views.transpose(shaped, 1, 2)

    def _with_extras(self, k: Any, v: Any) -> tuple[Any, Any, int]:
        """Append the learned key and value, and those of zeros, if enabled.

        Return the keys, the values, and the number of appended keys.
        """
        added = 0
        shape = (k.shape[0], self.num_heads, 1, self.head_dim)
        if self.bias_k is not None and self.bias_v is not None:
            extra_key, extra_value = (
                views.expand(views.reshape(b, (1, self.num_heads, 1, self.head_dim)), shape)
                for b in (self.bias_k, self.bias_v)
            )
            k, v, added = copies.cat([k, extra_key], 2), copies.cat([v, extra_value], 2), 1
        if self.add_zero_attn:
            zeros = creation.zeros(shape, dtype=k.dtype, device=k.device)
            k, v, added = copies.cat([k, zeros], 2), copies.cat([v, zeros], 2), added + 1
        return k, v, added

    def _masks(self, mask: Any, padding: Any, added: int) -> list[Any]:
        """Return the given masks in shapes that broadcast to (N, heads, L, S), with columns for `added` appended keys.

        mask: `attn_mask` or None; padding: `key_padding_mask` or None.
        """
        for name, given, axes in (("attn_mask", mask, "at least 2"), ("key_padding_mask", padding, "2")):
            if given is not None and (given.ndim < 2 or (axes == "2" and given.ndim != 2)):
                raise ShapeError(f"{name} has {axes} axes, found shape {given.shape}")
        masks = []
        if mask is not None:
            masks.append(
                mask if mask.ndim == 2 else views.reshape(mask, (-1, self.num_heads, mask.shape[-2], mask.shape[-1]))
            )
        if padding is not None:
            masks.append(views.reshape(padding, (padding.shape[0], 1, 1, padding.shape[1])))
        return [_with_added_keys(m, added) for m in masks]


def _causal(rows: int, columns: int, like: Tensor) -> Any:
    """Return a mask of shape (rows, columns) that is True above the diagonal, on the device of `like`."""
    key_positions = creation.arange(columns, device=like.device)
    return key_positions > views.reshape(creation.arange(rows, device=like.device), (rows, 1))


def _with_added_keys(mask: Any, added: int) -> Any:
    """Return a mask with `added` more columns, which don't mask out anything."""
    if not added:
        return mask
    extra = creation.zeros((*mask.shape[:-1], added), dtype=mask.dtype, device=mask.device)
    return copies.cat([mask, extra], -1)


def _combined_mask(masks: list[Any], like: Tensor) -> Any:
    """Combine masks into one mask for scaled_dot_product_attention, or None if there are none.

    In the given bool masks, True means "masked out", but in a bool result it means "attended to". If a given mask is of
    a float type, so is the result, which is added to the scores. `like` is a tensor of the scores' type and device.
    """
    if not masks:
        return None
    if all(m.dtype.kind == "bool" for m in masks):
        total = masks[0]
        for mask in masks[1:]:
            total = total | mask
        return ~total
    floats = [
        arithmetic.where(m, creation.full((), -math.inf, dtype=like.dtype, device=like.device), 0.0)
        if m.dtype.kind == "bool"
        else m
        for m in masks
    ]
    total = floats[0]
    for mask in floats[1:]:
        total = total + mask
    return total
