"""The entry point of convolutions over three spatial axes: forward, and the gradients of input, weights and bias.

`vkjit.tensor.nn.conv` calls these functions; each calls the variant that a `*_plan` module registered for the device.
The spatial axes are depth, height and width. The input has shape (N, groups * channels, D, H, W), the weights (groups *
filters, channels, T, R, S), and the output (N, groups * filters, O, P, Q). In 1D and 2D convolutions the remaining
extents are 1. Results are written to the array that the caller passes. Sums are accumulated in f32 (f64 for f64) in a
fixed order and rounded once.
"""

from __future__ import annotations

from vkjit.runtime.device import DeviceArray

from ..registry import choose
from . import direct_plan, gpu_plan, wgrad_plan
from .geometry import Geometry

__all__ = ["convolve", "input_gradient", "parameter_gradients", "weight_gradient"]


def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """Queue y = x * w + bias, where * is the convolution described by g; `bias` has one element per filter."""
    if 0 not in y.shape:
        choose("conv", y.device)(x, w, bias, y, g)


def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gx, the gradient of the input (dgrad), from gy, the gradient of the output.

    It is a transposed convolution.
    """
    if 0 not in gx.shape:
        choose("conv_input_gradient", gx.device)(gy, w, gx, g)


def weight_gradient(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gw, the gradient of the weights (wgrad), from x and gy, the gradient of the output."""
    if 0 not in gw.shape:
        choose("conv_weight_gradient", gw.device)(x, gy, gw, g)


def parameter_gradients(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, gb: DeviceArray, g: Geometry) -> bool:
    """Queue the computation of gw and gb, the gradients of the weights and of the bias, in one launch.

    Return False, and queue nothing, if the device has no kernel that computes both, if two launches are as cheap, or if
    gw or gy is empty.
    """
    if 0 in gw.shape or 0 in gy.shape:
        return False
    return bool(choose("conv_parameter_gradients", gw.device)(x, gy, gw, gb, g))


_ = (direct_plan, gpu_plan, wgrad_plan)  # imported only because they register variants
