"""Registry of the variants of each operation by class or kind of device.

Host functions are registered by `@variant(operation, device_class)`; `choose` returns the one for a device. The device
classes are "gpu" and "cpu". The latter is for CPUs, software drivers and the interpreter, where shared memory and
barriers cost more than they gain, and loops stay well below the drivers' limit on iterations. GPUs whose limits are too
small for the workgroups of "gpu" kernels also count as "cpu".
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from vkjit.errors import InternalError

__all__ = [
    "MAX_CPU_ITERATIONS",
    "choose",
    "device_class",
    "forced_class",
    "forcing_class",
    "row_kernel_class",
    "variant",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_VARIANTS: dict[tuple[str, str], Callable[..., Any]] = {}

MAX_CPU_ITERATIONS = 8192
"""Maximum number of iterations per invocation on devices of class "cpu": far below the drivers' limit of 65,535."""


MAX_WORKGROUP = 256
"""Maximum workgroup size of kernels for GPUs."""

MAX_SHARED_BYTES = 32 << 10
"""Maximum shared memory that they use, in bytes."""

_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar("device_class", default=None)


@contextlib.contextmanager
def forcing_class(kind: str) -> Iterator[None]:
    """Within the block, treat every device as of class "cpu" or "gpu", to run a variant that isn't the device's
    default.
    """
    token = _forced.set(kind)
    try:
        yield
    finally:
        _forced.reset(token)


forced_class: Callable[[], str | None] = _forced.get
"""Return the class set by an enclosing `forcing_class`, or None outside of one."""


def device_class(device: Any) -> str:
    """Return the class of a device: "cpu" or "gpu"."""
    forced = _forced.get()
    if forced is not None:
        return forced
    caps = device.caps
    small = caps.max_invocations < MAX_WORKGROUP or caps.shared_bytes < MAX_SHARED_BYTES
    return "cpu" if small or caps.kind in ("cpu", "llvm-cpu", "interpreter") else "gpu"


def row_kernel_class(device: Any) -> str:
    """Return the class whose row kernels a device uses. The "llvm-cpu" device uses those of "gpu", with a workgroup per
    row.
    """
    own = _forced.get() is None and device.caps.kind == "llvm-cpu"
    return "gpu" if own else device_class(device)


def variant(operation: str, kind: str) -> Callable[[Function], Function]:
    """Register a host function as an operation's variant for a device class or kind; raise InternalError for a
    duplicate.
    """

    def register(function: Function) -> Function:
        key = (operation, kind)
        if key in _VARIANTS:
            raise InternalError(f"{operation} has a variant for {kind} already")
        _VARIANTS[key] = function
        return function

    return register


def choose(operation: str, device: Any) -> Callable[..., Any]:
    """Return an operation's variant for a device: the one for its kind if registered, else the one for its class."""
    own = _VARIANTS.get((operation, device.caps.kind)) if _forced.get() is None else None
    return own or _VARIANTS[operation, device_class(device)]
