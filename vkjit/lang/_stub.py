"""Marks the functions that exist inside kernels only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..errors import InternalError, VkjitError

__all__ = ["kernel_only", "register_host"]

Function = TypeVar("Function", bound=Callable[..., Any])


_HOST: dict[Any, Callable[..., Any]] = {}
"""Stub to the function that it is on the host."""


def register_host(stub: Any, function: Callable[..., Any]) -> None:
    """Gives a stub a meaning outside kernels: there it calls `function`. Refuses a second one."""
    if stub in _HOST:
        raise InternalError(f"{stub.__name__} has a meaning outside kernels already")
    _HOST[stub] = function


def kernel_only(function: Function) -> Function:
    """The stub with its signature and docstring; calling it outside a kernel raises VkjitError, unless it has a meaning
    there, as the functions have that tensors share with kernels.
    """
    name = function.__qualname__

    @functools.wraps(function)
    def stub(*args: Any, **kwargs: Any) -> Any:
        on_host = _HOST.get(stub)
        if on_host is not None:
            return on_host(*args, **kwargs)
        raise VkjitError(
            f"vk.{name} has a meaning inside kernels only: call it in a function decorated with @vk.kernel or @vk.func"
        )

    return cast(Function, stub)
