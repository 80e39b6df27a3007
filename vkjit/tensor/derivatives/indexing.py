"""Gradient rules of gather, scatter and indexing operations (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops import creation, indexing
from ..ops.arithmetic import where
from ..ops.compaction import nonzero_indices
from ..ops.gather import gather, gather_at
from ..ops.index_operands import expand_index
from ..ops.scatter import scatter, scatter_add, scatter_add_at, scatter_at, scatter_reduce
from ..ops.views import flatten, reshape, unsqueeze
from .common import reduced_to_operand


@rule("take")
def _take(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Add each slice of the gradient to the slice of x that it was taken from."""
    edge = node.edges[0]
    assert edge is not None
    dim, index = node.params["dim"], node.params["index"]
    index_rank = index.ndim
    flat = flatten(gradient, dim, dim + index_rank - 1) if index_rank else unsqueeze(gradient, dim)
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    flat_index = expand_index(edge.shape, dim, reshape(index, (index.numel(),)))
    return (scatter_add_at(zeros, dim, flat_index, flat, "take", from_end=node.params["from_end"]),)


@rule("gather")
def _gather(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    return (scatter_add_at(zeros, src=gradient, name="gather", **node.params),)


@rule("scatter_add")
def _scatter_add(node: Node, gradient: Any) -> tuple[Any, ...]:
    return gradient, (gather_at(gradient, name="scatter_add", **node.params) if node.needs[1] else None)


@rule("scatter")
def _scatter(node: Node, gradient: Any) -> tuple[Any, ...]:
    of_x = scatter_at(gradient, src=0, name="scatter", **node.params) if node.needs[0] else None
    return of_x, (gather_at(gradient, name="scatter", **node.params) if node.needs[1] else None)


def _write_rule(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients of x and `value` for a write x[index] = value.

    The gradient of x is that of the result, but 0 at the written elements. The gradient of `value` is that of the
    written elements.
    """
    plan = node.params["plan"]
    of_x = indexing.put(gradient, 0, plan=plan) if node.needs[0] else None
    return of_x, (reduced_to_operand(node, 1, indexing.get_planned(gradient, plan)) if node.needs[1] else None)


rule("set_item")(_write_rule)
rule("put")(_write_rule)


@rule("scatter_combine", inputs=True, outputs=True)
def _scatter_combine(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients of x and source for a scatter that combines values by the reduction `reduce`.

    For "prod", the gradient of a factor is the result's gradient times the product of the other factors. For "amin" and
    "amax", all elements equal to the result share its gradient equally.
    """
    dim, index, reduce = (node.params[k] for k in ("dim", "index", "reduce"))
    x, source, result = node.input(0), node.input(1), node.output(0)
    if reduce == "prod":
        return _of_product(x, source, gradient, dim, index)
    # 1 for the elements equal to their result, else 0
    x_hits = (x == result).to(gradient.dtype)
    source_hits = (source == gather(result, dim, index)).to(gradient.dtype)
    share = gradient / counts_or_one(scatter_add(x_hits, dim, index, source_hits))
    return x_hits * share, source_hits * gather(share, dim, index)


def counts_or_one(count: Any) -> Any:
    """Return `count` with 0 replaced by 1, for use as a divisor."""
    return where(count < 1, 1.0, count)


def _of_product(x: Any, source: Any, gradient: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """Return the gradients of x and source for reduce="prod".

    The factors of a result are an element of x and the elements of source combined into it. The product of all factors
    but one is computed from the product of the nonzero factors and the number of zero factors: if there is no zero, it
    is that product divided by the factor. If there is one, it is that product for the zero, and 0 for the others.
    """
    x_zero, source_zero = x == 0, source == 0
    zero_counts = scatter_add(x_zero.to(gradient.dtype), dim, index, source_zero.to(gradient.dtype))
    x_factors, source_factors = where(x_zero, 1.0, x), where(source_zero, 1.0, source)
    product = scatter_reduce(x_factors, dim, index, source_factors, "prod")  # without the zeros
    scaled = gradient * product

    def factor_gradient(factor: Any, is_zero: Any, scaled_product: Any, zero_count: Any) -> Any:
        """Return the gradient of a factor.

        `scaled_product` is the result's gradient times the product of its nonzero factors, `zero_count` the number of
        its zero factors.
        """
        single_zero = where(is_zero, where(zero_count == 1, scaled_product, 0.0), 0.0)
        return where(zero_count == 0, scaled_product / factor, single_zero)

    source_scaled, source_zero_counts = gather(scaled, dim, index), gather(zero_counts, dim, index)
    return factor_gradient(x_factors, x_zero, scaled, zero_counts), factor_gradient(
        source_factors, source_zero, source_scaled, source_zero_counts
    )


@rule("compact")
def _compact(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge, flags = node.edges[0], node.params["flags"]
    assert edge is not None
    zeros = creation.zeros(edge.shape, dtype=gradient.dtype, device=gradient.device)
    if gradient.numel() == 0:
        return (zeros,)
    return (scatter(zeros, 0, nonzero_indices(flags), gradient),)
