"""Gradient rules of elementwise operations with two or three operands (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

import math
import operator
from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops.arithmetic import div, where
from ..ops.creation import zeros_like
from .common import reduced_to_operand


@rule("add")
def _add(node: Node, gradient: Any) -> tuple[Any, ...]:
    alpha = node.params.get("alpha", 1)
    return reduced_to_operand(node, 0, gradient), _scaled(node, 1, gradient, alpha)


@rule("sub")
def _sub(node: Node, gradient: Any) -> tuple[Any, ...]:
    alpha = node.params.get("alpha", 1)
    return reduced_to_operand(node, 0, gradient), _scaled(node, 1, gradient, -alpha)


def _scaled(node: Node, position: int, gradient: Any, factor: float) -> Any:
    """Return gradient * factor, summed to the shape of the operand at `position`; None if it needs no gradient."""
    if not node.needs[position]:
        return None
    summed = reduced_to_operand(node, position, gradient)
    return summed if factor == 1 else -summed if factor == -1 else summed * factor


@rule("mul", inputs=True)
def _mul(node: Node, gradient: Any) -> tuple[Any, ...]:
    left = reduced_to_operand(node, 0, gradient * node.input(1)) if node.needs[0] else None
    right = reduced_to_operand(node, 1, gradient * node.input(0)) if node.needs[1] else None
    return left, right


@rule("true_divide", inputs=True)
def _true_divide(node: Node, gradient: Any) -> tuple[Any, ...]:
    divisor = node.input(1)
    left = reduced_to_operand(node, 0, gradient / divisor) if node.needs[0] else None
    if not node.needs[1]:
        return left, None
    # divided twice: the divisor's square may be out of range
    return left, reduced_to_operand(node, 1, -gradient * (node.input(0) / divisor / divisor))


@rule("pow", inputs=True)
def _pow(node: Node, gradient: Any) -> tuple[Any, ...]:
    base_gradient = exponent_gradient = None
    exponent = node.input(1)
    if node.needs[0]:
        base_gradient = reduced_to_operand(node, 0, _power_slope(gradient, node.input(0), exponent))
    if node.needs[1]:
        base: Any = node.input(0)
        result = base**exponent
        # the derivative is result * log(base), but 0 for a base of 0 and for a negative Python number; the inner
        # `where` avoids log(0), since -inf in the unused branch would become NaN in second derivatives
        if isinstance(base, (int, float)):
            slope = result * (math.log(base) if base > 0 else 0.0)
        else:
            slope = where(base == 0, 0.0, result * where(base == 0, 1.0, base).log())
        exponent_gradient = reduced_to_operand(node, 1, gradient * slope)
    return base_gradient, exponent_gradient


def _power_slope(gradient: Any, base: Any, exponent: Any) -> Any:
    """Return the gradient of the base: gradient * exponent * base ** (exponent - 1), 0 where the exponent is 0."""
    if isinstance(exponent, (int, float)):
        if exponent == 0:
            return zeros_like(gradient)
        return gradient * exponent if exponent == 1 else gradient * (base ** (exponent - 1) * exponent)
    # the inner `where` avoids 0 ** -1 in the branch that isn't used
    return gradient * where(exponent == 0, 0.0, exponent * base ** where(exponent == 0, 1.0, exponent - 1))


def _register_min_max(name: str, comparison: str) -> None:
    """Register the rule of the binary minimum or maximum `name`.

    The selected operand gets the gradient; two equal operands get half of it each. `comparison`, "gt" or "lt", holds
    between the selected operand and the other.
    """

    @rule(name, inputs=True)
    def _(node: Node, gradient: Any) -> tuple[Any, ...]:
        a, b = node.input(0), node.input(1)
        half = gradient * 0.5
        tie = a == b

        def share(operand: Any, other: Any) -> Any:
            """Return the gradient of `operand`."""
            # False if either operand is NaN: then both get the full gradient
            loses = getattr(operand, _OPPOSITE[comparison])(other)
            return where(loses, 0.0, where(tie, half, gradient))

        left = reduced_to_operand(node, 0, share(a, b)) if node.needs[0] else None
        return left, (reduced_to_operand(node, 1, share(b, a)) if node.needs[1] else None)


_OPPOSITE = {"gt": "lt", "lt": "gt"}
for _name, _comparison in (("maximum", "gt"), ("minimum", "lt")):
    _register_min_max(_name, _comparison)


def _register_min_max_of_numbers(name: str, selects_first: Any) -> None:
    """Register the rule of `name`, "fmax" or "fmin": only the selected operand gets the gradient.

    Of two equal operands the first is selected, as in PyTorch. `selects_first(a, b)` is True where a is selected, if
    neither is NaN.
    """

    @rule(name, inputs=True)
    def _(node: Node, gradient: Any) -> tuple[Any, ...]:
        a, b = node.input(0), node.input(1)
        is_first = selects_first(a, b) | (b != b)
        left = reduced_to_operand(node, 0, where(is_first, gradient, 0.0)) if node.needs[0] else None
        return left, (reduced_to_operand(node, 1, where(is_first, 0.0, gradient)) if node.needs[1] else None)


_register_min_max_of_numbers("fmax", operator.ge)
_register_min_max_of_numbers("fmin", operator.le)


@rule("remainder", inputs=True)
def _remainder(node: Node, gradient: Any) -> tuple[Any, ...]:
    left = reduced_to_operand(node, 0, gradient)
    if not node.needs[1]:
        return left, None
    return left, reduced_to_operand(node, 1, -gradient * div(node.input(0), node.input(1), rounding_mode="floor"))


@rule("fmod", inputs=True)
def _fmod(node: Node, gradient: Any) -> tuple[Any, ...]:
    left = reduced_to_operand(node, 0, gradient)
    if not node.needs[1]:
        return left, None
    return left, reduced_to_operand(node, 1, -gradient * div(node.input(0), node.input(1), rounding_mode="trunc"))


@rule("floor_divide")
def _floor_divide(node: Node, gradient: Any) -> tuple[Any, ...]:
    return tuple(reduced_to_operand(node, i, zeros_like(gradient)) for i in range(2))


@rule("trunc_divide")
def _trunc_divide(node: Node, gradient: Any) -> tuple[Any, ...]:
    return tuple(reduced_to_operand(node, i, zeros_like(gradient)) for i in range(2))


@rule("atan2", inputs=True)
def _atan2(node: Node, gradient: Any) -> tuple[Any, ...]:
    y, x = node.input(0), node.input(1)
    square = x * x + y * y
    scaled = where(square == 0, 0.0, gradient / square)  # 0 at the origin, as in PyTorch
    left = reduced_to_operand(node, 0, scaled * x) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, -scaled * y) if node.needs[1] else None)


@rule("hypot", inputs=True, outputs=True)
def _hypot(node: Node, gradient: Any) -> tuple[Any, ...]:
    result = node.output(0)  # the quotients are at most 1; gradient / result may be out of range
    left = reduced_to_operand(node, 0, gradient * (node.input(0) / result)) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, gradient * (node.input(1) / result)) if node.needs[1] else None)


@rule("copysign", inputs=True, outputs=True)
def _copysign(node: Node, gradient: Any) -> tuple[Any, ...]:
    left = None
    if node.needs[0]:
        x, y = node.input(0), node.output(0)
        # the result y is x or -x, so the gradient of x is gradient or -gradient, but 0 at 0
        slope = where(x == y, gradient, where(x == -y, -gradient, math.nan))  # NaN differs from both
        left = reduced_to_operand(node, 0, where(x == 0, 0.0, slope))
    return left, reduced_to_operand(node, 1, zeros_like(gradient))


@rule("xlogy", inputs=True)
def _xlogy(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y = node.input(0), node.input(1)
    left = None
    if node.needs[0]:
        slope = y.log() if hasattr(y, "log") else _log_of(y)  # y may be a Python number
        left = reduced_to_operand(node, 0, where((x == 0) & (y <= 0), 0.0, gradient * slope))
    return left, (reduced_to_operand(node, 1, gradient * x / y) if node.needs[1] else None)


def _log_of(number: float) -> float:
    """Return the logarithm of a Python number as `Tensor.log` computes it: -inf for 0, NaN for negative numbers."""
    return math.log(number) if number > 0 else -math.inf if number == 0 else math.nan


@rule("where", inputs=True)
def _where(node: Node, gradient: Any) -> tuple[Any, ...]:
    condition = node.input(0)
    of_x = reduced_to_operand(node, 1, where(condition, gradient, 0.0)) if node.needs[1] else None
    return None, of_x, (reduced_to_operand(node, 2, where(condition, 0.0, gradient)) if node.needs[2] else None)


@rule("clamp", inputs=True)
def _clamp(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, low, high = (node.input(i) for i in range(3))
    inside = (x >= low) & (x <= high)
    # where low > high, the result is high
    of_x = reduced_to_operand(node, 0, where(inside, gradient, 0.0)) if node.needs[0] else None
    of_low = reduced_to_operand(node, 1, where((x < low) & (low < high), gradient, 0.0)) if node.needs[1] else None
    of_high = reduced_to_operand(node, 2, where((x > high) | (high < low), gradient, 0.0)) if node.needs[2] else None
    return of_x, of_low, of_high


@rule("clamp_low", inputs=True)
def _clamp_low(node: Node, gradient: Any) -> tuple[Any, ...]:
    inside = node.input(0) >= node.input(1)
    left = reduced_to_operand(node, 0, where(inside, gradient, 0.0)) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, where(inside, 0.0, gradient)) if node.needs[1] else None)


@rule("clamp_high", inputs=True)
def _clamp_high(node: Node, gradient: Any) -> tuple[Any, ...]:
    inside = node.input(0) <= node.input(1)
    left = reduced_to_operand(node, 0, where(inside, gradient, 0.0)) if node.needs[0] else None
    return left, (reduced_to_operand(node, 1, where(inside, 0.0, gradient)) if node.needs[1] else None)


@rule("lerp", inputs=True)
def _lerp(node: Node, gradient: Any) -> tuple[Any, ...]:
    start, end, weight = (node.input(i) for i in range(3))
    of_start = reduced_to_operand(node, 0, gradient * (1 - weight)) if node.needs[0] else None
    of_end = reduced_to_operand(node, 1, gradient * weight) if node.needs[1] else None
    return of_start, of_end, (reduced_to_operand(node, 2, gradient * (end - start)) if node.needs[2] else None)


@rule("masked_fill", inputs=True)
def _masked_fill(node: Node, gradient: Any) -> tuple[Any, ...]:
    mask = node.input(1)
    of_x = reduced_to_operand(node, 0, where(mask, 0.0, gradient)) if node.needs[0] else None
    return of_x, None, (reduced_to_operand(node, 2, where(mask, gradient, 0.0)) if node.needs[2] else None)
