"""Helpers shared by gradient rules: sums over broadcast axes."""

from __future__ import annotations

from typing import Any

from ..autograd.tape import Node

__all__ = ["reduced_to_operand", "sum_to"]


def sum_to(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return the gradient of an operand of `shape` that was broadcast to the gradient's shape.

    It is the sum over the axes that broadcasting added or stretched.
    """
    if gradient.shape == shape:
        return gradient
    missing = gradient.ndim - len(shape)
    stretched = [i + missing for i, e in enumerate(shape) if e == 1 and gradient.shape[i + missing] != 1]
    axes = [*range(missing), *stretched]
    summed = gradient.sum(axes, True) if axes else gradient
    return summed.reshape(shape)


def reduced_to_operand(node: Node, position: int, gradient: Any) -> Any:
    """Return the gradient summed to the shape of the node's operand at `position`; None if it needs no gradient."""
    edge = node.edges[position]
    if not node.needs[position] or edge is None:
        return None
    return sum_to(gradient, edge.shape)
