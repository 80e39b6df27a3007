"""Batch normalization, with running statistics for inference."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.runtime.capture import is_capturing
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .channel_norm import declare_statistics
from .module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


class _BatchNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias per channel, with statistics over all other axes.

    Training uses the batch's statistics and updates the running statistics: running = (1 - momentum) * running +
    momentum * batch. With momentum=None, they are the average over all batches. Inference uses the running statistics,
    or the batch's with track_running_stats=False.

    weight (initially ones), bias (initially zeros), running_mean and running_var: (num_features,). `ranks`: the allowed
    numbers of input axes.

    The number of batches is counted on the host, and added to the buffer num_batches_tracked when the buffer is read.
    """

    ranks: tuple[int, ...]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = dtypes.f32,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        counter = declare_statistics(self, num_features, affine, bias, track_running_stats, dtype, device)
        self._buffers["num_batches_tracked"] = counter  # not as an attribute: the class has a property of this name
        self._new_batches = 0
        """Batches counted on the host and not yet added to the buffer."""
        self._last_read: tuple[Any, int, int] = (None, 0, 0)
        """The buffer's version object and number of writes when it was last read, and the value that was read."""
        self.reset_parameters()

    @property
    def num_batches_tracked(self) -> Tensor | None:
        """Number of batches seen in training, a 0-d i64 tensor; None without running statistics."""
        self._flush_cached_buffers()
        return self._buffers["num_batches_tracked"]

    @num_batches_tracked.setter
    def num_batches_tracked(self, value: Tensor | None) -> None:
        self._buffers["num_batches_tracked"] = value
        self.__dict__["_new_batches"] = 0

    def reset_running_stats(self) -> None:
        """Reset the running mean to 0, the running variance to 1 and the batch count to 0."""
        counter = self.num_batches_tracked
        if self.running_mean is not None and self.running_var is not None and counter is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(counter)

    def reset_parameters(self) -> None:
        """Reset weight to ones, bias to zeros, and the running statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _count(self, counter: Tensor) -> None:
        """Count a batch: on the host, which saves a launch per step, or, during a capture, in the buffer.

        The captured launch counts a batch in each replay.
        """
        if not is_capturing(counter.device):
            self.__dict__["_new_batches"] += 1  # faster than through Module.__setattr__
            return
        if self.momentum is None:
            raise ArgumentError(
                f"{type(self).__name__} with momentum=None counts batches on the host, which a captured graph can't repeat: "
                "give it a momentum"
            )
        counter.add_(1)

    def _flush_cached_buffers(self) -> None:
        """Add the batches counted on the host to the buffer `num_batches_tracked`."""
        counter = self._buffers["num_batches_tracked"]
        if self._new_batches and counter is not None and not is_capturing(counter.device):
            counter.add_(self._new_batches)
            self.__dict__["_new_batches"] = 0

    def _batches(self, counter: Tensor) -> int:
        """Return the number of batches counted in the buffer and on the host.

        Reads the buffer, which waits for the device, only if the buffer was written since the last read.
        """
        cached_version, cached_writes, count = self._last_read
        if cached_version is not counter._version or cached_writes != counter.version:
            count = int(counter.item())
            self.__dict__["_last_read"] = (counter._version, counter.version, count)
        return count + self._new_batches

    def forward(self, x: Tensor) -> Tensor:
        """(N, num_features, ...) -> same shape."""
        if x.ndim not in self.ranks or x.shape[1] != self.num_features:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) takes {ranks} axes with {self.num_features} channels "
                f"along axis 1, found shape {x.shape}"
            )
        counter = self._buffers["num_batches_tracked"]
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and counter is not None:
            self._count(counter)
            if self.momentum is None:  # the weight of batch n in the average of n batches
                momentum = 1.0 / self._batches(counter)
        uses_batch = self.training or self.running_mean is None
        uses_running = not self.training or self.track_running_stats
        return F.batch_norm(
            x, self.running_mean if uses_running else None, self.running_var if uses_running else None, self.weight, self.bias,
            uses_batch, momentum, self.eps,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalization of vectors or sequences: (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of images: (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of volumes: (N, C, D, H, W)."""

    ranks = (5,)
