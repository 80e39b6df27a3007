"""A hook for compiling machine code of the host at run time and keeping it on disk, which `vkjit` connects.

LLVM is the CPU back end's, the files are the compiler's: the back ends import neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import FeatureError

__all__ = ["Services", "compile_functions", "provide", "read", "write"]


@dataclass(frozen=True, slots=True)
class Services:
    """What `compile_functions`, `read` and `write` call."""

    compile_functions: Callable[..., dict[str, int]]
    read: Callable[[str], bytes | None]
    write: Callable[[str, bytes], object]


_services: list[Services] = []


def provide(services: Services) -> None:
    """Set the services."""
    _services[:] = [services]


def compile_functions(text: str, *names: str) -> dict[str, int]:
    """Compile LLVM assembly for any processor of this family, and return the addresses of its functions, whose code stays loaded.

    Raises a VkjitError if LLVM isn't installed or refuses the text.
    """
    if not _services:
        raise FeatureError("no compiler for the host is connected: import vkjit itself, not just a part of it")
    return _services[0].compile_functions(text, *names)


def read(name: str) -> bytes | None:
    """Return the machine code kept under a name; None if there is none, or it is damaged."""
    return _services[0].read(name) if _services else None


def write(name: str, data: bytes) -> None:
    """Keep machine code under a name, if possible."""
    if _services:
        _services[0].write(name, data)
