"""erf and erfc: a polynomial up to 1, beyond it exp(-x*x) times a rational scaling (f32 and f64).

(1 + 2x) exp(x*x) erfc(x) is smooth over all x >= 0 as a function of (x - c)/(x + c) (Shepherd and Laframboise, 1981).
"""

from __future__ import annotations

from ... import dtypes
from ...dtypes import DType
from ..arithmetic.floats import copy_sign
from ..formats import half_precision_part
from ..formula import Formula, Term
from .exponential import exp_scaled
from .tables import tables_of

__all__ = ["erf", "erfc"]

_CENTRE: dict[DType, float] = {dtypes.f32: 2.0, dtypes.f64: 3.75}
_MOST: dict[DType, float] = {dtypes.f32: 10.1, dtypes.f64: 27.3}  # erfc is 0 from here on


def _small(f: Formula, x: Term) -> Term:
    """erf(x)/x - 1."""
    square = x * x
    return f.polynomial(square, tables_of(x).erf)


def _tail(f: Formula, magnitude: Term) -> Term:
    """erfc of a value that isn't negative. What rounding cuts from the square is made up for: exp(-cut) = 1 - cut."""
    centre, most = _CENTRE[magnitude.dtype], _MOST[magnitude.dtype]
    x = f.select(magnitude > most, most, magnitude)
    t = (x - centre) / (x + centre)
    with f.exact():
        upper = half_precision_part(x)
        lower = x - upper
        square = x * x
        cut = ((upper * upper - square) + 2.0 * (upper * lower)) + lower * lower
    smooth = f.polynomial(t, tables_of(x).erfc)
    return exp_scaled(f, -square) * ((smooth - smooth * cut) / (1.0 + 2.0 * x))


def erf(f: Formula, x: Term) -> Term:
    """The complement of the tail beyond 1."""
    magnitude = x.abs()
    near = x + x * _small(f, x)
    return f.select(magnitude < 1.0, near, copy_sign(1.0 - _tail(f, magnitude), x))


def erfc(f: Formula, x: Term) -> Term:
    """1 - erf below 1/2."""
    magnitude = x.abs()
    tail = _tail(f, magnitude)
    far = f.select(x < 0.0, 2.0 - tail, tail)
    near = (1.0 - x) - x * _small(f, x)
    return f.select(magnitude < 0.5, near, far)
