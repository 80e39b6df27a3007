"""Activations as layers: each takes any shape and gives the same, elementwise unless it has a `dim`."""

from __future__ import annotations

from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = [
    "ELU", "GELU", "LeakyReLU", "LogSoftmax", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh",
]  # fmt: skip


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.relu(x)

    def extra_repr(self) -> str:
        """Shown where it isn't the default."""
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.tanh(x)


class GELU(Module):
    """x times the normal distribution function of x; approximate="tanh" replaces it by a formula with tanh."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The formula."""
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.silu(x)


class LeakyReLU(Module):
    """x where it is positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """x where it is positive, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        """The factor."""
        return f"alpha={self.alpha}"


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Both numbers."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """exp(x) divided by its sum along an axis."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of softmax along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.log_softmax(x, self.dim)
