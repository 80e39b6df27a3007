"""Convolutions and transposed convolutions over one to three spatial axes.

Inputs are (N, C, *size) or (C, *size). Sums are accumulated in f32 (f64 for f64) and rounded once; integers go through
`conv_integer`. Output, input gradient and weight gradient are three operations; the gradients of any one of them are
computed by the other two.

The kernels always have three spatial axes, and so do the sizes in a `Geometry`; inputs with fewer spatial axes get
leading axes of size 1. A filter is an output channel. `axes` is the number of spatial axes of the input.
"""

from __future__ import annotations

import functools
from typing import Any

from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.conv import dispatch as kernels
from vkjit.stdlib.conv.geometry import Geometry

from ..dispatch import operation
from ..op_cache import cacheable, cached, with_replay
from ..ops.elementwise_launch import common_device
from ..ops.views import reshape
from ..tensor import Tensor
from .common import allocate_like, check_float, check_parameter, int_per_axis
from .conv_integer import integer_convolution, integer_convolution_input

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

cacheable(Geometry)  # calls with equal geometries have the same launches, and share a cache entry


def _lifted(x: Tensor) -> DeviceArray:
    """Return a view of (N, C, *size) with three spatial axes, by inserting axes of size 1 before `size`."""
    a = x._array
    missing = 5 - len(a.shape)
    shape = (*a.shape[:2], *[1] * missing, *a.shape[2:])
    strides = (*a.strides[:2], *[0] * missing, *a.strides[2:])
    return DeviceArray(a.buffer, a.offset, a.dtype, shape, strides)


@operation("convolution", replayable=True)
def convolution(x: Tensor, w: Tensor, bias: Tensor | None, *, geometry: Geometry) -> Tensor:
    """Return the convolution of x (N, C, *size) with w (filters, C / groups, *kernel). All operands share a device and
    a dtype.
    """
    g, axes = geometry, x.ndim - 2
    y = allocate_like((g.batch, g.groups * g.filters, *g.out[3 - axes :]), x.dtype, x)
    kernels.convolve(_lifted(x), _lifted(w), None if bias is None else bias._array, _lifted(y), g)
    return y


@operation("convolution_input", replayable=True)
def convolution_input(gradient: Tensor, w: Tensor, *, geometry: Geometry) -> Tensor:
    """Return the gradient of a convolution's input, given the gradient of its output: a transposed convolution."""
    g, axes = geometry, gradient.ndim - 2
    x = allocate_like((g.batch, g.groups * g.channels, *g.size[3 - axes :]), gradient.dtype, gradient)
    kernels.input_gradient(_lifted(gradient), _lifted(w), _lifted(x), g)
    return x


@operation("convolution_weight", replayable=True)
def convolution_weight(x: Tensor, gradient: Tensor, *, geometry: Geometry) -> Tensor:
    """Return the gradient of a convolution's weights given its input and the gradient of its output."""
    g, axes = geometry, x.ndim - 2
    w = allocate_like((g.groups * g.filters, g.channels, *g.kernel[3 - axes :]), x.dtype, x)
    kernels.weight_gradient(_lifted(x), _lifted(gradient), _lifted(w), g)
    return w


def _parameter_gradients(x: Tensor, gradient: Tensor, *, geometry: Geometry) -> tuple[Tensor, Tensor] | None:
    """Return the gradients of weight and bias, given a convolution's input and the gradient of its output.

    They are computed in one launch; returns None if the device has no such fused kernel. Autograd doesn't record the
    call.
    """
    g, axes = geometry, x.ndim - 2
    w = allocate_like((g.groups * g.filters, g.channels, *g.kernel[3 - axes :]), x.dtype, x)
    b = allocate_like((g.groups * g.filters,), x.dtype, x)
    return (w, b) if kernels.parameter_gradients(_lifted(x), _lifted(gradient), _lifted(w), b._array, g) else None


parameter_gradients = with_replay("convolution_parameters", _parameter_gradients)


def _checked(x: Any, weight: Any, groups: int, axes: int, name: str) -> tuple[Tensor, Tensor, bool]:
    """Check the operands and return (input with a batch axis, weight, True if the batch axis was added)."""
    for value, what in ((x, "the input"), (weight, "the weight")):
        if not isinstance(value, Tensor) or not value.dtype.is_integer:
            check_float(value, name, what)
    if x.dtype is not weight.dtype:
        raise DTypeError(
            f"{name}(): the input holds {x.dtype!r}, the weight {weight.dtype!r}: convert one of them with .to(...)"
        )
    if x.ndim not in (axes + 1, axes + 2) or weight.ndim != axes + 2:
        raise ShapeError(
            f"{name}(): input {x.shape}, weight {weight.shape}; expected an input with {axes + 2} axes (or {axes + 1}, without "
            f"a batch) and a weight with {axes + 2}"
        )
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"{name}(): groups={groups!r}, expected an int of at least 1")
    if 0 in weight.shape:
        raise ShapeError(f"{name}(): the weight has shape {weight.shape}, expected no size of 0")
    single = x.ndim == axes + 1
    common_device((x, weight))
    return (reshape(x, (1, *x.shape)) if single else x), weight, single


def _check_bias(bias: Any, x: Tensor, count: int, name: str) -> None:
    """Raise an error if an optional bias isn't a tensor of x's dtype and shape (count,)."""
    if not x.dtype.is_integer:
        check_parameter(bias, x, (count,), name, "the bias")
    elif bias is not None and (getattr(bias, "dtype", None) is not x.dtype or bias.shape != (count,)):
        raise DTypeError(f"{name}(): the bias is expected to be a tensor of {x.dtype!r} and shape {(count,)}")


def _padding(
    padding: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], name: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and the padding after the input, each with one int per axis.

    `padding` is an int, one int per axis, "same" (the output has the input's size) or "valid" (no padding).
    """
    if isinstance(padding, str) and padding == "valid":
        return ((0,) * len(kernel),) * 2
    if isinstance(padding, str) and padding == "same":
        if any(s != 1 for s in stride):
            raise ArgumentError(
                f'{name}(): padding="same" needs a stride of 1, found {stride}: give the padding as ints'
            )
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    if isinstance(padding, str):
        raise ArgumentError(f'{name}(): padding={padding!r}, expected ints, "same" or "valid"')
    pads = int_per_axis(padding, len(kernel), name, "padding")
    return pads, pads


@functools.lru_cache(1024)
def _geometry(
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Geometry:
    """Return the geometry of a convolution of an input of shape `shape` with a weight of shape `weight`.

    `before` and `after`: the padding of each axis. The output size may come out as 0 or less; the caller checks it.
    """
    filters, channels, *kernel = weight
    out = [
        (size + b + a - d * (k - 1) - 1) // s + 1
        for size, b, a, d, k, s in zip(shape[2:], before, after, dilation, kernel, stride, strict=True)
    ]
    return Geometry(
        shape[0], groups, channels, filters // groups, _triple(shape[2:], 1), _triple(kernel, 1), _triple(out, 1),
        _triple(stride, 1), _triple(before, 0), _triple(dilation, 1),
    )  # fmt: skip


def _triple(values: Any, fill: int) -> Any:
    """Return a value per spatial axis as a tuple of three, with `fill` for the missing leading axes."""
    return (*[fill] * (3 - len(values)), *values)


def _convolve(
    axes: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """Check the operands of a convolution over `axes` spatial axes, and run it."""
    name = f"conv{axes}d"
    x, weight, single = _checked(x, weight, groups, axes, name)
    strides, dilations = (
        int_per_axis(stride, axes, name, "stride", 1),
        int_per_axis(dilation, axes, name, "dilation", 1),
    )
    filters, channels, *kernel = weight.shape
    if x.shape[1] != channels * groups or filters % groups:
        raise ShapeError(
            f"{name}(): the input has {x.shape[1]} channels, the weight of shape {weight.shape} with groups={groups} takes "
            f"{channels * groups}; filters ({filters}) and channels must be multiples of groups"
        )
    _check_bias(bias, x, filters, name)
    before, after = _padding(padding, tuple(kernel), strides, dilations, name)
    geometry = _geometry(x.shape, weight.shape, strides, before, after, dilations, groups)
    if min(geometry.out) < 1:
        raise ShapeError(
            f"{name}(): an input of {x.shape[2:]} with padding {padding} is smaller than the kernel {tuple(kernel)} with "
            f"dilation {dilations}: enlarge the padding or the input"
        )
    if x.dtype.is_integer:
        y = integer_convolution(x, weight, bias, geometry)
    else:
        y = convolution(x, weight, bias, geometry=geometry)
    return reshape(y, y.shape[1:]) if single else y


def _convolve_transposed(
    axes: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    """Check the operands of a transposed convolution over `axes` spatial axes, and run it."""
    name = f"conv_transpose{axes}d"
    x, weight, single = _checked(x, weight, groups, axes, name)
    strides, dilations = (
        int_per_axis(stride, axes, name, "stride", 1),
        int_per_axis(dilation, axes, name, "dilation", 1),
    )
    pads, output_pads = (
        int_per_axis(padding, axes, name, "padding"),
        int_per_axis(output_padding, axes, name, "output_padding"),
    )
    # this computes the gradient of a convolution's input: x is the gradient of that convolution's output, so the
    # channels of x are its filters, and the channels of the result are its input channels (per group)
    filters, channels, *kernel = weight.shape
    if x.shape[1] != filters or filters % groups:
        raise ShapeError(
            f"{name}(): the input has {x.shape[1]} channels, the weight of shape {weight.shape} takes {filters}, which must be a "
            f"multiple of groups={groups}"
        )
    if any(e >= max(s, d) for e, s, d in zip(output_pads, strides, dilations, strict=True)):
        raise ArgumentError(
            f"{name}(): output_padding={output_pads} must be smaller than stride {strides} or dilation {dilations}"
        )
    _check_bias(bias, x, channels * groups, name)
    # size of the result: of the inputs that this convolution maps to x's size, the smallest plus output_padding
    size = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(x.shape[2:], strides, pads, dilations, kernel, output_pads, strict=True)
    ]
    if min(size) < 1:
        raise ShapeError(
            f"{name}(): an input of {x.shape[2:]} with padding {pads} gives a size of {tuple(size)}: pad less"
        )
    geometry = Geometry(
        x.shape[0], groups, channels, filters // groups, _triple(size, 1), _triple(kernel, 1), _triple(x.shape[2:], 1),
        _triple(strides, 1), _triple(pads, 0), _triple(dilations, 1),
    )  # fmt: skip
    y: Any
    if x.dtype.is_integer:
        y = integer_convolution_input(x, weight, geometry)
    else:
        y = convolution_input(x, weight, geometry=geometry)
    if bias is not None:
        y = y + reshape(bias, (-1, *[1] * axes))
    return reshape(y, y.shape[1:]) if single else y


@cached("conv1d()")
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (cross-correlate) x (N, C, L) with weight (filters, C / groups, R). Options are those of `conv2d`."""
    return _convolve(1, x, weight, bias, stride, padding, dilation, groups)


@cached("conv2d()")
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (cross-correlate) x (N, C, H, W) with weight (filters, C / groups, R, S) and add bias (filters,).

    Returns (N, filters, P, Q). stride, padding and dilation are ints, or one int per axis. padding may also be "same"
    (for a stride of 1: P, Q = H, W) or "valid" (no padding).
    """
    return _convolve(2, x, weight, bias, stride, padding, dilation, groups)


@cached("conv3d()")
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (cross-correlate) x (N, C, D, H, W) with weight (filters, C / groups, T, R, S). Options are those of
    `conv2d`.
    """
    return _convolve(3, x, weight, bias, stride, padding, dilation, groups)


@cached("conv_transpose1d()")
def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Apply a transposed convolution to x (N, C, L).

    weight: (C, filters / groups, R), bias: (filters,). Options are those of `conv_transpose2d`.
    """
    return _convolve_transposed(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


@cached("conv_transpose2d()")
def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Apply a transposed convolution to x (N, C, H, W).

    weight: (C, filters / groups, R, S), bias: (filters,). stride, padding, output_padding and dilation are ints, or one
    int per axis.
    """
    return _convolve_transposed(2, x, weight, bias, stride, padding, output_padding, groups, dilation)


@cached("conv_transpose3d()")
def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Apply a transposed convolution to x (N, C, D, H, W).

    weight: (C, filters / groups, T, R, S), bias: (filters,). Options are those of `conv_transpose2d`.
    """
    return _convolve_transposed(3, x, weight, bias, stride, padding, output_padding, groups, dilation)
