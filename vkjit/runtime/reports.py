"""Decoding of a report, the words that a kernel stores when a check fails, to an exception.

The layout of a report is described at `artifact.REPORT_WORDS`.
"""

from __future__ import annotations

from typing import Any

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

_STORED: dict[str, type[np.number[Any]]] = {"float": np.float64, "uint": np.uint64}
"""The type in which values of a kind are stored, if it isn't i64."""


def error_of_report(artifact: KernelArtifact, words: npt.NDArray[np.uint32]) -> KernelError:
    """Return the error that the words of a report describe."""
    number = int(words[0])
    x, y, z = (int(word) for word in words[1:4])
    if not 1 <= number <= len(artifact.sites):
        return KernelError(f"an unknown report, number {number}", kernel=artifact.name, invocation=(x, y, z))
    site = artifact.sites[number - 1]
    raw = np.ascontiguousarray(words[4:])
    kinds = artifact.info.get("report_values", {}).get(number - 1, ())
    shown = [_value(raw, i, kinds[i] if i < len(kinds) else "int") for i in range(len(raw) // 2)]
    message = site.message.format(*shown)
    kind = _ERRORS.get(site.kind, KernelError)
    return kind(message, kernel=artifact.name, loc=site.loc, invocation=(x, y, z))


def _value(words: npt.NDArray[np.uint32], i: int, kind: str) -> Any:
    """Return the value of a kind that is stored in the words 2 i and 2 i + 1."""
    value = words.view(_STORED.get(kind, np.int64))[i].item()
    return bool(value) if kind == "bool" else value
