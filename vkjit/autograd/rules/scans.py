"""Gradients of running sums and products, triangles and padding."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...tensor import running, scans, views
from ...tensor.arithmetic import where
from ..tape import Node, rule


def _sums_from_the_end(x: Any, dim: int) -> Any:
    return views.backwards(running.cumsum(views.backwards(x, dim), dim, dtype=x.dtype), dim)


@rule("cumsum")
def _cumsum(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (_sums_from_the_end(gradient, node.params["dim"]),)


@rule("cumprod", inputs=True)
def _cumprod(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Before the first 0 of a line: sums of gradient * result from the end, over x. At it: the same with the 0 left out
    of the products. After it: 0.
    """
    x, dim = node.input(0), node.params["dim"]
    zeros = running.cumsum((x == 0).to(gradient.dtype), dim)
    first = (zeros == 1) & (x == 0)
    without = where(first, 1.0, x.to(gradient.dtype))
    products = running.cumprod(without, dim)
    before = where(zeros == 0, gradient * products, 0.0)
    at = where(zeros >= 1, gradient * products, 0.0)
    usual = _sums_from_the_end(before, dim) / where(zeros == 0, x, 1.0)
    return (where(first, _sums_from_the_end(at, dim), where(zeros == 0, usual, 0.0)),)


@rule("logcumsumexp", inputs=True)
def _logcumsumexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    """exp(x) times the sums from the end of gradient * exp(-result), positive and negative gradients apart."""
    wide = dtypes.f64 if "f64" in gradient.device.caps.dtypes else dtypes.f32
    x, gradient, dim = node.input(0).to(wide), gradient.to(wide), node.params["dim"]
    y = running.logcumsumexp(x, dim)

    def part(sign: float) -> Any:
        size = where(gradient * sign > 0, gradient * sign, 0.0).log()
        total = views.backwards(running.logcumsumexp(views.backwards(size - y, dim), dim), dim)
        return (total + x).exp()

    return (part(1.0) - part(-1.0),)


@rule("triangle")
def _triangle(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (scans.triangle(gradient, **node.params),)


@rule("pad")
def _pad(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    starts = tuple(low for low, _ in node.params["widths"])
    return (views.slice_view(gradient, starts=starts, sizes=edge.shape, steps=(1,) * len(edge.shape)),)
