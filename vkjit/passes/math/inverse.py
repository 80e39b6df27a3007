"""asin, acos, atan and atan2 (f32 and f64): polynomials for small arguments, to which large ones are reduced.

Constants such as pi/2 are pairs of floats, high + low, so that sums with them are rounded only once.
"""

from __future__ import annotations

import math

from ..arithmetic.floats import copy_sign
from ..formulas.formats import format_of, half_precision_part
from ..formulas.formula import Formula, Term
from .tables import tables_of

__all__ = ["acos", "asin", "atan", "atan2"]


def _half_angle(f: Formula, magnitude: Term) -> tuple[Term, Term, Term, Term]:
    """Reduce |x| to s <= 1/2: for |x| > 1/2, asin(|x|) = pi/2 - 2 asin(s) with s*s = (1 - |x|)/2; otherwise s = |x|.

    Return (large, curved, upper, lower). `large` is |x| > 1/2, and asin(s) is s + `curved`. s is `upper` + `lower`: an
    upper part with half of the digits, and a remainder that also corrects the rounding of the device's square root.
    """
    large = magnitude > 0.5
    square = f.select(large, (1.0 - magnitude) * 0.5, magnitude * magnitude)
    # The device's square root gets positive numbers only.
    positive = f.select(square > 0.0, square, 1.0)
    root = f.select(large, f.select(square > 0.0, f.call("sqrt", positive), 0.0), magnitude)
    upper = half_precision_part(root)
    with f.exact():
        lower = (square - upper * upper) / (f.select(root.equals(0.0), 1.0, root) + upper)
    return large, root * (square * f.polynomial(square, tables_of(root).asin)), upper, lower


def asin(f: Formula, x: Term) -> Term:
    """Return the arcsine, NaN outside [-1, 1]."""
    table, magnitude = tables_of(x), x.abs()
    large, curved, upper, lower = _half_angle(f, magnitude)
    with f.exact():
        large_result = (table.half_pi[0] - 2.0 * upper) - (2.0 * (curved + lower) - table.half_pi[1])
        result = f.select(large, large_result, magnitude + curved)
    return f.select(magnitude <= 1.0, copy_sign(result, x), math.nan)


def acos(f: Formula, x: Term) -> Term:
    """Return the arccosine, NaN outside [-1, 1]."""
    table, magnitude = tables_of(x), x.abs()
    large, curved, upper, lower = _half_angle(f, magnitude)
    # With asin(s) = upper + lower + curved: 2 asin(s) for x > 1/2, pi - 2 asin(s) for x < -1/2, else pi/2 - asin(x).
    with f.exact():
        small = upper + (curved + lower)
        negative_large = 2.0 * (table.half_pi[0] - (upper + ((curved + lower) - table.half_pi[1])))
        signed_curved = copy_sign(curved, x)
        middle = table.half_pi[0] - (x - (table.half_pi[1] - signed_curved))
        result = f.select(large, f.select(x < 0.0, negative_large, 2.0 * small), middle)
    return f.select(magnitude <= 1.0, result, math.nan)


def _angle(f: Formula, small: Term, large: Term) -> Term:
    """Return atan(small / large) for 0 <= small <= large and large > 0, with a single division.

    Ratios above tan(pi/8) are reduced by atan(q) = pi/4 + atan((q - 1)/(q + 1)).
    """
    high, low = tables_of(small).quarter_pi
    reduce_further = small > large * math.tan(math.pi / 8)
    t = f.select(reduce_further, small - large, small) / f.select(reduce_further, small + large, large)
    z = t * t
    curved = t * (z * f.polynomial(z, tables_of(t).atan))
    with f.exact():
        return f.select(reduce_further, high + (t + (curved + low)), t + curved)


def atan(f: Formula, x: Term) -> Term:
    """Return the arctangent; for |x| > 1, as pi/2 minus the arctangent of 1/|x|, with the sign of x."""
    high, low = tables_of(x).half_pi
    magnitude, one = x.abs(), f.term(1.0, x.dtype)
    steep = magnitude > 1.0
    angle = _angle(f, f.select(steep, one, magnitude), f.select(steep, magnitude, one))
    with f.exact():
        return copy_sign(f.select(steep, high - (angle - low), angle), x)


def _scaled(f: Formula, small: Term, large: Term) -> tuple[Term, Term]:
    """Scale both values by the same power of two, so that their sum neither overflows nor is subnormal.

    Their ratio stays the same. Two infinities become two ones, as their ratio counts as 1 in atan2.
    """
    fmt = format_of(large)
    up, down = 2.0 ** (fmt.digits + 8), 2.0**-8
    one = f.term(1.0, large.dtype)
    factor = f.select(large < 2.0 ** (fmt.min_exponent + 8), up, one)
    factor = f.select(large > 2.0 ** (fmt.bias - 4), down, factor)
    infinite = small.equals(math.inf) & large.equals(math.inf)
    scaled = large * factor  # also 0 for subnormal numbers, if the device flushes them to 0
    return f.select(infinite, 1.0, small * factor), f.select(infinite | scaled.equals(0.0), 1.0, scaled)


def atan2(f: Formula, y: Term, x: Term) -> Term:
    """Return the angle of the point (x, y), with C's rules for signed zeros and infinities."""
    table = tables_of(x)
    mask = format_of(x).magnitude_mask  # by bits: devices may flush subnormal numbers in comparisons
    rise_bits, run_bits = y.bits() & mask, x.bits() & mask
    rise, run, steep = rise_bits.as_bits_of(y.dtype), run_bits.as_bits_of(x.dtype), rise_bits > run_bits
    angle = _angle(f, *_scaled(f, f.select(steep, run, rise), f.select(steep, rise, run)))
    left_half_plane = x.bits() >= format_of(x).sign_mask
    zero = f.term(0.0, x.dtype)
    high, low = (f.select(steep, table.half_pi[k], f.select(left_half_plane, table.pi[k], zero)) for k in (0, 1))
    with f.exact():
        return copy_sign(high + (f.select(steep ^ left_half_plane, -angle, angle) + low), y)
