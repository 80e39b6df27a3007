"""Stubs for functions that exist only inside kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..errors import InternalError, VkjitError

__all__ = ["kernel_only", "register_host"]

Function = TypeVar("Function", bound=Callable[..., Any])


_HOST: dict[Any, Callable[..., Any]] = {}
"""Stub to its host implementation."""


def register_host(stub: Any, function: Callable[..., Any]) -> None:
    """Register `function` as what a stub calls outside of kernels. Raises InternalError if the stub has one already."""
    if stub in _HOST:
        raise InternalError(f"{stub.__name__} has a meaning outside kernels already")
    _HOST[stub] = function


def kernel_only(function: Function) -> Function:
    """Return a stub with the signature and docstring of `function`.

    Outside of kernels the stub calls its host implementation if one is registered, as for functions that tensors share
    with kernels; else it raises VkjitError.
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
