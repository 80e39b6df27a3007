"""pow as 2**(y log2 |x|), with the logarithm as a pair of floats (f32 and f64).

The upper part of a pair has half the format's digits, so that products of upper parts are exact; the lower part has all
digits. So the logarithm has one and a half times the digits of the format. That is enough even for the largest
y log2 |x|, where y magnifies the logarithm's error most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..formulas.formats import format_of, half_precision_part, is_nan
from ..formulas.formula import Formula, Term
from .exponential import scale
from .logarithm import reduced
from .tables import tables_of

__all__ = ["power"]


@dataclass(frozen=True, slots=True)
class _Pair:
    """An unevaluated sum upper + lower, where `upper` has half the format's digits."""

    upper: Term
    lower: Term

    @staticmethod
    def of(high: Term, low: Term) -> _Pair:
        """Return high + low as a pair, for `low` much smaller than `high`."""
        total = high + low
        upper = half_precision_part(total)
        return _Pair(upper, (high - upper) + low)

    @staticmethod
    def of_sum(large: Term, small: Term, low: Term) -> _Pair:
        """Return large + small + low as a pair. |large| must be at least |small|, or 0."""
        total = large + small
        return _Pair.of(total, (small - (total - large)) + low)

    def __mul__(self, other: _Pair) -> _Pair:
        low = self.upper * other.lower + self.lower * (other.upper + other.lower)
        return _Pair.of(self.upper * other.upper, low)


def _log2(f: Formula, x: Term) -> _Pair:
    """Return log2 of a positive number x = 2**k m as a pair.

    It is k + s (c0 + z (c1 + z P(z))) with s = (m - 1)/(m + 1), z = s*s, and a polynomial P.
    """
    table = tables_of(x)
    k, m = reduced(f, x)
    above, below = m - 1.0, m + 1.0
    inverse = 1.0 / below
    with f.exact():
        s_upper = half_precision_part(above * inverse)
        below_upper = half_precision_part(below)
        below_lower = m - (below_upper - 1.0)
        s_lower = ((above - s_upper * below_upper) - s_upper * below_lower) * inverse
        s = _Pair(s_upper, s_lower)
        z = s * s
        tail = table.log2_second[1] + (z.upper + z.lower) * f.polynomial(z.upper + z.lower, table.log2)
        inner = z * _Pair.of(f.term(table.log2_second[0], x.dtype), tail)
        outer = _Pair.of_sum(f.term(table.log2_first[0], x.dtype), inner.upper, table.log2_first[1] + inner.lower)
        fraction = s * outer
        return _Pair.of_sum(k.raw_cast(x.dtype), fraction.upper, fraction.lower)


def _exp2_of(f: Formula, high: Term, low: Term) -> Term:
    """Return 2**(high + low): 0 or infinity if the result is out of range, NaN if `high` or `low` is NaN."""
    fmt, table = format_of(high), tables_of(high)
    whole = high + low
    least, greatest = fmt.least_subnormal_exponent - 2.0, fmt.bias + 2.0
    inside = (whole > least) & (whole < greatest)
    k = f.call("round", f.select(inside, whole, 0.0))
    with f.exact():
        r = ((high - k) + low) * table.ln2_whole[0]
    body = 1.0 + (r + r * r * f.polynomial(r, table.exp))
    outside = f.select(whole > 0.0, math.inf, f.select(whole < 0.0, 0.0, whole))
    return f.select(inside, scale(body, k.raw_cast(fmt.signed)), outside)


def _magnitude(f: Formula, x: Term, y: Term) -> Term:
    """Return x**y for positive, finite x."""
    logarithm = _log2(f, x)
    limit = 2.0 ** (format_of(x).digits + 20)  # from here on the result is 0, 1 or infinite
    y = f.select(y > limit, limit, f.select(y < -limit, -limit, y))
    with f.exact():
        y_upper = half_precision_part(y)
        y_lower = y - y_upper
        low = y_upper * logarithm.lower + y_lower * (logarithm.upper + logarithm.lower)
        high = y_upper * logarithm.upper
    return _exp2_of(f, high, low)


_CONSTANT_EXPONENTS: dict[object, Callable[[Term], Term]] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -1.0: lambda x: 1.0 / x,
}
"""Constant exponents that need no logarithm."""


def power(f: Formula, x: Term, y: Term) -> Term:
    """Return x**y with NumPy's special cases, such as NaN for negative x and fractional y, and 1 for y = 0 or x = 1."""
    if y.constant in _CONSTANT_EXPONENTS:
        return _CONSTANT_EXPONENTS[y.constant](x)
    if y.constant == 0.5:
        return f.select(x.equals(-math.inf), math.inf, f.call("sqrt", x).abs())
    magnitude = x.abs()
    half = y * 0.5
    integral = f.call("trunc", y).equals(y)
    odd = integral & f.call("trunc", half).differs(half)
    general = _magnitude(f, magnitude, y)
    # Where x is 0 or infinite, or y is infinite, the result's magnitude is infinite (`upward`), 0, or 1.
    upward = (magnitude > 1.0) ^ (y < 0.0)
    extreme = f.select(magnitude.equals(1.0), 1.0, f.select(upward, f.term(math.inf, x.dtype), 0.0))
    edge = magnitude.equals(0.0) | magnitude.equals(math.inf) | y.abs().equals(math.inf)
    result = f.select(edge, extreme, general)
    negative = x.bits() >= format_of(x).sign_mask
    signed = f.select(negative & odd, -result, result)
    fractional = (x < 0.0) & ~integral & magnitude.differs(math.inf)
    signed = f.select(fractional, math.nan, signed)
    signed = f.select(is_nan(x) | is_nan(y), math.nan, signed)
    return f.select(x.equals(1.0) | y.equals(0.0), 1.0, signed)
