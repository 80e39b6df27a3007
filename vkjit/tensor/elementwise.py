"""Elementwise operations of one operand: functions, rounding, predicates, activations.

Enters: tensors. Leaves: new tensors of the same shape; integers become f32 where only floats make sense. 16-bit floats
are computed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes, lang
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..stdlib import functions
from .dispatch import operation
from .maps import arithmetic_type, run_map
from .tensor import Tensor

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
    "logit",
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

builtin_abs = abs
Unary = Callable[[Tensor], Tensor]


def checked(x: Any, name: str) -> Tensor:
    """The operand, which must be a tensor."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name}() takes a tensor, found {type(x).__name__}: make one with vk.tensor(...)")
    return x


def float_type(dtype: DType) -> DType:
    """The type of results that are floats by nature."""
    return dtype if dtype.is_float else dtypes.f32


def _floats(name: str, function: Any, meaning: str) -> Unary:
    """An operation whose result is a float whatever it is given."""

    def forward(x: Tensor) -> Tensor:
        result = float_type(checked(x, name).dtype)
        return run_map(function, (x,), result, arithmetic_type(result))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"{meaning}, elementwise; integers give f32."
    return operation(name, repeated=True)(forward)


exp = _floats("exp", lang.exp, "e ** x")
exp2 = _floats("exp2", lang.exp2, "2 ** x")
expm1 = _floats("expm1", lang.expm1, "exp(x) - 1, exact near 0")
log = _floats("log", lang.log, "The natural logarithm")
log2 = _floats("log2", lang.log2, "The logarithm to base 2")
log10 = _floats("log10", lang.log10, "The logarithm to base 10")
log1p = _floats("log1p", lang.log1p, "log(1 + x), exact near 0")
sqrt = _floats("sqrt", lang.sqrt, "The square root")
rsqrt = _floats("rsqrt", lang.rsqrt, "1 / sqrt(x)")
sin = _floats("sin", lang.sin, "The sine of x in radians")
cos = _floats("cos", lang.cos, "The cosine of x in radians")
tan = _floats("tan", lang.tan, "The tangent of x in radians")
asin = _floats("asin", lang.asin, "The arc sine in radians")
acos = _floats("acos", lang.acos, "The arc cosine in radians")
atan = _floats("atan", lang.atan, "The arc tangent in radians")
sinh = _floats("sinh", lang.sinh, "The hyperbolic sine")
cosh = _floats("cosh", lang.cosh, "The hyperbolic cosine")
tanh = _floats("tanh", lang.tanh, "The hyperbolic tangent")
asinh = _floats("asinh", lang.asinh, "The inverse hyperbolic sine")
acosh = _floats("acosh", lang.acosh, "The inverse hyperbolic cosine")
atanh = _floats("atanh", lang.atanh, "The inverse hyperbolic tangent")
erf = _floats("erf", lang.erf, "The error function")
erfc = _floats("erfc", lang.erfc, "1 - erf(x), exact for large x")
sigmoid = _floats("sigmoid", lang.sigmoid, "1 / (1 + exp(-x)), without overflow")
_logit = _floats("logit", functions.logit, "log(x / (1 - x))")
reciprocal = _floats("reciprocal", functions.reciprocal, "1 / x")
silu = _floats("silu", functions.silu, "x * sigmoid(x)")


def _same(name: str, function: Any, meaning: str, *, integers: bool = True) -> Unary:
    """An operation that keeps the type; with `integers=False` integers are returned as they are, copied."""

    def forward(x: Tensor) -> Tensor:
        dtype = checked(x, name).dtype
        if dtype.kind == "bool":
            raise DTypeError(f"{name}() has no meaning for bool: convert with .to(vk.i32), or use logical_not()")
        applied = function if integers or dtype.is_float else functions.identity
        return run_map(applied, (x,), dtype, arithmetic_type(dtype))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"{meaning}, elementwise; the type stays."
    return operation(name, repeated=True)(forward)


neg = _same("neg", functions.neg, "-x")
positive = _same("positive", functions.identity, "x, copied")
_square = _same("square", functions.square, "x * x")
relu = _same("relu", functions.relu, "max(x, 0); NaN stays")
_sign = _same("sign", functions.sign_of, "-1, 0 or 1 by sign; 0 of NaN")
floor = _same("floor", lang.floor, "The greatest integral value that isn't above x", integers=False)
ceil = _same("ceil", lang.ceil, "The least integral value that isn't below x", integers=False)
trunc = _same("trunc", lang.trunc, "x without its fraction", integers=False)
_round = _same("round", lang.round, "The nearest integral value, halves to even", integers=False)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 by sign, elementwise; 0 of NaN, as in PyTorch; bool stays."""
    return x.clone() if checked(x, "sign").dtype.kind == "bool" else _sign(x)


def square(x: Tensor) -> Tensor:
    """x * x, elementwise; the type stays, bool gives i64."""
    return _square(x.to(dtypes.i64) if checked(x, "square").dtype.kind == "bool" else x)


def round(x: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest value with so many decimals (negative: tens, hundreds...), halves to even, elementwise."""
    if decimals == 0 or not checked(x, "round").dtype.is_float:
        return _round(x)
    scale = 10.0 ** builtin_abs(decimals)
    return _round(x * scale) / scale if decimals > 0 else _round(x / scale) * scale


@operation("abs", repeated=True)
def abs(x: Tensor) -> Tensor:
    """The absolute value, elementwise; unsigned integers are copied."""
    dtype = checked(x, "abs").dtype
    if dtype.kind == "bool":
        raise DTypeError("abs() has no meaning for bool: convert with .to(vk.i32)")
    applied = functions.identity if dtype.kind == "uint" else lang.abs
    return run_map(applied, (x,), dtype, arithmetic_type(dtype))


def _predicate(name: str, function: Any, meaning: str) -> Unary:
    def forward(x: Tensor) -> Tensor:
        compute = arithmetic_type(float_type(checked(x, name).dtype))
        return run_map(function, (x,), dtypes.boolean, compute)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"{meaning}, elementwise, as bool."
    return operation(name, repeated=True)(forward)


isnan = _predicate("isnan", lang.isnan, "Whether x is NaN")
isinf = _predicate("isinf", lang.isinf, "Whether x is an infinity")
isfinite = _predicate("isfinite", lang.isfinite, "Whether x is neither NaN nor an infinity")


@operation("logical_not", repeated=True)
def logical_not(x: Tensor) -> Tensor:
    """Whether x is 0 or False, elementwise, as bool."""
    return run_map(functions.logical_not, (x,), dtypes.boolean, arithmetic_type(checked(x, "logical_not").dtype))


@operation("bitwise_not", repeated=True)
def bitwise_not(x: Tensor) -> Tensor:
    """The complement of integers, elementwise; `not` for bool."""
    dtype = checked(x, "bitwise_not").dtype
    if dtype.is_float:
        raise DTypeError(f"bitwise_not() takes integers or bool, found {dtype!r}")
    return run_map(functions.bitwise_not, (x,), dtype, dtype)


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), elementwise; with eps x is limited to [eps, 1 - eps] first."""
    if eps is None:
        return _logit(x)
    from .arithmetic import clamp

    return _logit(clamp(x if checked(x, "logit").dtype.is_float else x.to(dtypes.f32), eps, 1 - eps))


def frac(x: Tensor) -> Tensor:
    """x - trunc(x), elementwise."""
    return x - trunc(x)


# -- activations with parameters


@operation("gelu", repeated=True)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution's cumulative function at x; `approximate="tanh"` for the tanh form."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'gelu(approximate=...) is "none" or "tanh", found {approximate!r}')
    result = float_type(checked(x, "gelu").dtype)
    function = functions.gelu_erf if approximate == "none" else functions.gelu_tanh
    return run_map(function, (x,), result, arithmetic_type(result))


@operation("softplus", repeated=True)
def softplus(x: Tensor, *, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
    result = float_type(checked(x, "softplus").dtype)
    return run_map(
        functions.softplus, (x, beta, threshold), result, arithmetic_type(result), first=arithmetic_type(result)
    )


@operation("elu", repeated=True)
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha (exp(x) - 1)."""
    result = float_type(checked(x, "elu").dtype)
    return run_map(functions.elu, (x, alpha), result, arithmetic_type(result))


@operation("leaky_relu", repeated=True)
def leaky_relu(x: Tensor, *, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, else negative_slope x."""
    result = float_type(checked(x, "leaky_relu").dtype)
    return run_map(functions.leaky_relu, (x, negative_slope), result, arithmetic_type(result))


def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    return -softplus(-x)


# -- gradients of activations, in one pass each


def _gradient(name: str, function: Any) -> Callable[[Tensor, Tensor], Tensor]:
    def forward(gradient: Tensor, x: Tensor) -> Tensor:
        return run_map(function, (gradient, x), gradient.dtype, arithmetic_type(gradient.dtype))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = "The gradient of an activation's input from its result's and from the input or result."
    return operation(name, repeated=True)(forward)


relu_grad = _gradient("relu_grad", functions.relu_grad)
sigmoid_grad = _gradient("sigmoid_grad", functions.sigmoid_grad)
tanh_grad = _gradient("tanh_grad", functions.tanh_grad)
silu_grad = _gradient("silu_grad", functions.silu_grad)
gelu_erf_grad = _gradient("gelu_erf_grad", functions.gelu_erf_grad)
gelu_tanh_grad = _gradient("gelu_tanh_grad", functions.gelu_tanh_grad)


@operation("leaky_relu_grad", repeated=True)
def leaky_relu_grad(gradient: Tensor, x: Tensor, *, negative_slope: float) -> Tensor:
    """The gradient of leaky_relu's input."""
    compute = arithmetic_type(gradient.dtype)
    return run_map(functions.leaky_relu_grad, (gradient, x, negative_slope), gradient.dtype, compute, first=compute)
