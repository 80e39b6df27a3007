"""Gradient rules of special functions (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops import special
from ..ops.arithmetic import where
from .common import reduced_to_operand

_SINC_SERIES = [(-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(5, 0, -1)]
"""Taylor coefficients of (z cos(z) - sin(z)) / z**3 in powers of z**2, highest first. For |z| < pi / 10, the relative
error of the truncated series is less than 1e-13.
"""


@rule("erfinv", outputs=True)
def _erfinv(node: Node, gradient: Any) -> tuple[Any, ...]:
    y: Any = node.output(0)
    return (gradient * ((y * y).exp() * (math.sqrt(math.pi) / 2)),)


@rule("entr", inputs=True)
def _entr(node: Node, gradient: Any) -> tuple[Any, ...]:
    return (gradient * (-(node.input(0).log()) - 1),)


@rule("ndtr", inputs=True)
def _ndtr(node: Node, gradient: Any) -> tuple[Any, ...]:
    x = node.input(0)
    return (gradient * (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi)),)


@rule("sinc", inputs=True)
def _sinc(node: Node, gradient: Any) -> tuple[Any, ...]:
    # The derivative is pi (z cos(z) - sin(z)) / z**2 with z = pi x. Near 0 the difference cancels and z**2 may
    # underflow, so the Taylor series is used there. Elements that don't use the direct formula get x = 1 in it: a NaN
    # would reach the second derivative, as 0 * NaN.
    x: Any = node.input(0)
    is_small = x.abs() < 0.1
    z = where(is_small, 1.0, x) * math.pi
    direct = (z * z.cos() - z.sin()) / (z * z) * math.pi
    z_small = where(is_small, x, 0.0) * math.pi
    square = z_small * z_small
    series = square * _SINC_SERIES[0] + _SINC_SERIES[1]
    for coefficient in _SINC_SERIES[2:]:
        series = series * square + coefficient
    return (gradient * where(is_small, z_small * series * math.pi, direct),)


@rule("logaddexp", inputs=True)
def _logaddexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    """Gradients of log(exp(a) + exp(b)): `gradient * sigmoid(a - b)` for a, `gradient * sigmoid(b - a)` for b."""
    a, b = node.input(0), node.input(1)
    same = a == b  # the difference is set to 0: for equal infinities, a - b is NaN
    difference = where(same, 0.0, a - b)
    left = reduced_to_operand(node, 0, gradient * difference.sigmoid()) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, gradient * (-difference).sigmoid()) if node.needs[1] else None)


@rule("logaddexp2", inputs=True)
def _logaddexp2(node: Node, gradient: Any) -> tuple[Any, ...]:
    a, b = node.input(0), node.input(1)
    difference = where(a == b, 0.0, a - b) * math.log(2)
    left = reduced_to_operand(node, 0, gradient * difference.sigmoid()) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, gradient * (-difference).sigmoid()) if node.needs[1] else None)


@rule("ldexp", inputs=True, outputs=True)
def _ldexp(node: Node, gradient: Any) -> tuple[Any, ...]:
    left = reduced_to_operand(node, 0, special.ldexp(gradient, node.input(1))) if node.needs[0] else None
    right = reduced_to_operand(node, 1, gradient * node.output(0) * math.log(2)) if node.needs[1] else None
    return left, right


@rule("xlog1py", inputs=True)
def _xlog1py(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.input(1)
    left = None
    if node.needs[0]:
        slope = y.log1p() if hasattr(y, "log1p") else _log1p_of(y)  # y may be a Python number
        # at x = 0 the gradient is 0 for y <= -1, where log1p(y) is -infinity or NaN
        left = reduced_to_operand(node, 0, where((x == 0) & (y <= -1), 0.0, gradient * slope))
    return left, (reduced_to_operand(node, 1, gradient * x / (y + 1)) if node.needs[1] else None)


def _log1p_of(number: float) -> float:
    """Return log(1 + number) of a Python number as `Tensor.log1p` computes it: -inf for -1, NaN for numbers below."""
    return math.log1p(number) if number > -1 else -math.inf if number == -1 else math.nan
