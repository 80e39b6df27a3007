"""Quick rejection of candidate repairs by a single launch, before a full examination."""

from __future__ import annotations

import numpy as np

from ..cases.case import decode
from ..execution.run import Executor
from ..search.finding import Finding

__all__ = ["still_fails"]

_TOLERANCE_FACTOR = 4.0
"""Factor on the allowed difference; candidates that pass are examined in full."""


def still_fails(executor: Executor, finding: Finding) -> bool:
    """True if some of the originally wrong elements are still wrong; False if a single launch can't tell.

    Raises what the launch raises.
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
    if not difference.dtype.is_float:
        return bool((found != expected).any()) and not allowed.any()
    with np.errstate(all="ignore"):
        value = found.astype(np.float64)
        same = (value == expected) | (np.isnan(value) & np.isnan(expected)) | (value == expected.astype(found.dtype))
        return not bool((same | (np.abs(value - expected) <= _TOLERANCE_FACTOR * allowed)).all())
