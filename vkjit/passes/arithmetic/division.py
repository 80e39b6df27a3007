"""Integer division in Python's and C's senses: a zero divisor gives 0, the least integer by -1 wraps."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Region, Value
from ..formula import Formula, Term

__all__ = ["INTEGER_RULES", "is_non_negative"]

_IDS = frozenset({
    "global_id", "local_id", "group_id", "num_groups", "local_size", "extent",
    "lane_id", "subgroup_id", "subgroup_size", "num_subgroups",
})  # fmt: skip
_KEEPS_SIGN = frozenset({
    "add", "mul", "min", "max", "and",
    "floordiv", "floormod", "truncdiv", "truncrem", "udiv_raw", "urem_raw", "sdiv_raw",
})  # fmt: skip

_MOST_DATA_BITS = 32
"""What numbers beside ids and extents may add to a sum or product of `index` that is taken not to overflow."""


def is_non_negative(value: Value, depth: int = 8) -> bool:
    """True where a signed value is known not to be negative.

    Sums and products count only for `index`, whose ids and extents don't overflow in any grid or array that fits an
    address space; constants and converted numbers beside them count with their width.
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
        found = getattr(source, "dtype", dtype)
        narrower = (
            found.bits < dtype.bits or found.kind == dtype.kind or (dtype.kind == "index" and found.kind == "int")
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
    wraps = op.name in ("add", "mul") and (dtype.kind != "index" or _data_bits(value, depth) > _MOST_DATA_BITS)
    return op.name in _KEEPS_SIGN and not wraps and all(is_non_negative(v, depth - 1) for v in op.operands)


def _data_bits(value: Value, depth: int = 8) -> int:
    """Bits that constants and numbers of the program's own, in contrast to ids and extents, add to a value at most."""
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
    """k where the divisor is the constant 2**k."""
    number = y.constant
    if number is None or number <= 0 or int(number) & (int(number) - 1):
        return None
    return int(number).bit_length() - 1


def _unsigned(f: Formula, x: Term, y: Term, raw: str) -> Term:
    """x / y or x % y of values that aren't negative."""
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift if raw == "udiv_raw" else x & ((1 << shift) - 1)
    if y.constant is not None:
        return f.call(raw, x, y) if y.constant else f.term(0, x.dtype)
    zero = y.equals(0)
    return f.select(zero, 0, f.call(raw, x, f.select(zero, 1, y)))


def _both_non_negative(x: Term, y: Term) -> bool:
    return is_non_negative(x.value) and is_non_negative(y.value)


def _truncated(f: Formula, x: Term, y: Term) -> tuple[Term, Term]:
    """Quotient and remainder of signed values, rounded to zero; y is not 0 where the quotient is used."""
    if y.constant is not None and y.constant not in (0, -1):
        quotient = f.call("sdiv_raw", x, y)
    else:
        minus = y.equals(-1)
        safe = f.select(minus | y.equals(0), 1, y)
        quotient = f.select(minus, -x, f.call("sdiv_raw", x, safe))
    return quotient, x - quotient * y


def _or_zero(f: Formula, y: Term, result: Term) -> Term:
    if y.constant is not None:
        return result if y.constant else f.term(0, y.dtype)
    return f.select(y.equals(0), 0, result)


def floordiv(f: Formula, x: Term, y: Term) -> Term:
    """Rounds to minus infinity."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "udiv_raw")
    shift = _shift_of(y)
    if shift is not None:
        return x >> shift
    quotient, remainder = _truncated(f, x, y)
    down = remainder.differs(0) & ((remainder ^ y) < 0)
    return _or_zero(f, y, f.select(down, quotient - 1, quotient))


def floormod(f: Formula, x: Term, y: Term) -> Term:
    """The remainder of `floordiv`: has the divisor's sign."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "urem_raw")
    shift = _shift_of(y)
    if shift is not None:
        return x & ((1 << shift) - 1)
    _, remainder = _truncated(f, x, y)
    down = remainder.differs(0) & ((remainder ^ y) < 0)
    return _or_zero(f, y, f.select(down, remainder + y, remainder))


def _rounding_to_zero(x: Term, shift: int) -> Term:
    """x plus what makes an arithmetic shift round to zero."""
    return x + ((x >> (x.dtype.bits - 1)) & ((1 << shift) - 1))


def truncdiv(f: Formula, x: Term, y: Term) -> Term:
    """Rounds to zero."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "udiv_raw")
    shift = _shift_of(y)
    if shift is not None:
        return _rounding_to_zero(x, shift) >> shift
    return _or_zero(f, y, _truncated(f, x, y)[0])


def truncrem(f: Formula, x: Term, y: Term) -> Term:
    """The remainder of `truncdiv`: has the dividend's sign."""
    if _both_non_negative(x, y):
        return _unsigned(f, x, y, "urem_raw")
    shift = _shift_of(y)
    if shift is not None:
        return x - (_rounding_to_zero(x, shift) & -(1 << shift))
    return _or_zero(f, y, _truncated(f, x, y)[1])


INTEGER_RULES: dict[str, Callable[..., Term]] = {
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncrem": truncrem,
}
