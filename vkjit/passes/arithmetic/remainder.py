"""Float remainders and quotients: exact remainders for any pair, Python's rounding of quotients (f32 and f64).

Where the quotient is below 2**(digits - 2), the remainder is computed in floats without rounding error; beyond that by
integer division of the significands, which a branch keeps out of the usual way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ... import dtypes
from ...ir.core import Region
from ..formats import FloatFormat, format_of, half_precision_part, power_of_two
from ..formula import Formula, Term

__all__ = ["REMAINDER_RULES", "quotient"]


def quotient(f: Formula, x: Term, y: Term) -> Term:
    """x / y, corrected by its residual: within one ULP on any device; integers come out exact."""
    first = x / y
    with f.exact():
        q_high, y_high = half_precision_part(first), half_precision_part(y)
        q_low, y_low = first - q_high, y - y_high
        residual = (((x - q_high * y_high) - q_high * y_low) - q_low * y_high) - q_low * y_low
        better = first + residual / y
    fmt = format_of(x)
    usable = residual.differs(0.0) & ((better.bits() & fmt.magnitude_mask) < fmt.infinity_bits)
    return f.select(usable, better, first)


def _with_sign_of(magnitude: Term, sign: Term) -> Term:
    fmt = format_of(sign)
    return (magnitude.bits() | (sign.bits() & fmt.sign_mask)).as_bits_of(sign.dtype)


def _short_division(f: Formula, x: Term, y: Term) -> Term:
    """The remainder of values that aren't negative and whose quotient is below 2**(digits - 2).

    The quotient is at most one off; each product and each difference is exact.
    """
    with f.exact():
        q = f.call("trunc", x / y)
        q_high, y_high = half_precision_part(q), half_precision_part(y)
        q_low, y_low = q - q_high, y - y_high
        rest = (((x - q_high * y_high) - q_high * y_low) - q_low * y_high) - q_low * y_low
        rest = f.select(rest < 0.0, rest + y, rest)
        return f.select(rest >= y, rest - y, rest)


def _significand(f: Formula, x: Term) -> tuple[Term, Term]:
    """Integer significand (u64) and biased exponent (u64) of a value that isn't negative, subnormal ones included."""
    fmt = format_of(x)
    bits = x.bits().cast(dtypes.u64)
    exponent = bits >> fmt.mantissa
    fraction = bits & ((1 << fmt.mantissa) - 1)
    normal = exponent.differs(0)
    return f.select(normal, fraction | (1 << fmt.mantissa), fraction), f.select(normal, exponent, 1)


def _long_division(f: Formula, x: Term, y: Term, far: Term | None) -> Term:
    """The remainder by integer division, `64 - digits` bits of the quotient at a time; x is raised where `far` says so."""
    fmt = format_of(x)
    step = 64 - fmt.digits
    rounds = -(-(2 * fmt.bias + fmt.mantissa) // step)
    (top, x_exponent), (divisor, y_exponent) = _significand(f, x), _significand(f, y)
    divisor = f.select(divisor.equals(0), 1, divisor)
    rest, left = f.call("urem_raw", top, divisor), x_exponent - y_exponent
    if far is not None:
        left = left + f.select(far, f.term(_raise_of(fmt), left.dtype), 0)
    if rounds <= 8:
        for _ in range(rounds):
            now = f.select(left < step, left, step)
            rest, left = f.call("urem_raw", rest << now, divisor), left - now
    else:
        rest = _division_loop(f, rest, left, divisor, step, rounds)
    scale = y_exponent.raw_cast(fmt.signed) - (fmt.bias + fmt.mantissa)
    half = scale >> 1
    value = rest.raw_cast(x.dtype)
    return value * power_of_two(half, x.dtype) * power_of_two(scale - half, x.dtype)


def _division_loop(f: Formula, rest: Term, left: Term, divisor: Term, step: int, rounds: int) -> Term:
    build, word = f.builder, rest.value.type
    bounds = [build.const(n, dtypes.i32) for n in (0, rounds, 1)]
    body = Region([bounds[0].type, word, word], ["round", "rest", "left"])
    with build.at(body):
        _, inner, todo = (f.term(value) for value in body.args)
        done = build.op("if", todo.equals(0).value, types=[], regions=[Region(), Region()])
        with build.at(done.regions[0]):
            build.op("break", *body.args[1:])
        with build.at(done.regions[1]):
            build.op("yield")
        now = f.select(todo < step, todo, step)
        build.op("continue", f.call("urem_raw", inner << now, divisor).value, (todo - now).value)
    return f.term(build.op("for", *bounds, rest.value, left.value, types=[word, word], regions=[body]).results[0])


def _magnitude_remainder(f: Formula, x: Term, y: Term, far: Term | None) -> Term:
    """|x| mod |y| for values that aren't negative; NaN where there is none. `far`: x stands for more, see `_Pair`."""
    fmt = format_of(x)
    number = y.constant
    if number is not None and math.isfinite(number) and math.frexp(number)[0] == 0.5 and 2.0**-60 < number < 2.0**60:
        few = x - f.call("trunc", x * (1.0 / number)) * number
        rest = f.select(x < number * 2.0**fmt.digits, few, 0.0)
    else:
        near = x < y * 2.0 ** (fmt.digits - 2)
        (long,) = f.branch(near, lambda: [f.term(0.0, x.dtype)], lambda: [_long_division(f, x, y, far)])
        rest = f.select(x < y, x, f.select(near, _short_division(f, x, y), long))
    valid = (x.bits() < fmt.infinity_bits) & ((y.bits() - 1) < fmt.infinity_bits)
    return f.select(valid, rest, math.nan)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Dividend and divisor, times a power of two where the remainder may be subnormal, which devices may take for 0.

    `back` undoes the power; `far`: only the divisor was raised, as the dividend would overflow; None where neither can be.
    """

    x: Term
    y: Term
    back: Term | None = None
    far: Term | None = None

    def lowered(self, value: Term) -> Term:
        return value if self.back is None else value * self.back


def _raised(f: Formula, x: Term, y: Term) -> _Pair:
    fmt = format_of(x)
    shift = _raise_of(fmt)
    number = y.constant
    if number is not None and abs(number) >= 2.0 ** (fmt.min_exponent + shift):
        return _Pair(x, y)
    low, fits = y.abs() < 2.0 ** (fmt.min_exponent + shift), x.abs() < 2.0 ** (fmt.bias - shift)
    one, factor = f.term(1.0, x.dtype), 2.0**shift
    raised = x * f.select(low & fits, factor, one)
    far = low & ~fits & (x.abs() < math.inf)
    return _Pair(raised, y * f.select(low, factor, one), f.select(low, 1.0 / factor, one), far)


def _raise_of(fmt: FloatFormat) -> int:
    return 2 * fmt.digits


def truncrem(f: Formula, x: Term, y: Term) -> Term:
    """C's fmod: exact, with the dividend's sign."""
    pair = _raised(f, x, y)
    return pair.lowered(_signed_remainder(f, pair))


def _signed_remainder(f: Formula, pair: _Pair) -> Term:
    return _with_sign_of(_magnitude_remainder(f, pair.x.abs(), _absolute(f, pair.y), pair.far), pair.x)


def _absolute(f: Formula, y: Term) -> Term:
    number = y.constant
    return y.abs() if number is None else f.term(abs(number), y.dtype)


def truncdiv(f: Formula, x: Term, y: Term) -> Term:
    """A half's quotient is rounded to a half before it is cut."""
    if x.dtype is dtypes.f16:
        return f.call("trunc", quotient(f, x.cast(dtypes.f32), y.cast(dtypes.f32)).cast(dtypes.f16))
    return f.call("trunc", quotient(f, x, y))


def _signs_differ(a: Term, b: Term) -> Term:
    """By the sign bits: a compiler may compare what was raised as it was before, where devices take it for 0."""
    return ((a.bits() ^ b.bits()) & format_of(a).sign_mask).differs(0)


def _is_zero(x: Term) -> Term:
    return (x.bits() & format_of(x).magnitude_mask).equals(0)


def floormod(f: Formula, x: Term, y: Term) -> Term:
    """Python's %: the remainder has the divisor's sign, zeros too."""
    pair = _raised(f, x, y)
    rest = _signed_remainder(f, pair)
    moved = f.select(_signs_differ(rest, y), rest + pair.y, rest)
    zero = f.term(0.0, x.dtype)
    return pair.lowered(f.select(_is_zero(rest), _with_sign_of(zero, y), moved))


def floordiv(f: Formula, x: Term, y: Term) -> Term:
    """Python's //: the exact multiple of y below x, divided by y and rounded to the integer nearby."""
    pair = _raised(f, x, y)
    rest = _signed_remainder(f, pair)
    plain = x / y
    whole = (pair.x - rest) / pair.y
    whole = whole if pair.far is None else f.select(pair.far, plain, whole)  # too large for the remainder to count
    lower = ~_is_zero(rest) & _signs_differ(rest, y)
    whole = f.select(lower, whole - 1.0, whole)
    floor = f.call("floor", whole)
    floor = f.select(whole - floor > 0.5, floor + 1.0, floor)
    zero = f.term(0.0, x.dtype)
    result = f.select(whole.equals(0.0), _with_sign_of(zero, plain), floor)
    return f.select(pair.y.equals(0.0), plain, result)


REMAINDER_RULES: dict[str, Callable[..., Term]] = {
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncrem": truncrem,
}
