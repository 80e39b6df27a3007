"""Gradient rules of embeddings, embedding bags and dropout (see `vkjit.tensor.derivatives`).

`skipped` is the index of the table row that gets no gradient (the padding index), or -1 if there is none.
"""

from __future__ import annotations

from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn.embedding import _embedding, dropout_with_seed, embedding_gradient, inverse_counts
from ..nn.embedding_bag import bag_indices


@rule("embedding", inputs=True)
def _of_embedding(node: Node, gradient: Any) -> tuple[Any, ...]:
    table = node.edges[0]
    assert table is not None
    indices, rows = node.input(1), table.shape[0]
    if node.params.get("by_frequency"):
        gradient = gradient * inverse_counts(indices, rows, gradient)
    return embedding_gradient(gradient, indices, rows=rows, skipped=node.params["skipped"]), None


@rule("embedding_gradient", inputs=True)
def _of_embedding_gradient(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Look up the gradient's rows at the indices, with zeros for the row `skipped`."""
    indices, skipped = node.input(1), node.params["skipped"]
    rows: Any = _embedding(gradient, indices, skipped=skipped)
    if skipped >= 0:
        rows = rows * (indices != skipped).unsqueeze(-1).to(rows.dtype)
    return rows, None


@rule("bag_sum")
def _of_bag_sum(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Give each row of the operand the gradient of its bag."""
    values = node.edges[0]
    assert values is not None
    return (_embedding(gradient, bag_indices(node.params["offsets"], values.shape[0]), skipped=-1),)


@rule("dropout", inputs=(1, 2))
def _dropout(node: Node, gradient: Any) -> tuple[Any, ...]:
    return dropout_with_seed(gradient, node.input(1), node.input(2)), None, None
