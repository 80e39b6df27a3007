"""Less common neural-network functions, composed of tensor operations.

Randomized ReLU, alpha dropout, local response norm, Lp pooling, max unpooling, bilinear forms, and margin losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from vkjit.errors import ArgumentError, ShapeError

from ..argument_views import own_result
from ..ops import creation, random
from ..ops.arithmetic import where
from ..ops.gather import gather
from ..ops.matmul import matmul
from ..ops.scatter import scatter, scatter_add
from ..ops.triangles import pad
from ..ops.views import permute, reshape, unsqueeze
from ..tensor import Tensor
from .common import apply_reduction, check_float, int_per_axis
from .distance import _positive, pairwise_distance
from .embedding import _check_probability, dropout_with_seed
from .pool import avg_pool1d, avg_pool2d, avg_pool3d

__all__ = [
    "alpha_dropout", "bilinear", "feature_alpha_dropout", "local_response_norm", "lp_pool", "max_unpool",
    "multilabel_margin_loss", "rrelu", "triplet_margin_with_distance_loss",
]  # fmt: skip

SELU_FLOOR = -1.7580993408473766
"""Limit of SELU for x -> -infinity."""


def rrelu(x: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """Return x where x > 0, else slope * x.

    The slope is drawn per element from [lower, upper) in training, else it is their mean.
    """
    check_float(x, "rrelu")
    if lower > upper:
        raise ArgumentError(f"rrelu(): lower={lower} is above upper={upper}")
    if not training:
        return where(x > 0, x, x * ((lower + upper) / 2))
    slopes: Any = random.rand(x.shape, dtype=x.dtype, device=x.device) * (upper - lower) + lower
    return where(x > 0, x, x * slopes)


def _dropped(x: Any, mask_shape: tuple[int, ...], p: float) -> Tensor:
    """Replace random elements of x by SELU's lower limit, then scale and shift to preserve zero mean and unit variance.

    p: probability to replace an element. mask_shape: shape of the random mask, which broadcasts to x, so that elements
    of x that share an element of the mask are replaced together.
    """
    ones: Any = creation.ones(mask_shape, dtype=x.dtype, device=x.device)
    mask: Any = dropout_with_seed(ones, random.next_seed_tensor(x.device), p) != 0
    # 1 / standard deviation after the replacement, for x of mean 0 and variance 1; the mean is then SELU_FLOOR * p
    scale = 1 / math.sqrt((1 - p) * (1 + p * SELU_FLOOR**2)) if p < 1 else 0.0
    return where(mask, x, SELU_FLOOR) * scale - scale * SELU_FLOOR * p


def alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Tensor:
    """Replace elements of x by SELU's lower limit with probability p.

    The result is scaled and shifted to preserve zero mean and unit variance. Returns x itself if not training.
    """
    check_float(x, "alpha_dropout")
    if _check_probability(p, "alpha_dropout") == 0 or not training:
        return own_result(x)  # type: ignore[no-any-return]
    return _dropped(x, x.shape, float(p))


def feature_alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Tensor:
    """Apply `alpha_dropout` to whole channels of x (N, C, ...)."""
    check_float(x, "feature_alpha_dropout")
    if x.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout() takes (N, C, ...), found {x.shape}")
    if _check_probability(p, "feature_alpha_dropout") == 0 or not training:
        return own_result(x)  # type: ignore[no-any-return]
    return _dropped(x, (*x.shape[:2], *[1] * (x.ndim - 2)), float(p))


def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Return x / (k + alpha * mean of squares over `size` adjacent channels)**beta for x (N, C, ...).

    Channels beyond the ends count as 0.
    """
    if x.ndim < 3 or size < 1:
        raise ShapeError(
            f"local_response_norm() takes (N, C, ...) and a size of at least 1, found {x.shape} and {size}"
        )
    squares = reshape(x * x, (x.shape[0], 1, x.shape[1], math.prod(x.shape[2:])))
    if not x.numel():
        return x.clone()  # type: ignore[no-any-return]
    # the channels as the rows of an image, so that average pooling over `size` rows takes means of adjacent channels
    padded = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means: Any = reshape(avg_pool2d(padded, (size, 1), 1), x.shape)
    return x / (means * alpha + k) ** beta  # type: ignore[no-any-return]


def lp_pool(
    x: Any, norm_type: float, axes: int, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """Return (sum of x**norm_type over each window)**(1 / norm_type), with windows over the last `axes` axes.

    The options are those of average pooling.
    """
    check_float(x, "lp_pool")
    if isinstance(axes, int) and axes not in (1, 2, 3):
        raise ArgumentError(f"lp_pool(axes=...) is 1, 2 or 3, found {axes}")
    if norm_type == 0:
        raise ArgumentError("lp_pool(norm_type=...) is a number other than 0, found 0")
    area = math.prod(int_per_axis(kernel_size, axes, "lp_pool", "kernel_size", 1))  # elements per window
    avg_pool: Any = (avg_pool1d, avg_pool2d, avg_pool3d)[axes - 1]
    means: Any = avg_pool(x ** float(norm_type), kernel_size, stride, 0, ceil_mode)
    # sum = mean * area; PyTorch's formula, in which sign * relu turns negative means into 0
    return (means.sign() * means.relu() * area) ** (1.0 / norm_type)  # type: ignore[no-any-return]


def max_unpool(
    x: Any,
    indices: Tensor,
    axes: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return zeros (N, C, *output_size) with the elements of x, (N, C, *size), at the indices returned by max pooling.

    `axes` is the number of spatial axes. output_size defaults to (size - 1) * stride - 2 * padding + kernel_size.
    """
    check_float(x, "max_unpool")
    kernel = int_per_axis(kernel_size, axes, "max_unpool", "kernel_size", 1)
    strides = kernel if stride is None else int_per_axis(stride, axes, "max_unpool", "stride", 1)
    pads = int_per_axis(padding, axes, "max_unpool", "padding")
    if x.shape != indices.shape or x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"max_unpool(): values of {x.shape} and indices of {indices.shape}: expected the same shape")
    size = x.shape[-axes:]
    default_size = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(size, strides, pads, kernel, strict=True))
    target_size = default_size if output_size is None else tuple(output_size)[-axes:]
    leading, area = x.shape[: x.ndim - axes], math.prod(target_size)
    target: Any = creation.zeros((*leading, area), dtype=x.dtype, device=x.device)
    filled = scatter(target, -1, reshape(indices, (*leading, -1)), reshape(x, (*leading, -1)))
    return reshape(filled, (*leading, *target_size))


def bilinear(first: Any, second: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return y[..., o] = first^T weight[o] second + bias[o]; first: (..., M), second: (..., N), weight: (O, M, N)."""
    if not first.ndim or not second.ndim:
        raise ShapeError(f"bilinear() takes inputs of at least one axis, found {first.shape} and {second.shape}")
    if weight.ndim != 3 or weight.shape[1:] != (first.shape[-1], second.shape[-1]):
        raise ShapeError(
            f"bilinear(): inputs of {first.shape} and {second.shape} need a weight (O, {first.shape[-1]}, "
            f"{second.shape[-1]}), found {weight.shape}"
        )
    outputs, rows, columns = weight.shape
    # first^T weight[o] for all o in one matrix product
    matrix = reshape(permute(weight, (1, 0, 2)), (rows, outputs * columns))
    products: Any = reshape(matmul(first, matrix), (*first.shape[:-1], outputs, columns))
    output: Any = (products * unsqueeze(second, -2)).sum(-1, dtype=products.dtype)
    return output if bias is None else output + bias  # type: ignore[no-any-return]


def multilabel_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Return the sum of max(0, 1 - (x[t] - x[i])) / C over target classes t and non-target classes i, per row of x.

    x: scores (N, C) or (C,); target: class indices of the same shape. In each row of the target, only the indices
    before the first -1 count. The others must be in range, too, as in PyTorch.
    """
    check_float(x, "multilabel_margin_loss")
    if x.ndim not in (1, 2) or target.shape != x.shape or not target.dtype.is_integer:
        raise ShapeError(
            f"multilabel_margin_loss(): scores {x.shape} need class indices of that shape, found {target.shape} of "
            f"{target.dtype!r}"
        )
    is_end_marker: Any = (target == -1).to(x.dtype)
    valid: Any = (is_end_marker.cumsum(-1) == 0).to(x.dtype)  # 1 for the target indices before the first -1
    index = where(target == -1, 0, target)  # end markers: any index within bounds
    # how often each class is a target
    target_counts: Any = scatter_add(x.detach() * 0, -1, index, valid)
    others = (target_counts == 0).to(x.dtype)
    # margins[..., t, i] for target position t and class i; only valid targets and classes that aren't targets count
    margins: Any = _positive(1 - unsqueeze(gather(x, -1, index), -1) + unsqueeze(x, -2))
    losses = (margins * unsqueeze(valid, -1) * unsqueeze(others, -2)).sum((-2, -1)) / x.shape[-1]
    return apply_reduction(losses, reduction, "multilabel_margin_loss")


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin) with a custom distance function d.

    d defaults to `pairwise_distance`. `swap` replaces d(anchor, negative) by d(positive, negative) where that is
    smaller.
    """
    distance: Any = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        swapped = distance(positive, negative)
        far = where(swapped < far, swapped, far)
    return apply_reduction(_positive(near - far + margin), reduction, "triplet_margin_with_distance_loss")
