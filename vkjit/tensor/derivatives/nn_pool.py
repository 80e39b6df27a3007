"""Gradient rules of pooling (see `vkjit.tensor.derivatives`).

For given source locations pooling is linear. So the gradient of a pooling gradient is the pooling operation applied at
the same locations: for max pooling `gather_at_indices`, for average pooling `mean_pool`.
"""

from __future__ import annotations

from typing import Any

from ..autograd.tape import Node, rule
from ..nn.pool import gather_at_indices, max_pool_gradient, mean_pool, mean_pool_gradient


@rule("max_pool", outputs=True)
def _max_pool(node: Node, gradient: Any, _: Any) -> tuple[Any, ...]:
    return (max_pool_gradient(gradient, node.output(1), **node.params),)


@rule("max_pool_gradient", inputs=True)
def _max_pool_gradient(node: Node, gradient: Any) -> tuple[Any, ...]:
    return gather_at_indices(gradient, node.input(1), **node.params), None


@rule("gather_at_indices", inputs=True)
def _gather_at_indices(node: Node, gradient: Any) -> tuple[Any, ...]:
    return max_pool_gradient(gradient, node.input(1), **node.params), None


@rule("avg_pool")
def _avg_pool(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (mean_pool_gradient(gradient, **node.params),)


@rule("avg_pool_gradient")
def _avg_pool_gradient(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (mean_pool(gradient, **node.params),)
