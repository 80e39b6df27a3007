"""Gradients of matrix products."""

from __future__ import annotations

import math
from typing import Any

from ...tensor.linalg import matmul
from ...tensor.views import mT, reshape
from ..tape import Node, rule
from .common import sum_to


@rule("matmul", inputs=True)
def _matmul(node: Node, gradient: Any) -> tuple[Any, ...]:
    a, b = node.input(0), node.input(1)
    left = sum_to(matmul(gradient, mT(b)), a.shape) if node.needs[0] else None
    if not node.needs[1]:
        return left, None
    if b.ndim == 2 and a.ndim > 2:  # one matrix for a whole batch: one product over all rows
        rows = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        gradients = reshape(gradient, (rows.shape[0], gradient.shape[-1]))
        return left, matmul(mT(rows), gradients)
    return left, sum_to(matmul(mT(a), gradient), b.shape)
