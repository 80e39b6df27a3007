"""Gradients of gather, scatter and indexing operations."""

from __future__ import annotations

from typing import Any

from ..autograd.tape import Node, rule
from ..ops import creation, indexing
from ..ops.arithmetic import where
from ..ops.compaction import nonzero_indices
from ..ops.gather import gather
from ..ops.scatter import index_add, scatter, scatter_add, scatter_reduce
from ..ops.views import flatten, reshape, unsqueeze
from .common import reduced_to_operand


@rule("take")
def _take(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    dim, index = node.params["dim"], node.params["index"]
    count = index.ndim
    flat = flatten(gradient, dim, dim + count - 1) if count else unsqueeze(gradient, dim)
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    return (index_add(zeros, dim, _wide(reshape(index, -1) if index.numel() else reshape(index, 0)), flat),)


def _wide(index: Any) -> Any:
    from vkjit import dtypes

    return index if index.dtype in (dtypes.i32, dtypes.i64) else index.to(dtypes.i64)


@rule("gather")
def _gather(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    return (scatter_add(zeros, node.params["dim"], node.params["index"], gradient),)


@rule("scatter_add")
def _scatter_add(node: Node, gradient: Any) -> tuple[Any, ...]:
    source = gather(gradient, node.params["dim"], node.params["index"]) if node.needs[1] else None
    return gradient, source


@rule("scatter")
def _scatter(node: Node, gradient: Any) -> tuple[Any, ...]:
    dim, index = node.params["dim"], node.params["index"]
    of_x = scatter(gradient, dim, index, 0) if node.needs[0] else None
    return of_x, gather(gradient, dim, index) if node.needs[1] else None


def _write_rule(node: Node, gradient: Any) -> tuple[Any, ...]:
    plan = node.params["plan"]
    of_x = indexing.put(gradient, 0, plan=plan) if node.needs[0] else None
    return of_x, reduced_to_operand(node, 1, indexing.get_planned(gradient, plan)) if node.needs[1] else None


rule("set_item")(_write_rule)
rule("put")(_write_rule)


@rule("scatter_combine", inputs=True, outputs=True)
def _scatter_combine(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients of x and source.

    For products, the gradient of a factor is gradient * result / factor, and a single zero factor gets gradient times the
    product of the others. For min/max, all elements equal to the result share its gradient equally.
    """
    dim, index, reduce = (node.params[k] for k in ("dim", "index", "reduce"))
    x, source, result = node.input(0), node.input(1), node.output(0)
    if reduce == "prod":
        return _of_product(x, source, gradient, dim, index)
    hits, hit = (x == result).to(gradient.dtype), (source == gather(result, dim, index)).to(gradient.dtype)
    share = gradient / nonzero_counts(scatter_add(hits, dim, index, hit))
    return hits * share, hit * gather(share, dim, index)


def nonzero_counts(count: Any) -> Any:
    """Return the counts, with 0 replaced by 1."""
    return where(count < 1, 1.0, count)


def _of_product(x: Any, source: Any, gradient: Any, dim: int, index: Any) -> tuple[Any, ...]:
    x_zero, source_zero = x == 0, source == 0
    zeros = scatter_add(x_zero.to(gradient.dtype), dim, index, source_zero.to(gradient.dtype))
    factors, others = where(x_zero, 1.0, x), where(source_zero, 1.0, source)
    product = scatter_reduce(factors, dim, index, others, "prod")  # without the zeros
    scaled = gradient * product

    def of(factor: Any, is_zero: Any, whole: Any, count: Any) -> Any:
        alone = where(is_zero, where(count == 1, whole, 0.0), 0.0)
        return where(count == 0, whole / factor, alone)

    scaled_at, zeros_at = gather(scaled, dim, index), gather(zeros, dim, index)
    return of(factors, x_zero, scaled, zeros), of(others, source_zero, scaled_at, zeros_at)


@rule("compact")
def _compact(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge, flags = node.edges[0], node.params["flags"]
    assert edge is not None
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    if gradient.numel() == 0:
        return (zeros,)
    return (scatter(zeros, 0, nonzero_indices(flags), gradient),)
