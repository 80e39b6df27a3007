"""Operations with bit-exact semantics under `strict=True`, and the expected results that `compare` checks them against.

Each kernel computes several operations of its operands `x` and `y`, of the element type T, one per Out array. A `Group`
lists the operations of a kernel in the order of its Out arrays. Expected results are computed by NumPy, or by functions
of this module where vkjit's kernel language deliberately differs: integer division by 0, saturating conversions, and
signed zeros in min and max.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from vkjit import dtypes, lang
from vkjit.dtypes import DType, Element
from vkjit.ir.semantics import silence_warnings
from vkjit.lang import In, Out
from vkjit.launch.kernel import kernel

from .operands import array_type

__all__ = ["COMPARISONS", "GROUPS", "Group", "expected_conversion", "results"]

T = TypeVar("T", bound=Element)
Values = Any


@kernel(over="x", strict=True)
def _float_arithmetic(
    x: In[T, "N"],
    y: In[T, "N"],
    total: Out[T, "N"],
    difference: Out[T, "N"],
    product: Out[T, "N"],
    quotient: Out[T, "N"],
    minimum: Out[T, "N"],
    maximum: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    total[i] = a + b
    difference[i] = a - b
    product[i] = a * b
    quotient[i] = a / b
    minimum[i] = lang.min(a, b)
    maximum[i] = lang.max(a, b)


@kernel(over="x", strict=True)
def _integer_arithmetic(
    x: In[T, "N"],
    y: In[T, "N"],
    total: Out[T, "N"],
    difference: Out[T, "N"],
    product: Out[T, "N"],
    bit_and: Out[T, "N"],
    bit_or: Out[T, "N"],
    bit_xor: Out[T, "N"],
    left_shift: Out[T, "N"],
    right_shift: Out[T, "N"],
    minimum: Out[T, "N"],
    maximum: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    total[i] = a + b
    difference[i] = a - b
    product[i] = a * b
    bit_and[i] = a & b
    bit_or[i] = a | b
    bit_xor[i] = a ^ b
    left_shift[i] = a << b
    right_shift[i] = a >> b
    minimum[i] = lang.min(a, b)
    maximum[i] = lang.max(a, b)


@kernel(over="x", strict=True)
def _integer_quotients(
    x: In[T, "N"],
    y: In[T, "N"],
    floor: Out[T, "N"],
    modulus: Out[T, "N"],
    quotient: Out[T, "N"],
    remainder: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    floor[i] = a // b
    modulus[i] = a % b
    quotient[i] = lang.truncdiv(a, b)
    remainder[i] = lang.truncrem(a, b)


@kernel(over="x", strict=True)
def _float_quotients(x: In[T, "N"], y: In[T, "N"], floor: Out[T, "N"], modulus: Out[T, "N"], remainder: Out[T, "N"]):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    floor[i] = a // b
    modulus[i] = a % b
    remainder[i] = lang.truncrem(a, b)


@kernel(over="x", strict=True)
def _bool_logic(
    x: In[T, "N"],
    y: In[T, "N"],
    bit_and: Out[T, "N"],
    bit_or: Out[T, "N"],
    bit_xor: Out[T, "N"],
    equal: Out[T, "N"],
    not_equal: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    bit_and[i] = a & b
    bit_or[i] = a | b
    bit_xor[i] = a ^ b
    equal[i] = a == b
    not_equal[i] = a != b


@kernel(over="x", strict=True)
def _comparisons(
    x: In[T, "N"],
    y: In[T, "N"],
    eq: Out[dtypes.boolean, "N"],
    ne: Out[dtypes.boolean, "N"],
    lt: Out[dtypes.boolean, "N"],
    le: Out[dtypes.boolean, "N"],
    gt: Out[dtypes.boolean, "N"],
    ge: Out[dtypes.boolean, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    eq[i] = a == b
    ne[i] = a != b
    lt[i] = a < b
    le[i] = a <= b
    gt[i] = a > b
    ge[i] = a >= b


@kernel(over="x", strict=True)
def _float_unary(
    x: In[T, "N"],
    root: Out[T, "N"],
    floor: Out[T, "N"],
    ceil: Out[T, "N"],
    trunc: Out[T, "N"],
    even: Out[T, "N"],
    negative: Out[T, "N"],
    magnitude: Out[T, "N"],
):
    i = lang.global_id(0)
    a = x[i]
    root[i] = lang.sqrt(a)
    floor[i] = lang.floor(a)
    ceil[i] = lang.ceil(a)
    trunc[i] = lang.trunc(a)
    even[i] = lang.round(a)  # ties to even
    negative[i] = -a
    magnitude[i] = lang.abs(a)


@kernel(over="x", strict=True)
def _integer_unary(x: In[T, "N"], negative: Out[T, "N"], magnitude: Out[T, "N"], complement: Out[T, "N"]):
    i = lang.global_id(0)
    a = x[i]
    negative[i] = -a
    magnitude[i] = lang.abs(a)
    complement[i] = ~a


@kernel(over="x", strict=True)
def _to_integers(
    x: In[T, "N"],
    i8: Out[dtypes.i8, "N"],
    i16: Out[dtypes.i16, "N"],
    i32: Out[dtypes.i32, "N"],
    i64: Out[dtypes.i64, "N"],
    u8: Out[dtypes.u8, "N"],
    u16: Out[dtypes.u16, "N"],
    u32: Out[dtypes.u32, "N"],
    u64: Out[dtypes.u64, "N"],
):
    i = lang.global_id(0)
    a = x[i]
    i8[i] = dtypes.i8(a)
    i16[i] = dtypes.i16(a)
    i32[i] = dtypes.i32(a)
    i64[i] = dtypes.i64(a)
    u8[i] = dtypes.u8(a)
    u16[i] = dtypes.u16(a)
    u32[i] = dtypes.u32(a)
    u64[i] = dtypes.u64(a)


@kernel(over="x", strict=True)
def _to_floats(x: In[T, "N"], bool: Out[dtypes.boolean, "N"], f16: Out[dtypes.f16, "N"], f32: Out[dtypes.f32, "N"]):
    i = lang.global_id(0)
    a = x[i]
    bool[i] = dtypes.boolean(a)
    f16[i] = dtypes.f16(a)
    f32[i] = dtypes.f32(a)


@kernel(over="x", strict=True)
def _to_f64(x: In[T, "N"], f64: Out[dtypes.f64, "N"]):
    i = lang.global_id(0)
    f64[i] = dtypes.f64(x[i])


@kernel(over="y", strict=True)
def _to_bf16(x: In[T, "N"], y: Out[dtypes.bf16, "N"]):
    i = lang.global_id(0)
    y[i] = dtypes.bf16(x[i])


def _through_f32(function: Callable[..., Values]) -> Callable[..., Values]:
    """Wrap a NumPy function so that bf16 operands are computed in f32 and the result is rounded once."""

    def compute(*operands: Values) -> Values:
        np_type = operands[0].dtype
        if np_type.name != "bfloat16":
            return function(*operands)
        return np.asarray(function(*(v.astype(np.float32) for v in operands))).astype(np_type)

    return compute


def _minimum(x: Values, y: Values) -> Values:
    """Return the minimum, where -0 is less than +0."""
    if x.dtype.kind in "iu":
        return np.minimum(x, y)
    zeros = (x == 0) & (y == 0)  # NumPy treats +0 and -0 as equal
    return np.where(zeros, np.where(np.signbit(x), x, y), np.minimum(x, y))


def _maximum(x: Values, y: Values) -> Values:
    """Return the maximum, where -0 is less than +0."""
    if x.dtype.kind in "iu":
        return np.maximum(x, y)
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), y, x), np.maximum(x, y))


def _shift_amount(x: Values, y: Values) -> Values:
    """Return the shift amounts for a shift of x by y, which are taken modulo the number of bits."""
    return (y & y.dtype.type(8 * x.dtype.itemsize - 1)).astype(x.dtype)


def _truncating_quotient(x: Values, y: Values) -> Values:
    """Return the integer quotient rounded toward 0, and 0 for division by 0."""
    # x minus the remainder is a multiple of y, so there is nothing to round
    return np.where(y == 0, x.dtype.type(0), np.floor_divide(x - np.fmod(x, y), y))


def _rounded_to_odd(x: Values) -> Values:
    """Convert to f32: values in between become the one of their two neighbors whose last bit is 1.

    So a second rounding, to fewer digits, gives what a single one does.
    """
    nearest, exact = x.astype(np.float32), x.astype(np.longdouble)
    is_above = np.abs(nearest.astype(np.longdouble)) > np.abs(exact)
    below = np.where(is_above, np.nextafter(nearest, np.float32(0)), nearest)
    is_between = (below.astype(np.longdouble) != exact) & ~np.isnan(exact)
    return np.where(is_between, below.view(np.uint32) | 1, below.view(np.uint32)).view(np.float32)


def expected_conversion(x: Values, target: DType) -> Values:
    """Convert values to a type by the language's rules.

    From float to integer, values are truncated and saturated, and NaN becomes 0. Integers wrap around. Conversions from
    bf16 to other float types go through f32. Conversions to bf16 round once.
    """
    np_type = array_type(target)
    if target.kind == "bool":
        return x != 0
    if np_type.name == "bfloat16" and x.dtype.name != "bfloat16":
        return _rounded_to_odd(x).astype(np_type)
    if target.is_float or x.dtype.kind in "iub":
        return x.astype(np.float32).astype(np_type) if "bfloat16" in (np_type.name, x.dtype.name) else x.astype(np_type)
    info = np.iinfo(np_type)
    truncated = np.trunc(x.astype(np.longdouble))  # on x86-64, longdouble has the limits of i64 and u64
    # infinities become numbers beyond all integer types
    saturated = np.clip(np.nan_to_num(truncated, nan=0.0, posinf=2.0**70, neginf=-(2.0**70)), info.min, info.max)
    return saturated.astype(np_type)


@dataclass(frozen=True, slots=True)
class Group:
    """The operations that one kernel computes.

    `kinds` are the kinds of element types (`DType.kind`) that the kernel supports, `operands` is the number of its
    operands (1 or 2), and `run` is the kernel. `expected` lists the operations in the order of the kernel's Out arrays,
    each with its name and the function for the expected result.
    """

    name: str
    kinds: frozenset[str]
    operands: int
    run: Any
    expected: tuple[tuple[str, Callable[..., Values]], ...]


_BITWISE: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("&", np.bitwise_and),
    ("|", np.bitwise_or),
    ("^", np.bitwise_xor),
)
_ADD_SUB_MUL: tuple[tuple[str, Callable[..., Values]], ...] = (("+", np.add), ("-", np.subtract), ("*", np.multiply))
COMPARISONS: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("==", np.equal), ("!=", np.not_equal), ("<", np.less), ("<=", np.less_equal), (">", np.greater),
    (">=", np.greater_equal),
)  # fmt: skip
_UNARY: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("sqrt", np.sqrt), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round", np.rint),
    ("-x", np.negative), ("abs", np.abs),
)  # fmt: skip
_FLOAT_ONLY: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("/", np.true_divide),
    ("min", _minimum),
    ("max", _maximum),
)
_FLOAT, _INTEGER, _BOOL = frozenset({"float"}), frozenset({"int", "uint"}), frozenset({"bool"})


def _conversions(targets: tuple[DType, ...]) -> tuple[tuple[str, Callable[..., Values]], ...]:
    """Return the operations that convert to the given types, for `Group.expected`."""
    return tuple((f"to {t.name}", lambda x, t=t: expected_conversion(x, t)) for t in targets)


GROUPS: tuple[Group, ...] = (
    Group(
        "arithmetic",
        _FLOAT,
        2,
        _float_arithmetic,
        tuple((n, _through_f32(f)) for n, f in (*_ADD_SUB_MUL, *_FLOAT_ONLY)),
    ),
    Group(
        "arithmetic",
        _INTEGER,
        2,
        _integer_arithmetic,
        (
            *_ADD_SUB_MUL,
            *_BITWISE,
            ("<<", lambda x, y: np.left_shift(x, _shift_amount(x, y))),
            (">>", lambda x, y: np.right_shift(x, _shift_amount(x, y))),
            ("min", _minimum),
            ("max", _maximum),
        ),
    ),
    Group(
        "quotients",
        _INTEGER,
        2,
        _integer_quotients,
        (
            ("//", lambda x, y: np.where(y == 0, x.dtype.type(0), np.floor_divide(x, y))),
            ("%", lambda x, y: np.where(y == 0, x.dtype.type(0), np.remainder(x, y))),
            ("truncdiv", _truncating_quotient),
            ("truncrem", lambda x, y: np.where(y == 0, x.dtype.type(0), np.fmod(x, y))),
        ),
    ),
    Group(
        "quotients",
        _FLOAT,
        2,
        _float_quotients,
        (("//", _through_f32(np.floor_divide)), ("%", _through_f32(np.remainder)), ("truncrem", _through_f32(np.fmod))),
    ),
    Group("logic", _BOOL, 2, _bool_logic, (*_BITWISE, ("==", np.equal), ("!=", np.not_equal))),
    Group("comparisons", _FLOAT | _INTEGER, 2, _comparisons, COMPARISONS),
    Group(
        "rounding",
        _FLOAT,
        1,
        _float_unary,
        tuple((n, _through_f32(f)) for n, f in _UNARY),
    ),
    Group("signs", _INTEGER, 1, _integer_unary, (("-x", np.negative), ("abs", np.abs), ("~", np.invert))),
    Group(
        "conversions",
        _FLOAT | _INTEGER | _BOOL,
        1,
        _to_integers,
        _conversions(
            (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)
        ),
    ),
    Group(
        "conversions",
        _FLOAT | _INTEGER | _BOOL,
        1,
        _to_floats,
        _conversions((dtypes.boolean, dtypes.f16, dtypes.f32)),
    ),
    Group("conversions", _FLOAT | _INTEGER | _BOOL, 1, _to_f64, _conversions((dtypes.f64,))),
    Group("conversions", _FLOAT | _INTEGER | _BOOL, 1, _to_bf16, _conversions((dtypes.bf16,))),
)  # fmt: skip
"""All operations that are compared, one group per kernel."""


def results(group: Group, operands: tuple[Values, ...]) -> list[tuple[str, Values, Values]]:
    """Run a group on the default device; return each operation's name, result and expected result."""
    outputs = group.run(*operands)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    with silence_warnings():
        expected = [(name, np.asarray(function(*operands))) for name, function in group.expected]
    # launches return bf16 results as their bits
    return [
        (name, output.view(values.dtype) if values.dtype.name == "bfloat16" else output, values)
        for (name, values), output in zip(expected, outputs, strict=True)
    ]
