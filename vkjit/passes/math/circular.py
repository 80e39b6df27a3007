"""sin, cos and tan for all arguments: argument reduction modulo pi/2, then polynomials (f32 and f64).

The reduction returns the quadrant, which is the number of multiples of pi/2 that are subtracted (modulo 4), and the
reduced argument as a pair of floats, high + low.

Fast path, for f32 below 512, by Cody-Waite reduction: multiples of pi/2 are subtracted in parts of 15 bits, whose
products with the number of quadrants are exact, and the rounding errors of the sums are compensated. The reduced
argument is accurate to 2**-60. The parameter `fast_path` enables this path, on devices where branches are cheap.

General path, by Payne-Hanek reduction in integers: x = M 2**e with an integer M. The product of x and 2/pi counts
quadrants. As four quadrants are a whole turn, only bits of the product whose weight is less than 4 matter, so M is
multiplied by a window of the bits of 2/pi that begins with the first bit that contributes to these. The product's two
highest bits are the quadrant; the fraction after them is accurate to 2**-62 (f32) or 2**-126 (f64), far below the
smallest distance of any float from a multiple of pi/2.
"""

from __future__ import annotations

import math

from vkjit import dtypes

from ..formulas.formats import format_of, half_precision_part
from ..formulas.formula import Formula, Term
from .logarithm import two_sum
from .tables import TWO_OVER_PI, tables_of

__all__ = ["cos", "sin", "tan"]

_WORD = 0xFFFFFFFF
"""Mask of the low 32 bits of a u64. Numbers of several 32-bit words have one word in each u64."""


def _window(f: Formula, position: Term, count: int, words: tuple[int, ...]) -> list[Term]:
    """Return `count` 32-bit words (as u64): the bits of `words` from bit `position` (u32) on.

    `words` has the highest word first. Bit positions count down from the top bit of words[0], which is bit 0.
    """
    index, shift = position >> 5, (position & 31).cast(dtypes.u64)
    # Registers can't be indexed, so words from `index` on are selected bit by bit of the index, as in a barrel shifter.
    levels = (len(words) - count - 1).bit_length()  # the number of bits of the largest index
    chosen = [f.term(word, dtypes.u64) for word in words]
    for level in reversed(range(levels)):
        step = 1 << level
        # The result takes count + 1 words, and the lower levels move by up to step - 1 words more.
        needed = count + 1 + step - 1
        moves = (index & step).differs(0)
        chosen = [
            f.select(moves, chosen[k + step], chosen[k]) if k + step < len(chosen) else chosen[k]
            for k in range(min(needed, len(chosen)))
        ]
    return [(((chosen[k] << 32) | chosen[k + 1]) << shift) >> 32 for k in range(count)]


def _product(factor: list[Term], window: list[Term], count: int) -> list[Term]:
    """Return `count` words of factor * window, those with the weights of the window's first `count` words.

    Higher words count whole turns and are dropped, and so are lower words. Words are ordered from the lowest in
    `factor`, and from the highest in `window` and the result.
    """
    products: dict[int, list[Term]] = {}
    for weight, word in enumerate(factor):
        for k, other in enumerate(window):
            if weight <= k <= count + weight:
                products.setdefault(k - weight, []).append(word * other)
    carry: Term | None = None
    result: list[Term] = []
    for k in reversed(range(count)):
        terms = [p & _WORD for p in products[k]] + [p >> 32 for p in products[k + 1]]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        total = total if carry is None else total + carry
        result.insert(0, total & _WORD)
        carry = total >> 32
    return result


def _reduced(f: Formula, x: Term) -> tuple[Term, Term, Term]:
    """Return (quadrant, high, low) with x = quadrant pi/2 + high + low modulo 2 pi, for finite x >= 0."""
    fmt = format_of(x)
    limbs = 1 if fmt.digits <= 32 else 2  # words of the significand
    count = 2 * limbs  # words of the product that are computed
    exponent = (x.bits() >> fmt.mantissa).cast(dtypes.u32)
    significand = ((x.bits() & ((1 << fmt.mantissa) - 1)) | (1 << fmt.mantissa)).cast(dtypes.u64)
    start = fmt.bias + fmt.mantissa + 2 - 32 * limbs  # the biased exponent whose window starts at the table's first bit
    position = f.select(exponent < start, 0, exponent - start)
    # One leading zero word for each word of the significand, and as many words as the largest exponent needs.
    table = TWO_OVER_PI[2 - limbs :][: (2 * fmt.bias - start) // 32 + count + limbs + 1]
    factor = [significand] if limbs == 1 else [significand & _WORD, significand >> 32]
    top = _product(factor, _window(f, position, count + limbs, table), count)
    whole = (top[0] << 32) | top[1]  # the quadrant in the two highest bits, then the fraction
    quadrant = (whole + (1 << 61)) >> 62  # the nearest one: the fraction is between -1/2 and 1/2
    fraction = (whole - (quadrant << 62)).as_bits_of(dtypes.i64)
    high = fraction.raw_cast(x.dtype)
    low = (fraction - high.raw_cast(dtypes.i64)).raw_cast(x.dtype)
    if limbs == 2:
        low = low + ((top[2] << 32) | top[3]).raw_cast(x.dtype) * 2.0**-64
    # 62 bits of the words are the fraction, so 2**-62 is the weight of their lowest bit in quadrants.
    return (quadrant.cast(dtypes.u32), *_times_half_pi(f, high * 2.0**-62, low * 2.0**-62))


def _times_half_pi(f: Formula, high: Term, low: Term) -> tuple[Term, Term]:
    """Return (high + low) * pi/2 as a pair of floats."""
    upper, lower = tables_of(high).half_pi_split
    with f.exact():
        total = high + low
        remainder = (high - total) + low
        first = half_precision_part(total)
        product = first * upper
        small = first * lower + ((total - first) + remainder) * (upper + lower)
        result = product + small
        return result, (product - result) + small


_FAST_PATH_LIMIT = 512.0
"""The limit of the fast path (f32): fewer than 2**9 quadrants are subtracted below it."""

_HALF_PI_PARTS = (25735 * 2.0**-14, 30376 * 2.0**-29, 17453 * 2.0**-44, float.fromhex("0x1.84698ap-48"))
"""pi/2 as three parts of 15 bits and a remainder."""


def _reduced_fast(f: Formula, x: Term) -> tuple[Term, Term, Term]:
    """Like `_reduced`, for 0 <= x < _FAST_PATH_LIMIT, by Cody-Waite reduction."""
    first, second, third, remainder = _HALF_PI_PARTS
    k = f.call("round", x * (2 / math.pi))
    with f.exact():
        high, error = two_sum(f, x - k * first, -(k * second))
        high, smaller = two_sum(f, high, -(k * third))
        low = (error + smaller) - k * remainder
        total = high + low
        return (k.raw_cast(dtypes.i32).as_bits_of(dtypes.u32), total, (high - total) + low)


def _sine(f: Formula, high: Term, low: Term, square: Term) -> Term:
    """Return the sine of a reduced argument high + low; `square` is high * high."""
    return high + (high * square * f.polynomial(square, tables_of(high).sin) + low * (1.0 - 0.5 * square))


def _cosine(f: Formula, high: Term, low: Term, square: Term) -> Term:
    """Return the cosine of a reduced argument high + low; `square` is high * high."""
    with f.exact():
        half = 0.5 * square
        rounded = 1.0 - half
        correction = (1.0 - rounded) - half
    return rounded + (correction + (square * square * f.polynomial(square, tables_of(high).cos) - high * low))


def _sine_and_cosine(f: Formula, x: Term, fast_path: bool) -> tuple[Term, Term, Term]:
    """Return the quadrant of |x|, and the sine and cosine of the reduced argument."""
    magnitude = x.abs()
    if fast_path and x.dtype is dtypes.f32:
        quadrant, high, low = f.branch(
            magnitude < _FAST_PATH_LIMIT, lambda: _reduced_fast(f, magnitude), lambda: _reduced(f, magnitude)
        )
    else:
        quadrant, high, low = _reduced(f, magnitude)
    small = magnitude < math.pi / 4
    quadrant = f.select(small, 0, quadrant)
    high, low = f.select(small, magnitude, high), f.select(small, 0.0, low)
    square = high * high
    return quadrant, _sine(f, high, low, square), _cosine(f, high, low, square)


def _signed(f: Formula, x: Term, value: Term, minus: Term) -> Term:
    """Return `value`, negated if bit 0 of `minus` is set; NaN if x isn't finite."""
    fmt = format_of(x)
    flip = minus.cast(fmt.bits) << (fmt.bits.bits - 1)
    finite = (x.bits() & fmt.magnitude_mask) < fmt.infinity_bits
    return f.select(finite, (value.bits() ^ flip).as_bits_of(x.dtype), math.nan)


def _sign(x: Term) -> Term:
    """Return the sign of x in bit 0."""
    return (x.bits() >> (x.dtype.bits - 1)).cast(dtypes.u32)


def _sine_of(f: Formula, x: Term, quarter_turns: int, fast_path: bool) -> Term:
    """Return sin(|x| + quarter_turns * pi/2), with the sign flipped for negative x if `quarter_turns` is 0.

    `quarter_turns` is 0 for the sine and 1 for the cosine, which is the same for x and |x|.
    """
    quadrant, sine, cosine = _sine_and_cosine(f, x, fast_path)
    quadrant = quadrant + quarter_turns if quarter_turns else quadrant
    value = f.select((quadrant & 1).differs(0), cosine, sine)
    minus = quadrant >> 1  # bit 0 is set in quadrants 2 and 3, where the result is negative
    return _signed(f, x, value, minus if quarter_turns else minus ^ _sign(x))


def sin(f: Formula, x: Term, *, fast_path: bool = False) -> Term:
    """Return the sine, NaN for infinities; `fast_path` enables the module's fast path."""
    return _sine_of(f, x, 0, fast_path)


def cos(f: Formula, x: Term, *, fast_path: bool = False) -> Term:
    """Return the cosine, NaN for infinities; `fast_path` enables the module's fast path."""
    return _sine_of(f, x, 1, fast_path)


def tan(f: Formula, x: Term, *, fast_path: bool = False) -> Term:
    """Return the tangent, NaN for infinities: sine / cosine, or -cosine / sine in odd quadrants.

    `fast_path` enables the module's fast path.
    """
    quadrant, sine, cosine = _sine_and_cosine(f, x, fast_path)
    odd = (quadrant & 1).differs(0)
    value = f.select(odd, cosine, sine) / f.select(odd, sine, cosine)
    return _signed(f, x, value, quadrant ^ _sign(x))
