"""Activation layers. The shape is preserved; all are elementwise unless they have a `dim`."""

from __future__ import annotations

from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .module import Module

__all__ = [
    "ELU", "GELU", "LeakyReLU", "LogSoftmax", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh",
]  # fmt: skip


class _Inplace(Module):
    """Base class of layers that accept PyTorch's option `inplace` and ignore it.

    They always create a new tensor, because gradients need the old values.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return "inplace=True" if self.inplace else ""


def _inplace_text(inplace: bool) -> str:
    """Return the part of a layer's repr that shows `inplace`."""
    return ", inplace=True" if inplace else ""


def _implied_axis(dim: int | None, x: Tensor) -> int:
    """Return `dim` if given, else PyTorch's default: axis 0 for inputs with 0, 1 or 3 axes, axis 1 for all others."""
    if dim is not None:
        return dim
    return 0 if x.ndim in (0, 1, 3) else 1


class ReLU(_Inplace):
    """Rectified linear unit: max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.relu(x)


class Sigmoid(Module):
    """Logistic sigmoid: 1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.tanh(x)


class GELU(Module):
    """x * Phi(x), with the normal cumulative distribution function Phi.

    approximate="tanh" uses the approximation of Phi by tanh.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"approximate={self.approximate!r}"


class SiLU(_Inplace):
    """Sigmoid linear unit (swish): x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.silu(x)


class LeakyReLU(Module):
    """x if it is positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"negative_slope={self.negative_slope}" + _inplace_text(self.inplace)


class ELU(Module):
    """x if it is positive, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"alpha={self.alpha}" + _inplace_text(self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself if beta * x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """Softmax along an axis: exp(x) divided by its sum."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.softmax(x, _implied_axis(self.dim, x))

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """log(softmax(x)) along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.log_softmax(x, _implied_axis(self.dim, x))
