"""im2col and col2im: `im2col` extracts sliding windows as columns, `col2im` sums columns into images.

Images are (N, C, H, W), columns (N, C * R * S, windows), where (R, S) is the kernel size. The gradient of each
operation is the other one. Both only move and add elements, so a non-finite value affects only the windows that contain
it. Options are pairs, one int per spatial axis.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..dispatch import operation
from ..ops import creation
from ..ops.shapes import unfold as windows_of
from ..ops.triangles import pad
from ..ops.views import permute, reshape, slice_view
from ..precision import computed_in_f32
from ..tensor import Tensor

__all__ = ["col2im", "im2col"]

Pair = tuple[int, ...]


@operation("im2col")
def im2col(x: Tensor, *, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """Return the sliding windows of images (N, C, H, W) as columns (N, C * R * S, windows)."""
    spans = pad(x, (padding[1], padding[1], padding[0], padding[0]), value=0)  # `pad` takes the last axis first
    # a view of all elements that each window spans, including those between the kernel elements if dilation > 1
    for i in (0, 1):
        spans = windows_of(spans, 2 + i, dilation[i] * (kernel[i] - 1) + 1, stride[i])
    windows: Any = spans[..., :: dilation[0], :: dilation[1]]  # (N, C, rows of windows, columns of windows, R, S)
    shape = (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(windows.shape[2:4]))
    return reshape(permute(windows, 0, 1, 4, 5, 2, 3), shape).clone()


@operation("col2im")
def col2im(columns: Tensor, *, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """Sum columns into images with spatial axes of the given size; 16-bit floats are summed in f32."""
    image: Tensor = _sum_columns(columns, size, kernel, dilation, padding, stride)
    return image


@computed_in_f32
def _sum_columns(columns: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Any:
    """Return the images of `col2im`, computed by one strided addition per element of the kernel."""
    # the number of windows along each axis
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, padding, dilation, kernel, stride, strict=True)
    ]
    channels = columns.shape[1] // math.prod(kernel)
    contributions: Any = reshape(columns, (columns.shape[0], channels, *kernel, *counts))
    shape = (columns.shape[0], channels, *(n + 2 * p for n, p in zip(size, padding, strict=True)))
    padded = creation.zeros(shape, dtype=columns.dtype, device=columns.device)
    # for each kernel element, add the contributions of all windows at once: they go to different elements of `padded`
    for row, column in itertools.product(range(kernel[0]), range(kernel[1])):
        starts = (0, 0, row * dilation[0], column * dilation[1])
        targets: Any = slice_view(padded, starts=starts, sizes=(*shape[:2], *counts), steps=(1, 1, *stride))
        targets += contributions[:, :, row, column]
    inside = slice_view(padded, starts=(0, 0, *padding), sizes=(*shape[:2], *size), steps=(1, 1, 1, 1))
    return inside.clone()
