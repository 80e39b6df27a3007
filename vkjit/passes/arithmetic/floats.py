"""Expansions of float min, max, sign, copysign, rounding etc. for f32 and f64, used by `lower_arithmetic`.

They follow the language's rules: NaN propagates, and -0 < +0. A function named like an operation is the rule that
expands this operation (see the package docstring).
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
    """Call `copy_sign`: the rule for the operation `copysign`."""
    return copy_sign(x, y)


def _min_or_max(f: Formula, x: Term, y: Term, name: OpName) -> Term:
    """Return the min or max of two values; `name` tells which. NaN propagates, and -0 < +0."""
    if x.constant is not None:  # make the constant the second operand: most tests of y are then unnecessary
        x, y = y, x
    selected = f.select(x < y, x, y) if name == "min" else f.select(x > y, x, y)
    constant_y = y.constant
    if constant_y is not None and not math.isnan(constant_y):
        # if x == y, `selected` is y. That is wrong only for max(+0, -0) and min(-0, +0), with a constant zero as y.
        # `&` clears the sign bit of the zero unless both are -0, as max needs; `|` sets it unless both are +0
        if constant_y == 0 and (math.copysign(1, constant_y) < 0) == (name == "max"):
            zero = x.bits() & y.bits() if name == "max" else x.bits() | y.bits()
            selected = f.select(x.equals(y), zero.as_bits_of(x.dtype), selected)
        return f.select(is_nan(x), x, selected)
    return f.select(is_nan(x), x, f.select(x.equals(y), _break_tie(f, x, y, name), selected))


def _break_tie(f: Formula, x: Term, y: Term, name: OpName) -> Term:
    """Return the min or max of values that compare equal, by their bits.

    They may be zeros of both signs, or subnormal numbers that the device's comparisons flush to zero. If at least one
    of them is negative, the value with the larger bits (as an unsigned integer) is the smaller one.
    """
    x_bits, y_bits = x.bits(), y.bits()
    negative = (x_bits | y_bits) >= format_of(x).sign_mask
    larger, smaller = f.call("max", x_bits, y_bits), f.call("min", x_bits, y_bits)
    pair = (larger, smaller) if name == "min" else (smaller, larger)
    return f.select(negative, *pair).as_bits_of(x.dtype)


def minimum(f: Formula, x: Term, y: Term) -> Term:
    return _min_or_max(f, x, y, "min")


def maximum(f: Formula, x: Term, y: Term) -> Term:
    return _min_or_max(f, x, y, "max")


def fast_minimum(f: Formula, x: Term, y: Term) -> Term:
    """Return the min. NaN propagates; the result for two zeros may have either of their signs."""
    return f.select(is_nan(x), x, f.select(x < y, x, y))


def fast_maximum(f: Formula, x: Term, y: Term) -> Term:
    """Return the max. NaN propagates; the result for two zeros may have either of their signs."""
    return f.select(is_nan(x), x, f.select(x > y, x, y))


def sign(f: Formula, x: Term) -> Term:
    """Return the sign: -1, 0 or 1. NaN propagates; the result for +0 and -0 is +0."""
    # for NaN, no comparison holds, so x itself is selected
    not_positive = f.select(x < 0.0, -1.0, f.select(x.equals(0.0), 0.0, x))
    return f.select(x > 0.0, 1.0, not_positive)


def isfinite(_f: Formula, x: Term) -> Term:
    """True if a value is finite: its bits without the sign are below those of infinity."""
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
"""Maps operations on f32 and f64 to their rules."""


def _truncated(f: Formula, x: Term) -> Term:
    """Round an f64 value toward zero."""
    return copy_sign(f.call("floor", x.abs()), x)


def _rounded(f: Formula, x: Term) -> Term:
    """Round an f64 value to the nearest integral value, ties to even.

    A magnitude below 2**52 is rounded by adding and subtracting 2**52: f64 values from 2**52 on are integral, so the
    sum is rounded to an integer. Larger magnitudes are integral already.
    """
    magnitude = x.abs()
    with f.exact():
        rounded = (magnitude + 2.0**52) - 2.0**52
    return copy_sign(f.select(magnitude < 2.0**52, rounded, magnitude), x)


ROUNDING_RULES: dict[OpName, Callable[..., Term]] = {"trunc": _truncated, "round": _rounded}
"""Rules for f64 on drivers with the quirk `far_whole_numbers`: their own `trunc` and `round` treat f64 values like f32,
and return values beyond 2**24 unrounded.
"""

FAST_MATH_RULES: dict[OpName, Callable[..., Term]] = {"min": fast_minimum, "max": fast_maximum}
"""Rules that override `FLOAT_RULES` in kernels with `fast_math`."""
