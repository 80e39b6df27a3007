"""exp, exp2 and expm1 (f32 and f64).

With x = k ln 2 + r and an integer k, exp(x) = 2**k exp(r), where exp(r) is a polynomial and 2**k is made from exponent
bits.
"""

from __future__ import annotations

import math

from ..formulas.formats import FORMATS, format_of, power_of_two
from ..formulas.formula import Formula, Term
from .tables import tables_of

__all__ = ["clamp", "exp", "exp2", "exp_scaled", "expm1", "scale"]


def clamp(f: Formula, x: Term, low: float, high: float) -> Term:
    """Clamp x to [low, high]; NaN propagates."""
    return f.select(x > high, high, f.select(x < low, low, x))


def scale(x: Term, exponent: Term) -> Term:
    """Return x * 2**exponent.

    The power of two is split into two factors, which are normal numbers even if the result is subnormal or infinite.
    """
    half = exponent >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(exponent - half, x.dtype)


def _limits(x: Term) -> tuple[float, float]:
    """Return the limits to which the argument of exp is clamped: beyond them, exp(x) and exp(x)/2 are 0 or infinite."""
    fmt = FORMATS[x.dtype]
    return (fmt.least_subnormal_exponent - 2) * math.log(2), (fmt.bias + 3) * math.log(2)


def _reduced(f: Formula, x: Term) -> tuple[Term, Term, Term]:
    """Return (k, r, correction) with x = k ln 2 + r + correction and |r| <= ln(2)/2; k is integral."""
    table = tables_of(x)
    k = f.call("round", x * (1.0 / math.log(2)))
    with f.exact():
        high, low = x - k * table.ln2[0], k * table.ln2[1]
        r = high - low
        return k, r, (high - r) - low


def exp_scaled(f: Formula, x: Term, exponent_offset: int = 0) -> Term:
    """Return exp(x) * 2**exponent_offset."""
    fmt = format_of(x)
    k, r, correction = _reduced(f, clamp(f, x, *_limits(x)))
    body = 1.0 + (r + (r * r * f.polynomial(r, tables_of(x).exp) + correction))
    return scale(body, k.raw_cast(fmt.signed) + exponent_offset)


def exp(f: Formula, x: Term) -> Term:
    """Return exp(x); results overflow to infinity and underflow gradually to 0."""
    return exp_scaled(f, x)


def exp2(f: Formula, x: Term) -> Term:
    """Return 2**x as 2**k exp(r ln 2), with x = k + r and an integer k, by the polynomial of exp."""
    fmt, table = format_of(x), tables_of(x)
    x = clamp(f, x, fmt.least_subnormal_exponent - 2.0, fmt.bias + 3.0)
    k = f.call("round", x)
    fraction = x - k
    r = fraction * table.ln2_whole[0]
    body = 1.0 + (r + r * r * f.polynomial(r, table.exp))
    return scale(body, k.raw_cast(fmt.signed))


def expm1(f: Formula, x: Term) -> Term:
    """Return expm1(x) = 2**k (exp(r) - 1) + (2**k - 1).

    Half of that is computed and then doubled, as 2**k may overflow but 2**(k-1) doesn't.
    """
    fmt = format_of(x)
    # Below the lower limit, the result is -1; above the upper one, it is infinite. At most bias + 1.2 keeps k at most
    # bias + 1, so that 2**(k - 1) is a normal number.
    k, r, correction = _reduced(f, clamp(f, x, -(fmt.digits + 2) * math.log(2), (fmt.bias + 1.2) * math.log(2)))
    body = r + (r * r * f.polynomial(r, tables_of(x).exp) + correction)
    half = power_of_two(k.raw_cast(fmt.signed) - 1, x.dtype)
    with f.exact():
        result = 2.0 * (half * body + (half - 0.5))
    return f.select(x.abs() < 2.0 ** -(fmt.digits + 1), x, result)  # tiny x: expm1(x) is x to working precision
