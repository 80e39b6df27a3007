"""Further activation layers. The shape is preserved, except by `GLU`; all are elementwise unless they have a `dim`."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init as initialisers
from ..parameter import Parameter
from .activation import _implied_axis, _Inplace, _inplace_text
from .module import Module

__all__ = [
    "CELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LogSigmoid",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU6",
    "Softmax2d",
    "Softmin",
    "Softshrink",
    "Softsign",
    "Tanhshrink",
    "Threshold",
]  # fmt: skip


class LogSigmoid(Module):
    """log(sigmoid(x)), without overflow."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.logsigmoid(x)


class Mish(_Inplace):
    """x * tanh(softplus(x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.mish(x)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.tanhshrink(x)


class Hardsigmoid(Module):
    """(x + 3) / 6, clamped to [0, 1]."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.hardsigmoid(x)


class Hardswish(Module):
    """x * hardsigmoid(x)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.hardswish(x)


class Hardtanh(Module):
    """x clamped to [min_val, max_val]; the gradient at the limits is 0."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if not min_val < max_val:
            raise ArgumentError(f"Hardtanh needs min_val < max_val, found {min_val} and {max_val}")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"min_val={self.min_val}, max_val={self.max_val}" + _inplace_text(self.inplace)


class ReLU6(Hardtanh):
    """x clamped to [0, 6]."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return "inplace=True" if self.inplace else ""


class SELU(_Inplace):
    """Scaled ELU: 1.0507 * elu(x, alpha=1.6733), which preserves mean 0 and variance 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.selu(x)


class CELU(Module):
    """x if it is positive, else alpha * (exp(x / alpha) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.celu(x, self.alpha)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"alpha={self.alpha}" + _inplace_text(self.inplace)


class _Shrink(Module):
    """Base class of shrinkage layers, with the threshold `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return str(self.lambd)


class Hardshrink(_Shrink):
    """x if |x| is above lambd, else 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.hardshrink(x, self.lambd)


class Softshrink(_Shrink):
    """x - lambd if x is above lambd, x + lambd if x is below -lambd, else 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.softshrink(x, self.lambd)


class Threshold(Module):
    """x if it is above the threshold, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.threshold(x, self.threshold, self.value)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"threshold={self.threshold}, value={self.value}" + _inplace_text(self.inplace)


class GLU(Module):
    """Gated linear unit: the first half along an axis times the sigmoid of the second half."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """(..., 2 N, ...) -> (..., N, ...)."""
        return F.glu(x, self.dim)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"dim={self.dim}"


class PReLU(Module):
    """x if it is positive, else weight * x, with a learned weight.

    weight: (num_parameters,), one for all channels or one per channel (axis 1), initialized to `init`.
    """

    weight: Parameter

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = dtypes.f32
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(creation.empty(num_parameters, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset all weights to `init`."""
        initialisers.constant_(self.weight, self.init)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.prelu(x, self.weight)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """Randomized leaky ReLU: x if it is positive, else slope * x.

    In training the slope of each element is drawn uniformly between lower and upper, reproducibly by `vk.manual_seed`;
    in inference it is their mean.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.rrelu(x, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"lower={self.lower}, upper={self.upper}" + _inplace_text(self.inplace)


class Softmin(Module):
    """Softmax of -x along an axis."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return F.softmin(x, _implied_axis(self.dim, x))

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) or (C, H, W) -> same shape."""
        if x.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d takes (N, C, H, W) or (C, H, W), found shape {x.shape}")
        return F.softmax(x, -3)
