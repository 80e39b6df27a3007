"""Elementwise operations with one operand: math functions, rounding, predicates, activations.

Results have the operand's shape. Functions that are only defined for floats convert integers to f32. 16-bit floats are
computed in f32 and rounded once.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from vkjit import dtypes, lang
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError
from vkjit.stdlib.elementwise import functions

from ..dispatch import operation
from ..memory import as_int
from ..tensor import Tensor
from .elementwise_launch import arithmetic_type, run_map

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "cos",
    "cosh",
    "elu",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "gelu",
    "isfinite",
    "isinf",
    "isnan",
    "leaky_relu",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_not",
    "logsigmoid",
    "neg",
    "positive",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip

builtin_abs = builtins.abs  # the name `abs` is the tensor function in this module
Unary = Callable[[Tensor], Tensor]


def checked(x: Any, name: str) -> Tensor:
    """Return the operand. Raises ArgumentError if it isn't a tensor."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name}() takes a tensor, found {type(x).__name__}: make one with vk.tensor(...)")
    return x


def float_type(dtype: DType) -> DType:
    """Return `dtype` if it is a float type, else f32: the result type of functions defined on floats only."""
    return dtype if dtype.is_float else dtypes.f32


def _floats(name: str, function: Any, meaning: str) -> Unary:
    """Make the operation `name`, whose result is always a float: of the operand's type, or f32 for integers and bool.

    `function` is the device function applied to each element; `meaning` completes the docstring "Return ...".
    """

    def forward(x: Tensor) -> Tensor:
        result = float_type(checked(x, name).dtype)
        return run_map(function, (x,), result, arithmetic_type(result))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Return {meaning}, elementwise; integers give f32."
    return operation(name, replayable=True)(forward)


exp = _floats("exp", lang.exp, "e ** x")
exp2 = _floats("exp2", lang.exp2, "2 ** x")
expm1 = _floats("expm1", lang.expm1, "exp(x) - 1, accurate near 0")
log = _floats("log", lang.log, "the natural logarithm")
log2 = _floats("log2", lang.log2, "the logarithm to base 2")
log10 = _floats("log10", lang.log10, "the logarithm to base 10")
log1p = _floats("log1p", lang.log1p, "log(1 + x), accurate near 0")
sqrt = _floats("sqrt", lang.sqrt, "the square root")
rsqrt = _floats("rsqrt", lang.rsqrt, "1 / sqrt(x)")
sin = _floats("sin", lang.sin, "the sine of x in radians")
cos = _floats("cos", lang.cos, "the cosine of x in radians")
tan = _floats("tan", lang.tan, "the tangent of x in radians")
asin = _floats("asin", lang.asin, "the arc sine in radians")
acos = _floats("acos", lang.acos, "the arc cosine in radians")
atan = _floats("atan", lang.atan, "the arc tangent in radians")
sinh = _floats("sinh", lang.sinh, "the hyperbolic sine")
cosh = _floats("cosh", lang.cosh, "the hyperbolic cosine")
tanh = _floats("tanh", lang.tanh, "the hyperbolic tangent")
asinh = _floats("asinh", lang.asinh, "the inverse hyperbolic sine")
acosh = _floats("acosh", lang.acosh, "the inverse hyperbolic cosine")
atanh = _floats("atanh", lang.atanh, "the inverse hyperbolic tangent")
erf = _floats("erf", lang.erf, "the error function")
erfc = _floats("erfc", lang.erfc, "1 - erf(x), accurate for large x")
sigmoid = _floats("sigmoid", lang.sigmoid, "1 / (1 + exp(-x)), without overflow")
reciprocal = _floats("reciprocal", functions.reciprocal, "1 / x")
silu = _floats("silu", functions.silu, "x * sigmoid(x)")


def _same(name: str, function: Any, meaning: str, *, integers: bool = True) -> Unary:
    """Make the operation `name`, which keeps the operand's type; parameters as for `_floats`.

    With `integers=False`, integers are copied unchanged, for functions that round to integers.
    """

    def forward(x: Tensor) -> Tensor:
        dtype = checked(x, name).dtype
        if dtype.kind == "bool":
            raise DTypeError(f"{name}() has no meaning for bool: convert with .to(vk.i32), or use logical_not()")
        applied = function if integers or dtype.is_float else functions.identity
        return run_map(applied, (x,), dtype, arithmetic_type(dtype))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Return {meaning}, elementwise, in x's type."
    return operation(name, replayable=True)(forward)


neg = _same("neg", functions.neg, "-x")
positive = _same("positive", functions.identity, "a copy of x")
_square = _same("square", functions.square, "x * x")
relu = _same("relu", functions.relu, "max(x, 0), NaN for NaN")
_sign = _same("sign", functions.sign_of, "-1, 0 or 1 by sign, 0 for NaN")
floor = _same("floor", lang.floor, "the greatest integral value not above x", integers=False)
ceil = _same("ceil", lang.ceil, "the least integral value not below x", integers=False)
trunc = _same("trunc", lang.trunc, "x truncated to an integral value", integers=False)
_round = _same("round", lang.round, "the nearest integral value, halves to even", integers=False)


def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1 according to the sign, elementwise. NaN gives 0, as in PyTorch; bool is copied."""
    return x.clone() if checked(x, "sign").dtype.kind == "bool" else _sign(x)


def square(x: Tensor) -> Tensor:
    """Return x * x, elementwise, in x's type; bool gives i64."""
    return _square(x.to(dtypes.i64) if checked(x, "square").dtype.kind == "bool" else x)


def round(x: Tensor, *, decimals: int = 0) -> Tensor:
    """Round to `decimals` decimal places (negative: to tens, hundreds...), halves to even, elementwise."""
    if as_int(decimals, "round(decimals=)") == 0 or not checked(x, "round").dtype.is_float:
        return _round(x)
    scale = 10.0 ** builtin_abs(decimals) if builtin_abs(decimals) < 309 else math.inf  # then NaN, as in PyTorch
    return _round(x * scale) / scale if decimals > 0 else _round(x / scale) * scale


@operation("abs", replayable=True)
def abs(x: Tensor) -> Tensor:
    """Return the absolute value, elementwise; unsigned integers are copied."""
    dtype = checked(x, "abs").dtype
    if dtype.kind == "bool":
        raise DTypeError("abs() has no meaning for bool: convert with .to(vk.i32)")
    applied = functions.identity if dtype.kind == "uint" else lang.abs
    return run_map(applied, (x,), dtype, arithmetic_type(dtype))


def _predicate(name: str, function: Any, meaning: str) -> Unary:
    """Make the operation `name` with a bool result; parameters as for `_floats`."""

    def forward(x: Tensor) -> Tensor:
        compute = arithmetic_type(float_type(checked(x, name).dtype))
        return run_map(function, (x,), dtypes.boolean, compute)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Return a bool tensor that is True where {meaning}, elementwise."
    return operation(name, replayable=True)(forward)


isnan = _predicate("isnan", lang.isnan, "x is NaN")
isinf = _predicate("isinf", lang.isinf, "x is infinite")
isfinite = _predicate("isfinite", lang.isfinite, "x is neither NaN nor infinite")


@operation("logical_not", replayable=True)
def logical_not(x: Tensor) -> Tensor:
    """Return a bool tensor that is True where x is 0 or False, elementwise."""
    return run_map(functions.logical_not, (x,), dtypes.boolean, arithmetic_type(checked(x, "logical_not").dtype))


@operation("bitwise_not", replayable=True)
def bitwise_not(x: Tensor) -> Tensor:
    """Return the bitwise complement of integers, or the logical negation of bool, elementwise."""
    dtype = checked(x, "bitwise_not").dtype
    if dtype.is_float:
        raise DTypeError(f"bitwise_not() takes integers or bool, found {dtype!r}")
    return run_map(functions.bitwise_not, (x,), dtype, dtype)


def frac(x: Tensor) -> Tensor:
    """Return x - trunc(x), elementwise."""
    return x - trunc(x)


# -- activations with parameters


@operation("gelu", replayable=True)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Return x times the standard normal CDF at x; `approximate="tanh"` selects the tanh approximation."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'gelu(approximate=...) is "none" or "tanh", found {approximate!r}')
    result = float_type(checked(x, "gelu").dtype)
    function = functions.gelu_erf if approximate == "none" else functions.gelu_tanh
    return run_map(function, (x,), result, arithmetic_type(result))


@operation("softplus", replayable=True)
def softplus(x: Tensor, *, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds `threshold`."""
    result = float_type(checked(x, "softplus").dtype)
    return run_map(
        functions.softplus, (x, beta, threshold), result, arithmetic_type(result), first=arithmetic_type(result)
    )


@operation("elu", replayable=True)
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return x where it is positive, else alpha * (exp(x) - 1)."""
    result = float_type(checked(x, "elu").dtype)
    return run_map(functions.elu, (x, alpha), result, arithmetic_type(result))


@operation("leaky_relu", replayable=True)
def leaky_relu(x: Tensor, *, negative_slope: float = 0.01) -> Tensor:
    """Return x where it is positive, else negative_slope * x."""
    result = float_type(checked(x, "leaky_relu").dtype)
    return run_map(functions.leaky_relu, (x, negative_slope), result, arithmetic_type(result))


def logsigmoid(x: Tensor) -> Tensor:
    """Return log(sigmoid(x)), without overflow."""
    return -softplus(-x)


# -- gradients of activations, each in one kernel


def _gradient(name: str, function: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Make the operation `name`, which computes the gradient of an activation's input.

    Its first operand is the gradient of the activation's result. Its second operand is the activation's input or its
    result, whichever the device function `function` takes.
    """

    def forward(gradient: Tensor, x: Tensor) -> Tensor:
        return run_map(function, (gradient, x), gradient.dtype, arithmetic_type(gradient.dtype))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = "Return an activation's input gradient, given that of its result, and its input or result."
    return operation(name, replayable=True)(forward)


relu_grad = _gradient("relu_grad", functions.relu_grad)
sigmoid_grad = _gradient("sigmoid_grad", functions.sigmoid_grad)
tanh_grad = _gradient("tanh_grad", functions.tanh_grad)
silu_grad = _gradient("silu_grad", functions.silu_grad)
gelu_erf_grad = _gradient("gelu_erf_grad", functions.gelu_erf_grad)
gelu_tanh_grad = _gradient("gelu_tanh_grad", functions.gelu_tanh_grad)


@operation("leaky_relu_grad", replayable=True)
def leaky_relu_grad(gradient: Tensor, x: Tensor, *, negative_slope: float) -> Tensor:
    """Return the input gradient of leaky_relu, given the gradient of its result and its input x."""
    compute = arithmetic_type(gradient.dtype)
    return run_map(functions.leaky_relu_grad, (gradient, x, negative_slope), gradient.dtype, compute, first=compute)
