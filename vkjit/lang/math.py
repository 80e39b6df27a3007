"""Elementwise functions of scalars, vectors and tiles.

Functions that are defined only for floats convert integer arguments to floats. The language reference lists error
bounds. In kernels, `math.exp`, `np.exp` and the like denote the same functions as `vk.exp`.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cdiv",
    "ceil",
    "clamp",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "ctz",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "min",
    "popcount",
    "pow",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncrem",
    "where",
]


@kernel_only
def abs(x: Any) -> Any:
    """Return the absolute value; the lowest integer of a type wraps to itself."""


@kernel_only
def sign(x: Any) -> Any:
    """Return the sign of x: -1, 0 or 1. The result for NaN is NaN."""


@kernel_only
def floor(x: Any) -> Any:
    """Return the largest integral value not above x, as a float."""


@kernel_only
def ceil(x: Any) -> Any:
    """Return the smallest integral value not below x, as a float."""


@kernel_only
def trunc(x: Any) -> Any:
    """Return x without its fraction, as a float."""


@kernel_only
def round(x: Any) -> Any:
    """Return the nearest integral value, halves to even, as a float; integers are returned unchanged."""


@kernel_only
def sqrt(x: Any) -> Any:
    """Return the square root."""


@kernel_only
def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""


@kernel_only
def exp(x: Any) -> Any:
    """Return e ** x."""


@kernel_only
def exp2(x: Any) -> Any:
    """Return 2 ** x."""


@kernel_only
def expm1(x: Any) -> Any:
    """Return exp(x) - 1, accurate near 0."""


@kernel_only
def log(x: Any) -> Any:
    """Return the natural logarithm."""


@kernel_only
def log2(x: Any) -> Any:
    """Return the logarithm to base 2."""


@kernel_only
def log10(x: Any) -> Any:
    """Return the logarithm to base 10."""


@kernel_only
def log1p(x: Any) -> Any:
    """Return log(1 + x), accurate near 0."""


@kernel_only
def sin(x: Any) -> Any:
    """Return the sine of x in radians."""


@kernel_only
def cos(x: Any) -> Any:
    """Return the cosine of x in radians."""


@kernel_only
def tan(x: Any) -> Any:
    """Return the tangent of x in radians."""


@kernel_only
def asin(x: Any) -> Any:
    """Return the arc sine, in radians."""


@kernel_only
def acos(x: Any) -> Any:
    """Return the arc cosine, in radians."""


@kernel_only
def atan(x: Any) -> Any:
    """Return the arc tangent, in radians."""


@kernel_only
def sinh(x: Any) -> Any:
    """Return the hyperbolic sine."""


@kernel_only
def cosh(x: Any) -> Any:
    """Return the hyperbolic cosine."""


@kernel_only
def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""


@kernel_only
def asinh(x: Any) -> Any:
    """Return the inverse hyperbolic sine."""


@kernel_only
def acosh(x: Any) -> Any:
    """Return the inverse hyperbolic cosine."""


@kernel_only
def atanh(x: Any) -> Any:
    """Return the inverse hyperbolic tangent."""


@kernel_only
def erf(x: Any) -> Any:
    """Return the error function of x."""


@kernel_only
def erfc(x: Any) -> Any:
    """Return 1 - erf(x), accurate for large x."""


@kernel_only
def isnan(x: Any) -> Any:
    """True if x is NaN."""


@kernel_only
def isinf(x: Any) -> Any:
    """True if x is an infinity."""


@kernel_only
def isfinite(x: Any) -> Any:
    """True if x is neither NaN nor an infinity."""


@kernel_only
def popcount(x: Any) -> Any:
    """Return the number of bits that are set."""


@kernel_only
def clz(x: Any) -> Any:
    """Return the number of leading zero bits; the width of the type for 0."""


@kernel_only
def ctz(x: Any) -> Any:
    """Return the number of trailing zero bits; the width of the type for 0."""


@kernel_only
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow."""


@kernel_only
def relu(x: Any) -> Any:
    """Return max(x, 0)."""


@kernel_only
def pow(x: Any, y: Any) -> Any:
    """Return x ** y."""


@kernel_only
def atan2(y: Any, x: Any) -> Any:
    """Return the angle of the point (x, y), in radians."""


@kernel_only
def hypot(x: Any, y: Any) -> Any:
    """Return sqrt(x*x + y*y), without overflow of the squares."""


@kernel_only
def copysign(x: Any, y: Any) -> Any:
    """Return the magnitude of x with the sign of y."""


@kernel_only
def fmin(x: Any, y: Any) -> Any:
    """Return the minimum. If one argument is NaN, return the other one."""


@kernel_only
def fmax(x: Any, y: Any) -> Any:
    """Return the maximum. If one argument is NaN, return the other one."""


@kernel_only
def truncdiv(x: Any, y: Any) -> Any:
    """Return the quotient rounded toward zero, as in C; integer division by 0 gives 0."""


@kernel_only
def truncrem(x: Any, y: Any) -> Any:
    """Return the remainder with the sign of x, as in C; integer division by 0 gives 0."""


@kernel_only
def min(x: Any, *others: Any) -> Any:
    """Return the minimum of the arguments, or of a tuple. NaN propagates, and -0 < +0."""


@kernel_only
def max(x: Any, *others: Any) -> Any:
    """Return the maximum of the arguments, or of a tuple. NaN propagates, and -0 < +0."""


@kernel_only
def clamp(x: Any, low: Any, high: Any) -> Any:
    """Return min(max(x, low), high)."""


@kernel_only
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return x where the condition is true, else y. Both are evaluated. Only for tensors, x and y may be left out."""


@kernel_only
def fma(x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z, rounded once or twice, as the device chooses; twice with `strict=True`."""


def cdiv(x: Any, y: Any) -> Any:
    """Return x / y rounded up to an integral value. Also works outside of kernels, as in `kernel[vk.cdiv(n, 256)]`."""
    return -(-x // y)
