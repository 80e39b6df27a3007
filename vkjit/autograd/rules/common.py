"""What several gradient rules need."""

from __future__ import annotations

from typing import Any

from ..tape import Node

__all__ = ["fitted", "sum_to"]


def sum_to(gradient: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of an operand that was broadcast: summed over the axes along which it was stretched."""
    if gradient.shape == shape:
        return gradient
    missing = gradient.ndim - len(shape)
    stretched = [i + missing for i, e in enumerate(shape) if e == 1 and gradient.shape[i + missing] != 1]
    axes = [*range(missing), *stretched]
    summed = gradient.sum(axes, True) if axes else gradient
    return summed.reshape(shape)


def fitted(node: Node, position: int, gradient: Any) -> Any:
    """The gradient summed to the shape of an operand; None where it isn't needed."""
    edge = node.edges[position]
    if not node.needs[position] or edge is None:
        return None
    return sum_to(gradient, edge.shape)
