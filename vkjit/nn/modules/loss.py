"""Loss layers. `loss_functions` has further losses.

`reduction` is "mean", "sum" or "none" (one loss per element, or per example for losses over classes).
"""

from __future__ import annotations

from vkjit.errors import ArgumentError
from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .module import Module

__all__ = ["BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss", "NLLLoss", "SmoothL1Loss"]


class _Loss(Module):
    """Base class of losses, with a reduction and an optional weight, which is registered as a buffer."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in self._reductions:
            raise ArgumentError(f"reduction is one of {', '.join(self._reductions)}, found {reduction!r}")
        self.reduction = reduction
        # without a weight, a tensor assigned to `weight` later isn't part of the state
        self.register_buffer("weight", weight, persistent=weight is not None)

    weight: Tensor | None
    _reductions: tuple[str, ...] = ("mean", "sum", "none")


class CrossEntropyLoss(_Loss):
    """Cross entropy: -log(softmax(logits)) at the target class.

    weight: (C,), one per class. Targets equal to ignore_index don't count. label_smoothing: the share of the uniform
    distribution that is mixed into the target.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Logits (N, C, ...) and class indices (N, ...) -> scalar, or (N, ...) for reduction "none".

        Instead of class indices, the target may hold class probabilities (N, C, ...).
        """
        return F.cross_entropy(
            logits, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip


class NLLLoss(_Loss):
    """Negative log-likelihood of the target class; the input is the output of log_softmax.

    weight: (C,), one per class. Targets equal to ignore_index don't count.
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, log_probabilities: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities (N, C, ...) and class indices (N, ...) -> scalar, or (N, ...) for reduction "none"."""
        return F.nll_loss(
            log_probabilities, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class MSELoss(_Loss):
    """Squared error: (x - target)^2."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(None, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.mse_loss(x, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Absolute error: |x - target|."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(None, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.l1_loss(x, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Smooth absolute error: 0.5 * d^2 / beta if d < beta, else d - 0.5 * beta, with d = |x - target|."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(None, reduction)
        self.beta = beta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.smooth_l1_loss(x, target, reduction=self.reduction, beta=self.beta)


class BCELoss(_Loss):
    """Binary cross entropy of probabilities x: -(target * log(x) + (1 - target) * log(1 - x)).

    Logarithms below -100 count as -100. Probabilities outside of [0, 1], including NaN, raise an error when a result is
    next read from the device.
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)

    def forward(self, probabilities: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.binary_cross_entropy(probabilities, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """`BCELoss` of sigmoid(x), computed without overflow. pos_weight multiplies the term target * log(sigmoid(x))."""

    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape -> scalar, or that shape for reduction "none"."""
        return F.binary_cross_entropy_with_logits(
            logits, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )
