"""Gradients of reading and writing at positions."""

from __future__ import annotations

from typing import Any

from ...tensor import creation, indexing
from ...tensor.views import flatten, reshape, unsqueeze
from ..tape import Node, rule
from .common import fitted


@rule("take")
def _take(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    dim, index = node.params["dim"], node.params["index"]
    count = index.ndim
    flat = flatten(gradient, dim, dim + count - 1) if count else unsqueeze(gradient, dim)
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    return (indexing.index_add(zeros, dim, _wide(reshape(index, -1) if index.numel() else reshape(index, 0)), flat),)


def _wide(index: Any) -> Any:
    from ... import dtypes

    return index if index.dtype in (dtypes.i32, dtypes.i64) else index.to(dtypes.i64)


@rule("gather")
def _gather(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    return (indexing.scatter_add(zeros, node.params["dim"], node.params["index"], gradient),)


@rule("scatter_add")
def _scatter_add(node: Node, gradient: Any) -> tuple[Any, ...]:
    source = indexing.gather(gradient, node.params["dim"], node.params["index"]) if node.needs[1] else None
    return gradient, source


@rule("scatter")
def _scatter(node: Node, gradient: Any) -> tuple[Any, ...]:
    dim, index = node.params["dim"], node.params["index"]
    before = indexing.scatter(gradient, dim, index, 0) if node.needs[0] else None
    return before, indexing.gather(gradient, dim, index) if node.needs[1] else None


def _written(node: Node, gradient: Any) -> tuple[Any, ...]:
    plan = node.params["plan"]
    before = indexing.put(gradient, 0, plan=plan) if node.needs[0] else None
    return before, fitted(node, 1, indexing.get_planned(gradient, plan)) if node.needs[1] else None


rule("set_item")(_written)
rule("put")(_written)
