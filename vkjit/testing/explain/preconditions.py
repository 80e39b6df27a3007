"""Hints about missing preconditions: constraints on a kernel's inputs that the user may have forgotten to state.

Examples are an argument that must be a valid index, a divisor that must not be 0, and inputs without NaN. A hint about
values is given only with evidence: the failing case passes after valid values have replaced the suspected ones, and a
search with the constraint as an additional setting doesn't find the failure again. `Explainer` adds the hint to the
failure.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vkjit.errors import BoundsError, KernelZeroDivisionError, VkjitError

from ..cases.case import ArrayInput, Case
from ..compare.unordered import aligned
from ..generate.strategies import Drawing, dtype_of_param
from ..search.finding import Finding

__all__ = ["PreconditionHints"]

_SECONDS = 5.0
"""Time limit for collecting evidence, in seconds of thread time."""


@dataclass(slots=True)
class PreconditionHints:
    """The search for missing preconditions of one kernel.

    `elements` is the user's setting of this name. `examine` runs a case and returns its finding, or None. `search` runs
    a short search with some of the user's settings replaced and returns its finding, or None. `deadline` is the end of
    the time limit, in seconds of thread time.
    """

    drawing: Drawing
    elements: Mapping[str, Any]
    examine: Callable[[Case], Finding | None]
    search: Callable[[Mapping[str, Any]], Finding | None]
    deadline: float = 0.0

    def hint_for(self, finding: Finding) -> str:
        """Return the hint for a finding; "" if there is none."""
        self.deadline = time.thread_time() + _SECONDS
        if _holds_the_same_rows(finding):
            name = finding.array
            return f"{name} holds the same rows in another order; if that isn't specified, say so: unordered={name!r}"
        report_kind = finding.reports[0].kind if finding.reports else ""
        if report_kind == "out_of_bounds" or isinstance(finding.error, BoundsError):
            return self._index(finding)
        if report_kind == "division_by_zero" or isinstance(finding.error, KernelZeroDivisionError):
            return self._divisor(finding)
        return "" if finding.reports else self._not_finite(finding)

    def _index(self, finding: Finding) -> str:
        """Return a hint about an unconstrained integer argument that may be meant as an index; "" if there is none."""
        for name in self._free(finding.case):
            for size in self._sizes(finding):
                high = finding.case.dims[size] - 1

                def inside(values: Any, high: int = high) -> Any:
                    return np.clip(values, 0, high)

                domain = (0, f"{size}-1")
                settings = {"elements": {**self.elements, name: domain}}
                replacement = inside if high >= 0 else None  # an empty dimension has no valid index
                if self._causes_failure(finding, name, replacement, settings):
                    return f"{name} may be any integer; if it is an index, say so: elements={{{name!r}: {domain!r}}}"
        return ""

    def _divisor(self, finding: Finding) -> str:
        """Return a hint about an unconstrained integer argument that may be meant as a divisor; "" if there is none."""
        for name in self._free(finding.case):
            causes = self._causes_failure(
                finding, name, lambda v: np.where(v == 0, 1, v), {"elements": {**self.elements, name: (1, 100)}}
            )
            if causes:
                return f"{name} may be zero; if that is not meant, say so: elements={{{name!r}: (1, 100)}}"
        return ""

    def _not_finite(self, finding: Finding) -> str:
        """Return a hint about inputs with NaN or infinities if the case passes with finite values; "" otherwise."""
        nonfinite = [n for n, v in finding.case.arguments.items() if _has_nonfinite(v)]
        names = [n for n in nonfinite if self._is_right(_changed(finding.case, n, _finite))]
        if not names:  # no single argument is the cause: replace the values of all
            all_finite = finding.case
            for name in nonfinite:
                all_finite = _changed(all_finite, name, _finite)
            names = nonfinite if nonfinite and self._is_right(all_finite) else []
        if not names or self._fails_again(finding, {"special": False}):
            return ""
        holds = f"{names[0]} holds" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} hold"
        return f"{holds} NaN or an infinity; if those are not meant, say so: special=False"

    # -- evidence

    def _free(self, case: Case) -> Iterator[str]:
        """Yield the names of the integer inputs for which the user gave no `elements`."""
        for param in self.drawing.spec.params:
            if param.kind == "const" or param.mode == "out" or not self.drawing.domains[param.name].free:
                continue
            if dtype_of_param(param, case.dtypes).is_integer:
                yield param.name

    def _sizes(self, finding: Finding) -> list[str]:
        """Return the names of dimensions whose valid indices an argument may hold.

        The dimensions of the array that was accessed out of bounds come first.
        """
        text = finding.reports[0].message if finding.reports else str(finding.error)
        array = re.search(r"outside (?:of )?([\w.]+)", text)
        dims = self.drawing.dimensions.of_array.get(array.group(1)) if array else None
        array_names = [] if dims is None else list(dims.names)
        fixed = [n for n in self.drawing.dimensions.names if n not in self.drawing.dimensions.variadic]
        return [n for n in dict.fromkeys([*array_names, *fixed]) if n in fixed]

    def _causes_failure(
        self, finding: Finding, name: str, replacement: Callable[[Any], Any] | None, settings: Mapping[str, Any]
    ) -> bool:
        """True if the values of the argument `name` cause the failure.

        They do if two conditions hold: the failing case passes after the function `replacement` has changed the values,
        and a search with `settings`, which constrain the argument, doesn't fail again. `replacement` is None if no
        value is valid, as for an index into an empty array; then the search alone decides.
        """
        if replacement is not None and not self._is_right(_changed(finding.case, name, replacement)):
            return False
        return not self._fails_again(finding, settings)

    def _is_right(self, case: Case) -> bool:
        """True if the case is valid and passes; False if the time limit is exceeded."""
        if time.thread_time() > self.deadline:
            return False
        try:
            fitted = case.settled()  # aliased arrays get the same values again
            return fitted is not None and self.drawing.allowed(fitted) and self.examine(fitted) is None
        except VkjitError:
            return False

    def _fails_again(self, finding: Finding, settings: Mapping[str, Any]) -> bool:
        """True if a search with these settings fails, or if the time limit is exceeded.

        A different failure doesn't count if it is an out-of-bounds access or a division by zero, since other values of
        the inputs may cause it.
        """
        if time.thread_time() > self.deadline:
            return True
        try:
            new_finding = self.search(settings)
        except VkjitError:
            return True
        if new_finding is None:
            return False
        return new_finding.failure_key == finding.failure_key or not _is_of_input(new_finding)


def _is_of_input(finding: Finding) -> bool:
    """True for failures that are likely caused by values of the inputs: accesses out of bounds, divisions by zero."""
    if finding.reports:
        return finding.reports[0].kind in ("out_of_bounds", "division_by_zero")
    return isinstance(finding.error, (BoundsError, KernelZeroDivisionError))


def _changed(case: Case, name: str, change: Callable[[Any], Any]) -> Case:
    """Return the case with the function `change` applied to the values of the argument `name`."""
    value = case.arguments[name]
    if not isinstance(value, ArrayInput):
        return case.with_argument(name, type(value)(change(np.asarray(value)).item()))
    if value.values is None:
        return case
    replaced = np.asarray(change(value.distinct)).astype(value.values.dtype)
    return case.with_argument(name, replace(value, values=np.broadcast_to(replaced, value.shape)))


def _has_nonfinite(value: Any) -> bool:
    """True if an argument is or contains a float that is NaN or infinite."""
    if isinstance(value, ArrayInput):
        return value.values is not None and value.dtype.is_float and not np.isfinite(value.distinct).all()
    return isinstance(value, float) and not np.isfinite(value)


def _finite(values: Any) -> Any:
    """Replace NaN and infinities by 1."""
    return np.where(np.isfinite(values), values, 1)


def _holds_the_same_rows(finding: Finding) -> bool:
    """True if an output equals the expected one except for the order of its rows (slices along the first axis)."""
    difference = finding.difference
    # `rows` is set if the user has said that rows may come in any order
    if difference is None or finding.rows is not None or not difference.found.ndim or len(difference.found) < 2:
        return False
    # the expected rows, brought into the order of the found ones
    (reordered,) = aligned([difference.found], [difference.expected], [difference.dtype])
    with np.errstate(all="ignore"):
        distance = np.abs(difference.found.astype(np.float64) - reordered.astype(np.float64))
        same = (difference.found == reordered) | (distance <= difference.allowed)
        found_is_nan = difference.found != difference.found
        return bool((same | (np.isnan(distance) & found_is_nan)).all())
