"""Activation checkpointing: recompute intermediate values in backward instead of storing them.

A checkpointed call is a single node on the tape. The recomputation restores the random state of the forward pass, so
dropout masks are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from ..tensor.autograd.mode import enable_grad, is_grad_enabled, no_grad, state
from ..tensor.autograd.tape import Node, accumulates_grad, backward_since, current_sequence_number, record, rule

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run function(*args, **options), keeping only the arguments for backward, which runs the function again.

    The function returns a tensor or a tuple of tensors, and must compute the same results when it runs again. Backward
    also computes the gradients of parameters that the function uses, and of tensors captured from the enclosing scope
    or nested in lists or `options`. These tensors aren't operands on the tape, so their gradients can only be added to
    `.grad`. Therefore `backward()` works through a checkpoint, but `vk.autograd.grad()` raises ArgumentError.
    """
    if options:
        function = functools.partial(function, **options)
    if not is_grad_enabled():
        return function(*args)
    from ..tensor.ops import creation, random
    from ..tensor.tensor import Tensor

    rng_state, autocast_dtype = random.get_rng_state(), state.autocast
    with no_grad():
        result = function(*args)
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not outputs or not all(isinstance(t, Tensor) for t in outputs):
        raise ArgumentError("checkpoint() takes a function that returns a tensor or a tuple of tensors")
    # detached, so that recording doesn't replace the history of an argument that the function returns unchanged
    detached = tuple(t.detach() for t in outputs)
    anchor = creation.zeros(
        (), device=outputs[0].device, requires_grad=True
    )  # makes the node require a gradient even if only parameters of the function do
    record("checkpoint", (anchor, *args), {"function": function, "drawn": rng_state, "cast": autocast_dtype}, detached)
    return detached if isinstance(result, (tuple, list)) else detached[0]


@rule("checkpoint", inputs=True)
def _checkpoint(node: Node, *gradients: Any) -> Sequence[Any]:
    """Run the checkpointed function again with recording on, and run backward through the operations that it
    recorded.
    """
    if not accumulates_grad():
        raise ArgumentError(
            "grad() can't go through checkpoint(): call backward(), which fills .grad of parameters too"
        )
    from ..tensor.ops import random
    from ..tensor.tensor import Tensor

    args = [node.input(i) for i in range(1, len(node.edges))]
    leaves = [a.detach() if isinstance(a, Tensor) else a for a in args]
    for position, tensor in enumerate(leaves):
        if node.needs[position + 1]:
            tensor.requires_grad_()
    saved_rng_state, saved_autocast, first_number = random.get_rng_state(), state.autocast, current_sequence_number()
    random.set_rng_state(node.params["drawn"])
    state.autocast = node.params["cast"]
    try:
        with enable_grad():
            result = node.params["function"](*leaves)
    finally:
        random.set_rng_state(saved_rng_state)
        state.autocast = saved_autocast
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    roots = [(t, g) for t, g in zip(outputs, gradients, strict=True) if g is not None and t.requires_grad]
    if roots:
        # nodes recorded before this call keep their values: the outer backward pass may still need them
        backward_since(first_number, [t for t, _ in roots], [g for _, g in roots])
    return (None, *(a.grad if isinstance(a, Tensor) else None for a in leaves))
