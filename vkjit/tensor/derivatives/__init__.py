"""Gradient rules: one vector-Jacobian product per operation, in the table `autograd.rules`.

Importing this package fills the table. A function decorated with `@rule(name)` is the rule of operation `name`. It
takes the recorded `Node` and the gradient of each result, and returns a tuple with the gradient of each operand, or
None for an operand that needs none. Rules are written with tensor operations, so they can be differentiated in turn.

In the rules, `of_x` is the gradient of operand x; `left` and `right` are the gradients of the first and the second
operand. `node.edges[i]` has the shape, type and device of operand i; it is None for a scalar, so rules of operations
whose operand is always a tensor assert that it isn't. `_` stands for the gradients of results that have none.
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
