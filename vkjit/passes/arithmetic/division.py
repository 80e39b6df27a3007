"""Expansions of floor and truncating integer division, and of their remainders, for `lower_arithmetic`.

Division by 0 gives 0, and the smallest integer divided by -1 wraps to itself. Values that are provably non-negative
(`is_non_negative`) are divided as unsigned ones, which is cheaper. The `_raw` operations are SPIR-V's instructions,
whose divisor must not be 0 (see `ir.ops`).
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName

from ..formulas.formula import Formula, Term

__all__ = ["INTEGER_RULES", "is_non_negative"]

_IDS: frozenset[OpName] = frozenset({
    "global_id", "local_id", "group_id", "num_groups", "local_size", "extent",
    "lane_id", "subgroup_id", "subgroup_size", "num_subgroups",
})  # fmt: skip
"""Ids, sizes and extents, which are never negative. All other values are called data in this module."""
_KEEPS_SIGN: frozenset[OpName] = frozenset({
    "add", "mul", "min", "max", "and",
    "floordiv", "floormod", "truncdiv", "truncrem", "udiv_raw", "urem_raw", "sdiv_raw",
})  # fmt: skip
"""Operations whose result is non-negative if both operands are and nothing overflows."""

_MAX_DATA_BITS = 32
"""The number of bits that data may contribute to an `index` sum or product that is assumed not to overflow."""


def is_non_negative(value: Value, depth: int = 8) -> bool:
    """True if a value is provably non-negative, looking through at most `depth` operations.

    Sums and products may overflow, so they qualify only in the type `index`. There, sums and products of ids and
    extents don't overflow for any grid or array that fits in the address space. Constants and other data may be among
    their operands as long as they contribute at most `_MAX_DATA_BITS` bits.
    """
    dtype = getattr(value.type, "dtype", None)
    if dtype is None or depth == 0:
        return False
    if dtype.kind == "uint":
        return True
    if isinstance(value.owner, Region):
        return False
    op = value.owner
    if op.name == "const":
        return bool(op.attrs["value"] >= 0)
    if op.name in _IDS:
        return True
    if op.name == "cast":
        source = op.operands[0].type
        source_dtype = getattr(source, "dtype", dtype)
        # a non-negative value stays so in a wider type, in the same type, and from int to index; other casts may wrap
        keeps_sign = (
            source_dtype.bits < dtype.bits
            or (source_dtype.kind == dtype.kind and source_dtype.bits == dtype.bits)
            or (dtype.kind == "index" and source_dtype.kind == "int")
        )
        return keeps_sign and dtype.is_integer and is_non_negative(op.operands[0], depth - 1)
    if op.name in ("shr", "shr_raw"):
        return is_non_negative(op.operands[0], depth - 1)
    if op.name == "select":
        return all(is_non_negative(v, depth - 1) for v in op.operands[1:])
    if op.name == "and":
        return any(is_non_negative(v, depth - 1) for v in op.operands)
    if op.name == "floormod" and is_non_negative(op.operands[1], depth - 1):
        return True
    wraps = op.name in ("add", "mul") and (dtype.kind != "index" or _data_bits(value, depth) > _MAX_DATA_BITS)
    return op.name in _KEEPS_SIGN and not wraps and all(is_non_negative(v, depth - 1) for v in op.operands)


def _data_bits(value: Value, depth: int = 8) -> int:
    """Return an upper bound on the number of bits that data contributes to a value. Ids and extents contribute none.

    At most `depth` nested operations are examined; the result is 64 beyond them.
    """
    op = value.op
    if op is None or depth == 0:
        return 64
    if op.name == "const":
        return int(op.attrs["value"]).bit_length()
    if op.name in _IDS:
        return 0
    if op.name == "cast":
        inner = getattr(op.operands[0].type, "dtype", None)
        operand_bits = _data_bits(op.operands[0], depth - 1)
        return operand_bits if inner is None or not inner.is_integer else min(operand_bits, inner.bits)
    per_operand = [_data_bits(v, depth - 1) for v in op.operands]
    if op.name == "mul":
        return sum(per_operand)
    if op.name == "and":
        return min(per_operand)
    if op.name in ("floormod", "urem_raw"):  # less than the divisor
        return per_operand[-1]
    return max(per_operand) if op.name in _KEEPS_SIGN or op.name == "select" else 64


def _shift_of(y: Term) -> int | None:
    """Return k if the divisor is the constant 2**k, else None."""
    number = y.constant
    if number is None or number <= 0 or int(number) & (int(number) - 1):
        return None
    return int(number).bit_length() - 1


def _unsigned(f: Formula, x: Term, y: Term, raw: OpName) -> Term:
    """Emit x / y or x % y of non-negative values; `raw` is "udiv_raw" or "urem_raw". Division by 0 gives 0."""
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift if raw == "udiv_raw" else x & ((1 << shift) - 1)
    if y.constant is not None:
        return f.call(raw, x, y) if y.constant else f.term(0, x.dtype)
    by_zero = y.equals(0)
    return f.select(by_zero, 0, f.call(raw, x, f.select(by_zero, 1, y)))


def _both_non_negative(x: Term, y: Term) -> bool:
    return is_non_negative(x.value) and is_non_negative(y.value)


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
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "udiv_raw")
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift
    quotient, remainder = _truncating_division(f, x, y)
    # truncation has rounded up if the exact quotient is negative: the remainder and y have different sign bits
    needs_correction = remainder.differs(0) & ((remainder ^ y) < 0)
    return _zero_if_divisor_is_zero(f, y, f.select(needs_correction, quotient - 1, quotient))


def floormod(f: Formula, x: Term, y: Term) -> Term:
    """Return the remainder of `floordiv`, which has the divisor's sign."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "urem_raw")
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
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "udiv_raw")
    shift = _shift_of(y)
    if shift is not None:
        return _rounding_to_zero(x, shift) >> shift
    return _zero_if_divisor_is_zero(f, y, _truncating_division(f, x, y)[0])


def truncrem(f: Formula, x: Term, y: Term) -> Term:
    """Return the remainder of `truncdiv`, which has the dividend's sign."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "urem_raw")
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
