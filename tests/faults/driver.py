"""Fault injection for Vulkan: the N-th call that can fail does, with a chosen result.

Every function that returns a VkResult is wrapped in a Python function that counts its calls, over one device or over
everything created inside the block. The chosen call doesn't reach the driver, except for vkDeviceWaitIdle; all other
calls do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vkjit.backends.vulkan.runtime import loader

__all__ = ["Injection", "failing"]

OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST = -2, -1, -4


@dataclass
class Injection:
    """The fault to inject: call number `nth` (from 1; 0: none) returns `result`; if `lasting`, so do all later calls.

    `names` lists the calls that could have failed so far, in order; `hit` is the name of the one that did.
    """

    nth: int
    result: int
    lasting: bool = False
    names: list[str] = field(default_factory=list)
    hit: str | None = None
    armed: bool = True

    def result_for(self, name: str) -> int | None:
        """Return the result to inject for a call, or None to make the call."""
        if not self.armed:
            return None
        self.names.append(name)
        if len(self.names) == self.nth:
            self.hit = name
            return self.result
        return self.result if self.lasting and self.hit is not None else None


def _can_fail(pointer: Any, ffi: Any) -> bool:
    return bool(ffi.typeof(pointer).result.cname == "enum VkResult")


@contextmanager
def failing(injection: Injection) -> Iterator[Injection]:
    """Route all functions looked up inside the block through the injection."""
    original = loader.Functions.__getattr__
    wrapped: list[tuple[loader.Functions, str]] = []

    def look_up(self: loader.Functions, name: str) -> Any:
        pointer = original(self, name)
        if not _can_fail(pointer, self._vulkan.ffi):
            return pointer

        def call(*arguments: Any) -> Any:
            instead = injection.result_for(name)
            if instead is None:
                return pointer(*arguments)
            if name == "vkDeviceWaitIdle":
                pointer(
                    *arguments
                )  # the device isn't really lost: work in flight must finish before its resources are destroyed
            return instead

        setattr(self, name, call)
        wrapped.append((self, name))
        return call

    loader.Functions.__getattr__ = look_up  # type: ignore[method-assign]
    try:
        yield injection
    finally:
        loader.Functions.__getattr__ = original  # type: ignore[method-assign]
        injection.armed = False
        for functions, name in wrapped:  # instance functions outlive the device
            delattr(functions, name)
