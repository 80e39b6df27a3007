"""A hook for compiling machine code of the host at run time, which `vkjit` connects with the CPU back end's LLVM.

The back ends don't import each other, and LLVM is an optional dependency.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import FeatureError

__all__ = ["compile_functions", "provide"]

Compiler = Callable[..., dict[str, int]]

_load: list[Callable[[], Compiler]] = []


def provide(load: Callable[[], Compiler]) -> None:
    """Set the function that loads the compiler when it is first needed."""
    _load[:] = [load]


def compile_functions(text: str, *names: str) -> dict[str, int]:
    """Compile LLVM assembly and return the addresses of its functions, whose code stays loaded. Raises a VkjitError if LLVM
    isn't installed or refuses the text.
    """
    if not _load:
        raise FeatureError("no compiler for the host is connected: import vkjit itself, not just a part of it")
    return _load[0]()(text, *names)
