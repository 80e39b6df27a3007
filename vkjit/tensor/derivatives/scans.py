"""Gradient rules of cumulative operations (scans), triangular parts and padding (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes

from ..autograd.tape import Node, rule
from ..ops import cumulative, triangles, views
from ..ops.arithmetic import where


def _reverse_cumsum(x: Any, dim: int) -> Any:
    """Return the cumulative sum from the end of the axis to its start."""
    return views.flip_view(cumulative.cumsum(views.flip_view(x, dim), dim, dtype=x.dtype), dim)


@rule("cumsum")
def _cumsum(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_reverse_cumsum(gradient, node.params["dim"]),)


@rule("cumprod", inputs=True)
def _cumprod(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradient of x, which depends on the first zero of each slice along the axis.

    Elements before that zero get the reverse cumulative sum of gradient * result, divided by x. The zero itself gets
    the reverse cumulative sum of gradient * (product without that zero). Elements after it get 0.
    """
    x, dim = node.input(0), node.params["dim"]
    zeros_so_far = cumulative.cumsum((x == 0).to(gradient.dtype), dim)
    first = (zeros_so_far == 1) & (x == 0)
    nonzero = where(first, 1.0, x.to(gradient.dtype))
    products = cumulative.cumprod(nonzero, dim)
    before_first = where(zeros_so_far == 0, gradient * products, 0.0)
    from_first = where(zeros_so_far >= 1, gradient * products, 0.0)
    regular = _reverse_cumsum(before_first, dim) / where(zeros_so_far == 0, x, 1.0)
    return (where(first, _reverse_cumsum(from_first, dim), where(zeros_so_far == 0, regular, 0.0)),)


@rule("logcumsumexp", inputs=True)
def _logcumsumexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return exp(x) times the reverse cumulative sum of gradient * exp(-result).

    Computed in log space, since exp(-result) may overflow. The logarithm needs positive terms, so positive and negative
    gradients are summed separately.
    """
    wide = dtypes.f64 if "f64" in gradient.device.caps.dtypes else dtypes.f32
    x, gradient, dim = node.input(0).to(wide), gradient.to(wide), node.params["dim"]
    y = cumulative.logcumsumexp(x, dim)

    def part(sign: float) -> Any:
        """Return the share of the gradients of this sign, as a positive number."""
        size = where(gradient * sign > 0, gradient * sign, 0.0).log()
        total = views.flip_view(cumulative.logcumsumexp(views.flip_view(size - y, dim), dim), dim)
        return (total + x).exp()

    return (part(1.0) - part(-1.0),)


@rule("triangle")
def _triangle(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (triangles.triangle(gradient, **node.params),)


@rule("pad")
def _pad(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    starts = tuple(low for low, _ in node.params["widths"])
    return (views.slice_view(gradient, starts=starts, sizes=edge.shape, steps=(1,) * len(edge.shape)),)
