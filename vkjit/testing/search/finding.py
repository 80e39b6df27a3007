"""The result of an examination: a failing case and how it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import KernelError
from vkjit.runtime.sanitizer_reports import SanitizerReport

from ..cases.case import Case
from ..cases.schedules import Schedule
from ..compare.outputs import Difference
from ..execution.run import POISONS

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A failing case and its failure.

    `kind` is one of: "sanitizer" (see `reports`); "report" (an error raised by the kernel, in `error`); "property" (a
    violated property, in `error`); "outside" (`array` and the `offsets` written outside it); "unwritten" and "depends"
    (`array` and `wrong`, which flags elements that nobody wrote, or that depend on the previous contents of the Out);
    "reference" and "disagreement" (`array` and `difference`).

    `other`: for a disagreement, the run compared with. `rows`: the number of rows compared in any order.
    """

    kind: str
    case: Case
    executor: str
    schedule: Schedule
    array: str = ""
    error: KernelError | None = None
    offsets: tuple[int, ...] = ()
    wrong: npt.NDArray[np.bool_] | None = None
    difference: Difference | None = None
    other: str = ""
    poison: int = POISONS[0]
    expected: Mapping[str, Any] | None = None
    reports: tuple[SanitizerReport, ...] = ()
    rows: int | None = None

    @property
    def failure_key(self) -> tuple[Any, ...]:
        """A key of the failure, which shrinking must preserve."""
        if self.reports:
            return self.reports[0].kind, self.reports[0].loc
        place = None if self.error is None else (type(self.error).__name__, self.error.loc)
        return self.kind if self.kind in ("report", "outside") else "values", place

    @property
    def flags(self) -> npt.NDArray[np.bool_] | None:
        """Mask of the array's wrong elements."""
        return self.difference.wrong if self.difference is not None else self.wrong
