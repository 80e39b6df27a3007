"""Square roots that don't rely on the device's rounding, rsqrt and hypot (f32 and f64)."""

from __future__ import annotations

import math

from ..formats import format_of, half_precision_part, is_nan
from ..formula import Formula, Term

__all__ = ["hypot", "root", "rsqrt"]


def root(f: Formula, x: Term) -> Term:
    """The square root of a value that isn't negative, nor near the ends of the range, within one ULP."""
    first = f.call("sqrt", x)
    upper = half_precision_part(first)
    with f.exact():
        lower = first - upper
        rest = ((x - upper * upper) - 2.0 * (upper * lower)) - lower * lower
    safe = f.select(first > 0.0, first, 1.0)
    return f.select((x > 0.0) & (x < math.inf), first + 0.5 * rest / safe, x)


def rsqrt(f: Formula, x: Term) -> Term:
    """For formats in which the device has no reciprocal root."""
    return 1.0 / f.call("sqrt", x)


def hypot(f: Formula, x: Term, y: Term) -> Term:
    """sqrt(x*x + y*y) with both scaled by a power of two; an infinity wins over NaN."""
    fmt = format_of(x)
    first, second = x.abs(), y.abs()
    swap = first < second
    large, small = f.select(swap, second, first), f.select(swap, first, second)
    edge = fmt.bias // 2 - 2
    up, down = 2.0 ** (fmt.bias // 2 + fmt.digits), 2.0 ** -(fmt.bias // 2 + 4)
    high, low = large > 2.0**edge, large < 2.0 ** -(edge - fmt.digits)
    factor = f.select(high, down, f.select(low, up, f.term(1.0, x.dtype)))
    back = f.select(high, 1.0 / down, f.select(low, 1.0 / up, f.term(1.0, x.dtype)))
    large, small = large * factor, small * factor
    result = root(f, large * large + small * small) * back
    infinite = first.equals(math.inf) | second.equals(math.inf)
    result = f.select(is_nan(x) | is_nan(y), math.nan, result)
    return f.select(infinite, math.inf, result)
