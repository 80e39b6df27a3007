"""Gradients of embeddings and dropout."""

from __future__ import annotations

from typing import Any

from ...tensor.nn_embedding import _embedding, embedding_gradient, seeded_dropout
from ..tape import Node, rule


@rule("embedding", inputs=True)
def _of_embedding(node: Node, gradient: Any) -> tuple[Any, ...]:
    table = node.edges[0]
    assert table is not None
    skipped = node.params["skipped"]
    return embedding_gradient(gradient, node.input(1), rows=table.shape[0], skipped=skipped), None


@rule("embedding_gradient", inputs=True)
def _of_embedding_gradient(node: Node, gradient: Any) -> tuple[Any, ...]:
    indices, skipped = node.input(1), node.params["skipped"]
    taken: Any = _embedding(gradient, indices, skipped=skipped)
    if skipped >= 0:
        taken = taken * (indices != skipped).unsqueeze(-1).to(taken.dtype)
    return taken, None


@rule("dropout")
def _dropout(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (seeded_dropout(gradient, **node.params),)
