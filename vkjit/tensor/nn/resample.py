"""Image resampling: interpolation, pixel and channel shuffles, unfold and fold.

Inputs are (N, C, *size) unless stated otherwise; results have the input's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError

from ..argument_views import own_result
from ..ops import creation
from ..ops.copies import contiguous
from ..ops.gather import index_select
from ..ops.views import permute, reshape, unsqueeze
from ..precision import computed_in_f32
from ..tensor import Tensor
from .common import check_float, int_per_axis
from .im2col import col2im, im2col

__all__ = ["channel_shuffle", "fold", "interpolate", "pixel_shuffle", "pixel_unshuffle", "unfold"]

_MODE_AXES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""Interpolation modes and the number of spatial axes that each needs."""


def _target_size(x: Tensor, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the output size, and the scale factor of each axis (None where a size was given)."""
    axes = x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate() takes size or scale_factor, one of them")
    if size is not None:
        out_sizes = int_per_axis(size, axes, "interpolate", "size", 1)
        return _checked_size(x, out_sizes), (None,) * axes
    scales = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * axes
    if len(scales) != axes or any(not isinstance(s, (int, float)) or not 0 < s < math.inf for s in scales):
        raise ArgumentError(
            f"interpolate(): scale_factor={scale_factor!r}, expected a number above 0, or {axes} of them"
        )
    return _checked_size(x, tuple(math.floor(n * s) for n, s in zip(x.shape[2:], scales, strict=True))), scales


def _checked_size(x: Tensor, size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output size. Raises ShapeError for one that is beyond what an axis or an array can have."""
    if max(size, default=0) >= 2**31 or math.prod((*x.shape[:2], *size)) >= 2**63:
        raise ShapeError(
            f"interpolate() of shape {x.shape} to {size}: expected sizes below 2**31, and below 2**63 in all"
        )
    return size


@computed_in_f32
def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = False,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """Resample x (N, C, *size) to another size.

    mode: "nearest", "nearest-exact", "area" (adaptive average pooling), "linear" (one axis), "bilinear" or "bicubic"
    (two), or "trilinear" (three). align_corners=True aligns the centers of the corner elements, False their outer
    edges. scale_factor determines the output size, rounded down, and the distance between samples. With
    recompute_scale_factor=True the distance is the ratio of input size to output size instead.
    """
    check_float(x, "interpolate")
    axes = x.ndim - 2
    if mode == "area":
        from . import pool

        pools = {1: pool.adaptive_avg_pool1d, 2: pool.adaptive_avg_pool2d, 3: pool.adaptive_avg_pool3d}
        return pools[axes](x, _target_size(x, size, scale_factor)[0])
    if mode not in ("nearest", "nearest-exact") and _MODE_AXES.get(mode) != axes:
        raise ArgumentError(f"interpolate(mode={mode!r}) doesn't fit an input of shape {x.shape}: it has {axes} axes")
    if align_corners and mode.startswith("nearest"):
        raise ArgumentError(f"interpolate(align_corners=True) has no meaning for mode={mode!r}")
    align_corners = bool(align_corners)
    out_sizes, scales = _target_size(x, size, scale_factor)
    if recompute_scale_factor:
        scales = (None,) * axes
    if min(out_sizes, default=1) < 1 or 0 in x.shape[2:]:
        raise ShapeError(f"interpolate() of shape {x.shape} to {out_sizes}: expected sizes of at least 1")
    for i, (out, scale) in enumerate(zip(out_sizes, scales, strict=True)):
        step = 1 / scale if scale is not None else x.shape[i + 2] / out
        x = _resized(x, i + 2, out, step, mode, align_corners)
    return own_result(x)  # type: ignore[no-any-return]


def _resized(x: Tensor, axis: int, out: int, step: float, mode: str, align_corners: bool) -> Tensor:
    """Resample one axis to `out` elements. `step` is the distance between adjacent outputs, in input elements."""
    extent = x.shape[axis]
    output_indices = np.arange(out, dtype=np.float64)
    if mode.startswith("nearest"):
        # "nearest-exact" samples at the centers of the outputs, "nearest" at their lower edges; in f32 as in PyTorch,
        # since the nearest element of a position halfway between two depends on how the ratio is rounded
        shifted = np.float32(output_indices + 0.5 if mode == "nearest-exact" else output_indices)
        return index_select(x, axis, _index(np.floor(shifted * np.float32(step)), extent, x))
    # `source` has the (fractional) input position of each output
    if align_corners:
        source = output_indices * ((extent - 1) / (out - 1) if out > 1 else 0.0)
    else:
        source = (output_indices + 0.5) * step - 0.5
    if mode == "bicubic":
        return _cubic(x, axis, source)
    source = np.maximum(source, 0.0)
    low = np.minimum(np.floor(source), extent - 1)
    fraction = source - low
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    first_weight, second_weight = (
        reshape(creation.upload(weight, x.dtype, x.device), shape) for weight in (1 - fraction, fraction)
    )
    first = index_select(x, axis, _index(low, extent, x))
    second = index_select(x, axis, _index(low + 1, extent, x))
    # not first + fraction * (second - first), which is NaN for two infinities
    return first * first_weight + second * second_weight


_CUBIC = -0.75
"""Free parameter of the cubic convolution kernel, as in PyTorch."""


def _cubic(x: Any, axis: int, source: Any) -> Tensor:
    """Interpolate along an axis at the positions `source`, by cubic convolution (Keys) of four adjacent elements."""
    base = np.floor(source)
    fraction = source - base
    total: Any = None
    for tap in (-1, 0, 1, 2):
        d = np.abs(fraction - tap)  # distance of the element from the position
        # the convolution kernel, for distances up to 1 and from 1 to 2
        near = (_CUBIC + 2) * d**3 - (_CUBIC + 3) * d**2 + 1
        far = _CUBIC * (d**3 - 5 * d**2 + 8 * d - 4)
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        weight = reshape(creation.upload(np.where(d <= 1, near, far), x.dtype, x.device), shape)
        term: Any = index_select(x, axis, _index(base + tap, x.shape[axis], x)) * weight
        total = term if total is None else total + term
    return total  # type: ignore[no-any-return]


def _index(positions: Any, extent: int, x: Tensor) -> Tensor:
    """Return positions, clamped to [0, extent - 1], as an i64 index tensor on the device of x."""
    return creation.upload(np.clip(positions, 0, extent - 1).astype(np.int64), dtypes.i64, x.device)


def _check_image(x: Tensor, name: str) -> None:
    """Raise ShapeError if x isn't a tensor (..., C, H, W)."""
    if not isinstance(x, Tensor) or x.ndim < 3:
        raise ShapeError(f"{name}() takes (..., C, H, W), found {getattr(x, 'shape', type(x).__name__)}")


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange (..., C * r * r, H, W) to (..., C, H * r, W * r), where r is upscale_factor."""
    _check_image(x, "pixel_shuffle")
    r = upscale_factor
    front, (c, h, w) = x.shape[:-3], x.shape[-3:]
    if r < 1 or c % (r * r):
        raise ShapeError(f"pixel_shuffle({r}): {c} channels of {x.shape} are no multiple of {r * r}")
    split = reshape(x, (*front, c // (r * r), r, r, h, w))
    n = len(front)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)  # (C, r, r, H, W) -> (C, H, r, W, r)
    return reshape(permute(split, order).clone(), (*front, c // (r * r), h * r, w * r))


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange (..., C, H * r, W * r) to (..., C * r * r, H, W), where r is downscale_factor."""
    _check_image(x, "pixel_unshuffle")
    r = downscale_factor
    front, (c, h, w) = x.shape[:-3], x.shape[-3:]
    if r < 1 or h % r or w % r:
        raise ShapeError(f"pixel_unshuffle({r}): the sizes of {x.shape} are no multiples of {r}")
    split = reshape(x, (*front, c, h // r, r, w // r, r))
    n = len(front)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)  # (C, H, r, W, r) -> (C, r, r, H, W)
    return reshape(permute(split, order).clone(), (*front, c * r * r, h // r, w // r))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Split the channels of x (N, C, ...) into groups and interleave them: the first channel of each group, then the
    second, ...
    """
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"channel_shuffle({groups}): the channels of {x.shape} are no multiple of it")
    split = reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    return reshape(contiguous(permute(split, (0, 2, 1, *range(3, split.ndim)))), x.shape)


def unfold(x: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Extract sliding windows of x (N, C, H, W) as columns (N, C * R * S, windows): im2col. (R, S) is kernel_size."""
    if x.ndim not in (3, 4):
        raise ShapeError(f"unfold() takes (N, C, H, W) or (C, H, W), found {x.shape}")
    columns = im2col(
        unsqueeze(x, 0) if x.ndim == 3 else x,
        kernel=int_per_axis(kernel_size, 2, "unfold", "kernel_size", 1),
        dilation=int_per_axis(dilation, 2, "unfold", "dilation", 1),
        padding=int_per_axis(padding, 2, "unfold", "padding"),
        stride=int_per_axis(stride, 2, "unfold", "stride", 1),
    )
    return reshape(columns, columns.shape[1:]) if x.ndim == 3 else columns


def fold(x: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Sum columns (N, C * R * S, windows) into images (N, C, *output_size): col2im. (R, S) is kernel_size.

    Each column has the elements of one window. Where windows overlap, their elements are added.
    """
    check_float(x, "fold")
    size, kernel = (
        int_per_axis(v, 2, "fold", n, 1) for v, n in ((output_size, "output_size"), (kernel_size, "kernel_size"))
    )
    dilations, strides = int_per_axis(dilation, 2, "fold", "dilation", 1), int_per_axis(stride, 2, "fold", "stride", 1)
    pads = int_per_axis(padding, 2, "fold", "padding")
    taps = math.prod(kernel)
    # per axis, the last index of the padded image at which a window can start, and the number of windows
    last_starts = [n + 2 * p - d * (k - 1) - 1 for n, p, d, k in zip(size, pads, dilations, kernel, strict=True)]
    windows = [last_start // s + 1 for last_start, s in zip(last_starts, strides, strict=True)]
    if x.ndim not in (2, 3) or x.shape[-2] % taps or x.shape[-1] != math.prod(windows) or min(windows) < 1:
        raise ShapeError(
            f"fold() to {size} with kernel {kernel} takes (N, C * {taps}, {math.prod(windows)}), found {x.shape}"
        )
    columns = unsqueeze(x, 0) if x.ndim == 2 else x
    image = col2im(columns, size=size, kernel=kernel, dilation=dilations, padding=pads, stride=strides)
    return reshape(image, image.shape[1:]) if x.ndim == 2 else image
