"""Decoding of a report, the words that a kernel stores when a check fails, to an exception.

The layout of a report is described at `artifact.REPORT_WORDS`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import (
    AssumptionError,
    BoundsError,
    KernelAssertionError,
    KernelError,
    KernelZeroDivisionError,
    LoopLimitError,
)
from .artifact import KernelArtifact

__all__ = ["error_of_report"]

_ERRORS: dict[str, type[KernelError]] = {
    "loop_limit": LoopLimitError,
    "bounds": BoundsError,
    "assert": KernelAssertionError,
    "assume": AssumptionError,
    "zero_division": KernelZeroDivisionError,
}


def error_of_report(artifact: KernelArtifact, words: npt.NDArray[np.uint32]) -> KernelError:
    """Return the error that the words of a report describe."""
    number = int(words[0])
    x, y, z = (int(word) for word in words[1:4])
    if not 1 <= number <= len(artifact.sites):
        return KernelError(f"an unknown report, number {number}", kernel=artifact.name, invocation=(x, y, z))
    site = artifact.sites[number - 1]
    raw = np.ascontiguousarray(words[4:])
    kinds = artifact.info.get("report_values", {}).get(number - 1, ())
    floats = raw.view(np.float64)
    values = [int(value) for value in raw.view(np.int64)]
    shown = [float(floats[i]) if i < len(kinds) and kinds[i] == "float" else v for i, v in enumerate(values)]
    message = site.message.format(*shown)
    kind = _ERRORS.get(site.kind, KernelError)
    return kind(message, kernel=artifact.name, loc=site.loc, invocation=(x, y, z))
