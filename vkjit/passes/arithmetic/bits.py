"""Expansions of shifts, bit counts, and integer sign, absolute value and power, for `lower_arithmetic`.

The rules in `BIT_RULES` emit `_raw` operations, which have a SPIR-V instruction but restrict their operands (see
`ir.ops`). The instructions that count bits take only 32-bit values. In this module, a narrow value is one of 8 or 16
bits.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.ir.core import Region
from vkjit.ir.ops import OpName

from ..formulas.formula import Formula, Term

__all__ = ["BIT_RULES"]

_MAX_UNROLLED_EXPONENT = 16
"""The largest constant exponent whose multiplications are emitted without a loop."""


def _amount(y: Term) -> Term:
    """Return the shift amount modulo the bit width."""
    number = y.constant
    return y if number is not None and 0 <= number < y.dtype.bits else y & (y.dtype.bits - 1)


def shl(_f: Formula, x: Term, y: Term) -> Term:
    """Shift left, by y modulo the bit width."""
    return x << _amount(y)


def shr(_f: Formula, x: Term, y: Term) -> Term:
    """Shift right, by y modulo the bit width; arithmetic for signed types."""
    return x >> _amount(y)


def _to_top_of_u32(x: Term) -> Term:
    """Shift the bits of a narrow value to the top of a u32.

    This discards the upper bits, in which drivers that compute in wider registers leave garbage.
    """
    return x.bits().cast(dtypes.u32) << (32 - x.dtype.bits)


def _split_words(x: Term) -> list[Term]:
    """Split the bits of a 32- or 64-bit value into u32 words, lowest first."""
    unsigned = x.bits()
    return [unsigned] if x.dtype.bits == 32 else [unsigned.cast(dtypes.u32), (unsigned >> 32).cast(dtypes.u32)]


def _count_bits(f: Formula, x: Term) -> Term:
    """Count the set bits of a 32- or 64-bit value."""
    counts = [f.call("bitcount_raw", word) for word in _split_words(x)]
    return counts[0] if len(counts) == 1 else counts[0] + counts[1]


def popcount(f: Formula, x: Term) -> Term:
    """Count the set bits."""
    count = f.call("bitcount_raw", _to_top_of_u32(x)) if x.dtype.bits < 32 else _count_bits(f, x)
    return count.cast(x.dtype)


def ctz(f: Formula, x: Term) -> Term:
    """Count trailing zeros; the bit width for 0.

    A narrow value is widened to a u32, and the bit above its top bit is set, to end the count.
    """
    unsigned = x.bits() if x.dtype.bits >= 32 else x.bits().cast(dtypes.u32) | (1 << x.dtype.bits)
    return _count_bits(f, ~unsigned & (unsigned - 1)).cast(x.dtype)  # a mask of the trailing zeros


def clz(f: Formula, x: Term) -> Term:
    """Count leading zeros; the bit width for 0.

    A narrow value is shifted to the top of a u32, and the bit below its lowest bit is set, to end the count.
    """
    if x.dtype.bits < 32:
        return (31 - f.call("find_msb_raw", _to_top_of_u32(x) | (1 << (31 - x.dtype.bits)))).cast(x.dtype)
    # find_msb_raw is undefined for 0, hence `word | 1`
    zeros = [f.select(word.equals(0), 32, 31 - f.call("find_msb_raw", word | 1)) for word in _split_words(x)]
    if len(zeros) == 1:
        return zeros[0].cast(x.dtype)
    low, high = zeros
    return f.select(high.equals(32), low + 32, high).cast(x.dtype)


def sign(f: Formula, x: Term) -> Term:
    """Return -1, 0 or 1."""
    if x.dtype.kind == "uint":
        return f.select(x.equals(0), 0, f.term(1, x.dtype))
    return f.select(x > 0, 1, x >> (x.dtype.bits - 1))  # the arithmetic shift gives -1 or 0


def absolute(_f: Formula, x: Term) -> Term:
    """Return the absolute value of an unsigned integer: x itself."""
    return x


def power(f: Formula, x: Term, y: Term) -> Term:
    """Return x to the power of y, wrapping around.

    For a negative exponent, the result is the exact power truncated to an integer: 0 unless x is 1 or -1. (For x = 0,
    it is 0, too.)
    """
    number = y.constant
    if number is not None and 0 <= number <= _MAX_UNROLLED_EXPONENT:
        return _small_power(f, x, int(number))
    exponent = y if y.dtype.kind == "uint" else y.abs().bits()
    result = _square_and_multiply(f, x, exponent)
    if y.dtype.kind == "uint":
        return result
    # for a negative exponent and x other than 1: -1 or 1 if x is -1, by the exponent's lowest bit, else 0
    reciprocal_unless_one = f.select(x.equals(-1), f.select((y & 1).differs(0), -1, f.term(1, x.dtype)), 0)
    return f.select(y < 0, f.select(x.equals(1), 1, reciprocal_unless_one), result)


def _small_power(f: Formula, x: Term, exponent: int) -> Term:
    """Emit exponentiation by squaring for a constant exponent."""
    if exponent == 0:
        return f.term(1, x.dtype)
    half_power = _small_power(f, x, exponent // 2)  # not used for the exponent 1
    square = half_power * half_power if exponent > 1 else x
    return square * x if exponent > 1 and exponent & 1 else square


def _square_and_multiply(f: Formula, x: Term, exponent: Term) -> Term:
    """Emit exponentiation by squaring, as a counted loop with at most one iteration per bit of the exponent."""
    build = f.builder
    exponent_type = exponent.value.type
    carried = [f.term(1, x.dtype).value, x.value, exponent.value]
    bounds = [build.const(n, dtypes.i32) for n in (0, exponent.dtype.bits, 1)]
    body = Region([bounds[0].type, *(v.type for v in carried)], ["bit", "result", "base", "exponent"])
    with build.at(body):
        _, result, base, remaining = (f.term(value) for value in body.args)
        is_zero = build.op("if", remaining.equals(0).value, types=[], regions=[Region(), Region()])
        with build.at(is_zero.regions[0]):
            build.op("break", *body.args[1:])
        with build.at(is_zero.regions[1]):
            build.op("yield")
        result = f.select((remaining & 1).differs(0), result * base, result)
        build.op("continue", result.value, (base * base).value, (remaining >> 1).value)
    loop = build.op("for", *bounds, *carried, types=[x.value.type, x.value.type, exponent_type], regions=[body])
    return f.term(loop.results[0])


BIT_RULES: dict[OpName, Callable[..., Term]] = {
    "shl": shl,
    "shr": shr,
    "popcount": popcount,
    "ctz": ctz,
    "clz": clz,
    "sign": sign,
    "pow": power,
}
