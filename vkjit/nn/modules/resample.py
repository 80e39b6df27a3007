"""Layers that resize images or rearrange their elements."""

from __future__ import annotations

from typing import Any

from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .module import Module

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]  # fmt: skip


class Upsample(Module):
    """Resize the spatial axes by interpolation, to `size` or by `scale_factor`. See `F.interpolate` for the modes."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, *size) -> (N, C, *output size)."""
        # align_corners=None, PyTorch's default, is the same as False
        return F.interpolate(x, self.size, self.scale_factor, self.mode, bool(self.align_corners))

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor}, mode={self.mode!r}"
        return f"size={self.size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Nearest-neighbor resizing of images: `Upsample` with mode="nearest"."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Bilinear resizing of images: `Upsample` with mode="bilinear" and align_corners=True."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """Rearrange each group of r * r channels into one channel of r x r pixel blocks, where r is upscale_factor."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """(..., C * r * r, H, W) -> (..., C, H * r, W * r)."""
        return F.pixel_shuffle(x, self.upscale_factor)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Rearrange the blocks of r x r pixels of each channel into r * r channels, where r is downscale_factor."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """(..., C, H * r, W * r) -> (..., C * r * r, H, W)."""
        return F.pixel_unshuffle(x, self.downscale_factor)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Split the channels into groups, and interleave the groups: all first channels, then all second ones, ..."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> same shape."""
        return F.channel_shuffle(x, self.groups)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"groups={self.groups}"


class Unfold(Module):
    """Extract sliding windows of images as columns (im2col)."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C * R * S, windows), where (R, S) is the kernel size."""
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Sum columns into images (col2im), the reverse of `Unfold`: each column has the elements of one window.

    Where windows overlap, their elements are added.
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """(N, C * R * S, windows) -> (N, C, *output_size), where (R, S) is the kernel size."""
        return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
