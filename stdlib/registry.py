"""Variants of an operation per class of device, in one registry.

Enters: host functions registered with `@variant(operation, device_class)`. Leaves: `choose`, the function for a device.
A device class is "gpu", or "cpu" for processors, software drivers and the interpreter, where shared memory and barriers
cost more than they bring and loops are kept well below the drivers' cap on iterations. GPUs with less than most have, too
little for the workgroups of "gpu" kernels, take those of "cpu".
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from vkjit.errors import InternalError

__all__ = ["CPU_LOOP", "as_class", "choose", "device_class", "forced_class", "rows_class", "variant"]

Function = TypeVar("Function", bound=Callable[..., Any])

_VARIANTS: dict[tuple[str, str], Callable[..., Any]] = {}

CPU_LOOP = 8192
"""Iterations that one invocation runs at most on devices of class "cpu": far below the cap of 65,535."""


WORKGROUP = 256
"""Invocations that workgroups of kernels for GPUs have at most."""

SHARED_BYTES = 32 << 10
"""Shared memory that they use at most."""

_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar("device_class", default=None)


@contextlib.contextmanager
def as_class(kind: str) -> Iterator[None]:
    """Inside the block all devices count as "cpu" or "gpu": to run a variant where it isn't the usual one."""
    token = _forced.set(kind)
    try:
        yield
    finally:
        _forced.reset(token)


forced_class: Callable[[], str | None] = _forced.get
"""What `as_class` says here; None outside of it."""


def device_class(device: Any) -> str:
    """The class of a device: "cpu" or "gpu"."""
    forced = _forced.get()
    if forced is not None:
        return forced
    caps = device.caps
    small = caps.max_invocations < WORKGROUP or caps.shared_bytes < SHARED_BYTES
    return "cpu" if small or caps.kind in ("cpu", "llvm-cpu", "interpreter") else "gpu"


def rows_class(device: Any) -> str:
    """The class whose kernels for rows a device takes: on processors workgroups take rows, as on a GPU."""
    own = _forced.get() is None and device.caps.kind == "llvm-cpu"
    return "gpu" if own else device_class(device)


def variant(operation: str, kind: str) -> Callable[[Function], Function]:
    """Registers a host function as an operation's variant for a class (or one kind) of devices; refuses a second one."""

    def register(function: Function) -> Function:
        key = (operation, kind)
        if key in _VARIANTS:
            raise InternalError(f"{operation} has a variant for {kind} already")
        _VARIANTS[key] = function
        return function

    return register


def choose(operation: str, device: Any) -> Callable[..., Any]:
    """The variant of an operation for a device: one for its kind, if there is one, else that of its class."""
    own = _VARIANTS.get((operation, device.caps.kind)) if _forced.get() is None else None
    return own or _VARIANTS[operation, device_class(device)]
