"""Gradient rule of matrix products (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops.broadcast import broadcast_shapes
from ..ops.matmul import matmul
from ..ops.views import mT, reshape
from ..precision import is_half
from .common import sum_to


@rule("matmul", inputs=True)
def _matmul(node: Node, gradient: Any) -> tuple[Any, ...]:
    a, b = node.input(0), node.input(1)
    left = _summed_product(gradient, mT(b), a.shape) if node.needs[0] else None
    if not node.needs[1]:
        return left, None
    if b.ndim == 2 and a.ndim > 2:  # one matrix for the whole batch: a single product over all rows
        rows = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        gradients = reshape(gradient, (rows.shape[0], gradient.shape[-1]))
        return left, matmul(mT(rows), gradients)
    return left, _summed_product(mT(a), gradient, b.shape)


def _summed_product(p: Any, q: Any, shape: tuple[int, ...]) -> Any:
    """Return the product of p and q, summed to `shape`, the shape of the operand whose gradient this is.

    The sum is over the batch axes along which the operand was broadcast. If there are such axes, 16-bit values are
    multiplied in f32, so that the terms of the sum aren't rounded.
    """
    if broadcast_shapes(p.shape[:-2], q.shape[:-2]) == shape[:-2]:  # there are no such axes
        return matmul(p, q)
    return sum_to(product_in_f32(p, q), shape)


def product_in_f32(p: Any, q: Any) -> Any:
    """Return the product of p and q; 16-bit floats are converted to f32, which is then also the result's type."""
    wide = dtypes.f32 if is_half(p.dtype) else p.dtype
    return matmul(p.to(wide), q.to(wide))
