"""Activations as layers: each takes any shape and gives the same, elementwise unless it has a `dim`."""

from __future__ import annotations

from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = [
    "ELU", "GELU", "LeakyReLU", "LogSoftmax", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh",
]  # fmt: skip


class _Inplace(Module):
    """Takes `inplace` as PyTorch's layers do, and makes a new tensor all the same: gradients need the old values."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Shown where it isn't the default."""
        return "inplace=True" if self.inplace else ""


def _suffix(inplace: bool) -> str:
    return ", inplace=True" if inplace else ""


def _implied_axis(dim: int | None, x: Tensor) -> int:
    """The axis given, else PyTorch's choice: the first of vectors and of three axes, the second of others."""
    if dim is not None:
        return dim
    return 0 if x.ndim in (0, 1, 3) else 1


class ReLU(_Inplace):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.relu(x)


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


class SiLU(_Inplace):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.silu(x)


class LeakyReLU(Module):
    """x where it is positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}" + _suffix(self.inplace)


class ELU(Module):
    """x where it is positive, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        """The factor."""
        return f"alpha={self.alpha}" + _suffix(self.inplace)


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

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.softmax(x, _implied_axis(self.dim, x))

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of softmax along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return F.log_softmax(x, _implied_axis(self.dim, x))
