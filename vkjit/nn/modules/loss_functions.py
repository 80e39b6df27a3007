"""Further loss layers, for pairs of inputs, margins, distributions and sequences.

`reduction` is "mean", "sum" or "none", as in `loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .loss import _Loss

__all__ = [
    "CTCLoss", "CosineEmbeddingLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "PoissonNLLLoss",
    "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class HuberLoss(_Loss):
    """Huber loss: 0.5 * d^2 if d <= delta, else delta * (d - 0.5 * delta), with d = |x - target|."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(None, reduction)
        self.delta = delta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.huber_loss(x, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence: target * (log(target) - x) per element, with log-probabilities x.

    log_target: the target holds log-probabilities too. reduction: may also be "batchmean", which divides the sum by the
    batch size, for the mathematical divergence per example.
    """

    _reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(None, reduction)
        self.log_target = log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.kl_div(x, target, reduction=self.reduction, log_target=self.log_target)


class GaussianNLLLoss(_Loss):
    """Gaussian negative log-likelihood: 0.5 (log var + (x - target)^2 / var), with var clamped to at least eps.

    full: add the constant 0.5 log(2 pi).
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, reduction)
        self.full, self.eps = full, eps

    def forward(self, x: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """Means x, targets and variances of one shape -> scalar, or that shape for reduction "none".

        The last axis of `var` may also have size 1 or be missing.
        """
        return F.gaussian_nll_loss(x, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """Poisson negative log-likelihood of targets, given the logarithm x of the rate: exp(x) - target * x.

    With log_input=False, x is the rate itself: x - target * log(x + eps). full: add Stirling's approximation of
    log(target!).
    """

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(None, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.poisson_nll_loss(x, target, self.log_input, self.full, self.eps, self.reduction)


class HingeEmbeddingLoss(_Loss):
    """Hinge loss of distances x: x where the target is 1, max(0, margin - x) where the target is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(None, reduction)
        self.margin = margin

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.hinge_embedding_loss(x, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - s where the target is 1, max(0, s - margin) where the target is -1; s is the cosine similarity of a and b."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(None, reduction)
        self.margin = margin

    def forward(self, a: Tensor, b: Tensor, target: Tensor) -> Tensor:
        """a and b (N, D), target (N,) -> scalar, or (N,) for reduction "none". N may be missing from all shapes."""
        return F.cosine_embedding_loss(a, b, target, self.margin, self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, -target (a - b) + margin): a should rank above b if the target is 1, below b if it is -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(None, reduction)
        self.margin = margin

    def forward(self, a: Tensor, b: Tensor, target: Tensor) -> Tensor:
        """Three tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.margin_ranking_loss(a, b, target, self.margin, self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Sum of max(0, 1 - (x[t] - x[i])) / C over target classes t and non-target classes i. C: number of classes."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(None, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Scores (N, C) and class indices (N, C) -> scalar, or (N,) for reduction "none".

        In each row of the target, only the indices before the first -1 count.
        """
        return F.multilabel_margin_loss(x, target, self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * x)), with targets 1 and -1."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(None, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.soft_margin_loss(x, target, self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """Binary cross entropy of logits with targets 0 and 1, averaged over the classes. weight: one per class (C,)."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Logits (N, C) and targets (N, C) -> scalar, or (N,) for reduction "none"."""
        return F.multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


class MultiMarginLoss(_Loss):
    """Sum of max(0, margin - x[target] + x[i])^p / C over classes i other than the target. C: number of classes.

    weight: (C,), multiplies an example's terms by weight[target].
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.p, self.margin = p, margin

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Scores (N, C) and class indices (N,) -> scalar, or (N,) for reduction "none"."""
        return F.multi_margin_loss(x, target, self.p, self.margin, self.weight, self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), with the p-norm distance d.

    swap: use d(positive, negative) instead of d(anchor, negative) if it is smaller.
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(None, reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Three tensors of shape (N, D) or (D,) -> scalar, or (N,) for reduction "none"."""
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with a custom distance function (default: `F.pairwise_distance`)."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Three tensors of shape (N, D) or (D,) -> scalar, or (N,) for reduction "none"."""
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class CTCLoss(_Loss):
    """Connectionist temporal classification: minus the log-probability of the targets over all alignments (Graves et
    al., 2006).

    blank: the class that separates labels. The loss of a target that is too long for its input is infinite; with
    zero_infinity, its loss and gradient are zero.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(None, reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor:
        """Log-probabilities (T, N, C), targets (N, S) and lengths (N,) -> scalar, or (N,) for reduction "none".

        T is the number of time steps, N the batch size, C the number of classes, and S the length of the longest
        target. The targets may also be concatenated along one axis, without padding.
        """
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
