"""Layers with two inputs: similarities, distances, and the bilinear map."""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = ["Bilinear", "CosineSimilarity", "PairwiseDistance"]


class Bilinear(Module):
    """Bilinear map: y[o] = x1^T weight[o] x2 + bias[o].

    weight: (out_features, in1_features, in2_features), bias: (out_features,), both initialized uniformly within
    +-1/sqrt(in1_features).
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
        bias_parameter = Parameter(creation.empty(out_features, dtype=dtype, device=device)) if bias else None
        self.register_parameter("bias", bias_parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialize weight and bias."""
        bound = 1 / math.sqrt(self.in1_features) if self.in1_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """(..., in1_features), (..., in2_features) -> (..., out_features)."""
        return F.bilinear(first, second, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class CosineSimilarity(Module):
    """Cosine similarity of two inputs along an axis; norms below eps count as eps."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Two tensors whose shapes broadcast -> the broadcast shape without the axis `dim`."""
        return F.cosine_similarity(a, b, self.dim, self.eps)


class PairwiseDistance(Module):
    """p-norm of a - b + eps along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments; `p` is stored as `norm`."""
        return {"p": self.norm, "eps": self.eps, "keepdim": self.keepdim}

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., D), (..., D) -> (...), or (..., 1) with keepdim."""
        return F.pairwise_distance(a, b, self.norm, self.eps, self.keepdim)
