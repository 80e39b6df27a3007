"""What a user may have left unsaid of the inputs, where there is evidence that this alone is to blame.

Enters: a `Finding` at its smallest, ways to examine a case and to search again with other settings. Leaves: one sentence, or
nothing. A sentence about values (an index, a divisor, NaN) is kept only if the failing case is right once those values are
others, and if a search that is told so doesn't come upon such a failure again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BoundsError, KernelZeroDivisionError, VkjitError
from .case import ArrayInput, Case
from .drawing import Drawing, dtype_of_param
from .finding import Finding
from .unordered import aligned

__all__ = ["Hints"]

_SECONDS = 5.0
"""What looking for evidence may take."""


@dataclass(slots=True)
class Hints:
    """`examine` gives what is found in a case, `search` what a search with these settings in place of the user's finds."""

    drawing: Drawing
    elements: Mapping[str, Any]
    examine: Callable[[Case], Finding | None]
    search: Callable[[Mapping[str, Any]], Finding | None]
    deadline: float = 0.0

    def of(self, finding: Finding) -> str:
        """The sentence."""
        self.deadline = time.thread_time() + _SECONDS
        if _holds_the_same_rows(finding):
            name = finding.array
            return f"{name} holds the same rows in another order; if that isn't specified, say so: unordered={name!r}"
        first = finding.reports[0].kind if finding.reports else ""
        if first == "out_of_bounds" or isinstance(finding.error, BoundsError):
            return self._index(finding)
        if first == "division_by_zero" or isinstance(finding.error, KernelZeroDivisionError):
            return self._divisor(finding)
        return "" if finding.reports else self._not_finite(finding)

    def _index(self, finding: Finding) -> str:
        """An integer that is free, and that would be right as an index."""
        for name in self._free(finding.case):
            for size in self._sizes(finding):
                high = finding.case.dims[size] - 1

                def inside(values: Any, high: int = high) -> Any:
                    return np.clip(values, 0, high)

                domain = (0, f"{size}-1")
                settings = {"elements": {**self.elements, name: domain}}
                if self._is_to_blame(finding, name, inside if high >= 0 else None, settings):
                    return f"{name} may be any integer; if it is an index, say so: elements={{{name!r}: {domain!r}}}"
        return ""

    def _divisor(self, finding: Finding) -> str:
        for name in self._free(finding.case):
            one = self._is_to_blame(
                finding, name, lambda v: np.where(v == 0, 1, v), {"elements": {**self.elements, name: (1, 100)}}
            )
            if one:
                return f"{name} may be zero; if that is not meant, say so: elements={{{name!r}: (1, 100)}}"
        return ""

    def _not_finite(self, finding: Finding) -> str:
        """Which inputs hold what isn't finite, where finite numbers are right."""
        odd = [n for n, v in finding.case.arguments.items() if _is_odd(v)]
        names = [n for n in odd if self._is_right(_changed(finding.case, n, _finite))]
        if not names:
            everywhere = finding.case
            for name in odd:
                everywhere = _changed(everywhere, name, _finite)
            names = odd if odd and self._is_right(everywhere) else []
        if not names or self._fails_again(finding, {"special": False}):
            return ""
        holds = f"{names[0]} holds" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} hold"
        return f"{holds} NaN or an infinity; if those are not meant, say so: special=False"

    # -- evidence

    def _free(self, case: Case) -> Iterator[str]:
        """Integer inputs of which the user said nothing."""
        for param in self.drawing.spec.params:
            if param.kind == "const" or param.mode == "out" or not self.drawing.domains[param.name].free:
                continue
            if dtype_of_param(param, case.dtypes).is_integer:
                yield param.name

    def _sizes(self, finding: Finding) -> list[str]:
        """Names of dimensions that an index may belong to, those of the array that was missed first."""
        text = finding.reports[0].message if finding.reports else str(finding.error)
        missed = re.search(r"outside (?:of )?([\w.]+)", text)
        dims = self.drawing.dimensions.of_array.get(missed.group(1)) if missed else None
        own = [] if dims is None else list(dims.names)
        plain = [n for n in self.drawing.dimensions.names if n not in self.drawing.dimensions.variadic]
        return [n for n in dict.fromkeys([*own, *plain]) if n in plain]

    def _is_to_blame(
        self, finding: Finding, name: str, mended: Callable[[Any], Any] | None, settings: Mapping[str, Any]
    ) -> bool:
        """Whether other values of an argument are right: in the case at hand (`mended`: None where there are none, for an
        index into an empty array), and in a search that is told which they may be."""
        if mended is not None and not self._is_right(_changed(finding.case, name, mended)):
            return False
        return not self._fails_again(finding, settings)

    def _is_right(self, case: Case) -> bool:
        if time.thread_time() > self.deadline:
            return False
        try:
            fitted = case.settled()
            return fitted is not None and self.drawing.allowed(fitted) and self.examine(fitted) is None
        except VkjitError:
            return False

    def _fails_again(self, finding: Finding, settings: Mapping[str, Any]) -> bool:
        """Whether a search that is told so finds something, another index or divisor at another place apart. Without time to
        look, it counts as found."""
        if time.thread_time() > self.deadline:
            return True
        try:
            found = self.search(settings)
        except VkjitError:
            return True
        if found is None:
            return False
        return found.sort == finding.sort or not _is_of_input(found)


def _is_of_input(finding: Finding) -> bool:
    """Whether it is an index or a divisor, which other inputs may have given."""
    if finding.reports:
        return finding.reports[0].kind in ("out_of_bounds", "division_by_zero")
    return isinstance(finding.error, (BoundsError, KernelZeroDivisionError))


def _changed(case: Case, name: str, change: Callable[[Any], Any]) -> Case:
    """The case with the values of one argument changed."""
    value = case.arguments[name]
    if not isinstance(value, ArrayInput):
        return case.with_argument(name, type(value)(change(np.asarray(value)).item()))
    if value.values is None:
        return case
    made = np.asarray(change(value.distinct)).astype(value.values.dtype)
    return case.with_argument(name, replace(value, values=np.broadcast_to(made, value.shape)))


def _is_odd(value: Any) -> bool:
    if isinstance(value, ArrayInput):
        return value.values is not None and value.dtype.is_float and not np.isfinite(value.distinct).all()
    return isinstance(value, float) and not np.isfinite(value)


def _finite(values: Any) -> Any:
    return np.where(np.isfinite(values), values, 1)


def _holds_the_same_rows(finding: Finding) -> bool:
    """Whether an output is what it should be but for the order of its rows."""
    difference = finding.difference
    if difference is None or finding.rows is not None or not difference.found.ndim or len(difference.found) < 2:
        return False
    (placed,) = aligned([difference.found], [difference.expected], [difference.dtype])
    with np.errstate(all="ignore"):
        distance = np.abs(difference.found.astype(np.float64) - placed.astype(np.float64))
        same = (difference.found == placed) | (distance <= difference.allowed)
        return bool((same | (np.isnan(distance) & (difference.found != difference.found))).all())
