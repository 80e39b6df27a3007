"""Expansions of floor and truncating integer division: division by 0 gives 0, the smallest integer by -1 wraps."""

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
_KEEPS_SIGN: frozenset[OpName] = frozenset({
    "add", "mul", "min", "max", "and",
    "floordiv", "floormod", "truncdiv", "truncrem", "udiv_raw", "urem_raw", "sdiv_raw",
})  # fmt: skip

_MAX_DATA_BITS = 32
"""The bits that other values than ids and extents may contribute to `index` arithmetic that can't overflow."""


def is_non_negative(value: Value, depth: int = 8) -> bool:
    """True if a value is provably non-negative, looking through at most `depth` operations.

    Sums and products qualify only for `index`: those of ids and extents don't overflow for any grid or array that fits
    an address space. Constants and converted integers among the operands are limited by their widths
    (`_MAX_DATA_BITS`).
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
        narrower = (
            source_dtype.bits < dtype.bits
            or source_dtype.kind == dtype.kind
            or (dtype.kind == "index" and source_dtype.kind == "int")
        )
        return narrower and dtype.is_integer and is_non_negative(op.operands[0], depth - 1)
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
    """Return the maximum number of bits that constants and other data (not ids and extents) contribute to a value."""
    op = value.op
    if op is None or depth == 0:
        return 64
    if op.name == "const":
        return int(op.attrs["value"]).bit_length()
    if op.name in _IDS:
        return 0
    if op.name == "cast":
        inner = getattr(op.operands[0].type, "dtype", None)
        below = _data_bits(op.operands[0], depth - 1)
        return below if inner is None or not inner.is_integer else min(below, inner.bits)
    parts = [_data_bits(v, depth - 1) for v in op.operands]
    if op.name == "mul":
        return sum(parts)
    if op.name in ("and", "floormod", "urem_raw"):
        return min(parts) if op.name == "and" else parts[-1]
    return max(parts) if op.name in _KEEPS_SIGN or op.name == "select" else 64


def _shift_of(y: Term) -> int | None:
    """Return k if the divisor is the constant 2**k, else None."""
    number = y.constant
    if number is None or number <= 0 or int(number) & (int(number) - 1):
        return None
    return int(number).bit_length() - 1


def _unsigned(f: Formula, x: Term, y: Term, raw: OpName) -> Term:
    """Emit x / y or x % y of non-negative values; `raw` names the unsigned operation."""
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift if raw == "udiv_raw" else x & ((1 << shift) - 1)
    if y.constant is not None:
        return f.call(raw, x, y) if y.constant else f.term(0, x.dtype)
    zero = y.equals(0)
    return f.select(zero, 0, f.call(raw, x, f.select(zero, 1, y)))


def _both_non_negative(x: Term, y: Term) -> bool:
    return is_non_negative(x.value) and is_non_negative(y.value)


def _truncating_division(f: Formula, x: Term, y: Term) -> tuple[Term, Term]:
    """Emit the truncating quotient and the remainder of signed values. They are valid only if y isn't 0."""
    if y.constant is not None and y.constant not in (0, -1):
        quotient = f.call("sdiv_raw", x, y)
    else:
        minus = y.equals(-1)
        safe = f.select(minus | y.equals(0), 1, y)
        quotient = f.select(minus, -x, f.call("sdiv_raw", x, safe))
    return quotient, x - quotient * y


def _zero_if_divisor_is_zero(f: Formula, y: Term, result: Term) -> Term:
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
    down = remainder.differs(0) & ((remainder ^ y) < 0)
    return _zero_if_divisor_is_zero(f, y, f.select(down, quotient - 1, quotient))


def floormod(f: Formula, x: Term, y: Term) -> Term:
    """Return the remainder of `floordiv`, which has the divisor's sign."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "urem_raw")
    shift = _shift_of(y)
    if shift is not None:
        return x & ((1 << shift) - 1)
    _, remainder = _truncating_division(f, x, y)
    down = remainder.differs(0) & ((remainder ^ y) < 0)
    return _zero_if_divisor_is_zero(f, y, f.select(down, remainder + y, remainder))


def _rounding_to_zero(x: Term, shift: int) -> Term:
    """Add a bias to negative x that makes an arithmetic shift round toward zero."""
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
