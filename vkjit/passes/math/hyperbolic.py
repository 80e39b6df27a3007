"""sinh, cosh, tanh and their inverses (f32 and f64).

They are computed from exp, expm1, and the logarithm of a sum with its rounding error (`log_of_sum`).
"""

from __future__ import annotations

import math

from ..arithmetic.floats import copy_sign
from ..arithmetic.remainder import quotient
from ..formulas.formats import format_of, is_nan
from ..formulas.formula import Formula, Term
from .exponential import exp_scaled, expm1
from .logarithm import log_of_sum, two_sum
from .roots import square_root
from .tables import tables_of

__all__ = ["acosh", "asinh", "atanh", "cosh", "sinh", "tanh"]


def sinh(f: Formula, x: Term) -> Term:
    """Return sinh(x): a polynomial for |x| < 1, else half the difference of exp(|x|) and its reciprocal."""
    magnitude = x.abs()
    square = x * x
    small = magnitude + magnitude * (square * f.polynomial(square, tables_of(x).sinh))
    half = exp_scaled(f, magnitude, -1)  # exp(|x|) / 2, so 0.25 / half is exp(-|x|) / 2
    return copy_sign(f.select(magnitude < 1.0, small, half - 0.25 / half), x)


def cosh(f: Formula, x: Term) -> Term:
    """Return cosh(x): half the sum of exp(|x|) and its reciprocal."""
    half = exp_scaled(f, x.abs(), -1)  # exp(|x|) / 2, so 0.25 / half is exp(-|x|) / 2
    return half + 0.25 / half


def tanh(f: Formula, x: Term) -> Term:
    """Return tanh(x): e / (e + 2) with e = exp(2|x|) - 1 and the sign of x; |x| is clamped to where the result is 1."""
    magnitude = x.abs()
    limit = (format_of(x).digits + 3) * math.log(2) / 2
    clamped = f.select(magnitude > limit, limit, magnitude)
    e = expm1(f, 2.0 * clamped)
    return copy_sign(e / (e + 2.0), x)


def _log_of_one_plus(f: Formula, magnitude: Term, beyond: Term) -> Term:
    """Return log(1 + beyond), or log(2 * magnitude) for a large magnitude.

    The callers compute asinh or acosh of `magnitude`. Their `beyond` approaches 2 * magnitude, and may overflow where
    the logarithm doesn't.
    """
    large = magnitude > 2.0 ** (format_of(magnitude).digits // 2 + 1)
    total, error = two_sum(f, 1.0, f.select(large, 1.0, beyond))
    high, low = f.select(large, magnitude, total), f.select(large, 0.0, error)
    doublings = large.cast(format_of(magnitude).signed)
    result = log_of_sum(f, f.select(magnitude < math.inf, high, 1.0), low, doublings)
    return f.select(magnitude < math.inf, result, magnitude)


def asinh(f: Formula, x: Term) -> Term:
    """Return asinh(x): log(1 + |x| + x*x / (1 + sqrt(1 + x*x))), with the sign of x."""
    magnitude = x.abs()
    square = x * x
    beyond = magnitude + square / (1.0 + square_root(f, 1.0 + square))
    result = _log_of_one_plus(f, magnitude, beyond)
    tiny = magnitude < 2.0 ** -(format_of(x).digits // 2 + 1)  # asinh(x) is x to working precision
    return f.select(tiny, x, copy_sign(result, x))


def acosh(f: Formula, x: Term) -> Term:
    """Return acosh(x): log(1 + t + sqrt(2 t + t*t)) with t = x - 1; NaN below 1."""
    t = x - 1.0
    inside = x >= 1.0
    safe = f.select(inside, t, 0.0)
    beyond = safe + square_root(f, 2.0 * safe + safe * safe)
    return f.select(inside, _log_of_one_plus(f, x, beyond), math.nan)


def atanh(f: Formula, x: Term) -> Term:
    """Return atanh(x): log(1 + 2|x| / (1 - |x|)) / 2, with the sign of x; infinite at -1 and 1, NaN beyond."""
    magnitude = x.abs()
    inside = magnitude < 1.0
    safe = f.select(inside, magnitude, 0.0)
    total, error = two_sum(f, 1.0, quotient(f, 2.0 * safe, 1.0 - safe))
    result = 0.5 * log_of_sum(f, total, error)
    beyond = f.select(magnitude.equals(1.0), f.term(math.inf, x.dtype), math.nan)
    result = copy_sign(f.select(inside, result, beyond), x)
    tiny = magnitude < 2.0 ** -(format_of(x).digits // 2 + 1)  # atanh(x) is x to working precision
    return f.select(tiny | is_nan(x), x, result)
