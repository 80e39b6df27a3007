"""Gradient rules: one vector-Jacobian product per operation, in the table `tape.RULES`.

Importing this package fills the table. Rules are written with tensor operations, so they can be differentiated in turn.
"""

from . import (
    arithmetic,
    elementwise,
    indexing,
    linalg,
    nn_activation,
    nn_attention,
    nn_conv,
    nn_embedding,
    nn_loss,
    nn_norm,
    nn_pool,
    nn_softmax,
    reductions,
    scans,
    shapes,
    special,
    views,
)

__all__ = [
    "arithmetic", "elementwise", "indexing", "linalg", "nn_activation", "nn_attention", "nn_conv", "nn_embedding", "nn_loss",
    "nn_norm", "nn_pool", "nn_softmax", "reductions", "scans", "shapes", "special", "views",
]  # fmt: skip
