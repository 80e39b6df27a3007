"""Expansions of 64-bit integer operations into operations on pairs of u32 words, for `split_int64`.

A pair is (low word, high word). `words` takes a value apart by `extract_word`, `join` makes one of its words by
`join_words`. Results are those of the 64-bit operations for all operands that the op table allows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.attributes import Attrs
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName, op_name
from vkjit.ir.types import Scalar

from ..formulas.formats import power_of_two
from ..formulas.formula import Formula, Term

__all__ = ["WORD_RULES", "cast", "join", "subgroup_rule", "words"]

Pair = tuple[Term, Term]

_HALF = 1 << 16
_MASK = 0xFFFFFFFF


def words(x: Term) -> Pair:
    """Return the words of a 64-bit value."""
    f, op = x.formula, x.value.op
    if op is not None and op.name == "join_words":
        low, high = op.operands
        return f.term(low), f.term(high)
    number = x.constant
    if number is not None:
        return f.term(int(number) & _MASK, dtypes.u32), f.term(int(number) >> 32 & _MASK, dtypes.u32)
    low_word, high_word = (f.call("extract_word", x, lane=lane) for lane in (0, 1))
    return low_word, high_word


def join(pair: Pair, dtype: DType) -> Term:
    """Return the 64-bit value of a pair of words."""
    low, high = pair
    return low.formula.call("join_words", low, high, type=Scalar(dtype))


def _one_if(f: Formula, condition: Term) -> Term:
    return f.select(condition, 1, f.term(0, dtypes.u32))


# Sums and products


def _sum(f: Formula, x: Pair, y: Pair) -> Pair:
    low = x[0] + y[0]
    return low, x[1] + y[1] + _one_if(f, low < x[0])


def _difference(f: Formula, x: Pair, y: Pair) -> Pair:
    return x[0] - y[0], x[1] - y[1] - _one_if(f, x[0] < y[0])


def _negated(f: Formula, x: Pair) -> Pair:
    return -x[0], ~x[1] + _one_if(f, x[0].equals(0))


def _word_product(x: Term, y: Term) -> Pair:
    """Return the 64-bit product of two words, from products of 16-bit halves."""
    (x_low, x_high), (y_low, y_high) = ((v & (_HALF - 1), v >> 16) for v in (x, y))
    cross, other = x_low * y_high, x_high * y_low
    middle = ((x_low * y_low) >> 16) + (cross & (_HALF - 1)) + (other & (_HALF - 1))
    return x * y, x_high * y_high + (cross >> 16) + (other >> 16) + (middle >> 16)


def _product(x: Pair, y: Pair) -> Pair:
    low, high = _word_product(x[0], y[0])
    for a, b in ((x[0], y[1]), (x[1], y[0])):
        if b.constant != 0 and a.constant != 0:
            high = high + a * b
    return low, high


# Bits


def _bitwise(name: OpName, f: Formula, *operands: Term) -> Term:
    """Apply a bitwise operation to each word."""
    by_word = zip(*(words(x) for x in operands), strict=True)
    low, high = (f.call(name, *parts) for parts in by_word)
    return join((low, high), operands[0].dtype)


def _shift_left(f: Formula, x: Pair, amount: Term) -> Pair:
    """Shift left by 0 to 63 bits; `amount` is a u32."""
    low, high = x
    number = amount.constant
    if number is not None:
        n = int(number)
        if n >= 32:
            return f.term(0, dtypes.u32), low << (n - 32)
        return (low << n, high << n | low >> (32 - n)) if n else x
    within = amount & 31
    shifted, is_far = low << within, amount >= 32
    near_high = high << within | (low >> 1) >> (31 - within)  # `low >> (32 - within)`, also if `within` is 0
    return f.select(is_far, 0, shifted), f.select(is_far, shifted, near_high)


def _shift_right(f: Formula, x: Pair, amount: Term, signed: bool) -> Pair:
    """Shift right by 0 to 63 bits, arithmetically if `signed`; `amount` is a u32."""
    low, high = x
    number = amount.constant
    upper = high.signed_bits() if signed else high

    def upper_shifted(n: Term | int) -> Term:
        return (upper >> (f.term(n).signed_bits() if signed and isinstance(n, Term) else n)).bits()

    if number is not None:
        n = int(number)
        if n >= 32:
            return upper_shifted(n - 32), upper_shifted(31) if signed else f.term(0, dtypes.u32)
        return (low >> n | high << (32 - n), upper_shifted(n)) if n else x
    within = amount & 31
    shifted, is_far = upper_shifted(within), amount >= 32
    near_low = low >> within | (high << 1) << (31 - within)
    fill = upper_shifted(31) if signed else f.term(0, dtypes.u32)
    return f.select(is_far, shifted, near_low), f.select(is_far, fill, shifted)


# Comparisons


def _equal(x: Pair, y: Pair) -> Term:
    return x[0].equals(y[0]) & x[1].equals(y[1])


def _is_less(x: Pair, y: Pair, signed: bool) -> Term:
    if x[1].constant is not None and x[1].constant == y[1].constant:
        return x[0] < y[0]
    upper_x, upper_y = (v[1].signed_bits() if signed else v[1] for v in (x, y))
    return (upper_x < upper_y) | (x[1].equals(y[1]) & (x[0] < y[0]))


def _compare(name: str, _f: Formula, x: Term, y: Term) -> Term:
    a, b = words(x), words(y)
    if name in ("eq", "ne"):
        return _equal(a, b) if name == "eq" else ~_equal(a, b)
    first, second = (a, b) if name in ("lt", "ge") else (b, a)
    less = _is_less(first, second, x.dtype.is_signed)
    return less if name in ("lt", "gt") else ~less


def _chosen(f: Formula, condition: Term, x: Pair, y: Pair) -> Pair:
    return f.select(condition, x[0], y[0]), f.select(condition, x[1], y[1])


def _is_negative(x: Pair) -> Term:
    return x[1].signed_bits() < 0


def _magnitude(f: Formula, x: Pair) -> Pair:
    return _chosen(f, _is_negative(x), _negated(f, x), x)


# Division


def _leading_zeros(f: Formula, x: Term) -> Term:
    """Count the leading zeros of a word that isn't 0."""
    return 31 - f.call("find_msb_raw", x)


def _divide_by_word(f: Formula, high: Term, low: Term, divisor: Term) -> Pair:
    """Divide the pair (low, high) by a word that is greater than `high`. Return the quotient and the remainder.

    Long division in base 2**16 (Knuth's algorithm D, in the form of `divlu` in Warren's Hacker's Delight). An estimated
    digit is at most 2 too large.
    """
    shift = _leading_zeros(f, divisor)
    top = divisor << shift
    top_high, top_low = top >> 16, top & (_HALF - 1)
    low, rest = _shift_left(f, (low, high), shift)
    digits = []
    for dividend_digit in (low >> 16, low & (_HALF - 1)):
        digit = f.call("udiv_raw", rest, top_high)
        remainder = rest - digit * top_high
        may_be_large = f.term(True, dtypes.boolean)
        for _ in range(2):
            excess = (digit * top_low > (remainder << 16) + dividend_digit) & (remainder < _HALF)
            is_large = ((digit >= _HALF) | excess) & may_be_large
            digit = f.select(is_large, digit - 1, digit)
            remainder = f.select(is_large, remainder + top_high, remainder)
            may_be_large = is_large & (remainder < _HALF)
        rest = (rest << 16) + dividend_digit - digit * top
        digits.append(digit)
    return (digits[0] << 16) + digits[1], rest >> shift


def _divide(f: Formula, x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """Return the quotient and the remainder of two unsigned pairs; y isn't 0.

    Pairs below 2**32 take the instruction of words. Otherwise, a divisor of one word takes two steps of long division.
    For a larger one, the quotient is estimated from the upper 32 bits of the divisor, and is at most 1 too small.
    """
    zero = f.term(0, dtypes.u32)
    if x[1].constant == 0 and y[1].constant == 0:
        quotient = f.call("udiv_raw", x[0], y[0])
        return (quotient, zero), (x[0] - quotient * y[0], zero)

    def by_words() -> list[Term]:
        quotient = f.call("udiv_raw", x[0], y[0])
        return [quotient, zero, x[0] - quotient * y[0], zero]

    def by_word() -> list[Term]:
        high = f.call("udiv_raw", x[1], y[0])
        low, remainder = _divide_by_word(f, x[1] - high * y[0], x[0], y[0])
        return [low, high, remainder, zero]

    def by_pair() -> list[Term]:
        shift = _leading_zeros(f, y[1])
        divisor = _shift_left(f, y, shift)[1]
        half = _shift_right(f, x, f.term(1, dtypes.u32), signed=False)
        estimate = _divide_by_word(f, half[1], half[0], divisor)[0]
        estimate = _shift_right(f, _shift_left(f, (estimate, zero), shift), f.term(31, dtypes.u32), signed=False)[0]
        estimate = f.select(estimate.equals(0), 0, estimate - 1)
        remainder = _difference(f, x, _product((estimate, zero), y))
        is_small = ~_is_less(remainder, y, signed=False)
        quotient = f.select(is_small, estimate + 1, estimate)
        return [quotient, zero, *_chosen(f, is_small, _difference(f, remainder, y), remainder)]

    def by_long() -> list[Term]:
        return f.branch(y[1].equals(0), by_word, by_pair)

    low, high, remainder_low, remainder_high = f.branch((x[1] | y[1]).equals(0), by_words, by_long)
    return (low, high), (remainder_low, remainder_high)


def _unsigned_division(part: int, f: Formula, x: Term, y: Term) -> Term:
    """Return the quotient (`part` 0) or the remainder (1)."""
    return join(_divide(f, words(x), words(y))[part], x.dtype)


def _signed_division(f: Formula, x: Term, y: Term) -> Term:
    a, b = words(x), words(y)
    quotient = _divide(f, _magnitude(f, a), _magnitude(f, b))[0]
    is_negative = (a[1] ^ b[1]).signed_bits() < 0
    return join(_chosen(f, is_negative, _negated(f, quotient), quotient), x.dtype)


# Conversions


def cast(target: DType, f: Formula, x: Term) -> Term:
    """Convert from or to a 64-bit integer type; floats are in the range of the target."""
    source = x.dtype
    if source.is_float:
        return _from_float(target, f, x)
    if not (source.is_integer and source.bits == 64):
        return join(_widened(f, x), target)
    pair = words(x)
    if target.is_float:
        return _to_float(target, f, pair, source.is_signed)
    if target.bits == 64:
        return join(pair, target)
    return pair[0].as_bits_of(target) if target.bits == 32 else pair[0].cast(target)


def _widened(f: Formula, x: Term) -> Pair:
    """Return the words of a bool or of an integer of at most 32 bits."""
    if not x.dtype.is_signed:
        return x.cast(dtypes.u32), f.term(0, dtypes.u32)
    word = x.cast(dtypes.i32)
    return word.bits(), (word >> 31).bits()


def _from_float(target: DType, f: Formula, x: Term) -> Term:
    """Truncate a float of at least 32 bits. Each step is exact."""
    magnitude = x.abs()
    high = (magnitude * 2.0**-32).raw_cast(dtypes.u32)
    with f.exact():
        low = (magnitude - high.cast(x.dtype) * 2.0**32).raw_cast(dtypes.u32)
    pair = low, high
    return join(_chosen(f, x < 0.0, _negated(f, pair), pair) if target.is_signed else pair, target)


def _to_float(target: DType, f: Formula, x: Pair, signed: bool) -> Term:
    """Convert to a float, rounded to nearest even.

    For f32, the magnitude is normalized to 32 bits, the lowest of which is set if lower bits are lost (sticky bit). That
    word converts with a single rounding.
    """
    if x[1].constant == 0:
        return x[0].cast(target)
    if target is dtypes.f64:
        upper = x[1].signed_bits() if signed else x[1]
        with f.exact():
            return upper.cast(target) * 2.0**32 + x[0].cast(target)
    low, high = _magnitude(f, x) if signed else x
    word = f.select(high.equals(0), low, high)
    zeros = _leading_zeros(f, word | 1) + f.select(high.equals(0), 32, f.term(0, dtypes.u32))
    lost, normalized = _shift_left(f, (low, high), zeros)
    rounded = (normalized | _one_if(f, lost.differs(0))).cast(dtypes.f32)
    result = rounded * power_of_two(32 - zeros.signed_bits(), dtypes.f32)
    result = f.select(_is_negative(x), -result, result) if signed else result
    return result.cast(target)


# Subgroups

_SEPARABLE = frozenset({"and", "or", "xor"})
"""Combining operations that work on each word."""


def _limbs(f: Formula, name: OpName, x: Pair, attrs: Attrs) -> Pair:
    """Sum over lanes: sums of 16-bit limbs can't overflow a word, as there are fewer than 2**16 lanes."""
    limbs = [part for word in x for part in (word & (_HALF - 1), word >> 16)]
    result, carry = [], f.term(0, dtypes.u32)
    for limb in limbs:
        total = f.call(name, limb, **attrs) + carry
        result.append(total & (_HALF - 1))
        carry = total >> 16
    return result[0] | result[1] << 16, result[2] | result[3] << 16


def _combine(name: OpName, attrs: Attrs, f: Formula, x: Term) -> Term:
    """Emit a reduction or scan with `add` or a bitwise operation."""
    pair = words(x)
    if attrs["op"] == "add":
        return join(_limbs(f, name, pair, attrs), x.dtype)
    low, high = (f.call(name, word, **attrs) for word in pair)
    return join((low, high), x.dtype)


def _extreme(attrs: Attrs, f: Formula, x: Term) -> Term:
    """Reduce with `min` or `max`: first the high words, then the low words of the lanes with the best high word."""
    low, high = words(x)
    upper = high.signed_bits() if x.dtype.is_signed else high
    best = f.call("sg_reduce", upper, **attrs)
    identity = f.term(_MASK if attrs["op"] == "min" else 0, dtypes.u32)
    best_low = f.call("sg_reduce", f.select(upper.equals(best), low, identity), **attrs)
    return join((best_low, best.bits()), x.dtype)


def _lane(f: Formula) -> Term:
    return f.call("extract_word", f.call("lane_id"), lane=0)


def _from_lane(f: Formula, x: Term, lane: Term) -> Term:
    """Return the value of the lane whose id is the u32 `lane`."""
    return f.call("sg_shuffle", x, join((lane, f.term(0, dtypes.u32)), dtypes.index))


def _lane_scan(name: str, size: int, exclusive: bool, f: Formula, x: Term) -> Term:
    """Scan with `min`, `max` or `mul` over a subgroup of `size` lanes: lane i takes in lanes i - 1, i - 2, i - 4..."""
    lane, own = _lane(f), x.dtype
    stride, value = 1, x
    while stride < size:
        below = _from_lane(f, value, (lane - stride) & (size - 1))
        combined = WORD_RULES[op_name(name)](f, below, value)
        value = join(_chosen(f, lane >= stride, words(combined), words(value)), own)
        stride *= 2
    if not exclusive:
        return value
    low = -(1 << 63) if own.is_signed else 0
    identity = {"mul": 1, "min": low + (1 << 64) - 1, "max": low}[name]
    below = _from_lane(f, value, (lane - 1) & (size - 1))
    return join(_chosen(f, lane.equals(0), words(f.term(identity, own)), words(below)), own)


def _lane_product(size: int, count: int, f: Formula, x: Term) -> Term:
    """Multiply over the subgroup: the last lane of an inclusive scan. Workgroups have `count` invocations."""
    last = f.term(size - 1, dtypes.u32)
    if count % size:  # the last subgroup isn't full
        subgroup = f.call("extract_word", f.call("subgroup_id"), lane=0)
        last = f.select(subgroup.equals(count // size), count % size - 1, last)
    return _from_lane(f, _lane_scan("mul", size, False, f, x), last)


def subgroup_rule(op: Op, size: int, count: int) -> Callable[..., Term] | None:
    """Return the rule for a `sg_reduce` or `sg_scan`; None if it has no form in words.

    `size` is the size of a subgroup, `count` that of a workgroup.
    """
    name, attrs = op.attrs["op"], op.attrs
    if name == "add" or name in _SEPARABLE:
        return partial(_combine, op.name, attrs)
    if op.name == "sg_scan":
        return partial(_lane_scan, name, size, bool(attrs["exclusive"]))
    if name == "mul":
        return None if attrs.get("partial") else partial(_lane_product, size, count)
    return partial(_extreme, attrs)


def _on_pairs(function: Callable[..., Pair]) -> Callable[..., Term]:
    """Return the rule for a function (formula, pairs...) that returns a pair."""
    return lambda f, *operands: join(function(f, *map(words, operands)), operands[0].dtype)


WORD_RULES: dict[OpName, Callable[..., Term]] = {
    "add": _on_pairs(_sum),
    "sub": _on_pairs(_difference),
    "neg": _on_pairs(_negated),
    "mul": _on_pairs(lambda _f, x, y: _product(x, y)),
    "abs": _on_pairs(_magnitude),
    "shl_raw": _on_pairs(lambda f, x, y: _shift_left(f, x, y[0])),
    "shr_raw": lambda f, x, y: join(_shift_right(f, words(x), words(y)[0], x.dtype.is_signed), x.dtype),
    "min": lambda f, x, y: join(_chosen(f, _compare("lt", f, y, x), words(y), words(x)), x.dtype),
    "max": lambda f, x, y: join(_chosen(f, _compare("lt", f, x, y), words(y), words(x)), x.dtype),
    "select": lambda f, c, x, y: join(_chosen(f, c, words(x), words(y)), x.dtype),
    "udiv_raw": partial(_unsigned_division, 0),
    "urem_raw": partial(_unsigned_division, 1),
    "sdiv_raw": _signed_division,
    **{name: partial(_bitwise, name) for name in ("and", "or", "xor", "not")},
    **{name: partial(_compare, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
"""Maps operations on 64-bit integers to their rules."""
