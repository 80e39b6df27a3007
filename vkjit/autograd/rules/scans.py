"""Gradients of running sums, triangles and padding."""

from __future__ import annotations

from typing import Any

from ...tensor import scans, views
from ..tape import Node, rule


@rule("cumsum")
def _cumsum(node: Node, gradient: Any) -> tuple[Any, ...]:
    dim = node.params["dim"]
    return (views.flip(scans.cumsum(views.flip(gradient, dim), dim), dim),)


@rule("triangle")
def _triangle(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (scans.triangle(gradient, **node.params),)


@rule("pad")
def _pad(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    starts = tuple(low for low, _ in node.params["widths"])
    return (views.slice_view(gradient, starts=starts, sizes=edge.shape, steps=(1,) * len(edge.shape)),)
