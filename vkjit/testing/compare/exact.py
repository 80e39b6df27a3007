"""Exact values of mathematical functions, and errors of results in ULPs, for measuring the accuracy of IR operations.

Functions of f16 and f32 are evaluated in f64, those of f64 in extended precision (NumPy's longdouble, or mpmath), which
adds at least eleven bits. One ULP is the spacing of the result's type at the exact value. `judge` compares the results
of an operation with its exact values; `vkjit.ir.ops` has the error bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit.errors import ArgumentError
from vkjit.ir.ops import OpName
from vkjit.ir.semantics import MEANING, silence_warnings

__all__ = ["Verdict", "exact", "judge"]

Values = Any

_WITHOUT_EXTENDED: frozenset[OpName] = frozenset({"erf", "erfc"})
"""Functions that the interpreter's NumPy semantics don't provide in extended precision."""


def exact(name: OpName, operands: list[Values]) -> Values:
    """Evaluate the IR operation `name` on float arrays in a wider type than theirs."""
    with silence_warnings():
        if operands[0].dtype != np.float64:
            return np.asarray(_wide_meaning(name)(*(v.astype(np.float64) for v in operands)))
        # a longdouble is wider than f64 only on some platforms: on x86 it has a mantissa of 63 bits
        if np.finfo(np.longdouble).nmant >= 63 and name not in _WITHOUT_EXTENDED:
            return np.asarray(_wide_meaning(name)(*(v.astype(np.longdouble) for v in operands)))
    return _with_mpmath(name, operands)


def _wide_meaning(name: OpName) -> Callable[..., Values]:
    """Return the NumPy implementation of an operation that keeps the precision of wide operands."""
    if name == "rsqrt":
        return lambda x: 1 / np.sqrt(x)
    if name == "div":
        return lambda x, y: x / y
    return MEANING[name]


def _with_mpmath(name: OpName, operands: list[Values]) -> Values:
    """Evaluate an operation with mpmath in 80 bits, element by element; zeros, infinities and NaN come from NumPy."""
    try:
        import mpmath
    except ImportError:
        raise ArgumentError(f"the exact {name} of f64 needs mpmath: pip install mpmath") from None
    context = mpmath.MPContext()
    context.prec = 80
    functions: dict[OpName, Callable[..., Any]] = {
        "rsqrt": lambda x: 1 / context.sqrt(x),
        "div": lambda x, y: x / y,
        "exp2": lambda x: context.mpf(2) ** x,
    }
    # all others have the same name in mpmath, except pow
    function = functions.get(name) or getattr(context, "power" if name == "pow" else name)
    with silence_warnings():
        result = np.asarray(MEANING[name](*operands)).astype(np.longdouble)
    regular = np.isfinite(result) & (result != 0)
    for i in np.flatnonzero(regular):
        value = function(*(context.mpf(float(v[i])) for v in operands))
        mantissa, exponent = context.frexp(value)
        high = float(mantissa)  # the mantissa as a sum of two floats, since a longdouble holds more than one does
        result[i] = np.ldexp(np.longdouble(high) + np.longdouble(float(mantissa - high)), exponent)
    return result


@dataclass(frozen=True, slots=True)
class Verdict:
    """The errors of an operation's results.

    `ulp` is the largest error of the normal (not subnormal) results in ULPs, and `at` the index of this result (None if
    all are exact). `wrong` has the indices of results outside the bound, and of special values (zeros, infinities, NaN)
    that differ from those of IEEE 754 and C. `flushed` is the number of subnormal results that became 0.
    """

    ulp: float
    at: int | None
    wrong: Values
    flushed: int


def judge(name: OpName, operands: list[Values], found: Values, bound: float) -> Verdict:
    """Compare the results `found` of the IR operation `name` with its exact values.

    `bound` is the allowed error in ULPs. Subnormal operands may be flushed to zero of the same sign. Subnormal results
    may differ by up to the smallest normal number, which allows flushing them to zero.
    """
    wide = exact(name, operands)
    ulp, acceptable = _compare(wide, found, bound)
    tiny = np.finfo(found.dtype).tiny
    has_subnormal_operand = np.zeros(found.shape, np.bool_)
    for operand in operands:
        has_subnormal_operand |= (np.abs(operand) < tiny) & (operand != 0)
    # results that are wrong for the operands as given may be right for flushed operands
    rejected = np.flatnonzero(has_subnormal_operand & ~acceptable)
    if len(rejected):
        flushed = [
            np.where(np.abs(v[rejected]) < tiny, np.copysign(v.dtype.type(0), v[rejected]), v[rejected])
            for v in operands
        ]
        acceptable[rejected] = _compare(exact(name, flushed), found[rejected], bound)[1]
    errors = np.where(has_subnormal_operand, -1.0, ulp)  # -1, as in `_compare`, leaves results out of the maximum
    at = int(np.argmax(errors)) if found.size else None
    worst = float(errors[at]) if at is not None else 0.0
    with silence_warnings():
        flushed_count = int(np.count_nonzero((found == 0) & (wide != 0) & (np.abs(wide) < tiny)))
    return Verdict(max(worst, 0.0), at if worst > 0 else None, np.flatnonzero(~acceptable), flushed_count)


def _compare(wide: Values, found: Values, bound: float) -> tuple[Values, Values]:
    """Compare results with the exact values `wide`.

    Returns the errors in ULPs (-1 for special and subnormal results), and a mask of acceptable results.
    """
    info = np.finfo(found.dtype)
    with silence_warnings():
        same = (np.isnan(wide) & np.isnan(found)) | ((found == wide) & (np.signbit(found) == np.signbit(wide)))
        # An infinite result counts as the first power of two past the largest number, and so do exact values beyond it:
        # a result that overflows has an error of few ULPs if the exact value is close to the largest number.
        limit = wide.dtype.type(2) ** info.maxexp
        distance = np.abs(np.clip(found.astype(wide.dtype), -limit, limit) - np.clip(wide, -limit, limit))
        # |wide| is in [2**(exponent - 1), 2**exponent), where one ULP is 2**(exponent - 1 - nmant)
        exponent = np.frexp(np.clip(np.abs(wide), info.tiny, limit / 2))[1]
        ulp = np.asarray(distance * np.exp2((info.nmant + 1 - exponent).astype(wide.dtype)), np.float64)
        regular = np.isfinite(wide) & (wide != 0) & ~np.isnan(found)
        # exact values that an error of `bound` ULPs may turn into subnormal numbers count as subnormal
        subnormal_limit = info.tiny * (1 + bound * info.eps)
        subnormal = regular & (np.abs(wide) < subnormal_limit)
        acceptable = same | (regular & (ulp <= bound)) | (subnormal & (distance <= subnormal_limit))
    return np.where(regular & ~subnormal, ulp, -1.0), acceptable
