"""Runs a kernel once under the sanitizer and gives what it found.

Enters: a kernel and its arguments as in a launch. Leaves: `SanitizerReport`s. Holds: nothing is raised for what is
found; arrays hold afterwards what the launch left in them.
"""

from __future__ import annotations

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
    found: list[SanitizerReport] = []
    sanitized = Kernel(
        kernel.spec.fn,
        over=kernel.spec.over,
        groups=kernel._groups,
        local=kernel._local,
        strict=kernel._strict,
        fast_math=kernel._fast_math,
        debug=kernel._debug,
        sanitize=wanted,
        found=found,
    )
    launch = sanitized if groups is None else sanitized[groups]
    with use_device(open_device(device)):
        launch(*args, **kwargs)
    return found
