"""Variants of an operation per class of device, in one registry.

Enters: host functions registered with `@variant(operation, device_class)`. Leaves: `choose`, the function for a device. A
device class is "gpu", or "cpu" for software drivers and the interpreter, where shared memory and barriers cost more than
they bring and loops are kept well below the driver's cap on iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from vkjit.errors import InternalError

__all__ = ["CPU_LOOP", "choose", "device_class", "variant"]

Function = TypeVar("Function", bound=Callable[..., Any])

_VARIANTS: dict[tuple[str, str], Callable[..., Any]] = {}

CPU_LOOP = 8192
"""Iterations that one invocation runs at most on devices of class "cpu": far below the cap of 65,535."""


def device_class(device: Any) -> str:
    """The class of a device: "cpu" or "gpu"."""
    return "cpu" if device.caps.kind in ("cpu", "interpreter") else "gpu"


def variant(operation: str, kind: str) -> Callable[[Function], Function]:
    """Registers a host function as an operation's variant for a class of devices; refuses a second one."""

    def register(function: Function) -> Function:
        key = (operation, kind)
        if key in _VARIANTS:
            raise InternalError(f"{operation} has a variant for {kind} already")
        _VARIANTS[key] = function
        return function

    return register


def choose(operation: str, device: Any) -> Callable[..., Any]:
    """The variant of an operation for a device."""
    return _VARIANTS[operation, device_class(device)]
