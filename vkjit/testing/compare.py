"""Compares an output with what it should be.

Enters: found and expected values, the bounds. Leaves: a `Difference` that says which elements are wrong and by how
much, or None. NaN equals NaN, infinities have to agree in sign, integers and bools have to be equal, after
wrapping to the output's type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from .case import decode, encode
from .shadow import epsilon
from .tolerances import SPREAD_FACTOR, Tolerance, smallest_normal

__all__ = ["Bounds", "Difference", "compare", "ulps_between"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How exact an output has to be.

    `given`: the user's tolerance, which then is all. Else `budget` gives the sum of errors of `ErrorBudget` (None:
    unknown), and `spread` gives, when it is needed, the measured spread and the undecided elements. `blur` gives what
    the expected values themselves may be off, where they come from a reference. `exact`: bit for bit.
    """

    budget: Callable[[], float | None]
    spread: Callable[[], tuple[Array, npt.NDArray[np.bool_]]] | None
    given: Tolerance | None = None
    exact: bool = False
    blur: Callable[[], Array | None] | None = None
    wide: Callable[[], Array] | None = None

    def of_rows(self, shape: tuple[int, ...]) -> Bounds:
        """The same for an array whose rows come in any order: each row gets what the widest one gets."""
        spread, blur, wide = self.spread, self.blur, self.wide

        def widest() -> tuple[Array, npt.NDArray[np.bool_]]:
            distance, undecided = spread() if spread is not None else (np.zeros(shape), np.zeros(shape, np.bool_))
            return _over_rows(distance, shape), _over_rows(undecided, shape)

        def blurred() -> Array | None:
            unsure = None if blur is None else blur()
            return None if unsure is None else _over_rows(unsure, shape)

        return replace(
            self, spread=None if spread is None else widest, blur=None if blur is None else blurred,
            wide=None if wide is None else lambda: _over_rows(wide(), shape),
        )  # fmt: skip


def _over_rows(values: Array, shape: tuple[int, ...]) -> Array:
    """The largest value of each column, for each row."""
    return np.broadcast_to(values.max(axis=0, initial=values.dtype.type(0)), shape)


@dataclass(frozen=True, slots=True)
class Difference:
    """One output that differs: `wrong` flags elements; `found`, `expected` as carried values; `allowed` per element."""

    wrong: npt.NDArray[np.bool_]
    found: Array
    expected: Array
    allowed: Array
    dtype: DType

    @property
    def first(self) -> tuple[int, ...]:
        """Index of the first wrong element in C order."""
        flat = int(np.flatnonzero(self.wrong)[0])
        return tuple(int(i) for i in np.unravel_index(flat, self.wrong.shape))


def compare(found: Array, expected: Array, dtype: DType, bounds: Bounds) -> Difference | None:
    """The difference of `found` (carried values of `dtype`) from `expected` (any numbers of the same shape)."""
    if found.size == 0:
        return None
    if not dtype.is_float:
        return _compare_exactly(found, expected, dtype, bounds)
    wanted = np.asarray(expected, np.float64)
    value = found.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = decode(encode(wanted.astype(found.dtype), dtype), dtype).astype(np.float64)
        same = (value == rounded) | (np.isnan(value) & np.isnan(rounded))
        if bounds.exact:
            same &= np.isnan(value) | (np.signbit(value) == np.signbit(rounded))
            return None if same.all() else Difference(~same, found, wanted, np.zeros(found.shape), dtype)
        distance = np.where(np.isfinite(value) & np.isfinite(rounded), np.abs(value - wanted), np.inf)
    if same.all():
        return None
    allowed = _allowed(wanted, dtype, bounds)
    wrong = ~same & ~(distance <= allowed)
    if wrong.any() and bounds.given is None and bounds.spread is not None:
        widest, undecided = bounds.spread()
        allowed = allowed + SPREAD_FACTOR * widest
        wrong &= ~(distance <= allowed) & ~undecided
    if wrong.any() and bounds.given is None and bounds.blur is not None:
        unsure = bounds.blur()
        if unsure is not None:
            allowed = allowed + SPREAD_FACTOR * unsure
            wrong &= ~(distance <= allowed)
    if bounds.given is None and bounds.wide is not None and np.isfinite(distance[wrong]).any():
        allowed = np.maximum(allowed, SPREAD_FACTOR * bounds.wide())
        wrong &= ~(distance <= allowed)
    return Difference(wrong, found, wanted, np.asarray(allowed), dtype) if wrong.any() else None


def _allowed(wanted: Array, dtype: DType, bounds: Bounds) -> Array:
    if bounds.given is not None:
        return np.asarray(bounds.given.allowed(wanted))
    relative = 2 * (bounds.budget() or 0.0) + epsilon(dtype)
    return np.asarray(Tolerance(relative, smallest_normal(dtype)).allowed(wanted))


def _compare_exactly(found: Array, expected: Array, dtype: DType, bounds: Bounds) -> Difference | None:
    wanted = np.asarray(expected)
    if dtype.is_integer and wanted.dtype.kind in "iu":
        wanted = wanted.astype(found.dtype)  # integers wrap
    if wanted.dtype.kind == "f" and dtype.is_integer:
        wrong = found.astype(np.float64) != wanted
    else:
        wrong = found != wanted
    if wrong.any() and bounds.given is not None:
        wrong &= np.abs(found.astype(np.float64) - wanted.astype(np.float64)) > bounds.given.allowed(wanted)
    if wrong.any() and bounds.spread is not None and not bounds.exact:
        wrong = wrong & ~bounds.spread()[1]
    return Difference(np.asarray(wrong), found, wanted, np.zeros(found.shape), dtype) if wrong.any() else None


def ulps_between(found: float, expected: float, dtype: DType) -> float:
    """How many units in the last place of the expected value lie between two numbers; inf where one isn't finite."""
    if not (np.isfinite(found) and np.isfinite(expected)):
        return 0.0 if found == expected else float("inf")
    _, exponent = np.frexp(max(abs(expected), smallest_normal(dtype)))
    return float(abs(found - expected) / (epsilon(dtype) * 2.0 ** (int(exponent) - 1)))
