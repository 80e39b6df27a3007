"""Distances, similarities, and losses based on them, composed of tensor operations.

`reduction` is "mean", "sum" or "none" throughout.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError, ShapeError

from ..ops.arithmetic import where
from ..ops.elementwise import softplus
from ..ops.gather import gather
from ..ops.views import broadcast_tensors, reshape, unsqueeze
from ..precision import computed_in_f32
from ..tensor import Tensor
from .common import apply_reduction, check_float
from .embedding import one_hot

__all__ = [
    "cosine_embedding_loss", "cosine_similarity", "gaussian_nll_loss", "hinge_embedding_loss", "margin_ranking_loss",
    "multi_margin_loss", "multilabel_soft_margin_loss", "normalize", "pairwise_distance", "poisson_nll_loss",
    "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def _positive(x: Any) -> Any:
    """Return max(x, 0) with a gradient of 1 at x = 0, as PyTorch's `clamp_min`; NaN propagates."""
    return x.clamp(0.0)


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide x by its p-norm along an axis; norms below eps count as eps."""
    check_float(x, "normalize")
    return x / x.norm(p, dim, True).clamp(eps)


@computed_in_f32
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine similarity of a and b along an axis; norms below eps count as eps. Shapes broadcast."""
    check_float(a, "cosine_similarity")
    check_float(b, "cosine_similarity", "the second operand")
    a, b = broadcast_tensors(a, b)
    product = (a * b).sum(dim)
    # the squares of both norms, multiplied
    squared_norms = (a * a).sum(dim).clamp(eps * eps) * (b * b).sum(dim).clamp(eps * eps)
    return product * squared_norms.rsqrt()


def pairwise_distance(a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Return the p-norm of a - b + eps along the last axis."""
    return (a - b + eps).norm(p, -1, keepdim)


def _as_floats(*tensors: Any) -> Any:
    """Return the tensors, with integer and bool tensors converted to f32."""
    return tuple(x if x.dtype.is_float else x.to(dtypes.f32) for x in tensors)


def cosine_embedding_loss(a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """Return 1 - s where target is 1, max(0, s - margin) where it is -1, else 0; s is the cosine similarity of a and b.

    a, b: (N, D) or (D,); target: (N,) or ().
    """
    first, second = _as_floats(a, b)
    cosine = cosine_similarity(first, second, -1)
    losses = where(target == 1, 1 - cosine, where(target == -1, _positive(cosine - margin), 0.0))
    return apply_reduction(losses, reduction, "cosine_embedding_loss")


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is the p-norm distance.

    `swap` replaces d(anchor, negative) by d(positive, negative) where that is smaller.
    """
    if not margin > 0:
        raise ArgumentError(f"triplet_margin_loss(margin={margin!r}): expected a margin above 0")
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        swapped = pairwise_distance(positive, negative, p, eps)
        far = where(swapped < far, swapped, far)
    losses = _positive(pairwise_distance(anchor, positive, p, eps) - far + margin)
    return apply_reduction(losses, reduction, "triplet_margin_loss")


def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return x where target is 1, and max(0, margin - x) where target is -1.

    For other targets, the result is x + max(0, margin - x), as in PyTorch.
    """
    check_float(x, "hinge_embedding_loss")
    losses = where(target != 1, _positive(margin - x), 0.0) + where(target != -1, x, 0.0)
    return apply_reduction(losses, reduction, "hinge_embedding_loss")


def margin_ranking_loss(a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """Return max(0, -target * (a - b) + margin): a should rank above b where target is 1, below where it is -1."""
    losses = _positive(-(target * (a - b)) + margin)
    return apply_reduction(losses, reduction, "margin_ranking_loss")


def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return log(1 + exp(-target * x)) for targets 1 and -1, without overflow."""
    check_float(x, "soft_margin_loss")
    return apply_reduction(softplus(-(target * x)), reduction, "soft_margin_loss")


@computed_in_f32
def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the binary cross entropy of logits x (N, C) with targets 0 and 1, averaged over the classes.

    weight: (C,), one factor per class.
    """
    from .loss import binary_entropy_logits

    check_float(x, "multilabel_soft_margin_loss")
    losses = binary_entropy_logits(x, target)
    if weight is not None:
        losses = losses * weight
    return apply_reduction(losses.mean(-1), reduction, "multilabel_soft_margin_loss")


def multi_margin_loss(
    x: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the sum of max(0, margin - x[t] + x[i])**p / C over classes i other than the target t, per row of x.

    x: scores (N, C) or (C,); target: class indices (N,) or (). weight: (C,), multiplies a row's terms by weight[t].
    """
    check_float(x, "multi_margin_loss")
    # like PyTorch, accept a scalar as the score of a single class, and (1,) as the target of a single row
    x = reshape(x, 1) if x.ndim == 0 else x
    target = reshape(target, ()) if x.ndim == 1 and target.shape == (1,) else target
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss(): p={p}, expected 1 or 2")
    if not target.dtype.is_integer or x.ndim not in (1, 2) or target.shape != x.shape[:-1]:
        raise ShapeError(
            f"multi_margin_loss(): scores {x.shape} need class indices of shape {x.shape[:-1]}, found {target.shape} of "
            f"{target.dtype!r}"
        )
    classes = x.shape[-1]
    index = unsqueeze(target, -1)
    distances = margin - gather(x, -1, index) + x
    distances = where(distances > 0, distances, 0.0)  # NaN becomes 0, as in PyTorch
    distances = distances if p == 1 else distances * distances
    if weight is not None:
        distances = distances * weight[target].unsqueeze(-1)
    losses = where(one_hot(target, classes) == 1, 0.0, distances).sum(-1) / classes  # without the target class itself
    return apply_reduction(losses, reduction, "multi_margin_loss")


def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Return the negative log-likelihood of targets under Gaussians of mean x and variance var (at least eps).

    var has the shape of x, or lacks its last axis. Variances below eps are replaced by eps, but still get a gradient,
    as in PyTorch. `full` adds the constant log(2 pi) / 2.
    """
    check_float(x, "gaussian_nll_loss")
    check_float(var, "gaussian_nll_loss", "the variance")
    if var.shape != x.shape and var.shape == x.shape[:-1]:  # one variance per row
        var = unsqueeze(var, -1)
    if var.requires_grad:
        value = var.detach()
        clamped = where(value < eps, var - value + eps, var)  # the value eps with the gradient of var
    else:
        clamped = var.clamp(eps)
    difference = x - target
    losses = (clamped.log() + difference * difference / clamped) * 0.5
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return apply_reduction(losses, reduction, "gaussian_nll_loss")


def poisson_nll_loss(
    x: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative log-likelihood of targets under Poisson distributions of rate exp(x), or x if not log_input.

    The likelihood has a term log(target!), which doesn't depend on x. It is left out, except with `full`, which adds
    Stirling's approximation, t * log(t) - t + log(2 * pi * t) / 2, for targets t > 1. If x is the rate (not log_input),
    eps is added to it before its logarithm is taken, so that a rate of 0 doesn't yield -inf.
    """
    x = x.to(dtypes.f32) if x.dtype.is_integer else check_float(x, "poisson_nll_loss")
    if not isinstance(target, Tensor) or target.dtype.kind == "bool":
        raise DTypeError("poisson_nll_loss(): the target must be a tensor of numbers")
    losses = x.exp() - target * x if log_input else x - target * (x + eps).log()
    if full:
        # targets up to 1 are replaced by 2, any number with a finite logarithm; where() drops their terms below
        large = where(target > 1, target, 2.0)
        stirling = large * large.log() - large + (large * (2 * math.pi)).log() * 0.5
        losses = losses + where(target > 1, stirling, 0.0)
    return apply_reduction(losses, reduction, "poisson_nll_loss")
