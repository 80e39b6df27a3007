"""Expansions of float remainders and integral quotients for f32 and f64, used by `lower_arithmetic`.

Remainders are exact, and quotients are rounded as in Python. A remainder is computed in one of two ways. If the
quotient is less than 2**(digits - 2), where `digits` is the number of significant bits of the format, float arithmetic
without rounding errors is used (`_short_division`). Otherwise the significands are divided as integers, in a branch
(`_long_division`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vkjit import dtypes
from vkjit.ir.core import Region
from vkjit.ir.ops import OpName

from ..formulas.formats import FloatFormat, format_of, half_precision_part, power_of_two
from ..formulas.formula import Formula, Term

__all__ = ["REMAINDER_RULES", "quotient"]

_MAX_UNROLLED_STEPS = 8
"""The maximum number of steps of `_long_division` that are emitted without a loop: enough for f32, not for f64."""


def quotient(f: Formula, x: Term, y: Term) -> Term:
    """Return x / y corrected by its residual: within one ULP on any device, and exact for integral quotients.

    The residual is x - (x / y) * y. It is exact, because the quotient and the divisor are split into high and low parts
    with so few bits that the products of parts are exact.
    """
    approximate = x / y
    with f.exact():
        q_high, y_high = half_precision_part(approximate), half_precision_part(y)
        q_low, y_low = approximate - q_high, y - y_high
        residual = (((x - q_high * y_high) - q_high * y_low) - q_low * y_high) - q_low * y_low
        corrected = approximate + residual / y
    fmt = format_of(x)
    is_usable = residual.differs(0.0) & ((corrected.bits() & fmt.magnitude_mask) < fmt.infinity_bits)
    return f.select(is_usable, corrected, approximate)


def _with_sign_of(magnitude: Term, sign: Term) -> Term:
    """Return the non-negative value `magnitude` with the sign bit of `sign`."""
    fmt = format_of(sign)
    return (magnitude.bits() | (sign.bits() & fmt.sign_mask)).as_bits_of(sign.dtype)


def _short_division(f: Formula, x: Term, y: Term) -> Term:
    """Return the remainder of non-negative values whose quotient is less than 2**(digits - 2).

    The computed quotient is off by at most one; each product and each difference is exact.
    """
    with f.exact():
        q = f.call("trunc", x / y)
        q_high, y_high = half_precision_part(q), half_precision_part(y)
        q_low, y_low = q - q_high, y - y_high
        remainder = (((x - q_high * y_high) - q_high * y_low) - q_low * y_high) - q_low * y_low
        remainder = f.select(remainder < 0.0, remainder + y, remainder)
        return f.select(remainder >= y, remainder - y, remainder)


def _significand(f: Formula, x: Term) -> tuple[Term, Term]:
    """Return the integer significand and the biased exponent of a non-negative value, subnormal or not.

    Both are of the formula's widest integer type.
    """
    fmt = format_of(x)
    bits = x.bits().cast(f.word)
    exponent = bits >> fmt.mantissa
    fraction = bits & ((1 << fmt.mantissa) - 1)
    normal = exponent.differs(0)
    return f.select(normal, fraction | (1 << fmt.mantissa), fraction), f.select(normal, exponent, 1)


def _long_division(f: Formula, x: Term, y: Term, only_y_scaled: Term | None) -> Term:
    """Return the remainder of non-negative values by integer division of the significands.

    Each step computes as many bits of the quotient as the widest integer type has more than the significand: the
    remainder so far is shifted left by them, and reduced modulo the divisor's significand. Where `only_y_scaled` is
    true (see `_Pair`), y is scaled but x isn't;
    x is then scaled here, by adding the scale's exponent to that of x, which can't overflow.
    """
    fmt = format_of(x)
    step = f.word.bits - fmt.digits
    steps = -(-(2 * fmt.bias + fmt.mantissa) // step)  # the largest difference of exponents / step, rounded up
    (top, x_exponent), (divisor, y_exponent) = _significand(f, x), _significand(f, y)
    divisor = f.select(divisor.equals(0), 1, divisor)  # the caller discards the result for a zero divisor
    remainder, bits_left = f.call("urem_raw", top, divisor), x_exponent - y_exponent
    if only_y_scaled is not None:
        bits_left = bits_left + f.select(only_y_scaled, f.term(_scale_exponent(fmt), bits_left.dtype), 0)
    if steps <= _MAX_UNROLLED_STEPS:
        for _ in range(steps):
            shift = f.select(bits_left < step, bits_left, step)
            remainder, bits_left = f.call("urem_raw", remainder << shift, divisor), bits_left - shift
    else:
        remainder = _division_loop(f, remainder, bits_left, divisor, step, steps)
    scale = y_exponent.raw_cast(fmt.signed) - (fmt.bias + fmt.mantissa)
    half = scale >> 1  # the scale is applied in two factors, as 2**scale itself may be subnormal
    value = remainder.raw_cast(x.dtype)
    return value * power_of_two(half, x.dtype) * power_of_two(scale - half, x.dtype)


def _division_loop(f: Formula, remainder: Term, total_bits_left: Term, divisor: Term, step: int, steps: int) -> Term:
    """Emit the steps of `_long_division` as a loop that ends when no bits of the quotient are left."""
    build, word = f.builder, remainder.value.type
    bounds = [build.const(n, dtypes.i32) for n in (0, steps, 1)]
    body = Region([bounds[0].type, word, word], ["round", "rest", "left"])
    with build.at(body):
        _, current, bits_left = (f.term(value) for value in body.args)
        done = build.op("if", bits_left.equals(0).value, types=[], regions=[Region(), Region()])
        with build.at(done.regions[0]):
            build.op("break", *body.args[1:])
        with build.at(done.regions[1]):
            build.op("yield")
        shift = f.select(bits_left < step, bits_left, step)
        build.op("continue", f.call("urem_raw", current << shift, divisor).value, (bits_left - shift).value)
    initial_values = (remainder.value, total_bits_left.value)
    loop = build.op("for", *bounds, *initial_values, types=[word, word], regions=[body])
    return f.term(loop.results[0])


def _magnitude_remainder(f: Formula, x: Term, y: Term, only_y_scaled: Term | None) -> Term:
    """Return x mod y for non-negative values; NaN if y is 0, x is infinite, or an operand is NaN.

    For `only_y_scaled`, see `_Pair`.
    """
    fmt = format_of(x)
    constant_y = y.constant
    # `frexp` splits a power of two into 0.5 and an exponent
    is_power_of_two = constant_y is not None and math.isfinite(constant_y) and math.frexp(constant_y)[0] == 0.5
    # the bounds keep 1 / y and y * 2**digits in the range of normal f32 values
    if constant_y is not None and is_power_of_two and 2.0**-60 < constant_y < 2.0**60:
        # x * (1 / y) is exact, and the remainder of x >= y * 2**digits is 0
        small_quotient_remainder = x - f.call("trunc", x * (1.0 / constant_y)) * constant_y
        remainder = f.select(x < constant_y * 2.0**fmt.digits, small_quotient_remainder, 0.0)
    else:
        is_short = x < y * 2.0 ** (fmt.digits - 2)
        (long_remainder,) = f.branch(
            is_short, lambda: [f.term(0.0, x.dtype)], lambda: [_long_division(f, x, y, only_y_scaled)]
        )
        remainder = f.select(x < y, x, f.select(is_short, _short_division(f, x, y), long_remainder))
    # x is finite; y is neither NaN nor 0, for which `- 1` wraps to the largest integer
    valid = (x.bits() < fmt.infinity_bits) & ((y.bits() - 1) < fmt.infinity_bits)
    return f.select(valid, remainder, math.nan)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Dividend x and divisor y, scaled by a power of two if the remainder may be subnormal.

    Scaling is needed because devices may flush subnormal values to 0. `inverse_scale` is the factor that undoes the
    scaling. `only_y_scaled` is a condition: true where only y is scaled, since x would overflow. The fields
    `inverse_scale` and `only_y_scaled` are None if no scaling is necessary.
    """

    x: Term
    y: Term
    inverse_scale: Term | None = None
    only_y_scaled: Term | None = None

    def unscaled(self, value: Term) -> Term:
        """Undo the scaling for a remainder of the pair."""
        return value if self.inverse_scale is None else value * self.inverse_scale


def _scaled_pair(f: Formula, x: Term, y: Term) -> _Pair:
    """Return the pair of x and y, scaled where y is so small that the remainder may be subnormal."""
    fmt = format_of(x)
    shift = _scale_exponent(fmt)
    number = y.constant
    if number is not None and abs(number) >= 2.0 ** (fmt.min_exponent + shift):
        return _Pair(x, y)
    needs_scaling = y.abs() < 2.0 ** (fmt.min_exponent + shift)
    x_fits = x.abs() < 2.0 ** (fmt.bias - shift)  # the scaled x doesn't overflow
    one, factor = f.term(1.0, x.dtype), 2.0**shift
    scaled_x = x * f.select(needs_scaling & x_fits, factor, one)
    only_y_scaled = needs_scaling & ~x_fits & (x.abs() < math.inf)
    scaled_y = y * f.select(needs_scaling, factor, one)
    inverse_scale = f.select(needs_scaling, 1.0 / factor, one)
    return _Pair(scaled_x, scaled_y, inverse_scale, only_y_scaled)


def _scale_exponent(fmt: FloatFormat) -> int:
    """Return the binary logarithm of the factor by which a `_Pair` is scaled."""
    return 2 * fmt.digits


def truncrem(f: Formula, x: Term, y: Term) -> Term:
    """Return C's fmod: exact, with the dividend's sign."""
    pair = _scaled_pair(f, x, y)
    return pair.unscaled(_signed_remainder(f, pair))


def _signed_remainder(f: Formula, pair: _Pair) -> Term:
    """Return the remainder of a scaled pair, still scaled, with the dividend's sign."""
    return _with_sign_of(_magnitude_remainder(f, pair.x.abs(), _absolute(f, pair.y), pair.only_y_scaled), pair.x)


def _absolute(f: Formula, y: Term) -> Term:
    """Return |y|, as a constant if y is one, so that `_magnitude_remainder` sees it."""
    number = y.constant
    return y.abs() if number is None else f.term(abs(number), y.dtype)


def truncdiv(f: Formula, x: Term, y: Term) -> Term:
    """Return the truncated quotient. An f16 quotient is rounded to f16 before it is truncated."""
    if x.dtype is dtypes.f16:
        return f.call("trunc", quotient(f, x.cast(dtypes.f32), y.cast(dtypes.f32)).cast(dtypes.f16))
    return f.call("trunc", quotient(f, x, y))


def _signs_differ(a: Term, b: Term) -> Term:
    """True if the sign bits of two values differ.

    A float comparison wouldn't be safe: a compiler may undo the scaling of `_Pair` in the operands of the comparison,
    and devices may flush the unscaled values to 0.
    """
    return ((a.bits() ^ b.bits()) & format_of(a).sign_mask).differs(0)


def _is_zero(x: Term) -> Term:
    return (x.bits() & format_of(x).magnitude_mask).equals(0)


def floormod(f: Formula, x: Term, y: Term) -> Term:
    """Return Python's x % y: the remainder has the divisor's sign, also if it is zero."""
    pair = _scaled_pair(f, x, y)
    remainder = _signed_remainder(f, pair)
    floored = f.select(_signs_differ(remainder, y), remainder + pair.y, remainder)
    zero = f.term(0.0, x.dtype)
    return pair.unscaled(f.select(_is_zero(remainder), _with_sign_of(zero, y), floored))


def floordiv(f: Formula, x: Term, y: Term) -> Term:
    """Return Python's x // y: the exact multiple x - x % y, divided by y and rounded to an integer."""
    pair = _scaled_pair(f, x, y)
    remainder = _signed_remainder(f, pair)
    approximate = x / y
    integral = (pair.x - remainder) / pair.y
    # where only y is scaled, the quotient is so large that the remainder doesn't matter
    integral = integral if pair.only_y_scaled is None else f.select(pair.only_y_scaled, approximate, integral)
    # `remainder` has the sign of x: the quotient is truncated, and floor is one less if it is negative
    needs_decrement = ~_is_zero(remainder) & _signs_differ(remainder, y)
    integral = f.select(needs_decrement, integral - 1.0, integral)
    floor = f.call("floor", integral)
    floor = f.select(integral - floor > 0.5, floor + 1.0, floor)  # `integral` is an integer up to rounding
    zero = f.term(0.0, x.dtype)
    result = f.select(integral.equals(0.0), _with_sign_of(zero, approximate), floor)
    return f.select(pair.y.equals(0.0), approximate, result)


REMAINDER_RULES: dict[OpName, Callable[..., Term]] = {
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncrem": truncrem,
}
