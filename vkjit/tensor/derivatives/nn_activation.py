"""Gradient rules of hardtanh and mish (see `vkjit.tensor.derivatives`); `elementwise` has those of the other activations."""

from __future__ import annotations

from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops import arithmetic, elementwise


@rule("hardtanh", inputs=True)
def _hardtanh(node: Node, gradient: Any) -> tuple[Any, ...]:
    x = node.input(0)
    inside = (x > node.params["low"]) & (x < node.params["high"])
    return (arithmetic.where(inside, gradient, 0.0),)


@rule("mish", inputs=True)
def _mish(node: Node, gradient: Any) -> tuple[Any, ...]:
    x: Any = node.input(0)
    t = elementwise.softplus(x).tanh()
    # gradient * x may be infinite where the slope of tanh is 0
    return (gradient * (t + x * ((1 - t * t) * x.sigmoid())),)
