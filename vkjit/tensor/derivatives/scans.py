"""Gradient rules of cumulative operations (scans), triangular parts and padding (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit import dtypes

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops import cumulative, triangles, views
from ..ops.arithmetic import where


def _reverse_cumsum(x: Any, dim: int) -> Any:
    """Return the cumulative sum from the end of the axis to its start, in x's type."""
    return views.flip_view(cumulative.cumsum(views.flip_view(x, dim), dim, dtype=x.dtype), dim)


@rule("cumsum")
def _cumsum(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_reverse_cumsum(gradient, node.params["dim"]),)


@rule("cumprod", inputs=True)
def _cumprod(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradient of x, which depends on the first zero of each slice along the axis.

    An element before the first zero gets the reverse cumulative sum of gradient * result, divided by the element. The
    first zero gets the reverse cumulative sum of gradient * (product without that zero). Elements after it get 0.
    """
    x, dim = node.input(0), node.params["dim"]
    zeros_so_far = cumulative.cumsum((x == 0).to(gradient.dtype), dim)
    is_first_zero = (zeros_so_far == 1) & (x == 0)
    without_first_zero = where(is_first_zero, 1.0, x.to(gradient.dtype))
    # up to the first zero these are the results of cumprod, from it on the products without it
    products = cumulative.cumprod(without_first_zero, dim)
    terms_before = where(zeros_so_far == 0, gradient * products, 0.0)
    terms_from_zero = where(zeros_so_far >= 1, gradient * products, 0.0)
    # divide by 1 instead of elements after the first zero, which may be 0
    of_nonzero = _reverse_cumsum(terms_before, dim) / where(zeros_so_far == 0, x, 1.0)
    of_first_zero = _reverse_cumsum(terms_from_zero, dim)
    return (where(is_first_zero, of_first_zero, where(zeros_so_far == 0, of_nonzero, 0.0)),)


@rule("logcumsumexp", inputs=True)
def _logcumsumexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return exp(x) times the reverse cumulative sum of gradient * exp(-result).

    Computed in log space, since exp(-result) may overflow. The logarithm needs positive terms, so positive and negative
    gradients are summed separately.
    """
    wide = dtypes.f64 if "f64" in gradient.device.caps.dtypes else dtypes.f32
    x, gradient, dim = node.input(0).to(wide), gradient.to(wide), node.params["dim"]
    y = cumulative.logcumsumexp(x, dim)
    lowest = float(np.finfo(wide.storage).min)

    def part(sign: float) -> Any:
        """Return exp(x) * (the reverse cumulative sum of abs(gradient) * exp(-y)) over the gradients of one sign."""
        # gradients of the other sign count as exp(lowest) = 0: the gradient of this formula is NaN for log(0) = -inf
        is_other = gradient * sign <= 0
        log_magnitudes = where(is_other, lowest, where(is_other, 1.0, gradient * sign).log())
        log_sums = views.flip_view(cumulative.logcumsumexp(views.flip_view(log_magnitudes - y, dim), dim), dim)
        return (log_sums + x).exp()

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
