"""The numbers of one floating-point format: polynomials and split constants.

Enters: a dtype. Leaves: its `Tables`. All numbers come from scripts/derive_polynomials.py.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ... import dtypes
from ...dtypes import DType
from ..formula import Term
from . import _gen_polynomials

__all__ = ["TWO_OVER_PI", "Tables", "tables_of"]

TWO_OVER_PI: tuple[int, ...] = _gen_polynomials.TWO_OVER_PI

Polynomial = tuple[float, ...]
Split = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tables:
    """Polynomials, lowest coefficient first, and constants as upper and lower part; see `_gen_polynomials`."""

    exp: Polynomial
    log: Polynomial
    log2: Polynomial
    sin: Polynomial
    cos: Polynomial
    asin: Polynomial
    atan: Polynomial
    sinh: Polynomial
    erf: Polynomial
    erfc: Polynomial
    ln2: Split
    log2_e: Split
    log10_e: Split
    log10_2: Split
    ln2_whole: Split
    half_pi: Split
    half_pi_split: Split
    pi: Split
    quarter_pi: Split
    log2_first: Split
    log2_second: Split


def _load(bits: int) -> Tables:
    return Tables(*(getattr(_gen_polynomials, f"{field.name.upper()}_F{bits}") for field in fields(Tables)))


_TABLES: dict[DType, Tables] = {dtypes.f32: _load(32), dtypes.f64: _load(64)}


def tables_of(x: Term) -> Tables:
    """The numbers for a term of type f32 or f64."""
    return _TABLES[x.dtype]
