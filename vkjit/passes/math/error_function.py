"""erf and erfc: a polynomial near 0, and exp(-x*x) times a rational function for the tail (f32 and f64).

(1 + 2x) exp(x*x) erfc(x), as a function of t = (x - c)/(x + c), is smooth over all x >= 0 (Shepherd and Laframboise,
1981). So a polynomial in t approximates it.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.dtypes import DType

from ..arithmetic.floats import copy_sign
from ..formulas.formats import half_precision_part
from ..formulas.formula import Formula, Term
from .exponential import exp_scaled
from .tables import tables_of

__all__ = ["erf", "erfc"]

_CENTER: dict[DType, float] = {dtypes.f32: 2.0, dtypes.f64: 3.75}
"""c of the module's docstring."""
_ERFC_LIMIT: dict[DType, float] = {dtypes.f32: 10.1, dtypes.f64: 27.3}
"""The argument from which on erfc is 0 in this type."""


def _small(f: Formula, x: Term) -> Term:
    """Return erf(x)/x - 1 for |x| <= 1."""
    square = x * x
    return f.polynomial(square, tables_of(x).erf)


def _tail(f: Formula, magnitude: Term) -> Term:
    """Return erfc of a non-negative value.

    The rounding error `cut` of x*x is compensated by a factor of exp(-cut), which is 1 - cut to working precision.
    """
    center, limit = _CENTER[magnitude.dtype], _ERFC_LIMIT[magnitude.dtype]
    x = f.select(magnitude > limit, limit, magnitude)
    t = (x - center) / (x + center)
    with f.exact():
        upper = half_precision_part(x)
        lower = x - upper
        square = x * x
        cut = ((upper * upper - square) + 2.0 * (upper * lower)) + lower * lower
    smooth = f.polynomial(t, tables_of(x).erfc)
    return exp_scaled(f, -square) * ((smooth - smooth * cut) / (1.0 + 2.0 * x))


def erf(f: Formula, x: Term) -> Term:
    """Return erf(x): for |x| < 1 by the polynomial near 0, else as 1 - erfc(|x|) with the sign of x."""
    magnitude = x.abs()
    central = x + x * _small(f, x)
    return f.select(magnitude < 1.0, central, copy_sign(1.0 - _tail(f, magnitude), x))


def erfc(f: Formula, x: Term) -> Term:
    """Return erfc(x): as 1 - erf(x) for |x| < 1/2, else by the tail, as 2 - erfc(|x|) for negative x."""
    magnitude = x.abs()
    tail = _tail(f, magnitude)
    outer = f.select(x < 0.0, 2.0 - tail, tail)
    central = (1.0 - x) - x * _small(f, x)
    return f.select(magnitude < 0.5, central, outer)
