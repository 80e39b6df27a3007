"""Gradient rules of pooling (see `vkjit.tensor.derivatives`).

Pooling is linear if the elements that a result is computed from are given: for max pooling the index of each maximum,
which the forward operation returns as its second result. So the second derivative applies the pooling operation to the
same elements: `gather_at_indices` for max pooling, `mean_pool` for average pooling.
"""

from __future__ import annotations

from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn.pool import gather_at_indices, max_pool_gradient, mean_pool, mean_pool_gradient


@rule("max_pool", outputs=(1,))
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
