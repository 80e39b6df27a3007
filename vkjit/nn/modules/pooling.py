"""Pooling layers over one to three axes: maximum, average, p-norm, adaptive, and max unpooling.

`rank` is the number of spatial axes in all base classes.
"""

from __future__ import annotations

from typing import Any

from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "GlobalAvgPool", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip

Sizes = int | tuple[int, ...]


def _each(value: Any) -> tuple[int, ...]:
    """Return an int as a one-element tuple, as PyTorch's `AvgPool1d` stores its options and shows them in its repr."""
    return value if isinstance(value, tuple) else (value,)


class _MaxPool(Module):
    """Base class of max pooling: the maximum of each window. `stride` defaults to the window size.

    Output size = floor((size + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1 (ceil_mode: rounded up).
    return_indices: also return the index of each maximum, flattened over the spatial axes.
    """

    rank: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, x: Tensor) -> Any:
        """(N, C, *size) or (C, *size) -> (N, C, *output size) or (C, *output size), and indices with return_indices."""
        return _MAX_POOLS[self.rank](
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """Max pooling of sequences."""

    rank = 1


class MaxPool2d(_MaxPool):
    """Max pooling of images."""

    rank = 2


class MaxPool3d(_MaxPool):
    """Max pooling of volumes."""

    rank = 3


class _MaxUnpool(Module):
    """Base class of inverses of max pooling: each element of x is written to its index, all others become zero.

    `stride` defaults to the window size. Output size = (size - 1) * stride - 2 * padding + kernel_size, or the
    output_size passed to the call.
    """

    rank: int

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, x: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """(N, C, *size) and the indices of max pooling -> (N, C, *output size)."""
        return F.max_unpool(x, indices, self.rank, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Max unpooling of sequences."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Max unpooling of images."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Max unpooling of volumes."""

    rank = 3


class _AvgPool(Module):
    """Base class of average pooling: the mean of each window. `stride` defaults to the window size.

    Output size = floor((size + 2 * padding - kernel_size) / stride) + 1 (ceil_mode: rounded up). Padding counts as
    zeros unless count_include_pad=False. divisor_override, for two and three axes only, is used as the divisor instead
    of the number of elements.
    """

    rank: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, *size) or (C, *size) -> (N, C, *output size) or (C, *output size)."""
        options = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        if self.rank == 1:
            return F.avg_pool1d(x, *options)
        pool = F.avg_pool2d if self.rank == 2 else F.avg_pool3d
        return pool(x, *options, self.divisor_override)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """Average pooling of sequences."""

    rank = 1

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            _each(kernel_size), None if stride is None else _each(stride), _each(padding), ceil_mode, count_include_pad
        )


class AvgPool2d(_AvgPool):
    """Average pooling of images."""

    rank = 2


class AvgPool3d(_AvgPool):
    """Average pooling of volumes."""

    rank = 3


class _LPPool(Module):
    """Base class of p-norm pooling: (sum of x^p)^(1/p) over each window, where p is norm_type.

    `stride` defaults to the window size.
    """

    rank: int

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, *size) or (C, *size) -> (N, C, *output size) or (C, *output size)."""
        return F.lp_pool(x, self.norm_type, self.rank, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """p-norm pooling of sequences."""

    rank = 1


class LPPool2d(_LPPool):
    """p-norm pooling of images."""

    rank = 2


class LPPool3d(_LPPool):
    """p-norm pooling of volumes."""

    rank = 3


class _Adaptive(Module):
    """Base class of pooling layers that choose their windows to yield output_size.

    output_size is an int, or one int or None per axis; None keeps the size of the axis.
    """

    rank: int

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_Adaptive):
    """Base class of adaptive average pooling: the mean of each window."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, *size) or (C, *size) -> the same with output_size instead of size."""
        pool: Any = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[self.rank - 1]
        return pool(x, self.output_size)  # type: ignore[no-any-return]


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Adaptive average pooling of sequences to output_size."""

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Adaptive average pooling of images to output_size."""

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Adaptive average pooling of volumes to output_size."""

    rank = 3


class GlobalAvgPool(Module):
    """Mean of each channel over all spatial positions."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> (N, C)."""
        return x.mean(list(range(2, x.ndim))) if x.ndim > 2 else x


class _AdaptiveMaxPool(_Adaptive):
    """Base class of adaptive max pooling: the maximum of each window."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        """(N, C, *size) or (C, *size) -> the same with output_size instead of size, and indices with return_indices."""
        pool: Any = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[self.rank - 1]
        return pool(x, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Adaptive max pooling of sequences to output_size."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Adaptive max pooling of images to output_size."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Adaptive max pooling of volumes to output_size."""

    rank = 3


_MAX_POOLS: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
"""Functions of max pooling by number of spatial axes."""
