"""Operations with bit-exact strict semantics, and the oracle that they are compared with.

The oracle is NumPy, except where the language deliberately differs: integer division by 0, saturating conversions, and
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
def _float_pairs(
    x: In[T, "N"],
    y: In[T, "N"],
    total: Out[T, "N"],
    difference: Out[T, "N"],
    product: Out[T, "N"],
    quotient: Out[T, "N"],
    least: Out[T, "N"],
    most: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    total[i] = a + b
    difference[i] = a - b
    product[i] = a * b
    quotient[i] = a / b
    least[i] = lang.min(a, b)
    most[i] = lang.max(a, b)


@kernel(over="x", strict=True)
def _integer_sums(
    x: In[T, "N"],
    y: In[T, "N"],
    total: Out[T, "N"],
    difference: Out[T, "N"],
    product: Out[T, "N"],
    both: Out[T, "N"],
    either: Out[T, "N"],
    one: Out[T, "N"],
    left: Out[T, "N"],
    right: Out[T, "N"],
    least: Out[T, "N"],
    most: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    total[i] = a + b
    difference[i] = a - b
    product[i] = a * b
    both[i] = a & b
    either[i] = a | b
    one[i] = a ^ b
    left[i] = a << b
    right[i] = a >> b
    least[i] = lang.min(a, b)
    most[i] = lang.max(a, b)


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
def _bool_pairs(
    x: In[T, "N"],
    y: In[T, "N"],
    both: Out[T, "N"],
    either: Out[T, "N"],
    one: Out[T, "N"],
    same: Out[T, "N"],
    different: Out[T, "N"],
):
    i = lang.global_id(0)
    a, b = x[i], y[i]
    both[i] = a & b
    either[i] = a | b
    one[i] = a ^ b
    same[i] = a == b
    different[i] = a != b


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
def _float_ones(
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
    even[i] = lang.round(a)
    negative[i] = -a
    magnitude[i] = lang.abs(a)


@kernel(over="x", strict=True)
def _integer_ones(x: In[T, "N"], negative: Out[T, "N"], magnitude: Out[T, "N"], complement: Out[T, "N"]):
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


def _wide(function: Callable[..., Values]) -> Callable[..., Values]:
    """Return NumPy's function; for bf16, evaluated in f32 and rounded once."""

    def compute(*operands: Values) -> Values:
        kind = operands[0].dtype
        if kind.name != "bfloat16":
            return function(*operands)
        return np.asarray(function(*(v.astype(np.float32) for v in operands))).astype(kind)

    return compute


def _least(x: Values, y: Values) -> Values:
    if x.dtype.kind in "iu":
        return np.minimum(x, y)
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), x, y), np.minimum(x, y))


def _most(x: Values, y: Values) -> Values:
    if x.dtype.kind in "iu":
        return np.maximum(x, y)
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), y, x), np.maximum(x, y))


def _amount(x: Values, y: Values) -> Values:
    return (y & y.dtype.type(8 * x.dtype.itemsize - 1)).astype(x.dtype)


def _truncated(x: Values, y: Values) -> Values:
    return np.where(y == 0, x.dtype.type(0), np.floor_divide(x - np.fmod(x, y), y))


def expected_conversion(x: Values, target: DType) -> Values:
    """Convert by the language's rules: float to integer truncates and saturates, NaN becomes 0, integers wrap."""
    kind = array_type(target)
    if target.kind == "bool":
        return x != 0
    if target.is_float or x.dtype.kind in "iub":
        return x.astype(np.float32).astype(kind) if "bfloat16" in (kind.name, x.dtype.name) else x.astype(kind)
    info, whole = np.iinfo(kind), np.trunc(x.astype(np.longdouble))
    inside = np.clip(np.nan_to_num(whole, nan=0.0, posinf=2.0**70, neginf=-(2.0**70)), info.min, info.max)
    return inside.astype(kind)


@dataclass(frozen=True, slots=True)
class Group:
    """Operations of one kernel: `run` returns the results in order, `expected` holds names and NumPy functions."""

    name: str
    kinds: frozenset[str]
    operands: int
    run: Any
    expected: tuple[tuple[str, Callable[..., Values]], ...]


_SAME: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("&", np.bitwise_and),
    ("|", np.bitwise_or),
    ("^", np.bitwise_xor),
)
_SUMS: tuple[tuple[str, Callable[..., Values]], ...] = (("+", np.add), ("-", np.subtract), ("*", np.multiply))
COMPARISONS: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("==", np.equal), ("!=", np.not_equal), ("<", np.less), ("<=", np.less_equal), (">", np.greater),
    (">=", np.greater_equal),
)  # fmt: skip
_ONES: tuple[tuple[str, Callable[..., Values]], ...] = (
    ("sqrt", np.sqrt), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round", np.rint),
    ("-x", np.negative), ("abs", np.abs),
)  # fmt: skip
_REST: tuple[tuple[str, Callable[..., Values]], ...] = (("/", np.true_divide), ("min", _least), ("max", _most))
_FLOAT, _INTEGER, _BOOL = frozenset({"float"}), frozenset({"int", "uint"}), frozenset({"bool"})


def _conversions(targets: tuple[DType, ...]) -> tuple[tuple[str, Callable[..., Values]], ...]:
    return tuple((f"to {t.name}", lambda x, t=t: expected_conversion(x, t)) for t in targets)


GROUPS: tuple[Group, ...] = (
    Group(
        "arithmetic",
        _FLOAT,
        2,
        _float_pairs,
        tuple((n, _wide(f)) for n, f in (*_SUMS, *_REST)),
    ),
    Group(
        "arithmetic",
        _INTEGER,
        2,
        _integer_sums,
        (
            *_SUMS,
            *_SAME,
            ("<<", lambda x, y: np.left_shift(x, _amount(x, y))),
            (">>", lambda x, y: np.right_shift(x, _amount(x, y))),
            ("min", _least),
            ("max", _most),
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
            ("truncdiv", _truncated),
            ("truncrem", lambda x, y: np.where(y == 0, x.dtype.type(0), np.fmod(x, y))),
        ),
    ),
    Group(
        "quotients",
        _FLOAT,
        2,
        _float_quotients,
        (("//", _wide(np.floor_divide)), ("%", _wide(np.remainder)), ("truncrem", _wide(np.fmod))),
    ),
    Group("logic", _BOOL, 2, _bool_pairs, (*_SAME, ("==", np.equal), ("!=", np.not_equal))),
    Group("comparisons", _FLOAT | _INTEGER, 2, _comparisons, COMPARISONS),
    Group(
        "rounding",
        _FLOAT,
        1,
        _float_ones,
        tuple((n, _wide(f)) for n, f in _ONES),
    ),
    Group("signs", _INTEGER, 1, _integer_ones, (("-x", np.negative), ("abs", np.abs), ("~", np.invert))),
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
"""All operations compared, one kernel per row."""


def results(group: Group, operands: tuple[Values, ...]) -> list[tuple[str, Values, Values]]:
    """Return the name, the default device's result and the expected result of each operation."""
    found = group.run(*operands)
    found = found if isinstance(found, tuple) else (found,)
    with silence_warnings():
        expected = [(name, np.asarray(function(*operands))) for name, function in group.expected]
    # bf16 results are returned as their bits
    return [
        (name, f.view(e.dtype) if e.dtype.name == "bfloat16" else f, e)
        for (name, e), f in zip(expected, found, strict=True)
    ]
