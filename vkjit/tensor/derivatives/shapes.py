"""Gradient rules of sliding windows, im2col, and reading and replacing strided parts (see `vkjit.tensor.derivatives`).

`part_of` and `replace_part` are recorded by `vkjit.tensor.view_tracking` for views that are written in place. They
describe a view by `shape`, `strides` and `start`, in elements of the tensor that it is a part of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit import dtypes

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..dispatch import operation
from ..nn import im2col
from ..ops import creation, scatter, views
from ..ops.broadcast import overlaps_itself
from ..ops.shapes import replace_part
from ..tensor import Tensor


@rule("windows")
def _windows(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    dim, size, step = (node.params[k] for k in ("dim", "size", "step"))
    count = gradient.shape[dim]
    # the index along `dim` of each element of each window
    indices = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1)
    index = creation.upload(indices.astype(np.int64), dtypes.i64, gradient.device)
    moved = views.movedim(gradient, -1, dim + 1)
    flat = views.reshape(moved, (*edge.shape[:dim], count * size, *edge.shape[dim + 1 :]))
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    return (scatter.index_add(zeros, dim, index, flat),)


@operation("part_of")
def part_of(x: Tensor, *, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Tensor:
    """Return a copy of a strided part of x.

    `shape`, `strides` and `start` (the offset of the first element) describe the part in elements, as if x were
    contiguous.
    """
    return views.strided(x.detach().contiguous(), shape, strides, start).clone()


@rule("part_of")
def _part_of(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    shape, strides, start = (node.params[k] for k in ("shape", "strides", "start"))
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    if not overlaps_itself(shape, strides):
        return (replace_part(zeros, gradient, **node.params),)
    # elements of the part share memory: add up their gradients at the flat index (offset) of each element
    offsets = np.full(shape, start, np.int64)
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        offsets += (np.arange(extent) * stride).reshape((-1,) + (1,) * (len(shape) - 1 - axis))
    index = creation.upload(offsets.reshape(-1), dtypes.i64, gradient.device)
    flat = views.reshape(zeros, (zeros.numel(),))
    summed = scatter.index_add(flat, 0, index, views.reshape(gradient, (gradient.numel(),)))
    return (views.reshape(summed, edge.shape),)


@rule("replace_part")
def _replace_part(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[1]
    assert edge is not None
    of_x = of_source = None
    if node.needs[0]:
        of_x = replace_part(
            gradient, creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device), **node.params
        )
    if node.needs[1]:
        of_source = part_of(gradient, **node.params)
    return of_x, of_source


@rule("im2col")
def _im2col(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return (im2col.col2im(gradient, size=edge.shape[2:], **node.params),)


@rule("col2im")
def _col2im(node: Node, gradient: Any) -> tuple[Any, ...]:
    window_params = {name: value for name, value in node.params.items() if name != "size"}
    return (im2col.im2col(gradient, **window_params),)
