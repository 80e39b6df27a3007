"""Integer convolutions, composed of integer matrix products. Called by `conv`, which checks the operands.

Input and weights share one integer dtype, results wrap around on overflow, and there are no gradients. The parameter g
is the geometry of the convolution, with three spatial axes (see `conv`).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from vkjit.stdlib.conv.geometry import Geometry

from ..ops import creation
from ..ops.copies import copy_
from ..ops.matmul import matmul
from ..ops.views import narrow, permute, reshape, slice_view, strided
from ..tensor import Tensor

__all__ = ["integer_convolution", "integer_convolution_input"]


def _span(g: Geometry, axis: int) -> int:
    """Return the number of elements of the padded input, along a spatial axis, that the windows of all outputs span."""
    return (g.out[axis] - 1) * g.stride[axis] + g.dilation[axis] * (g.kernel[axis] - 1) + 1


def _inside(padded: Tensor, x: Tensor, g: Geometry) -> tuple[Tensor, Tensor]:
    """Return two views of equal shape: the elements of `padded` that x must be copied to, and the elements to copy.

    They cover the part of x that the windows span.
    """
    for axis in range(3):
        start = min(g.pad[axis], _span(g, axis))  # the span may end in the padding before x; the count is 0 then
        count = min(g.size[axis], _span(g, axis) - start)
        padded, x = narrow(padded, axis + 2, start, count), narrow(x, axis + 2, 0, count)
    return padded, x


def integer_convolution(x: Tensor, w: Tensor, bias: Tensor | None, g: Geometry) -> Tensor:
    """Return the convolution of x with w, computed as a matrix product of all windows (im2col) with the weights."""
    axes = x.ndim - 2
    padded_size = [_span(g, axis) for axis in range(3)]
    padded = creation.zeros((g.batch, g.groups * g.channels, *padded_size), dtype=x.dtype, device=x.device)
    target, source = _inside(padded, reshape(x, (*x.shape[:2], *g.size)), g)
    copy_(target, source)
    # all windows as one strided view (groups, N, *output size, channels, *kernel)
    sample_stride, channel_stride, *spatial_strides = padded.strides
    windows = strided(
        padded,
        (g.groups, g.batch, *g.out, g.channels, *g.kernel),
        (
            channel_stride * g.channels,
            sample_stride,
            *(step * s for step, s in zip(spatial_strides, g.stride, strict=True)),
            channel_stride,
            *(step * d for step, d in zip(spatial_strides, g.dilation, strict=True)),
        ),
    )
    weights_per_filter = g.channels * g.taps
    rows = reshape(windows, (g.groups, g.pixels, weights_per_filter))
    columns = permute(reshape(w, (g.groups, g.filters, weights_per_filter)), 0, 2, 1)
    y = reshape(matmul(rows, columns), (g.groups, g.batch, math.prod(g.out), g.filters))
    # (groups, N, pixels, filters) -> (N, groups, filters, pixels)
    y = reshape(permute(y, 1, 0, 3, 2), (g.batch, g.groups * g.filters, *g.out[3 - axes :]))
    return y if bias is None else _biased(y, bias)


def _biased(y: Any, bias: Tensor) -> Tensor:
    """Return y (N, C, ...) plus a bias per channel."""
    return y + reshape(bias, (-1, *[1] * (y.ndim - 2)))  # type: ignore[no-any-return]


def integer_convolution_input(gradient: Tensor, w: Tensor, g: Geometry) -> Tensor:
    """Return the gradient of a convolution's input, given that of its output: a transposed convolution.

    The products of gradient and weights are added to the elements of their windows (col2im).
    """
    axes = gradient.ndim - 2
    pixels = math.prod(g.out)
    rows = permute(reshape(gradient, (g.batch, g.groups, g.filters, pixels)), 1, 0, 3, 2)
    weights = reshape(w, (g.groups, g.filters, g.channels * g.taps))
    products = matmul(reshape(rows, (g.groups, g.batch * pixels, g.filters)), weights)
    # (groups, N, *output size, channels, *kernel) -> (N, groups, channels, *output size, *kernel)
    contributions = permute(
        reshape(products, (g.groups, g.batch, *g.out, g.channels, *g.kernel)), 1, 0, 5, 2, 3, 4, 6, 7, 8
    )
    # the windows may end before the last element of the result, or after it, in the padding
    padded_size = [max(_span(g, axis), g.size[axis] + g.pad[axis]) for axis in range(3)]
    shape = (g.batch, g.groups, g.channels, *padded_size)
    padded: Any = creation.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    # for each kernel element, add the contributions of all windows at once: they go to different elements of `padded`
    for tap in itertools.product(*(range(k) for k in g.kernel)):
        starts = (0, 0, 0, *(p * d for p, d in zip(tap, g.dilation, strict=True)))
        targets: Any = slice_view(padded, starts=starts, sizes=(*shape[:3], *g.out), steps=(1, 1, 1, *g.stride))
        index: Any = (..., *tap)
        targets += contributions[index]
    for axis in range(3):
        padded = narrow(padded, axis + 3, g.pad[axis], g.size[axis])
    return reshape(padded, (g.batch, g.groups * g.channels, *g.size[3 - axes :]))
