"""Gradient rules of elementwise operations with one operand (see `vkjit.tensor.derivatives`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..autograd.rules import rule
from ..autograd.tape import Node
from ..ops import arithmetic, elementwise
from ..ops.creation import zeros_like

LN2, LN10 = math.log(2), math.log(10)
TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _register_from_input(name: str, slope: Callable[[Any, Any], Any]) -> None:
    """Register the rule of operation `name`: slope(gradient, x) is the gradient of the operand x."""

    @rule(name, inputs=True)
    def _(node: Node, gradient: Any) -> tuple[Any, ...]:
        return (slope(gradient, node.input(0)),)


def _register_from_output(name: str, slope: Callable[[Any, Any], Any]) -> None:
    """Register the rule of operation `name`: slope(gradient, y) is the operand's gradient, y the operation's result."""

    @rule(name, outputs=True)
    def _(node: Node, gradient: Any) -> tuple[Any, ...]:
        return (slope(gradient, node.output(0)),)


def _register_zero(name: str) -> None:
    """Register a zero gradient as the rule of operation `name`, which is piecewise constant."""

    @rule(name)
    def _(_node: Node, gradient: Any) -> tuple[Any, ...]:
        return (zeros_like(gradient),)


_register_from_output("exp", lambda g, y: g * y)
_register_from_output("exp2", lambda g, y: g * y * LN2)
_register_from_output("expm1", lambda g, y: g * (y + 1))
_register_from_input("log", lambda g, x: g / x)
_register_from_input("log2", lambda g, x: g / (x * LN2))
_register_from_input("log10", lambda g, x: g / (x * LN10))
_register_from_input("log1p", lambda g, x: g / (x + 1))
_register_from_output("sqrt", lambda g, y: g / (y * 2))
_register_from_output("rsqrt", lambda g, y: g * y * y * y * -0.5)
_register_from_input("sin", lambda g, x: g * x.cos())
_register_from_input("cos", lambda g, x: g * -x.sin())
_register_from_output("tan", lambda g, y: g * (y * y + 1))
_register_from_input("asin", lambda g, x: g * (1 - x * x).rsqrt())
_register_from_input("acos", lambda g, x: g * -(1 - x * x).rsqrt())
_register_from_input("atan", lambda g, x: g / (x * x + 1))
_register_from_input("sinh", lambda g, x: g * x.cosh())
_register_from_input("cosh", lambda g, x: g * x.sinh())
_register_from_input("asinh", lambda g, x: g * (x * x + 1).rsqrt())
_register_from_input("acosh", lambda g, x: g * (x * x - 1).rsqrt())
_register_from_input("atanh", lambda g, x: g / (1 - x * x))
_register_from_input("erf", lambda g, x: g * TWO_OVER_ROOT_PI * (-(x * x)).exp())
_register_from_input("erfc", lambda g, x: g * -TWO_OVER_ROOT_PI * (-(x * x)).exp())
_register_from_input("logit", lambda g, x: g / (x * (1 - x)))
_register_from_output("reciprocal", lambda g, y: -g * y * y)
_register_from_input("square", lambda g, x: g * x * 2)
_register_from_input("abs", lambda g, x: g * x.sign())
for _name in ("floor", "ceil", "trunc", "round", "sign"):
    _register_zero(_name)

_register_from_output("relu", elementwise.relu_grad)
_register_from_output("sigmoid", elementwise.sigmoid_grad)
_register_from_output("tanh", elementwise.tanh_grad)
_register_from_input("silu", elementwise.silu_grad)


@rule("neg")
def _neg(_node: Node, gradient: Any) -> tuple[Any, ...]:
    return (-gradient,)


@rule("positive")
def _positive(_node: Node, gradient: Any) -> tuple[Any, ...]:
    return (gradient,)


@rule("gelu", inputs=True)
def _gelu(node: Node, gradient: Any) -> tuple[Any, ...]:
    exact = node.params.get("approximate", "none") == "none"
    slope = elementwise.gelu_erf_grad if exact else elementwise.gelu_tanh_grad
    return (slope(gradient, node.input(0)),)


@rule("softplus", inputs=True)
def _softplus(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, beta = node.input(0), node.params.get("beta", 1.0)
    z = x * beta
    return (arithmetic.where(z > node.params.get("threshold", 20.0), gradient, gradient * z.sigmoid()),)


@rule("elu", inputs=True)
def _elu(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, alpha = node.input(0), node.params.get("alpha", 1.0)
    return (arithmetic.where(x > 0, gradient, gradient * (x.clamp(max=0.0).exp() * alpha)),)


@rule("leaky_relu", inputs=True)
def _leaky_relu(node: Node, gradient: Any) -> tuple[Any, ...]:
    slope = node.params.get("negative_slope", 0.01)
    return (elementwise.leaky_relu_grad(gradient, node.input(0), negative_slope=slope),)


# -- second derivatives: rules of the operations `*_grad`, which the rules above call
# Their operands are g, the gradient of the activation's result, and the activation's operand x or its result y. The
# gradient of g is the operation itself applied to `gradient`; the other gradient is gradient * g * (second derivative).


@rule("relu_grad", inputs=True)
def _relu_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    return elementwise.relu_grad(gradient, node.input(1)), None


@rule("leaky_relu_grad", inputs=True)
def _leaky_relu_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    return elementwise.leaky_relu_grad(gradient, node.input(1), **node.params), None


@rule("sigmoid_grad", inputs=True)
def _sigmoid_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    g, y = node.input(0), node.input(1)
    return elementwise.sigmoid_grad(gradient, y), gradient * g * (1 - y * 2)


@rule("tanh_grad", inputs=True)
def _tanh_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    g, y = node.input(0), node.input(1)
    return elementwise.tanh_grad(gradient, y), gradient * g * y * -2


@rule("silu_grad", inputs=True)
def _silu_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    g, x = node.input(0), node.input(1)
    s = x.sigmoid()
    slope = s * (1 - s)
    return elementwise.silu_grad(gradient, x), gradient * g * slope * (x * (1 - s * 2) + 2)


@rule("gelu_erf_grad", inputs=True)
def _gelu_erf_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    g, x = node.input(0), node.input(1)
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return elementwise.gelu_erf_grad(gradient, x), gradient * g * density * (2 - x * x)


@rule("gelu_tanh_grad", inputs=True)
def _gelu_tanh_grad(node: Node, gradient: Any) -> tuple[Any, ...]:
    g, x = node.input(0), node.input(1)
    # gelu(x) = x / 2 * (1 + tanh(u)) with u = root * (x + cubic * x**3); `u_first` and `u_second` are u's derivatives
    root, cubic = math.sqrt(2 / math.pi), 0.044715
    t = ((x + x * x * x * cubic) * root).tanh()
    u_first, u_second = (x * x * (3 * cubic) + 1) * root, x * (6 * cubic * root)
    sech_squared = 1 - t * t
    second = sech_squared * u_first + x * sech_squared * (u_second - t * u_first * u_first * 2) * 0.5
    return elementwise.gelu_tanh_grad(gradient, x), gradient * g * second
