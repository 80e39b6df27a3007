"""Compare a kernel's output with the expected values.

NaN equals NaN, infinities must agree in sign, and integers and bools must be equal after wrapping to the output's
type. Other floats must agree within the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.dtypes import DType

from ..cases.case import decode, encode
from ..execution.shadow import epsilon
from .tolerances import SPREAD_FACTOR, Tolerance, smallest_normal

__all__ = ["Bounds", "Difference", "compare", "ulps_between"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The error bounds of an output.

    `given`: the user's tolerance, which replaces all other bounds. Otherwise, `budget` returns the error sum of
    `ErrorBudget` (None: unknown), and `spread`, called only when needed, returns the measured spread and a mask of
    elements whose value is undecided. `reference_uncertainty` returns the uncertainty of the expected values, where
    they come from a reference. `wide_spread` returns the spread under larger perturbations. `exact`: compare bit for
    bit.
    """

    budget: Callable[[], float | None]
    spread: Callable[[], tuple[Array, npt.NDArray[np.bool_]]] | None
    given: Tolerance | None = None
    exact: bool = False
    reference_uncertainty: Callable[[], Array | None] | None = None
    wide_spread: Callable[[], Array] | None = None

    def of_rows(self, shape: tuple[int, ...]) -> Bounds:
        """Return the bounds for an array with unordered rows: every row gets the largest bound of all rows."""
        spread, blur, wide = self.spread, self.reference_uncertainty, self.wide_spread

        def widest() -> tuple[Array, npt.NDArray[np.bool_]]:
            distance, undecided = spread() if spread is not None else (np.zeros(shape), np.zeros(shape, np.bool_))
            return _over_rows(distance, shape), _over_rows(undecided, shape)

        def blurred() -> Array | None:
            unsure = None if blur is None else blur()
            return None if unsure is None else _over_rows(unsure, shape)

        return replace(
            self, spread=None if spread is None else widest, reference_uncertainty=None if blur is None else blurred,
            wide_spread=None if wide is None else lambda: _over_rows(wide(), shape),
        )  # fmt: skip


def _over_rows(values: Array, shape: tuple[int, ...]) -> Array:
    """Return the maximum over the rows, broadcast to all rows."""
    return np.broadcast_to(values.max(axis=0, initial=values.dtype.type(0)), shape)


@dataclass(frozen=True, slots=True)
class Difference:
    """A mismatch in one output.

    `wrong` flags elements, `found` and `expected` are carried values, `allowed` is the allowed difference per element.
    """

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
    """Compare carried values with expected numbers of the same shape; None if all elements are within bounds."""
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
    if wrong.any() and bounds.given is None and bounds.reference_uncertainty is not None:
        unsure = bounds.reference_uncertainty()
        if unsure is not None:
            allowed = allowed + SPREAD_FACTOR * unsure
            wrong &= ~(distance <= allowed)
    if bounds.given is None and bounds.wide_spread is not None and np.isfinite(distance[wrong]).any():
        allowed = np.maximum(allowed, SPREAD_FACTOR * bounds.wide_spread())
        wrong &= ~(distance <= allowed)
    return Difference(wrong, found, wanted, np.asarray(allowed), dtype) if wrong.any() else None


def _allowed(wanted: Array, dtype: DType, bounds: Bounds) -> Array:
    if bounds.given is not None:
        return np.asarray(bounds.given.allowed(wanted))
    relative = 2 * (bounds.budget() or 0.0) + epsilon(dtype)
    return np.asarray(Tolerance(relative, smallest_normal(dtype)).allowed(wanted))


def _compare_exactly(found: Array, expected: Array, dtype: DType, bounds: Bounds) -> Difference | None:
    target = np.asarray(expected)
    if dtype.is_integer and target.dtype.kind in "iu":
        target = target.astype(found.dtype)  # wraps integers
    if target.dtype.kind == "f" and dtype.is_integer:
        wrong = found.astype(np.float64) != target
    else:
        wrong = found != target
    if wrong.any() and bounds.given is not None:
        wrong &= np.abs(found.astype(np.float64) - target.astype(np.float64)) > bounds.given.allowed(target)
    if wrong.any() and bounds.spread is not None and not bounds.exact:
        wrong = wrong & ~bounds.spread()[1]
    return Difference(np.asarray(wrong), found, target, np.zeros(found.shape), dtype) if wrong.any() else None


def ulps_between(found: float, expected: float, dtype: DType) -> float:
    """Return the distance of two numbers in ULPs of the expected value; inf if one isn't finite and they differ."""
    if not (np.isfinite(found) and np.isfinite(expected)):
        return 0.0 if found == expected else float("inf")
    _, exponent = np.frexp(max(abs(expected), smallest_normal(dtype)))
    return float(abs(found - expected) / (epsilon(dtype) * 2.0 ** (int(exponent) - 1)))
