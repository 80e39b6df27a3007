"""Run a kernel once with the sanitizer, which detects races, uninitialized reads and other errors at run time.

`sanitize` returns the sanitizer's reports instead of raising errors. The launch modifies its arrays as usual.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

from ..backends.selection import device as open_device, use_device
from ..launch.kernel import Kernel
from ..runtime.sanitizer_reports import SanitizerReport, parse_checks, sanitized

__all__ = ["sanitize", "sanitized"]


def sanitize(
    kernel: Kernel,
    *args: Any,
    groups: int | tuple[int, ...] | None = None,
    device: Any = None,
    checks: bool | str | Iterable[str] | None = None,
    **kwargs: Any,
) -> list[SanitizerReport]:
    """Launch `kernel(*args, **kwargs)` once with the sanitizer and return its reports.

    groups: the number of workgroups, for kernels that are launched as kernel[groups](...).
    device: an index, a name or a device (default: the default device), for launches whose arguments aren't on a device.
    checks: names in `vkjit.runtime.sanitizer_reports.CHECKS`, or "all" (default: bounds, uninitialised, races, uniform,
        outside).

    Raises CompileError for errors found at compile time, such as divergent barriers, ArgumentError for arguments that
    don't fit, and KernelAssertionError for a failed assert in the kernel.
    """
    selected = parse_checks(True if checks is None else checks)
    with _LOCK:
        twin, reports = _twin(kernel, selected)
        reports.clear()
        launch = twin if groups is None else twin[groups]
        with use_device(open_device(device)):
            launch(*args, **kwargs)
        return list(reports)


_Twin = tuple[Kernel, list[SanitizerReport]]
_TWINS: weakref.WeakKeyDictionary[Kernel, dict[tuple[str, ...], _Twin]] = weakref.WeakKeyDictionary()
"""The sanitized variants ("twins") of each kernel by the names of their checks, each with the list that receives its
reports. They are kept while the kernel is alive, so that each variant is compiled once.
"""
_LOCK = threading.RLock()
"""Held during a launch of a twin, since launches share the list of reports."""


def _twin(kernel: Kernel, checks: tuple[str, ...]) -> _Twin:
    """Return the variant of a kernel with these checks of the sanitizer, and the list that receives its reports."""
    twins = _TWINS.setdefault(kernel, {})
    if checks not in twins:
        reports: list[SanitizerReport] = []
        twin = kernel.variant(sanitize=checks, found=reports)
        twins[checks] = (twin, reports)
    return twins[checks]
