"""Instance normalization and local response normalization."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.errors import ShapeError
from vkjit.tensor.ops import views
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .channel_norm import declare_statistics
from .module import Module

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LocalResponseNorm"]


class _InstanceNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with statistics per example and channel.

    With affine, there are weight (initially ones) and bias (initially zeros), of shape (num_features,). With
    track_running_stats, running_mean and running_var, (num_features,), are updated in training and used in inference;
    num_batches_tracked stays 0, as in PyTorch. `rank`: the number of axes after the channels.
    """

    rank: int
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = dtypes.f32,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        counter = declare_statistics(self, num_features, affine, bias, track_running_stats, dtype, device)
        self.register_buffer("num_batches_tracked", counter)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset the running mean to 0 and the running variance to 1."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)

    def reset_parameters(self) -> None:
        """Reset weight to ones, bias to zeros, and the running statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(N, num_features, *size) or (num_features, *size) -> same shape."""
        if x.ndim not in (self.rank + 1, self.rank + 2) or x.shape[-1 - self.rank] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) takes {self.rank + 2} axes, or {self.rank + 1} without a "
                f"batch, with {self.num_features} channels, found shape {x.shape}"
            )
        single = x.ndim == self.rank + 1
        batched = views.unsqueeze(x, 0) if single else x
        use_input_stats = self.training or not self.track_running_stats
        result = F.instance_norm(
            batched, self.running_mean, self.running_var, self.weight, self.bias, use_input_stats, self.momentum,
            self.eps,
        )  # fmt: skip
        return views.squeeze(result, 0) if single else result

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of sequences: (N, C, L) or (C, L)."""

    rank = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of images: (N, C, H, W) or (C, H, W)."""

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of volumes: (N, C, D, H, W) or (C, D, H, W)."""

    rank = 3


class LocalResponseNorm(Module):
    """Local response normalization: x / (k + alpha * mean of squares over `size` adjacent channels)^beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> same shape."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
