"""Expansions of floor and truncating integer division, and of their remainders, for `lower_arithmetic`.

Division by 0 gives 0, and the smallest integer divided by -1 wraps to itself. `UNSIGNED_RULES` are cheaper, for
operands that aren't negative. The `_raw` operations are SPIR-V's instructions, whose divisor must not be 0 (see
`ir.ops`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vkjit.ir.ops import OpName

from ..formulas.formula import Formula, Term

__all__ = ["INTEGER_RULES", "UNSIGNED_RULES"]


def _shift_of(y: Term) -> int | None:
    """Return k if the divisor is the constant 2**k, else None."""
    number = y.constant
    if number is None or number <= 0 or int(number) & (int(number) - 1):
        return None
    return int(number).bit_length() - 1


def _unsigned(raw: OpName, f: Formula, x: Term, y: Term) -> Term:
    """Emit x / y or x % y of non-negative values; `raw` is "udiv_raw" or "urem_raw". Division by 0 gives 0."""
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift if raw == "udiv_raw" else x & ((1 << shift) - 1)
    if y.constant is not None:
        return f.call(raw, x, y) if y.constant else f.term(0, x.dtype)
    by_zero = y.equals(0)
    return f.select(by_zero, 0, f.call(raw, x, f.select(by_zero, 1, y)))


def _truncating_division(f: Formula, x: Term, y: Term) -> tuple[Term, Term]:
    """Emit the truncating quotient and the remainder of signed values. They are valid only if y isn't 0."""
    if y.constant is not None and y.constant not in (0, -1):
        quotient = f.call("sdiv_raw", x, y)
    else:  # divide by 1 instead of 0 and -1: the instruction is undefined for 0, and for -1 if the quotient overflows
        is_minus_one = y.equals(-1)
        safe = f.select(is_minus_one | y.equals(0), 1, y)
        quotient = f.select(is_minus_one, -x, f.call("sdiv_raw", x, safe))
    return quotient, x - quotient * y


def _zero_if_divisor_is_zero(f: Formula, y: Term, result: Term) -> Term:
    """Select `result`, or 0 where the divisor y is 0."""
    if y.constant is not None:
        return result if y.constant else f.term(0, y.dtype)
    return f.select(y.equals(0), 0, result)


def floordiv(f: Formula, x: Term, y: Term) -> Term:
    """Divide, rounding toward negative infinity."""
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift
    quotient, remainder = _truncating_division(f, x, y)
    # truncation has rounded up if the exact quotient is negative: the remainder and y have different sign bits
    needs_correction = remainder.differs(0) & ((remainder ^ y) < 0)
    return _zero_if_divisor_is_zero(f, y, f.select(needs_correction, quotient - 1, quotient))


def floormod(f: Formula, x: Term, y: Term) -> Term:
    """Return the remainder of `floordiv`, which has the divisor's sign."""
    shift = _shift_of(y)
    if shift is not None:
        return x & ((1 << shift) - 1)
    _, remainder = _truncating_division(f, x, y)
    # see `floordiv`
    needs_correction = remainder.differs(0) & ((remainder ^ y) < 0)
    return _zero_if_divisor_is_zero(f, y, f.select(needs_correction, remainder + y, remainder))


def _rounding_to_zero(x: Term, shift: int) -> Term:
    """Add 2**shift - 1 to negative x, so that an arithmetic shift by `shift` rounds toward zero."""
    return x + ((x >> (x.dtype.bits - 1)) & ((1 << shift) - 1))


def truncdiv(f: Formula, x: Term, y: Term) -> Term:
    """Divide, rounding toward zero."""
    shift = _shift_of(y)
    if shift is not None:
        return _rounding_to_zero(x, shift) >> shift
    return _zero_if_divisor_is_zero(f, y, _truncating_division(f, x, y)[0])


def truncrem(f: Formula, x: Term, y: Term) -> Term:
    """Return the remainder of `truncdiv`, which has the dividend's sign."""
    shift = _shift_of(y)
    if shift is not None:
        return x - (_rounding_to_zero(x, shift) & -(1 << shift))
    return _zero_if_divisor_is_zero(f, y, _truncating_division(f, x, y)[1])


INTEGER_RULES: dict[OpName, Callable[..., Term]] = {
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncrem": truncrem,
}
UNSIGNED_RULES: dict[OpName, Callable[..., Term]] = {
    "floordiv": partial(_unsigned, "udiv_raw"),
    "floormod": partial(_unsigned, "urem_raw"),
    "truncdiv": partial(_unsigned, "udiv_raw"),
    "truncrem": partial(_unsigned, "urem_raw"),
}
