"""rsqrt, hypot, and square roots that don't rely on the device's rounding.

All are for f32 and f64, except for `rounded_square_root`, which is for f32 only.
"""

from __future__ import annotations

import math

from ..formulas.formats import format_of, half_precision_part, is_nan
from ..formulas.formula import Formula, Term

__all__ = ["hypot", "rounded_square_root", "rsqrt", "square_root"]


def square_root(f: Formula, x: Term) -> Term:
    """Return the square root within one ULP, by one correction of the device's square root.

    x must be non-negative and not near the ends of the exponent range, where the residual would underflow or overflow.
    """
    first = f.call("sqrt", x)
    residual = _residual(f, x, first)
    safe = f.select(first > 0.0, first, 1.0)
    return f.select((x > 0.0) & (x < math.inf), first + 0.5 * residual / safe, x)


def _residual(f: Formula, x: Term, root_of_x: Term) -> Term:
    """Return x - root_of_x**2; this is exact if the root is within one ULP and nothing underflows."""
    upper = half_precision_part(root_of_x)
    with f.exact():
        lower = root_of_x - upper
        return ((x - upper * upper) - 2.0 * (upper * lower)) - lower * lower


def rounded_square_root(f: Formula, x: Term) -> Term:
    """Return the correctly rounded square root.

    An approximation y is computed from the device's reciprocal square root, which is accurate to a few ULP. Let u be
    one ULP of y. As x, y * y and y * u are multiples of u * u, the root is greater than y + u / 2 if and only if
    x - y * y > y * u. This comparison is exact, and so is the corresponding one for the number below y. The two
    comparisons decide if the result is y or one of its neighbors.
    """
    fmt = format_of(x)
    half = fmt.bias // 2
    one = f.term(1.0, x.dtype)
    # Scale small and large x by an even power of two, so that nothing underflows or overflows.
    small, large = x < 2.0**-half, x > 2.0**half
    scaled = x * f.select(small, 2.0 ** (half + 1), f.select(large, 2.0 ** -(half + 1), one))
    regular = (scaled > 0.0) & (scaled < math.inf)
    scaled = f.select(regular, scaled, 1.0)
    with f.exact():
        first = scaled * f.call("rsqrt", scaled)
        approximation = first + 0.5 * _residual(f, scaled, first) / first  # one Newton step
        residual = _residual(f, scaled, approximation)
        bits = approximation.bits()
        unit = (bits & fmt.infinity_bits).as_bits_of(x.dtype) * 2.0**-fmt.mantissa  # u, from the exponent bits of y
        above = approximation * unit
        # If y is a power of two, the number below it is only u / 2 away.
        below = f.select((bits & ((1 << fmt.mantissa) - 1)).equals(0), 0.5 * above, above)
    bits = f.select(residual > above, bits + 1, f.select(residual <= -below, bits - 1, bits))
    scale = 2.0 ** ((half + 1) // 2)
    result = bits.as_bits_of(x.dtype) * f.select(small, 1.0 / scale, f.select(large, scale, one))
    negative = (x.bits() > fmt.sign_mask) & ~is_nan(x)
    return f.select(regular, result, f.select(negative, math.nan, x))


def rsqrt(f: Formula, x: Term) -> Term:
    """Return the reciprocal square root as 1 / sqrt(x), for types for which the device has no instruction."""
    return 1.0 / f.call("sqrt", x)


def hypot(f: Formula, x: Term, y: Term) -> Term:
    """Return sqrt(x*x + y*y). The result is infinite if an operand is infinite, even if the other one is NaN.

    The operands are scaled by a power of two, so that the squares neither overflow nor underflow.
    """
    fmt = format_of(x)
    first, second = x.abs(), y.abs()
    swap = first < second
    large, small = f.select(swap, second, first), f.select(swap, first, second)
    # Above 2**edge, the sum of the squares might overflow. Below 2**-(edge - digits), the square of an operand that is
    # large enough to matter might underflow.
    edge = fmt.bias // 2 - 2
    up, down = 2.0 ** (fmt.bias // 2 + fmt.digits), 2.0 ** -(fmt.bias // 2 + 4)
    high, low = large > 2.0**edge, large < 2.0 ** -(edge - fmt.digits)
    factor = f.select(high, down, f.select(low, up, f.term(1.0, x.dtype)))
    inverse_factor = f.select(high, 1.0 / down, f.select(low, 1.0 / up, f.term(1.0, x.dtype)))
    large, small = large * factor, small * factor
    result = square_root(f, large * large + small * small) * inverse_factor
    infinite = first.equals(math.inf) | second.equals(math.inf)
    result = f.select(is_nan(x) | is_nan(y), math.nan, result)
    return f.select(infinite, math.inf, result)
