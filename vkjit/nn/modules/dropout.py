"""Dropout layers. In inference mode all of them are the identity."""

from __future__ import annotations

from vkjit.errors import ArgumentError
from vkjit.tensor.argument_views import own_result
from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    """Base class of dropout layers.

    p: probability to drop an element or channel. inplace: accepted as in PyTorch, and ignored. Masks are reproducible
    with `vk.manual_seed`.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"a dropout probability lies in [0, 1], found {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zero each element with probability p and divide the remaining elements by 1 - p."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.dropout(x, self.p, self.training) if self.training and self.p else own_result(x)


class Dropout1d(_Dropout):
    """Dropout of entire channels of sequences; the remaining channels are divided by 1 - p."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, L) or (C, L) -> same shape."""
        return F.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """Dropout of entire channels of images; the remaining channels are divided by 1 - p."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) or (C, H, W) -> same shape."""
        return F.dropout2d(x, self.p, self.training)


class Dropout3d(_Dropout):
    """Dropout of entire channels of volumes; the remaining channels are divided by 1 - p."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, D, H, W) or (C, D, H, W) -> same shape."""
        return F.dropout3d(x, self.p, self.training)


class AlphaDropout(_Dropout):
    """Dropout that preserves mean 0 and variance 1 of SELU activations: dropped elements become SELU's lowest value."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.alpha_dropout(x, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of entire channels."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> same shape."""
        return F.feature_alpha_dropout(x, self.p, self.training)
