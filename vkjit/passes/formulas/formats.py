"""The parameters of f32 and f64 as binary floating-point formats, and helpers for formulas that work on their bits."""

from __future__ import annotations

from dataclasses import dataclass

from vkjit import dtypes
from vkjit.dtypes import DType

from .formula import Term

__all__ = ["FORMATS", "FloatFormat", "format_of", "half_precision_part", "is_nan", "power_of_two"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format.

    `mantissa` is the number of stored significand bits, `bias` the exponent's bias. `bits` is the unsigned and `signed`
    the signed integer type of the same width.
    """

    dtype: DType
    bits: DType
    signed: DType
    mantissa: int
    bias: int

    @property
    def sign_mask(self) -> int:
        return 1 << (self.bits.bits - 1)

    @property
    def magnitude_mask(self) -> int:
        return self.sign_mask - 1

    @property
    def infinity_bits(self) -> int:
        return (2 * self.bias + 1) << self.mantissa

    @property
    def one_bits(self) -> int:
        return self.bias << self.mantissa

    @property
    def digits(self) -> int:
        """The number of significant bits, the implicit one included."""
        return self.mantissa + 1

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def least_subnormal_exponent(self) -> int:
        return 1 - self.bias - self.mantissa


FORMATS: dict[DType, FloatFormat] = {
    dtypes.f32: FloatFormat(dtypes.f32, dtypes.u32, dtypes.i32, 23, 127),
    dtypes.f64: FloatFormat(dtypes.f64, dtypes.u64, dtypes.i64, 52, 1023),
}


def format_of(x: Term) -> FloatFormat:
    """Return the format of a term of type f32 or f64."""
    return FORMATS[x.dtype]


def is_nan(x: Term) -> Term:
    """Return true if x is NaN, tested by its bits, as drivers may simplify float comparisons like x != x."""
    fmt = format_of(x)
    return (x.bits() & fmt.magnitude_mask) > fmt.infinity_bits


def half_precision_part(x: Term) -> Term:
    """Return x with the lower half of its significand cleared. Products of two such numbers are exact."""
    fmt = format_of(x)
    mask = fmt.sign_mask * 2 - (1 << ((fmt.digits + 1) // 2))  # all ones, except for the lower half of the digits
    return (x.bits() & mask).as_bits_of(x.dtype)


def power_of_two(exponent: Term, dtype: DType) -> Term:
    """Return 2**exponent as a float of type `dtype`. The result must be a normal number.

    `exponent` is a signed integer of the float's width.
    """
    fmt = FORMATS[dtype]
    return ((exponent + fmt.bias) << fmt.mantissa).as_bits_of(dtype)
