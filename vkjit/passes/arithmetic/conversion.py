"""Expansions of the operation `cast`, for `lower_arithmetic`.

Floats are converted to integers with saturation, bools to 0 or 1, and f16 and bf16 values without double rounding. Expansions of
float-to-integer conversions end in a `cast` with the attribute `raw`: its operand is in the target's range, where
SPIR-V defines the result. Conversions between integers, which wrap around, and to wider floats need no expansion.
"""

from __future__ import annotations

from functools import partial

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Op

from ..formulas.expansion import Rule
from ..formulas.formats import FORMATS, is_nan
from ..formulas.formula import Formula, Term

__all__ = ["conversion_rule"]


def conversion_rule(op: Op, source: DType, target: DType) -> Rule | None:
    """Return the expansion rule for a `cast` from `source` to `target`; None if SPIR-V's conversion suffices."""
    if op.attrs.get("raw") or source is target:
        return None
    if source.kind == "bool":
        return partial(_from_bool, target)
    if target.kind == "bool":
        return _to_bool
    if source.is_float and target.is_integer:
        return partial(_through_f32 if source.bits == 16 else _saturated, target)
    if source.is_integer and target is dtypes.f16:
        return partial(_through_f32, target)
    if source is dtypes.f64 and target is dtypes.f16:
        return partial(_through_odd_f32, target)
    if target is dtypes.bf16 and source.bits > 16 and source is not dtypes.f32:
        return partial(_through_odd_f32, target)
    return None


def _from_bool(target: DType, f: Formula, x: Term) -> Term:
    return f.select(x, f.term(1, target), f.term(0, target))


def _to_bool(_f: Formula, x: Term) -> Term:
    return x.differs(0)


def _through_f32(target: DType, _f: Formula, x: Term) -> Term:
    """Convert f16 to an integer, or an integer to f16, through f32.

    This doesn't round twice: every f16 value is exact in f32, and integers that aren't exact in f32 (above 2**24)
    overflow f16 in any case.
    """
    return x.cast(dtypes.f32).cast(target)


def _saturated(target: DType, f: Formula, x: Term) -> Term:
    """Convert a float to an integer: truncate, saturate to the type's range, and map NaN to 0."""
    minimum = -(1 << (target.bits - 1)) if target.is_signed else 0
    maximum = minimum + (1 << target.bits) - 1
    above = x >= float(maximum + 1)
    # values between `minimum - 1` and `minimum` truncate to `minimum`. If `minimum - 1` isn't exact as a float, the
    # format has no values between them
    below = x <= float(minimum - 1) if target.bits < FORMATS[x.dtype].digits else x < float(minimum)
    outside = above | below | is_nan(x)
    wide = target if target.bits >= 32 else dtypes.i32  # i32 has all values of 8- and 16-bit types
    converted = f.select(outside, 0.0, x).raw_cast(wide).cast(target)
    limit = f.select(above, maximum, f.select(below, f.term(minimum, target), 0))
    return f.select(outside, limit, converted)


def _through_odd_f32(target: DType, f: Formula, x: Term) -> Term:
    """Convert f64 or an integer to f16 or bf16 through an f32 that is rounded to odd, which avoids errors of double
    rounding.

    Rounding to odd truncates, and sets the last bit to 1 if the result is inexact. The last bit then tells the second
    rounding that the value isn't exactly halfway between two values of the target type.
    """
    as_f32 = x.cast(dtypes.f32)
    widened = as_f32.cast(x.dtype)
    is_larger = widened > x  # in magnitude
    if x.dtype.is_signed:
        is_larger = f.select(x < 0, widened < x, is_larger)
    # if f32 rounding increased the magnitude, decrement the bits to truncate instead
    odd = ((as_f32.bits() - is_larger.cast(dtypes.u32)) | 1).as_bits_of(dtypes.f32)
    is_exact = widened.equals(x) | is_nan(as_f32) if x.dtype.is_float else widened.equals(x)
    return f.select(is_exact, as_f32, odd).cast(target)
