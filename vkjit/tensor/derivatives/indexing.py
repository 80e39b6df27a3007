"""Gradient rules of gather, scatter and indexing operations (see `vkjit.tensor.derivatives`)."""

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
    """Convert an index tensor to i64, unless it is i32 or i64 already."""
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
    """Return the gradients of x and value for a write x[index] = value; `plan` is the parsed index.

    x gets the gradient except at the written elements, value the gradient at these elements.
    """
    plan = node.params["plan"]
    of_x = indexing.put(gradient, 0, plan=plan) if node.needs[0] else None
    return of_x, reduced_to_operand(node, 1, indexing.get_planned(gradient, plan)) if node.needs[1] else None


rule("set_item")(_write_rule)
rule("put")(_write_rule)


@rule("scatter_combine", inputs=True, outputs=True)
def _scatter_combine(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients of x and source for a scatter that combines values with `reduce`.

    For reduce="prod", the gradient of a factor is gradient * result / factor; if exactly one factor is zero, it gets
    gradient times the product of the other factors. For a minimum or maximum, all elements equal to the result share
    its gradient equally.
    """
    dim, index, reduce = (node.params[k] for k in ("dim", "index", "reduce"))
    x, source, result = node.input(0), node.input(1), node.output(0)
    if reduce == "prod":
        return _of_product(x, source, gradient, dim, index)
    x_hits, source_hits = (x == result).to(gradient.dtype), (source == gather(result, dim, index)).to(gradient.dtype)
    share = gradient / nonzero_counts(scatter_add(x_hits, dim, index, source_hits))
    return x_hits * share, source_hits * gather(share, dim, index)


def nonzero_counts(count: Any) -> Any:
    """Return the counts, with 0 replaced by 1, so they can be divisors."""
    return where(count < 1, 1.0, count)


def _of_product(x: Any, source: Any, gradient: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """Return the gradients of x and source for reduce="prod".

    They are computed from the product of the nonzero factors and the number of zero factors of each result.
    """
    x_zero, source_zero = x == 0, source == 0
    zeros = scatter_add(x_zero.to(gradient.dtype), dim, index, source_zero.to(gradient.dtype))
    factors, others = where(x_zero, 1.0, x), where(source_zero, 1.0, source)
    product = scatter_reduce(factors, dim, index, others, "prod")  # without the zeros
    scaled = gradient * product

    def factor_gradient(factor: Any, is_zero: Any, scaled_product: Any, zero_count: Any) -> Any:
        """Return the gradient of a factor, given (gradient * product) and the number of zero factors of its result."""
        single_zero = where(is_zero, where(zero_count == 1, scaled_product, 0.0), 0.0)
        return where(zero_count == 0, scaled_product / factor, single_zero)

    scaled_gathered, zeros_gathered = gather(scaled, dim, index), gather(zeros, dim, index)
    return factor_gradient(factors, x_zero, scaled, zeros), factor_gradient(
        others, source_zero, scaled_gathered, zeros_gathered
    )


@rule("compact")
def _compact(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge, flags = node.edges[0], node.params["flags"]
    assert edge is not None
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    if gradient.numel() == 0:
        return (zeros,)
    return (scatter(zeros, 0, nonzero_indices(flags), gradient),)
