"""Gradient rules of normalization (see `vkjit.tensor.derivatives`).

They launch kernels. If the gradient is itself recorded (create_graph=True), it is composed of differentiable tensor
operations instead. `scale` is 1 / sqrt(variance + eps); the results of the normalization operations include mean and
scale. Weight and bias have one element per channel (layer norm: per element of the normalized axes). In calls such as
`x.mean(axes, True)`, True is the argument `keepdim`.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit.stdlib.rows.norm import AffineLayout

from ..autograd.mode import is_grad_enabled
from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn.norm import channel_gradient, channel_sums, layer_norm_gradient


def _composed(x: Any, axes: list[int], eps: float, *, center: bool = True) -> tuple[Any, Any]:
    """Return (normalized x, scale), computed with recorded operations.

    `center` is False for RMS norm, which doesn't subtract the mean.
    """
    centered = x - x.mean(axes, True) if center else x
    scale = ((centered * centered).mean(axes, True) + eps).rsqrt()
    return centered * scale, scale


def _input_gradient(gradient: Any, normalized: Any, scale: Any, axes: list[int], *, center: bool = True) -> Any:
    """Return the gradient of x, computed with recorded operations.

    `gradient` is the gradient of `normalized`, the normalized x. `axes` are the axes over which mean and variance were
    taken. `center` is that of `_composed`.
    """
    correction = normalized * (gradient * normalized).mean(axes, True)
    if center:
        correction = correction + gradient.mean(axes, True)
    return scale * (gradient - correction)


@rule("layer_norm", inputs=(0, 1), outputs=(1, 2))
def _layer_norm(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    x, weight = node.input(0), node.input(1)
    axis_count, center = node.params["axes"], node.params["center"]
    if not is_grad_enabled():
        mean = node.output(1) if center else None
        return layer_norm_gradient(gradient, x, mean, node.output(2), weight, node.needs, axes=axis_count)
    # the normalized axes are the last ones
    last = list(range(x.ndim - axis_count, x.ndim))
    first = list(range(x.ndim - axis_count))
    normalized, scale = _composed(x, last, node.params["eps"], center=center)
    normalized_gradient = gradient if weight is None else gradient * weight
    product = gradient * normalized
    return (
        _input_gradient(normalized_gradient, normalized, scale, last, center=center) if node.needs[0] else None,
        (product.sum(first) if first else product) if node.needs[1] else None,
        (gradient.sum(first) if first else gradient) if node.needs[2] else None,
    )


def _affine_gradients(node: Node, sums: Any, products: Any) -> tuple[Any, Any]:
    """Return the gradients of weight and bias, from sums per sample and channel.

    `sums` (samples, channels) has the sums of the gradient, `products` the sums of gradient * (normalized x).
    """
    weight = products.sum(0) if node.needs[1] else None
    return weight, (sums.sum(0) if node.needs[2] else None)


@rule("group_norm", inputs=(0, 1), outputs=(1, 2))
def _group_norm(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    x, weight, groups = node.input(0), node.input(1), node.params["groups"]
    n, c, d = x.shape[0], x.shape[1], math.prod(x.shape[2:])  # samples, channels, elements per channel of a sample
    if is_grad_enabled():
        return _composed_group_norm(node, gradient, x, weight, groups)
    # x as rows of one channel of a sample each, with statistics per sample and group of channels
    affine = AffineLayout(
        n * c, d, per_element=False, channels=c, sample_stride=groups, channels_per_statistic=c // groups
    )
    mean, scale = node.output(1), node.output(2)
    sums, products = channel_sums(gradient, x, mean, scale, affine)
    of_input = None
    if node.needs[0]:
        weighted = (s if weight is None else s * weight.to(s.dtype) for s in (sums, products))
        sum_term, product_term = (w.reshape(n * groups, c // groups).sum(1) for w in weighted)
        per_group = c // groups * d  # number of elements
        of_input = channel_gradient(gradient, x, mean, scale, weight, (sum_term, product_term), 1 / per_group, affine)
    return (of_input, *_affine_gradients(node, sums, products))


def _composed_group_norm(node: Node, gradient: Any, x: Any, weight: Any, groups: int) -> tuple[Any, ...]:
    """Return the gradients of group norm, computed with recorded operations."""
    shape, wide = x.shape, (x.shape[0], groups, -1)  # with the elements of a group along one axis
    normalized, scale = _composed(x.reshape(wide), [2], node.params["eps"])
    per_channel = (1, -1, *[1] * (x.ndim - 2))
    normalized_gradient = gradient if weight is None else gradient * weight.reshape(per_channel)
    axes = [0, *range(2, x.ndim)]
    return (
        _input_gradient(normalized_gradient.reshape(wide), normalized, scale, [2]).reshape(shape)
        if node.needs[0]
        else None,
        (gradient * normalized.reshape(shape)).sum(axes) if node.needs[1] else None,
        gradient.sum(axes) if node.needs[2] else None,
    )


@rule("batch_norm", inputs=(0, 1), outputs=(1, 2))
def _batch_norm(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    x, weight, eps = node.input(0), node.input(1), node.params["eps"]
    n, c, d = x.shape[0], x.shape[1], math.prod(x.shape[2:])  # samples, channels, elements per channel of a sample
    axes, per_channel = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    if is_grad_enabled():
        normalized, scale = _composed(x, axes, eps)
        normalized_gradient = gradient if weight is None else gradient * weight.reshape(per_channel)
        return (
            _input_gradient(normalized_gradient, normalized, scale, axes) if node.needs[0] else None,
            (gradient * normalized).sum(axes) if node.needs[1] else None,
            gradient.sum(axes) if node.needs[2] else None,
        )
    # x as rows of one channel of a sample each, with statistics per channel, the same for all samples
    affine = AffineLayout(n * c, d, per_element=False, channels=c, sample_stride=0, channels_per_statistic=1)
    mean, scale = node.output(1), node.output(2)
    sums, products = channel_sums(gradient, x, mean, scale, affine)
    of_input = None
    if node.needs[0]:
        sum_term, product_term = (
            s.sum(0) if weight is None else s.sum(0) * weight.to(s.dtype) for s in (sums, products)
        )
        terms, per_channel_count = (sum_term, product_term), max(1, n * d)
        of_input = channel_gradient(gradient, x, mean, scale, weight, terms, 1 / per_channel_count, affine)
    return (of_input, *_affine_gradients(node, sums, products))


@rule("norm_with_statistics", inputs=True)
def _fixed_norm(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients for a normalization with given statistics: of x, weight, bias, mean and scale."""
    x, weight, _, mean, scale = (node.input(i) for i in range(5))
    axes, per_channel = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    factor = scale.reshape(per_channel).to(gradient.dtype)
    normalized = (x - mean.reshape(per_channel).to(x.dtype)) * factor
    normalized_gradient = gradient if weight is None else gradient * weight.reshape(per_channel)
    of_mean = of_scale = None
    if node.needs[3]:
        of_mean = -(normalized_gradient * factor).sum(axes)
    if node.needs[4]:
        of_scale = (normalized_gradient * (x - mean.reshape(per_channel).to(x.dtype))).sum(axes)
    return (
        normalized_gradient * factor if node.needs[0] else None,
        (gradient * normalized).sum(axes) if node.needs[1] else None,
        gradient.sum(axes) if node.needs[2] else None,
        of_mean,
        of_scale,
    )
