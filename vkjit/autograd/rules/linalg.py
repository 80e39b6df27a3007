"""Gradients of matrix products."""

from __future__ import annotations

import math
from typing import Any

from ... import dtypes
from ...tensor.linalg import matmul
from ...tensor.precision import is_half
from ...tensor.views import mT, reshape
from ..tape import Node, rule
from .common import sum_to


@rule("matmul", inputs=True)
def _matmul(node: Node, gradient: Any) -> tuple[Any, ...]:
    a, b = node.input(0), node.input(1)
    left = _summed(gradient, mT(b), a.shape) if node.needs[0] else None
    if not node.needs[1]:
        return left, None
    if b.ndim == 2 and a.ndim > 2:  # one matrix for a whole batch: one product over all rows
        rows = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        gradients = reshape(gradient, (rows.shape[0], gradient.shape[-1]))
        return left, matmul(mT(rows), gradients)
    return left, _summed(mT(a), gradient, b.shape)


def _summed(p: Any, q: Any, shape: tuple[int, ...]) -> Any:
    """The product, summed to a shape; products of 16 bits that are summed are kept in f32."""
    if len(shape) == max(p.ndim, q.ndim) and all(
        wanted == max(m, n)
        for wanted, m, n in zip(shape[:-2], p.shape[-len(shape) : -2], q.shape[-len(shape) : -2], strict=False)
    ):
        return sum_to(matmul(p, q), shape)
    return sum_to(widest(p, q), shape)


def widest(p: Any, q: Any) -> Any:
    """The product, of 16-bit floats in f32."""
    wide = dtypes.f32 if is_half(p.dtype) else p.dtype
    return matmul(p.to(wide), q.to(wide))
