"""Gradient rule of hardtanh (see `vkjit.tensor.derivatives`); `elementwise` has those of the other activations."""

from __future__ import annotations

from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops import arithmetic


@rule("hardtanh", inputs=True)
def _hardtanh(node: Node, gradient: Any) -> tuple[Any, ...]:
    x = node.input(0)
    inside = (x > node.params["low"]) & (x < node.params["high"])
    return (arithmetic.where(inside, gradient, 0.0),)
