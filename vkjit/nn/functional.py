"""Functional forms of the layers under PyTorch's names.

The functions are stateless. They are those of `vkjit.tensor`, or wrappers that take PyTorch's parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tensor.api import Tensor
from ..tensor.argument_errors import explain_all as _explain_all
from ..tensor.nn.activation import (
    celu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    mish,
    prelu,
    relu6,
    selu,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from ..tensor.nn.attention import scaled_dot_product_attention
from ..tensor.nn.composed import (
    alpha_dropout,
    bilinear,
    feature_alpha_dropout,
    local_response_norm,
    lp_pool,
    max_unpool,
    multilabel_margin_loss,
    rrelu,
    triplet_margin_with_distance_loss,
)
from ..tensor.nn.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..tensor.nn.ctc_loss import ctc_loss
from ..tensor.nn.distance import (
    cosine_embedding_loss,
    cosine_similarity,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    normalize,
    pairwise_distance,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from ..tensor.nn.embedding import dropout, dropout1d, dropout2d, dropout3d, embedding, one_hot
from ..tensor.nn.embedding_bag import embedding_bag
from ..tensor.nn.linear import linear
from ..tensor.nn.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from ..tensor.nn.norm import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from ..tensor.nn.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from ..tensor.nn.resample import channel_shuffle, fold, interpolate, pixel_shuffle, pixel_unshuffle, unfold
from ..tensor.nn.softmax import log_softmax, softmax, softmin
from ..tensor.ops import elementwise
from ..tensor.ops.triangles import pad

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "embedding", "embedding_bag", "feature_alpha_dropout", "fold", "gaussian_nll_loss", "gelu", "glu",
    "group_norm", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss",
    "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear",
    "local_response_norm", "log_softmax", "logsigmoid", "lp_pool", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool", "max_unpool1d", "max_unpool2d",
    "max_unpool3d", "mish", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pixel_shuffle",
    "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6", "rms_norm", "rrelu",
    "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax",
    "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold",
]  # fmt: skip

relu = elementwise.relu
sigmoid = elementwise.sigmoid
tanh = elementwise.tanh
silu = elementwise.silu
logsigmoid = elementwise.logsigmoid


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), with the normal cumulative distribution function Phi.

    `approximate="tanh"` uses the approximation of Phi by tanh.
    """
    return elementwise.gelu(x, approximate=approximate)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x if it is positive, else alpha * (exp(x) - 1)."""
    return elementwise.elu(x, alpha=alpha)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x if it is positive, else negative_slope * x."""
    return elementwise.leaky_relu(x, negative_slope=negative_slope)


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself if beta * x is above the threshold."""
    return elementwise.softplus(x, beta=beta, threshold=threshold)


def _by_rank(rank: int) -> tuple[Any, Any]:
    """Return PyTorch's functions lp_pool{rank}d and max_unpool{rank}d, over the last `rank` axes."""

    def lp(x: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        return lp_pool(x, norm_type, rank, kernel_size, stride, ceil_mode)

    def unpool(
        x: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        return max_unpool(x, indices, rank, kernel_size, stride, padding, output_size)

    lp.__name__, unpool.__name__ = f"lp_pool{rank}d", f"max_unpool{rank}d"
    lp.__doc__ = f"`lp_pool` over the last {rank} axes."
    unpool.__doc__ = f"`max_unpool` over the last {rank} axes."
    return lp, unpool


lp_pool1d, max_unpool1d = _by_rank(1)
lp_pool2d, max_unpool2d = _by_rank(2)
lp_pool3d, max_unpool3d = _by_rank(3)

_explain_all(globals(), __all__)
