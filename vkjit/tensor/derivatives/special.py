"""Gradient rules of special functions (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.tape import Node, rule
from ..ops.arithmetic import where
from .common import reduced_to_operand


@rule("erfinv", outputs=True)
def _erfinv(node: Node, gradient: Any) -> tuple[Any, ...]:
    y: Any = node.output(0)
    return (gradient * (y * y).exp() * (math.sqrt(math.pi) / 2),)


@rule("entr", inputs=True)
def _entr(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (gradient * (-(node.input(0).log()) - 1),)


@rule("ndtr", inputs=True)
def _ndtr(node: Node, gradient: Any) -> tuple[Any, ...]:
    x = node.input(0)
    return (gradient * (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi)),)


@rule("sinc", inputs=True)
def _sinc(node: Node, gradient: Any) -> tuple[Any, ...]:
    x: Any = node.input(0)
    z = x * math.pi
    safe = where(x == 0, 1.0, x)  # avoids 0 / 0, whose NaN would reach second derivatives
    slope = (z * z.cos() - z.sin()) / (z * safe)
    return (gradient * where(x == 0, 0.0, slope),)


@rule("logaddexp", inputs=True)
def _logaddexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Return the gradients gradient * sigmoid(a - b) of a and gradient * sigmoid(b - a) of b."""
    a, b = node.input(0), node.input(1)
    same = a == b  # includes equal infinities, whose difference is NaN
    difference = where(same, 0.0, a - b)
    left = reduced_to_operand(node, 0, gradient * difference.sigmoid()) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, gradient * (-difference).sigmoid()) if node.needs[1] else None)


@rule("logaddexp2", inputs=True)
def _logaddexp2(node: Node, gradient: Any) -> tuple[Any, ...]:
    a, b = node.input(0), node.input(1)
    difference = where(a == b, 0.0, a - b) * math.log(2)
    left = reduced_to_operand(node, 0, gradient * difference.sigmoid()) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, gradient * (-difference).sigmoid()) if node.needs[1] else None)


@rule("xlog1py", inputs=True)
def _xlog1py(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.input(1)
    left = None
    if node.needs[0]:
        # y may be a Python number
        slope = y.log1p() if hasattr(y, "log1p") else math.log1p(y) if y > -1 else -math.inf
        left = reduced_to_operand(node, 0, where((x == 0) & (y <= -1), 0.0, gradient * slope))
    return left, (reduced_to_operand(node, 1, gradient * x / (y + 1)) if node.needs[1] else None)
