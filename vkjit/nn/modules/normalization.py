"""Layer, group and RMS normalization: statistics within each example."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = ["GroupNorm", "LayerNorm", "RMSNorm"]

Shape = int | tuple[int, ...] | list[int]


def _shape(value: Shape) -> tuple[int, ...]:
    """Return an int or a sequence of ints as a tuple."""
    sizes = (value,) if isinstance(value, int | np.integer) else value
    if not isinstance(sizes, tuple | list) or not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise ArgumentError(f"normalized_shape is a size or a tuple of sizes, found {value!r:.80}")
    return tuple(int(n) for n in sizes)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with statistics over the last axes.

    The sizes of these axes are `normalized_shape`, which is also the shape of weight (initially ones) and bias
    (initially zeros).
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape(normalized_shape), eps, elementwise_affine
        new = _affine(self.normalized_shape, dtype, device)
        self.register_parameter("weight", new() if elementwise_affine else None)
        self.register_parameter("bias", new() if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset weight to ones and bias to zeros."""
        _reset(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *normalized_shape) -> same shape."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        affine = self.elementwise_affine
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """x / sqrt(mean of squares + eps) * weight, with the mean over the last axes.

    The sizes of these axes are `normalized_shape`, which is also the shape of weight (initially ones). eps=None stands
    for the machine epsilon of the element type.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape(normalized_shape), eps, elementwise_affine
        new = _affine(self.normalized_shape, dtype, device)
        self.register_parameter("weight", new() if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset weight to ones."""
        _reset(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *normalized_shape) -> same shape."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the channels divided into num_groups groups.

    The statistics are those of each group in each example, over its channels and all spatial positions. weight
    (initially ones) and bias (initially zeros): (num_channels,).
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"num_channels {num_channels} has to be a multiple of num_groups {num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        new = _affine((num_channels,), dtype, device)
        self.register_parameter("weight", new() if affine else None)
        self.register_parameter("bias", new() if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset weight to ones and bias to zeros."""
        _reset(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(N, num_channels, ...) -> same shape."""
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


def _affine(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """Return a function that creates an uninitialized parameter of this shape and type on each call."""
    return lambda: Parameter(creation.empty(shape, dtype=dtype, device=device))


def _reset(weight: Tensor | None, bias: Tensor | None) -> None:
    """Set weight to ones and bias to zeros, if they exist."""
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
