"""Transformer layers and stacks, with PyTorch's names, shapes and defaults."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from .attention import MultiheadAttention
from .container import ModuleList, check_layer_count
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]


def _activation(choice: Activation) -> Any:
    """Return the activation function `choice`, which is a function or a name: "relu" or "gelu"."""
    if callable(choice):
        return choice
    if not isinstance(choice, str) or choice not in ("relu", "gelu"):
        raise ArgumentError(f'activation is "relu", "gelu" or a function of a tensor, found {choice!r}')
    return F.relu if choice == "relu" else F.gelu


class _Layer(Module):
    """Base class of encoder and decoder layers, with the modules that both have.

    `_has_cross_attention` is True in decoder layers: they also have cross-attention (multihead_attn), norm3 and
    dropout3.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.norm_first, self.activation = norm_first, _activation(activation)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **factory)
        if self._has_cross_attention:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **factory)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **factory)
        sublayers = 3 if self._has_cross_attention else 2
        # in PyTorch's order of parameters: all norms, then all dropouts
        for i in range(1, sublayers + 1):
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **factory))
        for i in range(1, sublayers + 1):
            self.add_module(f"dropout{i}", Dropout(dropout))

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, read from the submodules."""
        return {
            "d_model": self.linear1.in_features, "nhead": self.self_attn.num_heads,
            "dim_feedforward": self.linear1.out_features, "dropout": self.dropout.p, "activation": self.activation,
            "layer_norm_eps": self.norm1.eps, "batch_first": self.self_attn.batch_first, "norm_first": self.norm_first,
            "bias": self.linear1.bias is not None, "dtype": self.linear1.weight.dtype,
        }  # fmt: skip

    _has_cross_attention = False
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout
    """norm3 and dropout3 exist only in decoder layers."""

    def _self_attention(self, x: Any, mask: Any, padding: Any, causal: bool) -> Any:
        """Return the output of the self-attention sublayer. mask: attn_mask; padding: key_padding_mask."""
        attended, _ = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=causal
        )  # fmt: skip
        return self.dropout1(attended)

    def _feed_forward(self, x: Any) -> Any:
        """Return the output of the feed-forward sublayer."""
        last_dropout: Any = self.dropout3 if self._has_cross_attention else self.dropout2
        return last_dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _residual(self, x: Any, norm: Any, sublayer: Callable[[Any], Any]) -> Any:
        """Return the sum of x and `sublayer` of x, normalized. With norm_first, the sublayer's input is normalized
        instead of the sum.
        """
        return x + sublayer(norm(x)) if self.norm_first else norm(x + sublayer(x))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network of two linear layers.

    Each of the two has dropout, a residual connection and a layer norm. The norm is applied to the sum with the
    residual or, with norm_first=True, to the input of the attention or network.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Any:
        """(L, N, d_model) (batch_first: (N, L, d_model)) -> same shape. Masks are those of `MultiheadAttention`."""
        x = self._residual(
            src, self.norm1, lambda y: self._self_attention(y, src_mask, src_key_padding_mask, is_causal)
        )
        return self._residual(x, self.norm2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, cross-attention to `memory` (the encoder's output), then a feed-forward network.

    Each of the three has dropout, a residual connection and a layer norm. The norm is applied to the sum with the
    residual or, with norm_first=True, to the input of the attention or network.
    """

    _has_cross_attention = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """(L, N, d_model) and memory (S, N, d_model) (batch_first: N first) -> (L, N, d_model).

        Masks are those of `MultiheadAttention`.
        """

        def cross_attention(y: Any) -> Any:
            attended, _ = self.multihead_attn(
                y, memory, memory, key_padding_mask=memory_key_padding_mask, need_weights=False, attn_mask=memory_mask,
                is_causal=memory_is_causal,
            )  # fmt: skip
            return self.dropout2(attended)

        x = self._residual(
            tgt, self.norm1, lambda y: self._self_attention(y, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        )
        x = self._residual(x, self.norm2, cross_attention)
        return self._residual(x, self.norm3, self._feed_forward)


class TransformerEncoder(Module):
    """Stack of num_layers copies of an encoder layer, with an optional final norm.

    Further keyword arguments, such as PyTorch's enable_nested_tensor, are ignored.
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, **_: Any) -> None:
        super().__init__()
        check_layer_count(num_layers, type(self).__name__)
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.add_module("norm", norm)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments. encoder_layer is the first layer: the constructor makes copies of it."""
        return {"encoder_layer": self.layers[0], "num_layers": len(self.layers), "norm": self.norm}

    norm: Module | None

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Any:
        """(L, N, d_model) (batch_first: N first) -> same shape."""
        x: Any = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Stack of num_layers copies of a decoder layer, with an optional final norm."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        check_layer_count(num_layers, type(self).__name__)
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.add_module("norm", norm)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments. decoder_layer is the first layer: the constructor makes copies of it."""
        return {"decoder_layer": self.layers[0], "num_layers": len(self.layers), "norm": self.norm}

    norm: Module | None

    def forward(self, tgt: Tensor, memory: Tensor, **masks: Any) -> Any:
        """(L, N, d_model) and memory (S, N, d_model) -> (L, N, d_model).

        masks: keyword arguments of `TransformerDecoderLayer.forward`.
        """
        x: Any = tgt
        for layer in self.layers:
            x = layer(x, memory, **masks)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """Encoder-decoder Transformer (Vaswani et al., 2017).

    custom_encoder and custom_decoder, if given, are used instead of stacks built from the other options.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, **factory), num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **factory),
        )  # fmt: skip
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, **factory), num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **factory),
        )  # fmt: skip
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments. Encoder and decoder are passed as custom_encoder and custom_decoder."""
        return {
            "d_model": self.d_model, "nhead": self.nhead, "batch_first": self.batch_first, "custom_encoder": self.encoder,
            "custom_decoder": self.decoder,
        }  # fmt: skip

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """Encoder input (S, N, d_model), decoder input (L, N, d_model) (batch_first: N first) -> (L, N, d_model)."""
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(size: int, device: Any = None, dtype: Any = dtypes.f32) -> Tensor:
        """Return a causal mask (size, size): -inf above the diagonal, else 0."""
        return creation.full((size, size), float("-inf"), dtype=dtype, device=device).triu(1)
