"""Normalization: layer, RMS, group, instance and batch norm.

Statistics are computed in f32 (f64 for f64). Variances are biased (divided by n); running variances are unbiased
(divided by n - 1), as in PyTorch.

The kernels view x as rows (`Rows`, `AffineLayout`): each row has a mean and `scale` = 1 / sqrt(variance + eps).
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
from ..dispatch import operation
from ..ops import creation
from ..ops.elementwise_launch import common_device
from ..tensor import Tensor
from .common import allocate_like, check_float, check_parameter, dense, dense_view

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def _array(x: Tensor | None) -> DeviceArray | None:
    """Return an optional parameter as a dense 1-d array."""
    return None if x is None else dense_view(dense(x), x.numel())


def _statistics(x: Tensor, rows: Rows, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (mean, variance, 1 / sqrt(variance + eps)) of each row; zeros if x is empty."""
    if x.numel() == 0:
        empty = creation.zeros(rows.count, dtype=accumulator_type(x.dtype), device=x.device)
        return empty, empty, empty
    mean, variance, scale = kernels.moments(dense(x), rows, eps)
    return Tensor(mean), Tensor(variance), Tensor(scale)


# -- normalization over the last axes


@operation("layer_norm")
def _layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, axes: int, eps: float, center: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (output, mean per row, 1 / standard deviation per row); a row spans the last `axes` axes.

    center=False doesn't subtract the mean, for RMS norm.
    """
    affine = _row_affine(x, axes)
    y = allocate_like(x.shape, x.dtype, x)
    if x.numel() == 0:
        empty = creation.zeros(affine.rows, dtype=accumulator_type(x.dtype), device=x.device)
        return y, empty, empty
    mean, scale = kernels.normalize_rows(dense(x), _array(weight), _array(bias), y._array, affine, eps, center=center)
    return y, Tensor(mean), Tensor(scale)


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

    mean and scale: per row, from `_layer_norm`; mean=None selects RMS norm.
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
            sums = (creation.zeros(shape, device=x.device)._array,) * 2
        else:
            sums = kernels.column_sums(gradient, values, center, scale._array, affine)
        bias_sum, weight_sum = (Tensor(s).reshape(shape).to(x.dtype) for s in sums)
        gradients[1:] = [weight_sum if needs[1] else None, bias_sum if needs[2] else None]
    return tuple(gradients)


def _last_axes(x: Any, normalized_shape: Any, name: str) -> tuple[Tensor, tuple[int, ...]]:
    """Return x and normalized_shape as a tuple, after checking that it is the end of x's shape."""
    check_float(x, name)
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    if not shape or x.shape[x.ndim - len(shape) :] != shape or len(shape) > x.ndim:
        raise ShapeError(f"{name}(): normalized_shape={shape} isn't how the input's shape {x.shape} ends")
    return x, shape


def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last axes, whose shape is normalized_shape."""
    x, shape = _last_axes(x, normalized_shape, "layer_norm")
    check_parameter(weight, x, shape, "layer_norm", "the weight")
    check_parameter(bias, x, shape, "layer_norm", "the bias")
    return _layer_norm(x, weight, bias, axes=len(shape), eps=eps, center=True)[0]


def rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Return x / sqrt(mean of x**2 + eps) * weight over the last axes; eps defaults to the dtype's machine epsilon."""
    x, shape = _last_axes(x, normalized_shape, "rms_norm")
    check_parameter(weight, x, shape, "rms_norm", "the weight")
    epsilon = _EPSILON[x.dtype.name] if eps is None else eps
    return _layer_norm(x, weight, None, axes=len(shape), eps=epsilon, center=False)[0]


# machine epsilon by dtype
_EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


# -- normalization of channels


def _shape_of(x: Tensor) -> tuple[int, int, int]:
    """Return (N, C, elements per channel)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@operation("group_norm")
def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (output, mean, 1 / standard deviation), with the statistics of each group of each sample."""
    n, c, d = _shape_of(x)
    length = c // groups * d
    # a row of the statistics is a group of a sample, `length` adjacent elements; a row of the normalization is a channel
    # of a sample, and c // groups channels share a statistic
    mean, _, scale = _statistics(x, Rows(n * groups, 1, length, length, 0, 1), eps)
    y = allocate_like(x.shape, x.dtype, x)
    kernels.normalize(
        dense(x),
        mean._array,
        scale._array,
        _array(weight),
        _array(bias),
        y._array,
        AffineLayout(n * c, d, False, c, groups, c // groups),
    )
    return y, mean, scale


def channel_sums(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, affine: AffineLayout) -> tuple[Tensor, Tensor]:
    """Return, for each channel of each sample (N, C), the sums of g and of g times the normalized x.

    Autograd doesn't record the call.
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
    """Return scale * (g * weight - (sums[0] + normalized x * sums[1]) * inverse_count): the gradient of x in group and
    batch norm.

    Autograd doesn't record the call.
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


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize the channels of each sample of x (N, C, ...) in num_groups groups; weight and bias: one per channel."""
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
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (output, mean, variance, 1 / standard deviation), with statistics per channel."""
    n, c, d = _shape_of(x)
    # a row of the statistics is a channel over the batch: n runs of d elements, c * d apart
    mean, variance, scale = _statistics(x, Rows(c, n, d, d, c * d, 1), eps)
    y = allocate_like(x.shape, x.dtype, x)
    kernels.normalize(
        dense(x),
        mean._array,
        scale._array,
        _array(weight),
        _array(bias),
        y._array,
        AffineLayout(n * c, d, False, c, 0, 1),
    )
    return y, mean, variance, scale


@operation("norm_with_statistics")
def norm_with_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, scale: Tensor) -> Tensor:
    """Return (x - mean) * scale * weight + bias with given per-channel statistics in the accumulation type."""
    n, c, d = _shape_of(x)
    y = allocate_like(x.shape, x.dtype, x)
    kernels.normalize(
        dense(x),
        dense(mean),
        dense(scale),
        _array(weight),
        _array(bias),
        y._array,
        AffineLayout(n * c, d, False, c, 0, 1),
    )
    return y


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
    n, c, d = _shape_of(x)
    for what, parameter in (("the weight", weight), ("the bias", bias)):
        check_parameter(parameter, x, (c,), "batch_norm", what)
    for what, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and running.shape != (c,):
            raise ShapeError(f"batch_norm(): {what} has shape {running.shape}, expected ({c},)")
    common_device([t for t in (x, running_mean, running_var, weight, bias) if t is not None])
    if not training:
        return _by_running(x, running_mean, running_var, weight, bias, eps)
    if n * d == 1:
        raise ShapeError(f"batch_norm(): training needs more than one value per channel, found shape {x.shape}")
    y, mean, variance, _ = _batch_norm(x, weight, bias, eps=eps)
    if x.numel():
        _update(running_mean, mean, momentum)
        _update(running_var, variance, momentum, n * d / (n * d - 1))
    return y


def _by_running(x: Tensor, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Tensor:
    """Normalize with running statistics. Raises ArgumentError if they are missing."""
    if mean is None or variance is None:
        raise ArgumentError("batch_norm(): training=False needs running_mean and running_var")
    dtype = accumulator_type(x.dtype)
    return norm_with_statistics(x, weight, bias, mean.to(dtype), (variance.to(dtype) + eps).rsqrt())


def _update(running: Tensor | None, current: Tensor, momentum: float, factor: float = 1.0) -> None:
    """Set running = (1 - momentum) * running + momentum * factor * current, in place. factor: converts a biased
    variance.
    """
    if running is not None:
        kernels.update_running(running._array, current._array, 1 - momentum, momentum * factor)
        running.bump_version()


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

    With use_input_stats, statistics come from each sample, and running_mean and running_var, if given, are moved
    towards their mean by the factor `momentum`. Otherwise the running statistics are used.
    """
    _with_channels(x, "instance_norm")
    n, c, d = _shape_of(x)
    if not use_input_stats:
        return _by_running(x, running_mean, running_var, weight, bias, eps)
    if d == 1:
        raise ShapeError(f"instance_norm(): needs more than one value per channel, found shape {x.shape}")
    check_parameter(weight, x, (c,), "instance_norm", "the weight")
    check_parameter(bias, x, (c,), "instance_norm", "the bias")
    y, mean, scale = _group_norm(x, weight, bias, groups=c, eps=eps)
    if running_mean is not None or running_var is not None:
        with no_grad():
            means: Any = mean.detach().reshape(n, c).mean(0)
            variance: Any = (scale.detach() ** -2 - eps).reshape(n, c).mean(0)
        _update(running_mean, means, momentum)
        _update(running_var, variance, momentum, d / (d - 1))
    return y
