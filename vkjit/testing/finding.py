"""What an examination finds: one case, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import KernelError
from ..findings import SanitizerReport
from .case import Case
from .compare import Difference
from .run import POISONS
from .schedules import Schedule

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a case.

    `kind`: "sanitizer" (`reports`),
    "report" (`error` has what the kernel reported), "outside" (`array`, `offsets`: written beside an array),
    "unwritten" and "depends" (`array`, `wrong`: elements that nobody wrote, or that depend on what the Out held
    before),
    "reference" and
    "disagreement" (`array`, `difference`; for the latter, `other` says what was compared with; `rows`: so many rows were
    compared in any order).
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
    def sort(self) -> tuple[Any, ...]:
        """What stays the same while a case shrinks."""
        if self.reports:
            return self.reports[0].kind, self.reports[0].loc
        place = None if self.error is None else (type(self.error).__name__, self.error.loc)
        return self.kind if self.kind in ("report", "outside") else "values", place

    @property
    def flags(self) -> npt.NDArray[np.bool_] | None:
        """Which elements of the array are wrong."""
        return self.difference.wrong if self.difference is not None else self.wrong
