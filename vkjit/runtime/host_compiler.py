"""A hook for compiling host machine code at run time and caching it on disk.

The implementations belong to the CPU backend (LLVM) and to the compiler (the cache files), which the other backends
don't import. `vkjit` connects them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import FeatureError

__all__ = ["Services", "compile_functions", "provide", "read", "write"]


@dataclass(frozen=True, slots=True)
class Services:
    """The implementations of `compile_functions`, `read` and `write`."""

    compile_functions: Callable[..., dict[str, int]]
    read: Callable[[str], bytes | None]
    write: Callable[[str, bytes], object]


_services: list[Services] = []


def provide(services: Services) -> None:
    """Set the implementations."""
    _services[:] = [services]


def compile_functions(text: str, *names: str) -> dict[str, int]:
    """Compile LLVM assembly for the generic CPU of this architecture, and return the addresses of the named functions.

    The code stays loaded. Raises a VkjitError if LLVM isn't installed or rejects the text.
    """
    if not _services:
        raise FeatureError("no compiler for the host is connected: import vkjit itself, not just a part of it")
    return _services[0].compile_functions(text, *names)


def read(name: str) -> bytes | None:
    """Return the machine code stored under a name; None if there is none or it is damaged."""
    return _services[0].read(name) if _services else None


def write(name: str, data: bytes) -> None:
    """Store machine code under a name, if possible."""
    if _services:
        _services[0].write(name, data)
