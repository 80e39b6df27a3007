"""Runs a kernel once under the sanitizer and gives what it found.

Enters: a kernel and its arguments as in a launch. Leaves: `SanitizerReport`s. Holds: nothing is raised for what is
found; arrays hold afterwards what the launch left in them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

from ..devices import device as open_device
from ..devices import use_device
from ..findings import SanitizerReport, checks_of, sanitized
from ..jit import Kernel

__all__ = ["sanitize", "sanitized"]


def sanitize(
    kernel: Kernel,
    *args: Any,
    groups: int | tuple[int, ...] | None = None,
    device: Any = None,
    checks: bool | str | Iterable[str] | None = None,
    **kwargs: Any,
) -> list[SanitizerReport]:
    """Launches `kernel(*args, **kwargs)` once with the sanitizer built in, and gives its findings, [] for none.

    groups: the number of workgroups, for kernels that are launched as kernel[groups](...). device: a number, a name or
    a device (default: the default device), for launches whose arguments lie on none. checks: names of
    `vkjit.findings.CHECKS`, or "all" (default: bounds, uninitialised, races, uniform, outside).

    Raises CompileError for what is wrong at compile time (divergent barriers among it), ArgumentError for arguments
    that don't fit, KernelAssertionError for a failed assert of the kernel's.
    """
    wanted = checks_of(True if checks is None else checks)
    with _LOCK:
        twin, found = _twin(kernel, wanted)
        found.clear()
        launch = twin if groups is None else twin[groups]
        with use_device(open_device(device)):
            launch(*args, **kwargs)
        return list(found)


_Twin = tuple[Kernel, list[SanitizerReport]]
_TWINS: weakref.WeakKeyDictionary[Kernel, dict[tuple[str, ...], _Twin]] = weakref.WeakKeyDictionary()
"""The sanitized kernels of kernels that are alive, each with the list that its reports go to: compiled once."""
_LOCK = threading.RLock()


def _twin(kernel: Kernel, checks: tuple[str, ...]) -> _Twin:
    twins = _TWINS.setdefault(kernel, {})
    if checks not in twins:
        found: list[SanitizerReport] = []
        twin = kernel.variant(sanitize=checks, found=found)
        twins[checks] = (twin, found)
    return twins[checks]
