"""Whether a changed kernel is still wrong where the original was: one plain launch, before a changed kernel is examined.

Enters: an executor of the changed kernel, a `Finding` of the original. Leaves: a yes that is certain enough to drop the change.
"""

from __future__ import annotations

import numpy as np

from .case import decode
from .finding import Finding
from .run import Executor

__all__ = ["is_still_wrong"]

_GENEROUS = 4.0
"""How many times the difference allowed to the original is allowed here: what passes is examined in full."""


def is_still_wrong(executor: Executor, finding: Finding) -> bool:
    """Whether some of the elements that were wrong are so still. False where a launch alone can't tell. Raises what the launch
    raises."""
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
        return not bool((same | (np.abs(value - expected) <= _GENEROUS * allowed)).all())
