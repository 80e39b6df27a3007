"""Elementwise functions: each takes and gives scalars or vectors; integers are converted where only floats make sense.

Error bounds are in the language reference; `math.exp`, `np.exp` and the like mean the same functions.
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
    """The absolute value; the least integer wraps to itself."""


@kernel_only
def sign(x: Any) -> Any:
    """-1, 0 or 1 by sign; NaN stays."""


@kernel_only
def floor(x: Any) -> Any:
    """The greatest integral value that isn't above x, as a float."""


@kernel_only
def ceil(x: Any) -> Any:
    """The least integral value that isn't below x, as a float."""


@kernel_only
def trunc(x: Any) -> Any:
    """x without its fraction, as a float."""


@kernel_only
def round(x: Any) -> Any:
    """The nearest integral value, halves to even, as a float; integers stay."""


@kernel_only
def sqrt(x: Any) -> Any:
    """The square root."""


@kernel_only
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""


@kernel_only
def exp(x: Any) -> Any:
    """e ** x."""


@kernel_only
def exp2(x: Any) -> Any:
    """2 ** x."""


@kernel_only
def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near 0."""


@kernel_only
def log(x: Any) -> Any:
    """The natural logarithm."""


@kernel_only
def log2(x: Any) -> Any:
    """The logarithm to base 2."""


@kernel_only
def log10(x: Any) -> Any:
    """The logarithm to base 10."""


@kernel_only
def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""


@kernel_only
def sin(x: Any) -> Any:
    """The sine of x in radians."""


@kernel_only
def cos(x: Any) -> Any:
    """The cosine of x in radians."""


@kernel_only
def tan(x: Any) -> Any:
    """The tangent of x in radians."""


@kernel_only
def asin(x: Any) -> Any:
    """The arc sine, in radians."""


@kernel_only
def acos(x: Any) -> Any:
    """The arc cosine, in radians."""


@kernel_only
def atan(x: Any) -> Any:
    """The arc tangent, in radians."""


@kernel_only
def sinh(x: Any) -> Any:
    """The hyperbolic sine."""


@kernel_only
def cosh(x: Any) -> Any:
    """The hyperbolic cosine."""


@kernel_only
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""


@kernel_only
def asinh(x: Any) -> Any:
    """The inverse hyperbolic sine."""


@kernel_only
def acosh(x: Any) -> Any:
    """The inverse hyperbolic cosine."""


@kernel_only
def atanh(x: Any) -> Any:
    """The inverse hyperbolic tangent."""


@kernel_only
def erf(x: Any) -> Any:
    """The error function."""


@kernel_only
def erfc(x: Any) -> Any:
    """1 - erf(x), exact for large x."""


@kernel_only
def isnan(x: Any) -> Any:
    """Whether x is NaN."""


@kernel_only
def isinf(x: Any) -> Any:
    """Whether x is an infinity."""


@kernel_only
def isfinite(x: Any) -> Any:
    """Whether x is neither NaN nor an infinity."""


@kernel_only
def popcount(x: Any) -> Any:
    """The number of bits set."""


@kernel_only
def clz(x: Any) -> Any:
    """The number of leading zero bits."""


@kernel_only
def ctz(x: Any) -> Any:
    """The number of trailing zero bits; the width for 0."""


@kernel_only
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow."""


@kernel_only
def relu(x: Any) -> Any:
    """max(x, 0)."""


@kernel_only
def pow(x: Any, y: Any) -> Any:
    """x ** y."""


@kernel_only
def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), in radians."""


@kernel_only
def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow."""


@kernel_only
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""


@kernel_only
def fmin(x: Any, y: Any) -> Any:
    """The minimum; ignores a NaN."""


@kernel_only
def fmax(x: Any, y: Any) -> Any:
    """The maximum; ignores a NaN."""


@kernel_only
def truncdiv(x: Any, y: Any) -> Any:
    """The quotient rounded towards zero, as in C; integers by 0 give 0."""


@kernel_only
def truncrem(x: Any, y: Any) -> Any:
    """The remainder with the sign of x, as in C; integers by 0 give 0."""


@kernel_only
def min(x: Any, *others: Any) -> Any:
    """The least of the arguments, or of a tuple; NaN passes on, -0 < +0."""


@kernel_only
def max(x: Any, *others: Any) -> Any:
    """The greatest of the arguments, or of a tuple; NaN passes on, -0 < +0."""


@kernel_only
def clamp(x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high)."""


@kernel_only
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is true, else y; both are evaluated."""


@kernel_only
def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, fused or not."""


def cdiv(x: Any, y: Any) -> Any:
    """The quotient rounded up; also outside kernels, as in `kernel[vk.cdiv(n, 256)]`."""
    return -(-x // y)
