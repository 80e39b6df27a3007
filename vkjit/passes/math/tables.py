"""Access to the polynomial coefficients and split constants of a floating-point format.

scripts/derive_polynomials.py writes them to `_gen_polynomials`, where comments define each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from vkjit import dtypes
from vkjit.dtypes import DType

from ..formulas.formula import Term
from . import _gen_polynomials

__all__ = ["TWO_OVER_PI", "Tables", "tables_of"]

TWO_OVER_PI: tuple[int, ...] = _gen_polynomials.TWO_OVER_PI
"""Two zero words, then the fraction bits of 2/pi, in 32-bit words, the highest first."""

Polynomial = tuple[float, ...]
"""Coefficients, the lowest first."""
Split = tuple[float, float]
"""A constant as the sum of an upper and a lower part."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The polynomials and split constants of one format; comments in `_gen_polynomials` define each of them."""

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
    """Return the constants of the format with this number of bits."""
    return Tables(*(getattr(_gen_polynomials, f"{field.name.upper()}_F{bits}") for field in fields(Tables)))


_TABLES: dict[DType, Tables] = {dtypes.f32: _load(32), dtypes.f64: _load(64)}


def tables_of(x: Term) -> Tables:
    """Return the constants for a term of type f32 or f64."""
    return _TABLES[x.dtype]
