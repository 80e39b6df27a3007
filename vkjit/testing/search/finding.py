"""The result of examining a case that fails: the case, the launch, and the failure."""

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
    """A failing case and its failure, in a launch on `executor` (a device's name) under `schedule`.

    `kind` says what failed, and which fields describe it:

    - "sanitizer": the sanitizer's `reports`.
    - "report": the `error` that the kernel raised.
    - "property": a property of the user's is violated, as `error` says.
    - "outside": the kernel wrote outside of `array`, at `offsets` in elements from its first one.
    - "unwritten": `wrong` flags elements of the Out `array` that the kernel didn't write.
    - "depends": `wrong` flags elements of the Out `array` that depend on its contents before the launch.
    - "reference": the output `array` differs from the reference's `expected` outputs by `difference`.
    - "disagreement": the output `array` differs by `difference` from that of another launch, which `other` describes.

    `poison` is the byte that filled Outs before the launch. `rows` is the number of valid rows of an output with
    unordered rows.
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
        """A key that identifies the failure: a smaller case counts as the same failure if it has the same key.

        It contains the error's type and source location; all kinds of wrong values have the same key.
        """
        if self.reports:
            return self.reports[0].kind, self.reports[0].loc
        error_key = None if self.error is None else (type(self.error).__name__, self.error.loc)
        return self.kind if self.kind in ("report", "outside") else "values", error_key

    @property
    def flags(self) -> npt.NDArray[np.bool_] | None:
        """A mask of the wrong elements of `array`; None if the failure isn't one of values."""
        return self.difference.wrong if self.difference is not None else self.wrong
