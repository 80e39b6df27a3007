"""Random zeros in training."""

from __future__ import annotations

from ..errors import ArgumentError
from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    """What the layers share: a probability, and nothing to do in inference. Masks follow from `vk.manual_seed`."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"a dropout probability lies in [0, 1], found {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training each element is zero with probability p, the others are divided by 1 - p; in inference nothing
    changes.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.dropout(x, self.p, self.training) if self.training and self.p else x


class Dropout1d(_Dropout):
    """Dropout of whole channels of sequences."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, L) or (C, L) -> the same."""
        return F.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """Dropout of whole channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) or (C, H, W) -> the same."""
        return F.dropout2d(x, self.p, self.training)


class Dropout3d(_Dropout):
    """Dropout of whole channels of volumes."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, D, H, W) or (C, D, H, W) -> the same."""
        return F.dropout3d(x, self.p, self.training)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1 of what SELU gives: dropped elements get SELU's lowest value."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.alpha_dropout(x, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> the same."""
        return F.feature_alpha_dropout(x, self.p, self.training)
