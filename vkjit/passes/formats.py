"""What formulas need to know about binary floating-point formats.

Enters: a dtype. Leaves: its `FloatFormat`, and tests and splits on terms that work on the bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..dtypes import DType
from .formula import Term

__all__ = ["FORMATS", "FloatFormat", "format_of", "half_precision_part", "is_nan", "power_of_two"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """`mantissa` stored bits, `bias` of the exponent; `bits` and `signed` are integers of the same width."""

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
        """Significant bits."""
        return self.mantissa + 1

    @property
    def min_exponent(self) -> int:
        """Of the least normal number."""
        return 1 - self.bias

    @property
    def least_subnormal_exponent(self) -> int:
        return 1 - self.bias - self.mantissa


FORMATS: dict[DType, FloatFormat] = {
    dtypes.f32: FloatFormat(dtypes.f32, dtypes.u32, dtypes.i32, 23, 127),
    dtypes.f64: FloatFormat(dtypes.f64, dtypes.u64, dtypes.i64, 52, 1023),
}


def format_of(x: Term) -> FloatFormat:
    """The format of a term of type f32 or f64."""
    return FORMATS[x.dtype]


def is_nan(x: Term) -> Term:
    """By the bits: comparisons that drivers may simplify aren't involved."""
    fmt = format_of(x)
    return (x.bits() & fmt.magnitude_mask) > fmt.infinity_bits


def half_precision_part(x: Term) -> Term:
    """The upper half of a float's significant digits: products of two such parts are exact."""
    fmt = format_of(x)
    kept = fmt.sign_mask * 2 - (1 << ((fmt.digits + 1) // 2))
    return (x.bits() & kept).as_bits_of(x.dtype)


def power_of_two(exponent: Term, dtype: DType) -> Term:
    """2 to an integer (signed, of the float's width) in the range of normal numbers."""
    fmt = FORMATS[dtype]
    return ((exponent + fmt.bias) << fmt.mantissa).as_bits_of(dtype)
