"""Gradient rules of softmax and log-softmax (see `vkjit.tensor.derivatives`).

Each launches one kernel. If the gradient is itself recorded (create_graph=True), it is composed of differentiable
tensor operations instead. The result for a 0-d tensor is constant, so its gradient is 0. In calls such as
`x.sum(axis, True)`, True is the argument `keepdim`.
"""

from __future__ import annotations

from typing import Any

from ..autograd.mode import is_grad_enabled
from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn.softmax import softmax_gradient


@rule("softmax", outputs=True)
def _softmax(node: Node, gradient: Any) -> tuple[Any, ...]:
    y, axis = node.output(), node.params["axis"]
    if not is_grad_enabled():
        return (softmax_gradient(gradient, y, axis=axis, log=False),)
    y_: Any = y  # untyped, since operators and methods are added to `Tensor` at run time; so below
    return ((y_ * (gradient - (gradient * y_).sum(axis, True)) if y.ndim else gradient * 0),)


@rule("log_softmax", outputs=True)
def _log_softmax(node: Node, gradient: Any) -> tuple[Any, ...]:
    y, axis = node.output(), node.params["axis"]
    if not is_grad_enabled():
        return (softmax_gradient(gradient, y, axis=axis, log=True),)
    y_: Any = y
    return ((gradient - y_.exp() * gradient.sum(axis, True) if y.ndim else gradient * 0),)
