"""Registry of the implementations ("variants") of each standard-library operation for different devices.

A variant is a host function that launches kernels. It is registered by `@variant(operation, kind)` for a device class,
or for one kind of device (`device.caps.kind`, such as "llvm-cpu"); `choose` returns the variant for a device. There are
two device classes, "gpu" and "cpu". Class "cpu" comprises CPUs, software drivers, the interpreter, and GPUs whose
limits are too small for the workgroups of "gpu" kernels. Its variants avoid shared memory and barriers, which cost more
than they gain there, and keep their loops well below the number of iterations at which some drivers stop a loop.
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
"""Host functions by operation and device class or kind."""

MAX_CPU_ITERATIONS = 8192
"""Maximum number of iterations per invocation on devices of class "cpu": far below the drivers' limit of 65,535."""


MAX_WORKGROUP = 256
"""Maximum workgroup size of kernels for GPUs."""

MAX_SHARED_BYTES = 32 << 10
"""Maximum shared memory of a workgroup in kernels for GPUs, in bytes."""

_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar("device_class", default=None)


@contextlib.contextmanager
def forcing_class(kind: str) -> Iterator[None]:
    """Within the `with` block, treat every device as one of class `kind`, "cpu" or "gpu".

    This runs other variants than the device's default.
    """
    token = _forced.set(kind)
    try:
        yield
    finally:
        _forced.reset(token)


forced_class: Callable[[], str | None] = _forced.get
"""Return the class set by an enclosing `forcing_class`, or None outside of one."""


def device_class(device: Any) -> str:
    """Return the class of a device, "cpu" or "gpu"; within `forcing_class`, the forced class."""
    forced = _forced.get()
    if forced is not None:
        return forced
    caps = device.caps
    small = caps.max_invocations < MAX_WORKGROUP or caps.shared_bytes < MAX_SHARED_BYTES
    return "cpu" if small or caps.kind in ("cpu", "llvm-cpu", "interpreter") else "gpu"


def row_kernel_class(device: Any) -> str:
    """Return the class, "cpu" or "gpu", that selects a device's row kernels (reductions, norms, attention).

    It differs from `device_class` for the "llvm-cpu" device, which runs the kernels of class "gpu": a workgroup per
    row.
    """
    is_llvm_cpu = _forced.get() is None and device.caps.kind == "llvm-cpu"
    return "gpu" if is_llvm_cpu else device_class(device)


def variant(operation: str, kind: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a host function as a variant of `operation`.

    `kind` is a device class or a kind of device. Raises InternalError if the operation already has a variant for it.
    """

    def register(function: Function) -> Function:
        key = (operation, kind)
        if key in _VARIANTS:
            raise InternalError(f"{operation} has a variant for {kind} already")
        _VARIANTS[key] = function
        return function

    return register


def choose(operation: str, device: Any) -> Callable[..., Any]:
    """Return an operation's variant for a device: the one for its kind if registered, else the one for its class.

    Within `forcing_class`, it is always the variant for the forced class.
    """
    for_kind = _VARIANTS.get((operation, device.caps.kind)) if _forced.get() is None else None
    return for_kind or _VARIANTS[operation, device_class(device)]
