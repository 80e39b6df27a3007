"""Activation checkpointing: what lies between two points is computed again in backward instead of being kept.

Enters: a function and its arguments. Leaves: its result, with one node on the tape. Random numbers are drawn again as they
were, so that dropout masks are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .mode import enable_grad, is_grad_enabled, no_grad, state
from .tape import Node, backward_since, is_filling, mark, record, rule

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """function(*args, **options), keeping only the arguments for backward, which runs the function again.

    The result is a tensor or a tuple of tensors. Parameters that the function uses get their gradients too, and so do tensors in
    `options`, in lists, or of the scope around the function; so `backward()` can go through it, `vk.autograd.grad()` can't. The
    function must compute the same when it runs again.
    """
    if options:
        function = functools.partial(function, **options)
    if not is_grad_enabled():
        return function(*args)
    from ..tensor import creation, random
    from ..tensor.tensor import Tensor

    drawn, cast = random.get_rng_state(), state.autocast
    with no_grad():
        result = function(*args)
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not outputs or not all(isinstance(t, Tensor) for t in outputs):
        raise ArgumentError("checkpoint() takes a function that returns a tensor or a tuple of tensors")
    # results of their own: an argument that is handed through keeps its place on the tape
    fresh = tuple(t.detach() for t in outputs)
    anchor = creation.zeros(
        (), device=outputs[0].device, requires_grad=True
    )  # its parameters aren't among the arguments
    record("checkpoint", (anchor, *args), {"function": function, "drawn": drawn, "cast": cast}, fresh)
    return fresh if isinstance(result, (tuple, list)) else fresh[0]


@rule("checkpoint", inputs=True)
def _checkpoint(node: Node, *gradients: Any) -> Sequence[Any]:
    if not is_filling():
        raise ArgumentError(
            "grad() can't go through checkpoint(): call backward(), which fills .grad of parameters too"
        )
    from ..tensor import random
    from ..tensor.tensor import Tensor

    args = [node.input(i) for i in range(1, len(node.edges))]
    own = [a.detach() if isinstance(a, Tensor) else a for a in args]
    for position, tensor in enumerate(own):
        if node.needs[position + 1]:
            tensor.requires_grad_()
    now, cast, begin = random.get_rng_state(), state.autocast, mark()
    random.set_rng_state(node.params["drawn"])
    state.autocast = node.params["cast"]
    try:
        with enable_grad():
            result = node.params["function"](*own)
    finally:
        random.set_rng_state(now)
        state.autocast = cast
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    wanted = [(t, g) for t, g in zip(outputs, gradients, strict=True) if g is not None and t.requires_grad]
    if wanted:
        # what the function found around it is somebody else's, who may walk it again
        backward_since(begin, [t for t, _ in wanted], [g for _, g in wanted])
    return (None, *(a.grad if isinstance(a, Tensor) else None for a in own))
