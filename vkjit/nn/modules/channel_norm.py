"""Shared declarations of batch and instance normalization: weight, bias and running statistics."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from ..parameter import Parameter
from .module import Module

__all__ = ["declare_statistics"]


def declare_statistics(
    module: Module, num_features: int, affine: bool, bias: bool, tracked: bool, dtype: Any, device: Any
) -> Tensor | None:
    """Register weight, bias, running_mean and running_var in a module; return a batch counter, a 0-d i64 tensor.

    Each is an uninitialized tensor (num_features,), or None: weight without `affine`, bias without `affine` or `bias`,
    and the running statistics and the counter if they aren't `tracked`.
    """
    for name in ("weight", "bias"):
        present = affine and (bias or name == "weight")
        parameter = Parameter(creation.empty(num_features, dtype=dtype, device=device)) if present else None
        module.register_parameter(name, parameter)
    for name in ("running_mean", "running_var"):
        module.register_buffer(name, creation.empty(num_features, dtype=dtype, device=device) if tracked else None)
    return creation.zeros((), dtype=dtypes.i64, device=device) if tracked else None
