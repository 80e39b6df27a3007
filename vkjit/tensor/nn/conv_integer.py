"""Integer convolutions composed of integer matrix products.

Input and weights share one integer dtype, results wrap around on overflow, and there are no gradients. The geometry is
validated by `conv`.
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
    """Return the extent of the padded input that the outputs along an axis read."""
    return (g.out[axis] - 1) * g.stride[axis] + g.dilation[axis] * (g.kernel[axis] - 1) + 1


def _inside(padded: Tensor, x: Tensor, g: Geometry) -> tuple[Tensor, Tensor]:
    """Return the part of the padded input that overlaps x, and the overlapping part of x."""
    for axis in range(3):
        start = min(g.pad[axis], _span(g, axis))
        count = min(g.size[axis], _span(g, axis) - start)
        padded, x = narrow(padded, axis + 2, start, count), narrow(x, axis + 2, 0, count)
    return padded, x


def integer_convolution(x: Tensor, w: Tensor, bias: Tensor | None, g: Geometry) -> Tensor:
    """Compute a convolution as a matrix product of all windows (im2col) with the weights."""
    axes = x.ndim - 2
    total = [_span(g, axis) for axis in range(3)]
    padded = creation.zeros((g.batch, g.groups * g.channels, *total), dtype=x.dtype, device=x.device)
    target, source = _inside(padded, reshape(x, (*x.shape[:2], *g.size)), g)
    copy_(target, source)
    sample, channel, *steps = padded.strides
    windows = strided(
        padded,
        (g.groups, g.batch, *g.out, g.channels, *g.kernel),
        (
            channel * g.channels, sample, *(t * s for t, s in zip(steps, g.stride, strict=True)), channel,
            *(t * d for t, d in zip(steps, g.dilation, strict=True)),
        ),
    )  # fmt: skip
    taps = g.channels * g.taps
    rows = reshape(windows, (g.groups, g.pixels, taps))
    columns = permute(reshape(w, (g.groups, g.filters, taps)), 0, 2, 1)
    y = reshape(matmul(rows, columns), (g.groups, g.batch, math.prod(g.out), g.filters))
    y = reshape(permute(y, 1, 0, 3, 2), (g.batch, g.groups * g.filters, *g.out[3 - axes :]))
    return y if bias is None else _biased(y, bias)


def _biased(y: Any, bias: Tensor) -> Tensor:
    return y + reshape(bias, (-1, *[1] * (y.ndim - 2)))  # type: ignore[no-any-return]


def integer_convolution_input(gradient: Tensor, w: Tensor, g: Geometry) -> Tensor:
    """Compute the transposed convolution: sum each element's contributions over its window (col2im)."""
    axes = gradient.ndim - 2
    pixels = math.prod(g.out)
    rows = permute(reshape(gradient, (g.batch, g.groups, g.filters, pixels)), 1, 0, 3, 2)
    weights = reshape(w, (g.groups, g.filters, g.channels * g.taps))
    products = matmul(reshape(rows, (g.groups, g.batch * pixels, g.filters)), weights)
    parts = permute(reshape(products, (g.groups, g.batch, *g.out, g.channels, *g.kernel)), 1, 0, 5, 2, 3, 4, 6, 7, 8)
    total = [max(_span(g, axis), g.size[axis] + g.pad[axis]) for axis in range(3)]
    shape = (g.batch, g.groups, g.channels, *total)
    padded: Any = creation.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    for tap in itertools.product(*(range(k) for k in g.kernel)):
        starts = (0, 0, 0, *(p * d for p, d in zip(tap, g.dilation, strict=True)))
        covered: Any = slice_view(padded, starts=starts, sizes=(*shape[:3], *g.out), steps=(1, 1, 1, *g.stride))
        index: Any = (..., *tap)
        covered += parts[index]
    for axis in range(3):
        padded = narrow(padded, axis + 3, g.pad[axis], g.size[axis])
    return reshape(padded, (g.batch, g.groups * g.channels, *g.size[3 - axes :]))
