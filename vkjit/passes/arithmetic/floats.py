"""Expansions of float min, max, sign, copysign, rounding etc. for f32 and f64, used by `lower_arithmetic`.

They follow the language's rules: NaN propagates, and -0 < +0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkjit.ir.ops import OpName

from ..formulas.formats import format_of, is_nan
from ..formulas.formula import Formula, Term
from .remainder import REMAINDER_RULES

__all__ = ["FAST_MATH_RULES", "FLOAT_RULES", "ROUNDING_RULES", "copy_sign"]


def copy_sign(magnitude: Term, sign: Term) -> Term:
    """Combine the magnitude of one value with the sign bit of another."""
    fmt = format_of(magnitude)
    combined = (magnitude.bits() & fmt.magnitude_mask) | (sign.bits() & fmt.sign_mask)
    return combined.as_bits_of(magnitude.dtype)


def copysign(_f: Formula, x: Term, y: Term) -> Term:
    return copy_sign(x, y)


def _min_or_max(f: Formula, x: Term, y: Term, name: OpName) -> Term:
    """Return the min or max: NaN propagates, -0 < +0. Operands that compare equal are ordered by their bits."""
    if x.constant is not None:  # a constant is the second operand, so that the tests of y below can be omitted
        x, y = y, x
    first = f.select(x < y, x, y) if name == "min" else f.select(x > y, x, y)
    number = y.constant
    if number is not None and not math.isnan(number):
        # if x == y, `first` is y; that is wrong only for max(+0, -0) and min(-0, +0), with a constant zero as y
        if number == 0 and (math.copysign(1, number) < 0) == (name == "max"):
            combined = x.bits() & y.bits() if name == "max" else x.bits() | y.bits()
            first = f.select(x.equals(y), combined.as_bits_of(x.dtype), first)
        return f.select(is_nan(x), x, first)
    return f.select(is_nan(x), x, f.select(x.equals(y), _break_tie(f, x, y, name), first))


def _break_tie(f: Formula, x: Term, y: Term, name: OpName) -> Term:
    """Return the min or max of values that compare equal, by their bits.

    They may be zeros of both signs, or subnormal numbers that the device's comparisons flush to zero. If one of them is
    negative, the value with the larger bits (as an unsigned integer) is the smaller one.
    """
    first, second = x.bits(), y.bits()
    negative = (first | second) >= format_of(x).sign_mask
    larger, smaller = f.call("max", first, second), f.call("min", first, second)
    pair = (larger, smaller) if name == "min" else (smaller, larger)
    return f.select(negative, *pair).as_bits_of(x.dtype)


def minimum(f: Formula, x: Term, y: Term) -> Term:
    return _min_or_max(f, x, y, "min")


def maximum(f: Formula, x: Term, y: Term) -> Term:
    return _min_or_max(f, x, y, "max")


def fast_minimum(f: Formula, x: Term, y: Term) -> Term:
    """Return the min: NaN propagates; of zeros with different signs, either one is returned."""
    return f.select(is_nan(x), x, f.select(x < y, x, y))


def fast_maximum(f: Formula, x: Term, y: Term) -> Term:
    """Return the max: NaN propagates; of zeros with different signs, either one is returned."""
    return f.select(is_nan(x), x, f.select(x > y, x, y))


def sign(f: Formula, x: Term) -> Term:
    """Return the sign: -1, 0 or 1. NaN propagates, both zeros give +0."""
    low = f.select(x < 0.0, -1.0, f.select(x.equals(0.0), 0.0, x))
    return f.select(x > 0.0, 1.0, low)


def isfinite(_f: Formula, x: Term) -> Term:
    """Test by its bits whether a value is finite."""
    fmt = format_of(x)
    return (x.bits() & fmt.magnitude_mask) < fmt.infinity_bits


def multiply_add(f: Formula, x: Term, y: Term, z: Term) -> Term:
    """Return x * y + z with two roundings: the expansion of `fma` in strict kernels."""
    with f.exact():
        return x * y + z


FLOAT_RULES: dict[OpName, Callable[..., Term]] = {
    "min": minimum,
    "max": maximum,
    "sign": sign,
    "copysign": copysign,
    "isfinite": isfinite,
    **REMAINDER_RULES,
}


def _truncated(f: Formula, x: Term) -> Term:
    """Round an f64 value toward zero."""
    return copy_sign(f.call("floor", x.abs()), x)


def _rounded(f: Formula, x: Term) -> Term:
    """Round an f64 value to the nearest integral value, ties to even.

    Adding and subtracting 2**52 rounds values below 2**52, since f64 values above it are integral.
    """
    size = x.abs()
    with f.exact():
        whole = (size + 2.0**52) - 2.0**52
    return copy_sign(f.select(size < 2.0**52, whole, size), x)


ROUNDING_RULES: dict[OpName, Callable[..., Term]] = {"trunc": _truncated, "round": _rounded}
"""Rules for f64 on drivers with the quirk `far_whole_numbers`, which compute `trunc` and `round` of f64 as of f32."""

FAST_MATH_RULES: dict[OpName, Callable[..., Term]] = {"min": fast_minimum, "max": fast_maximum}
"""Rules that override `FLOAT_RULES` in kernels with `fast_math`."""
