"""Gradient rules of reductions (see `vkjit.tensor.derivatives`).

The recorded parameter `axes` has the reduced axes, in ascending order. In calls such as `x.sum(axes, True)`, True is
the argument `keepdim`.
"""

from __future__ import annotations

import math
from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops.arithmetic import where
from ..ops.reductions import prod
from ..ops.views import expand, reshape


def _spread(node: Node, value: Any) -> Any:
    """Expand a tensor of the result's shape, with or without the reduced axes, to the operand's shape."""
    edge = node.edges[0]
    assert edge is not None  # the operand is a tensor
    axes = node.params["axes"]
    kept_shape = tuple(1 if i in axes else e for i, e in enumerate(edge.shape))
    return expand(reshape(value, kept_shape), edge.shape)


def _count(node: Node) -> int:
    """Return the number of elements that the reduction combines into one."""
    edge = node.edges[0]
    assert edge is not None  # the operand is a tensor
    return math.prod(edge.shape[a] for a in node.params["axes"])


@rule("sum")
def _sum(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_spread(node, gradient),)


@rule("mean")
def _mean(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_spread(node, gradient / float(max(_count(node), 1))),)


@rule("prod", inputs=True)
def _prod(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradient of x: for each element, the result's gradient times the product of all other elements.

    If no element is 0, that product is the product of all elements, divided by the element. If one element is 0, only
    its gradient is nonzero; if several are 0, all gradients are 0.
    """
    x: Any = node.input(0)
    axes = node.params["axes"]
    is_zero = x == 0
    zero_count = is_zero.sum(axes, True)
    nonzero_factors = where(is_zero, 1.0, x)
    nonzero_product = prod(nonzero_factors, axes, True)
    slope = where(
        zero_count == 0, nonzero_product / nonzero_factors, where((zero_count == 1) & is_zero, nonzero_product, 0.0)
    )
    return (_spread(node, gradient) * slope,)


def _register_min_max(name: str) -> None:
    """Register the rule of the reduction `name`, a minimum or maximum.

    The elements equal to the result share its gradient equally. If the result is NaN, no element equals it, and the
    gradients of all elements that it combines are 0 / 0 = NaN.
    """

    @rule(name, inputs=True, outputs=True)
    def _(node: Node, gradient: Any) -> tuple[Any, ...]:
        x, axes = node.input(0), node.params["axes"]
        spread_result = _spread(node, node.output(0))
        hit = (x == spread_result).to(x.dtype)
        return (hit * _spread(node, gradient) / hit.sum(axes, True),)


_register_min_max("amax")
_register_min_max("amin")


@rule("shared_value", inputs=True)
def _shared_value(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients of the operands x and `value` of operation `shared_value`, which returns `value`.

    `value` is an element of x, such as its median. The elements of x equal to it share the gradient equally; if it is
    NaN, the NaN elements of x do. `value` itself gets no gradient.
    """
    x, value = node.input(0), node.input(1)
    hit = where(value == value, x == value, x != x).to(x.dtype)  # only NaN differs from itself
    return hit * (gradient / hit.sum()), None


@rule("var", inputs=True)
def _var(node: Node, gradient: Any) -> tuple[Any, ...]:
    x = node.input(0)
    centered = x - x.mean(node.params["axes"], True)
    divisor = _count(node) - node.params["correction"]
    # a negative divisor counts as 0, as in the forward function; Python would raise for a division by 0
    return (_spread(node, gradient) * centered * (2 / divisor if divisor > 0 else math.inf),)


@rule("std", inputs=True, outputs=True)
def _std(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.output(0)
    centered = x - x.mean(node.params["axes"], True)
    divisor = _count(node) - node.params["correction"]
    scale = where(y == 0, 0.0, gradient / where(y == 0, 1.0, y))  # gradient / y, but 0 where y is 0
    # a divisor of 0 or less: as in `_var`
    return (_spread(node, scale) * centered * (1 / divisor if divisor > 0 else math.inf),)


@rule("norm2", inputs=True, outputs=True)
def _norm2(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.output(0)
    scale = where(y == 0, 0.0, gradient / where(y == 0, 1.0, y))  # gradient / y, but 0 where y is 0
    return (_spread(node, scale) * x,)


@rule("logsumexp", inputs=True, outputs=True)
def _logsumexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.output(0)
    # The weight of an element is exp(x) / sum(exp(x)). If all elements are -inf, x - y would be NaN; the weights are 0.
    sum_is_zero = y == -math.inf
    weights = (x - _spread(node, where(sum_is_zero, 0.0, y))).exp()
    return (_spread(node, gradient) * weights,)
