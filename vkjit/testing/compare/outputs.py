"""Compare a kernel's output with the expected values.

`search.examiner` does so for each output of each launch. NaN equals NaN, infinities must agree in sign, and integers
and bools must be equal after wrapping to the output's type. Other floats must agree within `Bounds`, which are widened
step by step, from cheap to expensive estimates of the rounding error, as long as elements exceed them.

Values are carried values, as in `cases.case`: arrays of types that NumPy can compute with, such as float32 for bf16.
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
    """The error bounds of an output, most of them functions, which are called only when needed.

    - `given`: the user's tolerance, which replaces all other bounds.
    - `exact`: compare bit for bit.
    - `budget`: returns the rounding error along the longest path, relative to the result (`ErrorBudget.evaluate`); None
      if it is unknown.
    - `spread`: returns how far the kernel's results move per element if its operations are perturbed (`Shadow.spread`),
      and a mask of undecided elements, which change in a way that has no distance, for example to NaN.
    - `reference_uncertainty`: returns the error of the expected values per element, if they come from a reference.
    - `wide_spread`: as `spread`, for larger perturbations.
    """

    budget: Callable[[], float | None]
    spread: Callable[[], tuple[Array, npt.NDArray[np.bool_]]] | None  # None: measure nothing
    given: Tolerance | None = None
    exact: bool = False
    reference_uncertainty: Callable[[], Array | None] | None = None
    wide_spread: Callable[[], Array] | None = None

    def of_rows(self, shape: tuple[int, ...]) -> Bounds:
        """Return the bounds for an array of this shape whose rows are unordered.

        Each row gets the largest bound of all rows, since the rows may have another order in the runs that measure the
        bounds.
        """
        spread, uncertainty, wide = self.spread, self.reference_uncertainty, self.wide_spread

        def widest_spread() -> tuple[Array, npt.NDArray[np.bool_]]:
            distance, undecided = spread() if spread is not None else (np.zeros(shape), np.zeros(shape, np.bool_))
            return _over_rows(distance, shape), _over_rows(undecided, shape)

        def widest_uncertainty() -> Array | None:
            values = None if uncertainty is None else uncertainty()
            return None if values is None else _over_rows(values, shape)

        return replace(
            self, spread=None if spread is None else widest_spread,
            reference_uncertainty=None if uncertainty is None else widest_uncertainty,
            wide_spread=None if wide is None else lambda: _over_rows(wide(), shape),
        )  # fmt: skip


def _over_rows(values: Array, shape: tuple[int, ...]) -> Array:
    """Return the maximum over the rows, broadcast to all rows."""
    return np.broadcast_to(values.max(axis=0, initial=values.dtype.type(0)), shape)


@dataclass(frozen=True, slots=True)
class Difference:
    """A mismatch in one output of type `dtype`.

    `wrong` flags the wrong elements, `found` and `expected` are the values, `allowed` is the allowed difference per
    element.
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
    """Return how an output's values `found` differ from `expected`; None if all elements are within bounds.

    `found` holds the carried values of an output of type `dtype`; `expected` has the same shape.
    """
    if found.size == 0:
        return None
    if not dtype.is_float:
        return _compare_exactly(found, expected, dtype, bounds)
    target = np.asarray(expected, np.float64)
    wide_found = found.astype(np.float64)
    with np.errstate(all="ignore"):
        # the expected value as the kernel would store it, which is right even without a tolerance
        rounded = decode(encode(target.astype(found.dtype), dtype), dtype).astype(np.float64)
        same = (wide_found == rounded) | (np.isnan(wide_found) & np.isnan(rounded))
        if bounds.exact:
            same &= np.isnan(wide_found) | (np.signbit(wide_found) == np.signbit(rounded))
            return None if same.all() else Difference(~same, found, target, np.zeros(found.shape), dtype)
        # no bound allows NaN or an infinity in place of another value
        distance = np.where(np.isfinite(wide_found) & np.isfinite(rounded), np.abs(wide_found - target), np.inf)
    if same.all():
        return None
    allowed = _allowed(target, dtype, bounds)
    wrong = ~same & ~(distance <= allowed)
    # widen the bounds as long as elements exceed them
    if wrong.any() and bounds.given is None and bounds.spread is not None:
        widest, undecided = bounds.spread()
        allowed = allowed + SPREAD_FACTOR * widest
        wrong &= ~(distance <= allowed) & ~undecided
    if wrong.any() and bounds.given is None and bounds.reference_uncertainty is not None:
        uncertainty = bounds.reference_uncertainty()
        if uncertainty is not None:
            allowed = allowed + SPREAD_FACTOR * uncertainty
            wrong &= ~(distance <= allowed)
    # the wide spread is measured last, and only if a wrong element has a finite distance, which it might allow
    if bounds.given is None and bounds.wide_spread is not None and np.isfinite(distance[wrong]).any():
        allowed = np.maximum(allowed, SPREAD_FACTOR * bounds.wide_spread())
        wrong &= ~(distance <= allowed)
    return Difference(wrong, found, target, np.asarray(allowed), dtype) if wrong.any() else None


def _allowed(target: Array, dtype: DType, bounds: Bounds) -> Array:
    """Return the allowed difference per element, without measurements: the user's tolerance, or the rounding error.

    The latter is the first formula in the module docstring of `tolerances`.
    """
    if bounds.given is not None:
        return np.asarray(bounds.given.allowed(target))
    relative = 2 * (bounds.budget() or 0.0) + epsilon(dtype)
    return np.asarray(Tolerance(relative, smallest_normal(dtype)).allowed(target))


def _compare_exactly(found: Array, expected: Array, dtype: DType, bounds: Bounds) -> Difference | None:
    """Compare integers or bools. They may differ within the user's tolerance.

    Elements that also differ between perturbed runs of the kernel aren't compared.
    """
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
        _, undecided = bounds.spread()
        wrong = wrong & ~undecided
    return Difference(np.asarray(wrong), found, target, np.zeros(found.shape), dtype) if wrong.any() else None


def ulps_between(found: float, expected: float, dtype: DType) -> float:
    """Return the distance of two numbers in ULPs of the expected value; inf if one isn't finite and they differ."""
    if not (np.isfinite(found) and np.isfinite(expected)):
        return 0.0 if found == expected else float("inf")
    # 2**(exponent - 1) is the largest power of two not above |expected|; one ULP is epsilon times this power
    _, exponent = np.frexp(max(abs(expected), smallest_normal(dtype)))
    return float(abs(found - expected) / (epsilon(dtype) * 2.0 ** (int(exponent) - 1)))
