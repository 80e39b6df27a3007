"""Activation checkpointing: recompute intermediate values in backward instead of storing them.

A checkpointed call is a single node on the tape. The recomputation restores the random state of the forward pass, so
dropout masks are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from ..tensor.autograd.mode import changed_modes, enable_grad, is_grad_enabled, no_grad, state
from ..tensor.autograd.rules import rule
from ..tensor.autograd.tape import Node, accumulates_grad, backward_since, current_sequence_number, record

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run function(*args, **options) and keep only the arguments; the backward pass runs the function again.

    The function returns a tensor or a tuple of tensors, and must compute the same results when it runs again. The
    backward pass also computes the gradients of parameters that the function uses, and of tensors that it captures from
    the enclosing scope or that are nested in lists or `options`. These tensors aren't operands on the tape, so their
    gradients can only be added to `.grad`. Therefore `backward()` works through a checkpoint, but `vk.autograd.grad()`
    raises ArgumentError.
    """
    if options:
        function = functools.partial(function, **options)
    if not is_grad_enabled():
        return function(*args)
    from ..tensor.ops import creation, random
    from ..tensor.tensor import Tensor

    mark, autocast_dtype = random.mark(), state.autocast
    with no_grad():
        result = function(*args)
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not outputs or not all(isinstance(t, Tensor) for t in outputs):
        raise ArgumentError("checkpoint() takes a function that returns a tensor or a tuple of tensors")
    # detached, because the function may return an argument, whose own history recording would replace
    detached = tuple(t.detach() for t in outputs)
    # operand 0 makes the node require a gradient even if only parameters of the function do
    anchor = creation.zeros((), device=outputs[0].device, requires_grad=True)
    params = {"function": function, "mark": mark, "autocast_dtype": autocast_dtype}
    record("checkpoint", (anchor, *args), params, detached)
    return detached if isinstance(result, (tuple, list)) else detached[0]


@rule("checkpoint", inputs=True)
def _checkpoint(node: Node, *gradients: Any) -> Sequence[Any]:
    """VJP of a checkpoint: run the function again, recorded, and run backward through the recorded operations."""
    if not accumulates_grad():
        raise ArgumentError(
            "grad() can't go through checkpoint(): call backward(), which fills .grad of parameters too"
        )
    from ..tensor.ops import random
    from ..tensor.tensor import Tensor

    args = [node.input(i) for i in range(1, len(node.edges))]  # without operand 0, the anchor
    leaves = [a.detach() if isinstance(a, Tensor) else a for a in args]
    for leaf, needs_gradient in zip(leaves, node.needs[1:], strict=True):
        if needs_gradient:
            leaf.requires_grad_()
    saved_mark = random.mark()
    first_number = current_sequence_number()  # of the nodes that this call records
    try:
        random.return_to(node.params["mark"], "checkpoint()")
        with changed_modes(autocast=node.params["autocast_dtype"]), enable_grad():
            result = node.params["function"](*leaves)
    finally:
        try:
            random.return_to(saved_mark, "checkpoint()")
        except BaseException:  # an interrupt
            random.return_to(saved_mark, "checkpoint()")
            raise
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    roots = [(t, g) for t, g in zip(outputs, gradients, strict=True) if g is not None and t.requires_grad]
    if roots:
        # only nodes recorded by this call release their values: the outer backward pass may still need those of others
        backward_since(first_number, [t for t, _ in roots], [g for _, g in roots])
    return (None, *(a.grad if isinstance(a, Tensor) else None for a in leaves))
