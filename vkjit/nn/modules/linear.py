"""Linear and identity layers."""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.tensor.argument_views import own_result
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = ["Identity", "Linear"]


class Identity(Module):
    """Identity layer. Accepts and ignores any constructor arguments."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def constructor_arguments(self) -> dict[str, Any]:
        """Return no arguments: those given have no effect."""
        return {}

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> same shape."""
        return own_result(x)  # type: ignore[no-any-return]


class Linear(Module):
    """Linear layer: y = x weight^T + bias.

    weight: (out_features, in_features), bias: (out_features,), both initialized uniformly within +-1/sqrt(in_features).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = dtypes.f32
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(creation.empty(out_features, in_features, dtype=dtype, device=device))
        self.register_parameter(
            "bias", Parameter(creation.empty(out_features, dtype=dtype, device=device)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialize weight and bias."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:  # PyTorch's name
        """(..., in_features) -> (..., out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
