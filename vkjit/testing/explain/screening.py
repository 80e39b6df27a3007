"""Quick rejection of candidate repairs: run an edited kernel once before it is examined in full.

Most edits don't repair a kernel, and a full examination of each would take too long.
"""

from __future__ import annotations

import numpy as np

from ..cases.case import decode
from ..execution.run import Executor
from ..search.finding import Finding

__all__ = ["still_fails"]

_TOLERANCE_FACTOR = 4.0
"""Factor on the allowed difference, so that no correct repair is rejected. The full examination doesn't apply it."""


def still_fails(executor: Executor, finding: Finding) -> bool:
    """Launch the edited kernel on the failing case. True if an element that was wrong in the finding is still wrong.

    `executor` runs the edited kernel. Also False if a single launch can't decide this, as for outputs with rows in any
    order. Raises the errors of the launch.
    """
    difference = finding.difference
    if finding.rows is not None or (difference is None and finding.kind != "unwritten"):
        return False
    outcome = executor.run(finding.case, finding.schedule, finding.poison)
    if difference is None:
        assert finding.wrong is not None
        return bool((outcome.untouched(finding.array) & finding.wrong).any())
    found = decode(outcome.raw[finding.array], difference.dtype)[difference.wrong]
    expected = difference.expected[difference.wrong]
    allowed = np.broadcast_to(difference.allowed, difference.wrong.shape)[difference.wrong]
    if not difference.dtype.is_float:  # if the user allows a difference of integers, the full examination decides
        return bool((found != expected).any()) and not allowed.any()
    with np.errstate(all="ignore"):
        value = found.astype(np.float64)
        # the last term: equal once the expected value, which may be more precise, is rounded to the type of the output
        same = (value == expected) | (np.isnan(value) & np.isnan(expected)) | (value == expected.astype(found.dtype))
        return not bool((same | (np.abs(value - expected) <= _TOLERANCE_FACTOR * allowed)).all())
