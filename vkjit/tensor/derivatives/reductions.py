"""Gradient rules of reductions (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.tape import Node, rule
from ..ops.arithmetic import where
from ..ops.reductions import prod
from ..ops.views import expand, reshape


def _spread(node: Node, value: Any) -> Any:
    """Expand a tensor of the result's shape along the reduced axes, to the operand's shape."""
    edge = node.edges[0]
    assert edge is not None
    axes = node.params["axes"]
    kept_shape = tuple(1 if i in axes else e for i, e in enumerate(edge.shape))
    return expand(reshape(value, kept_shape), edge.shape)


def _count(node: Node) -> int:
    """Return the number of elements that the reduction combines into one."""
    edge = node.edges[0]
    assert edge is not None
    return math.prod(edge.shape[a] for a in node.params["axes"])


@rule("sum")
def _sum(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_spread(node, gradient),)


@rule("mean")
def _mean(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_spread(node, gradient / float(max(_count(node), 1))),)


@rule("prod", inputs=True)
def _prod(node: Node, gradient: Any) -> tuple[Any, ...]:
    x: Any = node.input(0)
    axes = node.params["axes"]
    is_zero = x == 0
    zero_count = is_zero.sum(axes, True)
    nonzero = where(is_zero, 1.0, x)
    nonzero_product = prod(nonzero, axes, True)
    slope = where(zero_count == 0, nonzero_product / nonzero, where((zero_count == 1) & is_zero, nonzero_product, 0.0))
    return (_spread(node, gradient) * slope,)


def _register_min_max(name: str) -> None:
    """Register the rule of a min/max reduction: elements equal to the result share its gradient equally.

    If the result is NaN, the gradients of all its elements are NaN.
    """

    @rule(name, inputs=True, outputs=True)
    def _(node: Node, gradient: Any) -> tuple[Any, ...]:
        x, axes = node.input(0), node.params["axes"]
        top = _spread(node, node.output(0))
        hit = (x == top).to(x.dtype)
        return (hit * _spread(node, gradient) / hit.sum(axes, True),)


_register_min_max("amax")
_register_min_max("amin")


@rule("shared_value", inputs=True)
def _shared_value(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradient of x for an operation that returns one value of x, such as the median.

    It is split evenly among the elements equal to that value; if the value is NaN, among the NaN elements.
    """
    x, value = node.input(0), node.input(1)
    hit = where(value == value, x == value, x != x).to(x.dtype)
    return hit * (gradient / hit.sum()), None


@rule("var", inputs=True)
def _var(node: Node, gradient: Any) -> tuple[Any, ...]:
    x = node.input(0)
    centered = x - x.mean(node.params["axes"], True)
    divisor = _count(node) - node.params["correction"]
    return (_spread(node, gradient) * centered * (2 / divisor if divisor > 0 else math.inf),)


@rule("std", inputs=True, outputs=True)
def _std(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.output(0)
    centered = x - x.mean(node.params["axes"], True)
    divisor = _count(node) - node.params["correction"]
    scale = where(y == 0, 0.0, gradient / where(y == 0, 1.0, y))
    return (_spread(node, scale) * centered * (1 / divisor if divisor > 0 else math.inf),)


@rule("norm2", inputs=True, outputs=True)
def _norm2(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.output(0)
    scale = where(y == 0, 0.0, gradient / where(y == 0, 1.0, y))
    return (_spread(node, scale) * x,)


@rule("logsumexp", inputs=True, outputs=True)
def _logsumexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.output(0)
    lowest = y == -math.inf
    weights = (x - _spread(node, where(lowest, 0.0, y))).exp()
    return (_spread(node, gradient) * weights,)
