"""Convolutions over three spatial axes (depth, height, width): forward, and the gradients of input and weights.

The input has shape (N, groups * channels, D, H, W), the weights (groups * filters, channels, T, R, S), and the output
(N, groups * filters, O, P, Q). In 1D and 2D convolutions the remaining extents are 1. Results are written to the array that
the caller passes. Sums are accumulated in f32 (f64 for f64) in a fixed order and rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vkjit.runtime.interface import DeviceArray

from . import conv_direct, conv_gemm, conv_weight_lines, conv_weights
from .registry import choose

__all__ = ["Geometry", "convolve", "input_gradient", "parameter_gradients", "weight_gradient"]

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape parameters of a convolution.

    `channels` and `filters` are per group. `size` and `out` are the input's and the output's extents along the three axes,
    and `pad` is the number of zeros before the first element.
    """

    batch: int
    groups: int
    channels: int
    filters: int
    size: Triple
    kernel: Triple
    out: Triple
    stride: Triple
    pad: Triple
    dilation: Triple

    @property
    def taps(self) -> int:
        """Number of weights per filter and channel."""
        return math.prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Number of output elements per filter, over the whole batch."""
        return self.batch * math.prod(self.out)


def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """y = x * w + bias; `bias` has one element per filter."""
    if 0 not in y.shape:
        choose("conv", y.device)(x, w, bias, y, g)


def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Compute gx, the gradient of the input (dgrad), from gy, that of the output: the transposed convolution of gy."""
    if 0 not in gx.shape:
        choose("conv_input_gradient", gx.device)(gy, w, gx, g)


def weight_gradient(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """Compute the gradient of the weights (wgrad)."""
    if 0 not in gw.shape:
        choose("conv_weight_gradient", gw.device)(x, gy, gw, g)


def parameter_gradients(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, gb: DeviceArray, g: Geometry) -> bool:
    """Compute the gradients of the weights and of the bias in one launch.

    Return False, and write nothing, if the device has no kernel for both or two launches are as cheap.
    """
    if 0 in gw.shape or 0 in gy.shape:
        return False
    return bool(choose("conv_parameter_gradients", gw.device)(x, gy, gw, gb, g))


_ = (conv_direct, conv_gemm, conv_weight_lines, conv_weights)  # imported because they register variants
