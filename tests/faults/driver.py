"""A driver that fails on demand: the N-th Vulkan call that can fail does, with a result of our choice.

Enters: the number of the call, counted over the calls of one device or of everything made inside the block, and the
result that it is to return. Leaves: the same function pointers, each behind a Python function that counts. Holds: the
chosen call never reaches the driver, save waiting for an idle device; every other one does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vkjit.runtime import _vk

__all__ = ["Injection", "failing"]

OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST = -2, -1, -4


@dataclass
class Injection:
    """What fails: call number `nth` (from 1; 0: none) with `result`, and after it all others if it is `lasting`.

    `names` holds the calls that could have failed so far, in order; `hit` the name of the one that did.
    """

    nth: int
    result: int
    lasting: bool = False
    names: list[str] = field(default_factory=list)
    hit: str | None = None
    armed: bool = True

    def result_for(self, name: str) -> int | None:
        """The result to return instead of calling, or None."""
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
    """Everything that is looked up inside the block goes through the injection."""
    original = _vk.Functions.__getattr__
    wrapped: list[tuple[_vk.Functions, str]] = []

    def look_up(self: _vk.Functions, name: str) -> Any:
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
                )  # the device isn't truly lost: what it still works on must not be destroyed under it
            return instead

        setattr(self, name, call)
        wrapped.append((self, name))
        return call

    _vk.Functions.__getattr__ = look_up  # type: ignore[method-assign]
    try:
        yield injection
    finally:
        _vk.Functions.__getattr__ = original  # type: ignore[method-assign]
        injection.armed = False
        for functions, name in wrapped:  # those of the instance outlive the device
            delattr(functions, name)
