"""Normalization: layer, RMS, group, instance and batch norm.

Statistics are computed in f32 (f64 for f64). Variances are biased (divided by n); running variances are unbiased
(divided by n - 1), as in PyTorch.

The kernels view x as rows of elements. `Rows` describes the rows whose elements share a mean and `scale`, which is 1 /
sqrt(variance + eps); `AffineLayout` maps the elements to their mean, scale, weight and bias.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit.errors import ArgumentError, ShapeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.partial_sums import accumulator_type
from vkjit.stdlib.rows import norm as kernels
from vkjit.stdlib.rows.norm import AffineLayout, Rows

from ..autograd.mode import no_grad
from ..dispatch import is_recording, operation
from ..op_cache import cached
from ..ops import creation
from ..ops.elementwise_launch import common_device
from ..tensor import Tensor
from .common import allocate_like, check_float, check_parameter, dense, dense_view

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def _array(x: Tensor | None) -> DeviceArray | None:
    """Return an optional parameter as a dense 1-d array."""
    return None if x is None else dense_view(dense(x), x.numel())


def _statistics(x: Tensor, rows: Rows, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (mean, variance, scale) of the rows of x, each with one element per row; zeros if x is empty."""
    if x.numel() == 0:
        empty = creation.zeros(rows.count, dtype=accumulator_type(x.dtype), device=x.device)
        return empty, empty, empty
    mean, variance, scale = kernels.moments(dense(x), rows, eps)
    return Tensor(mean), Tensor(variance), Tensor(scale)


# -- normalization over the last axes


@operation("layer_norm")
def _layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, axes: int, eps: float, center: bool, stored: bool
) -> tuple[Tensor, ...]:
    """Return (output, mean per row, scale per row), where a row spans the last `axes` axes; if not `stored` only (output,).

    center=False doesn't subtract the mean, for RMS norm.
    """
    affine = _row_affine(x, axes)
    y = allocate_like(x.shape, x.dtype, x)
    if x.numel() == 0:
        empty = creation.zeros(affine.rows, dtype=accumulator_type(x.dtype), device=x.device)
        return y, empty, empty
    statistics = kernels.normalize_rows(
        dense(x), _array(weight), _array(bias), y._array, affine, eps, center=center, stored=stored
    )
    return (y,) if statistics is None else (y, *map(Tensor, statistics))


def _row_affine(x: Tensor, axes: int) -> AffineLayout:
    """Return the layout of x as rows that span the last `axes` axes."""
    length = math.prod(x.shape[x.ndim - axes :])
    return AffineLayout(math.prod(x.shape[: x.ndim - axes]), length, per_element=True)


def layer_norm_gradient(
    g: Tensor,
    x: Tensor,
    mean: Tensor | None,
    scale: Tensor,
    weight: Tensor | None,
    needs: tuple[bool, ...],
    *,
    axes: int,
) -> tuple[Any, ...]:
    """Return the gradients of x, weight and bias, None where not needed. Autograd doesn't record the call.

    mean and scale: the results of `_layer_norm`; mean=None selects RMS norm. needs: for x, weight and bias, True if the
    gradient is needed.
    """
    affine = _row_affine(x, axes)
    gradient, values = dense(g), dense(x)
    center = None if mean is None else mean._array
    gradients: list[Any] = [None, None, None]
    if needs[0] and x.numel() == 0:
        gradients[0] = creation.zeros_like(x)
    elif needs[0]:
        y = allocate_like(x.shape, x.dtype, x)
        kernels.row_gradient(gradient, values, center, scale._array, _array(weight), y._array, affine)
        gradients[0] = y
    if needs[1] or needs[2]:
        shape = x.shape[x.ndim - axes :]
        if x.numel() == 0:
            sums = (creation.zeros(shape, device=x.device)._array,) * 2  # both sums over no rows are zeros
        else:
            sums = kernels.column_sums(gradient, values, center, scale._array, affine)
        bias_sum, weight_sum = (Tensor(s).reshape(shape).to(x.dtype) for s in sums)
        gradients[1:] = [weight_sum if needs[1] else None, bias_sum if needs[2] else None]
    return tuple(gradients)


def _last_axes(x: Any, normalized_shape: Any, name: str) -> tuple[Tensor, tuple[int, ...]]:
    """Return x, and normalized_shape as a tuple. Raises ShapeError if x's shape doesn't end in normalized_shape."""
    check_float(x, name)
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    if not shape or x.shape[x.ndim - len(shape) :] != shape or len(shape) > x.ndim:
        raise ShapeError(f"{name}(): normalized_shape={shape} isn't how the input's shape {x.shape} ends")
    return x, shape


@cached("layer_norm()")
def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last axes, whose shape is normalized_shape."""
    x, shape = _last_axes(x, normalized_shape, "layer_norm")
    check_parameter(weight, x, shape, "layer_norm", "the weight")
    check_parameter(bias, x, shape, "layer_norm", "the bias")
    stored = is_recording((x, weight, bias))  # the derivatives take the statistics
    return _layer_norm(x, weight, bias, axes=len(shape), eps=eps, center=True, stored=stored)[0]


@cached("rms_norm()")
def rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Return x / sqrt(mean of x**2 + eps) * weight over the last axes; eps defaults to the dtype's machine epsilon."""
    x, shape = _last_axes(x, normalized_shape, "rms_norm")
    check_parameter(weight, x, shape, "rms_norm", "the weight")
    epsilon = _EPSILON[x.dtype.name] if eps is None else eps
    stored = is_recording((x, weight))
    return _layer_norm(x, weight, None, axes=len(shape), eps=epsilon, center=False, stored=stored)[0]


# machine epsilon by dtype, the default of `rms_norm`
_EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


# -- normalization of channels


def _channel_sizes(x: Tensor) -> tuple[int, int, int]:
    """Return (N, C, elements per channel)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@operation("group_norm")
def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (output, mean, scale), with one mean and scale per sample and group of channels."""
    n, c, d = _channel_sizes(x)
    length = c // groups * d
    # a row of the statistics is a group of a sample: `length` adjacent elements
    rows = Rows(count=n * groups, outer=1, inner=length, step=length, outer_step=0, inner_step=1)
    mean, _, scale = _statistics(x, rows, eps)
    # a row of the normalization is a channel of a sample; each sample has `groups` statistics, each for c // groups
    # channels
    affine = AffineLayout(
        n * c, d, per_element=False, channels=c, sample_stride=groups, channels_per_statistic=c // groups
    )
    y = allocate_like(x.shape, x.dtype, x)
    kernels.normalize(
        dense(x),
        mean._array,
        scale._array,
        _array(weight),
        _array(bias),
        y._array,
        affine,
    )
    return y, mean, scale


def channel_sums(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, affine: AffineLayout) -> tuple[Tensor, Tensor]:
    """Return the sums of g and of g times the normalized x over each channel of each sample, both of shape (N, C).

    g: gradient of the output of a group or batch norm; affine: the layout of x. Autograd doesn't record the call.
    """
    n = affine.rows // affine.channels
    if x.numel() == 0:
        empty = creation.zeros(n, affine.channels, dtype=scale.dtype, device=x.device)
        return empty, empty
    sums = kernels.gradient_sums(dense(g), dense(x), mean._array, scale._array, None, affine)
    sum_g, sum_gx = (Tensor(s).reshape(n, affine.channels) for s in sums)
    return sum_g, sum_gx


def channel_gradient(
    g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, sums: tuple[Tensor, Tensor], inverse_count: float,
    affine: AffineLayout,
) -> Tensor:  # fmt: skip
    """Return the gradient of x in a group or batch norm, given the gradient g of the output.

    It is scale * (g * weight - (sums[0] + normalized x * sums[1]) * inverse_count). sums: the results of
    `channel_sums`, times the weight, added up over all elements that share a mean; inverse_count: 1 / the number of
    these elements. Autograd doesn't record the call.
    """
    y = allocate_like(x.shape, x.dtype, x)
    kernels.gradient(
        dense(g),
        dense(x),
        mean._array,
        scale._array,
        _array(weight),
        dense(sums[0]),
        dense(sums[1]),
        y._array,
        affine,
        inverse_count,
    )
    return y


@cached("group_norm()")
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each of num_groups groups of channels in each sample of x (N, C, ...); weight and bias: (C,)."""
    _with_channels(x, "group_norm")
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 1 or x.shape[1] % num_groups:
        raise ArgumentError(
            f"group_norm(): num_groups={num_groups!r} must divide the {x.shape[1]} channels of {x.shape}"
        )
    check_parameter(weight, x, (x.shape[1],), "group_norm", "the weight")
    check_parameter(bias, x, (x.shape[1],), "group_norm", "the bias")
    return _group_norm(x, weight, bias, groups=num_groups, eps=eps)[0]


def _with_channels(x: Any, name: str) -> None:
    """Check that x is a float tensor (N, C, ...)."""
    check_float(x, name)
    if x.ndim < 2:
        raise ShapeError(f"{name}(): input of shape {x.shape}, expected (N, C, ...)")


@operation("batch_norm")
def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float, running: tuple[Tensor | None, ...],
    momentum: float, stored: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return (output, mean, scale), with one mean and scale per channel; if not `stored` only (output,).

    `running` are the running mean and variance, which are moved by the factor `momentum`.
    """
    n, c, d = _channel_sizes(x)
    y = allocate_like(x.shape, x.dtype, x)
    if x.numel() == 0:
        empty = creation.zeros(c, dtype=accumulator_type(x.dtype), device=x.device)
        return y, empty, empty
    # a row of the statistics is a channel over the batch: n runs of d adjacent elements, c * d apart
    rows = Rows(count=c, outer=n, inner=d, step=d, outer_step=c * d, inner_step=1)
    mean, variance = (None if old is None else old._array for old in running)
    statistics = kernels.normalize_channels(
        dense(x), _array(weight), _array(bias), (mean, variance), y._array, rows, eps, momentum, stored=stored
    )
    for old in running:
        if old is not None:
            old.bump_version()
    return (y,) if statistics is None else (y, *map(Tensor, statistics))


def _batch_affine(x: Tensor) -> AffineLayout:
    """Return the layout of x (N, C, ...) in a batch norm: rows are channels of samples."""
    n, c, d = _channel_sizes(x)
    # a sample stride of 0: all samples share the statistics of a channel
    return AffineLayout(n * c, d, per_element=False, channels=c, sample_stride=0, channels_per_statistic=1)


@operation("norm_with_statistics")
def norm_with_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, scale: Tensor) -> Tensor:
    """Return (x - mean) * scale * weight + bias. mean and scale: (C,), in the accumulator type of x."""
    y = allocate_like(x.shape, x.dtype, x)
    kernels.normalize(
        dense(x),
        dense(mean),
        dense(scale),
        _array(weight),
        _array(bias),
        y._array,
        _batch_affine(x),
    )
    return y


@cached("batch_norm()")
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of x (N, C, ...) over the batch; weight and bias have one element per channel.

    Training uses the batch statistics and moves running_mean and running_var towards them by the factor `momentum`, in
    place. Otherwise the running statistics are used.
    """
    _with_channels(x, "batch_norm")
    n, c, d = _channel_sizes(x)
    for what, parameter in (("the weight", weight), ("the bias", bias)):
        check_parameter(parameter, x, (c,), "batch_norm", what)
    for what, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and running.shape != (c,):
            raise ShapeError(f"batch_norm(): {what} has shape {running.shape}, expected ({c},)")
    common_device([t for t in (x, running_mean, running_var, weight, bias) if t is not None])
    if not training:
        return _normalize_by_running(x, running_mean, running_var, weight, bias, eps)
    if n * d == 1:
        raise ShapeError(f"batch_norm(): training needs more than one value per channel, found shape {x.shape}")
    stored = is_recording((x, weight, bias))
    statistics = (running_mean, running_var)
    return _batch_norm(x, weight, bias, eps=eps, running=statistics, momentum=momentum, stored=stored)[0]


def _normalize_by_running(x: Tensor, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Tensor:
    """Normalize x with a running mean and variance. Raises ArgumentError if one of them is None."""
    if mean is None or variance is None:
        raise ArgumentError("batch_norm(): training=False needs running_mean and running_var")
    dtype = accumulator_type(x.dtype)
    return norm_with_statistics(x, weight, bias, mean.to(dtype), (variance.to(dtype) + eps).rsqrt())


def _update_running(running: Tensor | None, current: Tensor, momentum: float, factor: float = 1.0) -> None:
    """Set running = (1 - momentum) * running + momentum * factor * current, in place.

    factor: n / (n - 1) for variances of n elements, to convert the biased `current` to the unbiased variance.
    """
    if running is not None:
        kernels.update_running(running._array, current._array, 1 - momentum, momentum * factor)
        running.bump_version()


@cached("instance_norm()")
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample of x (N, C, ...); weight and bias have one element per channel.

    With use_input_stats, each sample is normalized by its own statistics. running_mean and running_var, if given, are
    then moved towards the mean of these statistics over the batch by the factor `momentum`, in place. Otherwise the
    running statistics are used.
    """
    _with_channels(x, "instance_norm")
    n, c, d = _channel_sizes(x)
    if not use_input_stats:
        return _normalize_by_running(x, running_mean, running_var, weight, bias, eps)
    if d == 1:
        raise ShapeError(f"instance_norm(): needs more than one value per channel, found shape {x.shape}")
    check_parameter(weight, x, (c,), "instance_norm", "the weight")
    check_parameter(bias, x, (c,), "instance_norm", "the bias")
    y, mean, scale = _group_norm(x, weight, bias, groups=c, eps=eps)
    if running_mean is not None or running_var is not None:
        with no_grad():
            means: Any = mean.detach().reshape(n, c).mean(0)
            # scale = 1 / sqrt(variance + eps), solved for the variance
            variance: Any = (scale.detach() ** -2 - eps).reshape(n, c).mean(0)
        _update_running(running_mean, means, momentum)
        _update_running(running_var, variance, momentum, d / (d - 1))
    return y
