"""Gradient rules of views and copies (see `vkjit.tensor.derivatives`).

The gradient of a view's operand is the inverse view of the gradient, or zeros with the gradient written to the part
that the view selects.
"""

from __future__ import annotations

from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..dispatch import operation
from ..ops import copies, creation, views
from ..tensor import Tensor
from .common import reduced_to_operand, sum_to


@rule("reshape")
def _reshape(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return (views.reshape(gradient, edge.shape),)


@rule("permute")
def _permute(node: Node, gradient: Any) -> tuple[Any, ...]:
    order = node.params["order"]
    inverse = tuple(order.index(i) for i in range(len(order)))
    return (views.permute(gradient, inverse),)


@rule("expand")
def _expand(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return (sum_to(gradient, edge.shape),)


@operation("unslice")
def unslice(gradient: Tensor, *, shape: tuple[int, ...], **part: Any) -> Tensor:
    """Return zeros of `shape` with the gradient written to a slice.

    `part` has the parameters of the operation `slice`: starts, sizes and steps.
    """
    out = creation.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    copies.copy_values(gradient._array, views.slice_view(out, **part)._array)
    return out


@rule("slice")
def _slice(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return (unslice(gradient, shape=edge.shape, **node.params),)


@rule("unslice")
def _unslice(node: Node, gradient: Any) -> tuple[Any, ...]:
    part = {name: value for name, value in node.params.items() if name != "shape"}
    return (views.slice_view(gradient, **part),)


@operation("undiagonal")
def undiagonal(gradient: Tensor, *, shape: tuple[int, ...], offset: int) -> Tensor:
    """Return zeros of `shape` with the gradient written to a diagonal of the last two axes (see `diagonal`)."""
    out = creation.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    copies.copy_values(gradient._array, views._diagonal(out, offset=offset)._array)
    return out


@rule("diagonal")
def _diagonal(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return (undiagonal(gradient, shape=edge.shape, offset=node.params["offset"]),)


@rule("undiagonal")
def _undiagonal(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (views._diagonal(gradient, offset=node.params["offset"]),)


@rule("clone")
def _clone(_node: Node, gradient: Any) -> tuple[Any, ...]:
    return (gradient,)


@rule("cast")
def _cast(_node: Node, gradient: Any) -> tuple[Any, ...]:
    return (gradient,)  # the tape converts it to the operand's type


@rule("move")
def _move(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return (gradient.to(device=edge.device),)


@rule("copy")
def _copy(node: Node, gradient: Any) -> tuple[Any, ...]:
    of_target = creation.zeros_like(gradient) if node.needs[0] else None
    return of_target, reduced_to_operand(node, 1, gradient)


@rule("fill")
def _fill(_node: Node, gradient: Any) -> tuple[Any, ...]:
    return creation.zeros_like(gradient), None


@rule("cat")
def _cat(node: Node, gradient: Any) -> tuple[Any, ...]:
    dim = node.params["dim"]
    gradients = []
    start = 0
    for needed, size in zip(node.needs, _sizes(node, dim), strict=True):
        gradients.append(views.narrow(gradient, dim, start, size) if needed else None)
        start += size
    return tuple(gradients)


def _sizes(node: Node, dim: int) -> list[int]:
    """Return the size of each operand along the axis `dim`."""
    return [edge.shape[dim] for edge in node.edges if edge is not None]
