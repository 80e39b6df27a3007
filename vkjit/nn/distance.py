"""Layers of two inputs: similarities, distances, and a product with both."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..tensor import creation
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Bilinear", "CosineSimilarity", "PairwiseDistance"]


class Bilinear(Module):
    """y[o] = x1^T weight[o] x2 + bias[o].

    weight: (out_features, in1_features, in2_features), bias: (out_features,), both uniform within +-1/sqrt(in1_features) at
    first.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(creation.empty(shape, dtype=dtype, device=device))
        made = Parameter(creation.empty(out_features, dtype=dtype, device=device)) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        bound = 1 / math.sqrt(self.in1_features) if self.in1_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """(..., in1_features), (..., in2_features) -> (..., out_features)."""
        return F.bilinear(first, second, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class CosineSimilarity(Module):
    """The cosine of the angle between two inputs along an axis."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Two shapes that broadcast -> that shape without the axis."""
        return F.cosine_similarity(a, b, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of a - b + eps along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def constructor_arguments(self) -> dict[str, Any]:
        """The norm is kept under another name."""
        return {"p": self.norm, "eps": self.eps, "keepdim": self.keepdim}

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., D), (..., D) -> (...), or (..., 1) with keepdim."""
        return F.pairwise_distance(a, b, self.norm, self.eps, self.keepdim)
