"""Stubs for the functions of the kernel language, whose implementation is in the compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..errors import InternalError, VkjitError

__all__ = ["kernel_only", "register_host"]

Function = TypeVar("Function", bound=Callable[..., Any])


_HOST: dict[Any, Callable[..., Any]] = {}
"""Maps a stub to the function that it calls outside of kernels."""


def register_host(stub: Any, function: Callable[..., Any]) -> None:
    """Make a stub call `function` outside of kernels. Raises InternalError if it has such a function already."""
    if stub in _HOST:
        raise InternalError(f"{stub.__name__} has a meaning outside kernels already")
    _HOST[stub] = function


def kernel_only(function: Function) -> Function:
    """Decorator that returns a stub with the signature and docstring of `function`.

    Outside of kernels, the stub calls the function that was registered for it by `register_host`, such as the
    implementation for tensors. If no function was registered, it raises VkjitError.
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
