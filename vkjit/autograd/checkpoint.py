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

    The function returns a tensor or a tuple of tensors. Parameters it uses get their gradients too, and so do tensors
    in `options`, nested in lists, or captured from the enclosing scope. Therefore `backward()` works through a
    checkpoint, but `vk.autograd.grad()` doesn't. The function must compute the same when it runs again.
    """
    if options:
        function = functools.partial(function, **options)
    if not is_grad_enabled():
        return function(*args)
    from ..tensor.ops import creation, random
    from ..tensor.tensor import Tensor

    rng_state, cast = random.get_rng_state(), state.autocast
    with no_grad():
        result = function(*args)
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not outputs or not all(isinstance(t, Tensor) for t in outputs):
        raise ArgumentError("checkpoint() takes a function that returns a tensor or a tuple of tensors")
    # detached, so that an argument that the function returns keeps its own place on the tape
    detached = tuple(t.detach() for t in outputs)
    anchor = creation.zeros(
        (), device=outputs[0].device, requires_grad=True
    )  # makes the node require a gradient even if only parameters of the function do
    record("checkpoint", (anchor, *args), {"function": function, "drawn": rng_state, "cast": cast}, detached)
    return detached if isinstance(result, (tuple, list)) else detached[0]


@rule("checkpoint", inputs=True)
def _checkpoint(node: Node, *gradients: Any) -> Sequence[Any]:
    if not accumulates_grad():
        raise ArgumentError(
            "grad() can't go through checkpoint(): call backward(), which fills .grad of parameters too"
        )
    from ..tensor.ops import random
    from ..tensor.tensor import Tensor

    args = [node.input(i) for i in range(1, len(node.edges))]
    own = [a.detach() if isinstance(a, Tensor) else a for a in args]
    for position, tensor in enumerate(own):
        if node.needs[position + 1]:
            tensor.requires_grad_()
    rng_state, cast, begin = random.get_rng_state(), state.autocast, current_sequence_number()
    random.set_rng_state(node.params["drawn"])
    state.autocast = node.params["cast"]
    try:
        with enable_grad():
            result = node.params["function"](*own)
    finally:
        random.set_rng_state(rng_state)
        state.autocast = cast
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    roots = [(t, g) for t, g in zip(outputs, gradients, strict=True) if g is not None and t.requires_grad]
    if roots:
        # retain what was recorded outside the function: others may still walk it
        backward_since(begin, [t for t, _ in roots], [g for _, g in roots])
    return (None, *(a.grad if isinstance(a, Tensor) else None for a in own))
