"""Gradients of normalization: kernels, or tensor operations if the gradient itself is recorded."""

from __future__ import annotations

import math
from typing import Any

from vkjit.stdlib.rows.norm import AffineLayout

from ..autograd.mode import is_grad_enabled
from ..autograd.tape import Node, rule
from ..nn.norm import channel_gradient, channel_sums, layer_norm_gradient


def _composed(x: Any, axes: list[int], eps: float, *, center: bool = True) -> tuple[Any, Any]:
    """Return (normalized x, scale), computed with recorded operations."""
    distance = x - x.mean(axes, True) if center else x
    scale = ((distance * distance).mean(axes, True) + eps).rsqrt()
    return distance * scale, scale


def _input_gradient(slope: Any, value: Any, scale: Any, axes: list[int], *, center: bool = True) -> Any:
    """Return the gradient of x from that of the normalized x, computed with recorded operations."""
    correction = value * (slope * value).mean(axes, True)
    if center:
        correction = correction + slope.mean(axes, True)
    return scale * (slope - correction)


@rule("layer_norm", inputs=True, outputs=True)
def _layer_norm(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    x, weight = node.input(0), node.input(1)
    axes, center = node.params["axes"], node.params["center"]
    if not is_grad_enabled():
        mean = node.output(1) if center else None
        return layer_norm_gradient(gradient, x, mean, node.output(2), weight, node.needs, axes=axes)
    last = list(range(x.ndim - axes, x.ndim))
    first = list(range(x.ndim - axes))
    value, scale = _composed(x, last, node.params["eps"], center=center)
    slope = gradient if weight is None else gradient * weight
    product = gradient * value
    return (
        _input_gradient(slope, value, scale, last, center=center) if node.needs[0] else None,
        (product.sum(first) if first else product) if node.needs[1] else None,
        (gradient.sum(first) if first else gradient) if node.needs[2] else None,
    )


def _affine_gradients(node: Node, sums: Any, products: Any) -> tuple[Any, Any]:
    """Return the gradients of weight and bias from sums per sample and channel."""
    weight = products.sum(0) if node.needs[1] else None
    return weight, sums.sum(0) if node.needs[2] else None


@rule("group_norm", inputs=True, outputs=True)
def _group_norm(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    x, weight, groups = node.input(0), node.input(1), node.params["groups"]
    n, c, d = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    if is_grad_enabled():
        return _composed_group_norm(node, gradient, x, weight, groups)
    affine = AffineLayout(n * c, d, False, c, groups, c // groups)
    mean, scale = node.output(1), node.output(2)
    sums, products = channel_sums(gradient, x, mean, scale, affine)
    of_input = None
    if node.needs[0]:
        weighted = (s if weight is None else s * weight.to(s.dtype) for s in (sums, products))
        first, second = (w.reshape(n * groups, c // groups).sum(1) for w in weighted)
        of_input = channel_gradient(gradient, x, mean, scale, weight, (first, second), 1 / (c // groups * d), affine)
    return (of_input, *_affine_gradients(node, sums, products))


def _composed_group_norm(node: Node, gradient: Any, x: Any, weight: Any, groups: int) -> tuple[Any, ...]:
    shape, wide = x.shape, (x.shape[0], groups, -1)
    value, scale = _composed(x.reshape(wide), [2], node.params["eps"])
    per_channel = (1, -1, *[1] * (x.ndim - 2))
    slope = gradient if weight is None else gradient * weight.reshape(per_channel)
    axes = [0, *range(2, x.ndim)]
    return (
        _input_gradient(slope.reshape(wide), value, scale, [2]).reshape(shape) if node.needs[0] else None,
        (gradient * value.reshape(shape)).sum(axes) if node.needs[1] else None,
        gradient.sum(axes) if node.needs[2] else None,
    )


@rule("batch_norm", inputs=True, outputs=True)
def _batch_norm(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    x, weight, eps = node.input(0), node.input(1), node.params["eps"]
    n, c, d = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    axes, per_channel = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    if is_grad_enabled():
        value, scale = _composed(x, axes, eps)
        slope = gradient if weight is None else gradient * weight.reshape(per_channel)
        return (
            _input_gradient(slope, value, scale, axes) if node.needs[0] else None,
            (gradient * value).sum(axes) if node.needs[1] else None,
            gradient.sum(axes) if node.needs[2] else None,
        )
    affine = AffineLayout(n * c, d, False, c, 0, 1)
    mean, scale = node.output(1), node.output(3)
    sums, products = channel_sums(gradient, x, mean, scale, affine)
    of_input = None
    if node.needs[0]:
        first, second = (s.sum(0) if weight is None else s.sum(0) * weight.to(s.dtype) for s in (sums, products))
        of_input = channel_gradient(gradient, x, mean, scale, weight, (first, second), 1 / max(1, n * d), affine)
    return (of_input, *_affine_gradients(node, sums, products))


@rule("norm_with_statistics", inputs=True)
def _fixed_norm(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, weight, _, mean, scale = (node.input(i) for i in range(5))
    axes, per_channel = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    factor = scale.reshape(per_channel).to(gradient.dtype)
    value = (x - mean.reshape(per_channel).to(x.dtype)) * factor
    slope = gradient if weight is None else gradient * weight.reshape(per_channel)
    of_mean = of_scale = None
    if node.needs[3]:
        of_mean = -(slope * factor).sum(axes)
    if node.needs[4]:
        of_scale = (slope * (x - mean.reshape(per_channel).to(x.dtype))).sum(axes)
    return (
        slope * factor if node.needs[0] else None,
        (gradient * value).sum(axes) if node.needs[1] else None,
        gradient.sum(axes) if node.needs[2] else None,
        of_mean,
        of_scale,
    )
