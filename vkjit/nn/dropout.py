"""Random zeros in training."""

from __future__ import annotations

from ..errors import ArgumentError
from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """In training each element is zero with probability p, the others are divided by 1 - p; in inference nothing
    changes.

    Masks follow from `vk.manual_seed`.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"a dropout probability lies in [0, 1], found {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.dropout(x, self.p, self.training) if self.training and self.p else x

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}, inplace={self.inplace}"
