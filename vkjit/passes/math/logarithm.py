"""log, log2, log10 and log1p: x = 2**k (1 + g), and a polynomial in s = g / (2 + g) (f32 and f64).

log(1 + g) = g - (g*g/2 - s*(g*g/2 + R(s*s))) with a polynomial R. For bases 2 and 10, log(1 + g) is split into an upper
part, whose product with an upper part of 1 / ln(base) is exact, and a remainder.
"""

from __future__ import annotations

import math

from ..formulas.formats import format_of, half_precision_part, power_of_two
from ..formulas.formula import Formula, Term
from .tables import tables_of

__all__ = ["log", "log1p", "log2", "log10", "log_of_sum", "reduced", "two_sum"]


def two_sum(f: Formula, x: Term | float, y: Term) -> tuple[Term, Term]:
    """Return the rounded sum and its exact rounding error, for operands in any order (Knuth's two-sum)."""
    x = f.term(x, y.dtype)
    with f.exact():
        total = x + y
        part = total - x
        return total, (x - (total - part)) + (y - part)


def reduced(f: Formula, x: Term) -> tuple[Term, Term]:
    """Return (k, m) with x = 2**k m, an integer k, and sqrt(1/2) <= m < sqrt(2), for positive x, subnormal or not."""
    fmt = format_of(x)
    bits = x.bits()
    subnormal = bits < (1 << fmt.mantissa)
    # A subnormal x is n * 2**least_subnormal_exponent, where n are its bits as an integer. Continue with n, a normal
    # number.
    bits = f.select(subnormal, bits.cast(x.dtype).bits(), bits)
    # Subtracting the bits of sqrt(1/2) leaves k in the exponent field; the significand field then has the bits of m
    # less those of sqrt(1/2).
    root_half = int(math.sqrt(0.5) * 2**fmt.digits) & ((1 << fmt.mantissa) - 1) | ((fmt.bias - 1) << fmt.mantissa)
    moved = bits - root_half
    m = ((moved & ((1 << fmt.mantissa) - 1)) + root_half).as_bits_of(x.dtype)
    k = (moved.as_bits_of(fmt.signed) >> fmt.mantissa) + f.select(
        subnormal, fmt.least_subnormal_exponent, f.term(0, fmt.signed)
    )
    return k, m


def _tail(f: Formula, g: Term) -> tuple[Term, Term]:
    """Return (g*g/2, s*(g*g/2 + R)), with s and R of the module's docstring."""
    s = g / (2.0 + g)
    z = s * s
    half_square = 0.5 * g * g
    return half_square, s * (half_square + z * f.polynomial(z, tables_of(g).log))


def _natural(f: Formula, k: Term, g: Term) -> Term:
    """Return k ln 2 + log(1 + g)."""
    high, low = tables_of(g).ln2
    half_square, tail = _tail(f, g)
    with f.exact():
        return k * high - ((half_square - (tail + k * low)) - g)


def _domain(f: Formula, x: Term, result: Term) -> Term:
    """Return `result`, or the logarithm of a special x: -inf for 0, NaN for negative x and NaN, inf for inf."""
    special = f.select(x.equals(0.0), -math.inf, f.select(x > 0.0, x, math.nan))
    return f.select((x > 0.0) & (x < math.inf), result, special)


def log(f: Formula, x: Term) -> Term:
    """Return the natural logarithm."""
    k, m = reduced(f, x)
    return _domain(f, x, _natural(f, k.raw_cast(x.dtype), m - 1.0))


def log_of_sum(f: Formula, high: Term, low: Term, exponent_offset: Term | int = 0) -> Term:
    """Return log(high + low) + exponent_offset ln 2, for high >= 2**-digits and |low| less than one ULP of high."""
    fmt = format_of(high)
    k, m = reduced(f, high)
    # 2**-k, with k limited so that it is a normal number. Beyond the limit, `low` doesn't matter: the callers' sums are
    # 1 + y, whose rounding error is at most 1.
    scaling = power_of_two(-f.call("min", k, f.term(fmt.digits * 2, fmt.signed)), high.dtype)
    with f.exact():
        g = (m - 1.0) + low * scaling
    return _natural(f, (k + exponent_offset).raw_cast(high.dtype), g)


def log1p(f: Formula, x: Term) -> Term:
    """Return log(1 + x), computed from the sum 1 + x and the rounding error of that sum."""
    total, error = two_sum(f, 1.0, x)
    result = log_of_sum(f, total, error)
    # log(1 + x) is x for infinity and, to working precision, for tiny x.
    special = f.select(x.equals(-1.0), -math.inf, f.select(x > -1.0, x, math.nan))
    regular = (x > -1.0) & (x < math.inf) & (x.abs() >= 2.0 ** -(format_of(x).digits + 1))
    return f.select(regular, result, special)


def _split(f: Formula, g: Term) -> tuple[Term, Term]:
    """Return log(1 + g) as an upper part with half of the significand's digits, and a remainder."""
    half_square, tail = _tail(f, g)
    with f.exact():
        high = half_precision_part(g - half_square)
        return high, ((g - high) - half_square) + tail


def log2(f: Formula, x: Term) -> Term:
    """Return the base-2 logarithm, exact for powers of two."""
    upper, lower = tables_of(x).log2_e
    k, m = reduced(f, x)
    high, low = _split(f, m - 1.0)
    first = k.raw_cast(x.dtype)
    # k + (high + low) * (upper + lower): the rounding error of the sum of the large terms is added to the small ones.
    with f.exact():
        product, low_sum = high * upper, (low + high) * lower + low * upper
        total = first + product
        result = (low_sum + ((first - total) + product)) + total
    return _domain(f, x, result)


def log10(f: Formula, x: Term) -> Term:
    """Return the base-10 logarithm, nearly always correctly rounded: exact powers of ten give integers."""
    upper, lower = tables_of(x).log10_e
    two = tables_of(x).log10_2
    k, m = reduced(f, x)
    high, low = _split(f, m - 1.0)
    exponent = k.raw_cast(x.dtype)
    # k log10(2) + (high + low) * (upper + lower): the rounding error of the sum of the large terms is added to the
    # small ones.
    with f.exact():
        first = exponent * two[0]
        product = high * upper
        low_sum = exponent * two[1] + ((low + high) * lower + low * upper)
        total = first + product
        result = (low_sum + ((first - total) + product)) + total
    return _domain(f, x, result)
