"""Convolutions over three spatial axes (depth, height, width): forward, and the gradients of input and weights.

Enters: an input of shape (N, groups * channels, D, H, W), weights of shape (groups * filters, channels, T, R, S), an output or its
gradient of shape (N, groups * filters, O, P, Q), and a `Geometry`. Convolutions over one or two axes have extents of 1.
Leaves: the result array that the caller gives. Sums are kept in f32 (f64 for f64) and rounded once; their order is fixed.
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
    """How a convolution walks over its input. `channels` and `filters` count those of one group; `size` is the input's,
    `out` the output's extent along the three axes; `pad` counts zeros before the first element."""

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
        """Weights per filter and channel."""
        return math.prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Output elements per filter, over the whole batch."""
        return self.batch * math.prod(self.out)


def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """y = x * w + bias; `bias` has one element per filter."""
    if 0 not in y.shape:
        choose("conv", y.device)(x, w, bias, y, g)


def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """gx = the gradient of the input from the output's, which is also the transposed convolution of gy."""
    if 0 not in gx.shape:
        choose("conv_input_gradient", gx.device)(gy, w, gx, g)


def weight_gradient(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """gw = the gradient of the weights."""
    if 0 not in gw.shape:
        choose("conv_weight_gradient", gw.device)(x, gy, gw, g)


def parameter_gradients(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, gb: DeviceArray, g: Geometry) -> bool:
    """gw, gb = the gradients of the weights and of the bias, where the device has a way to both at once; whether it did."""
    if 0 in gw.shape or 0 in gy.shape:
        return False
    return bool(choose("conv_parameter_gradients", gw.device)(x, gy, gw, gb, g))


_ = (conv_direct, conv_gemm, conv_weight_lines, conv_weights)  # they register their variants
