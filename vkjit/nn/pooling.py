"""Pooling over images: maxima and means of windows."""

from __future__ import annotations

from typing import Any

from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d"]

Sizes = int | tuple[int, int]


class MaxPool2d(Module):
    """The maximum of each window; `stride` is the window's size where not given.

    H out = floor((H + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1 (ceil_mode: rounded up), W likewise.
    """

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
        """(N, C, H, W) or (C, H, W) -> (N, C, H out, W out) or (C, H out, W out), and indices if asked for."""
        options: dict[str, Any] = {"return_indices": True} if self.return_indices else {}
        return F.max_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode, **options
        )

    def extra_repr(self) -> str:
        """The window."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """The mean of each window; `stride` is the window's size where not given.

    H out = floor((H + 2 padding - kernel_size) / stride) + 1 (ceil_mode: rounded up), W likewise. Padding counts as
    zeros unless count_include_pad=False; divisor_override divides by that number instead.
    """

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
        """(N, C, H, W) or (C, H, W) -> (N, C, H out, W out) or (C, H out, W out)."""
        return F.avg_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of windows that are chosen so that the result has the size asked for; None keeps an axis."""

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) or (C, H, W) -> the same with output_size in place of H, W."""
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        """The size."""
        return f"output_size={self.output_size}"
