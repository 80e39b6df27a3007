"""Marks the functions that exist inside kernels only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from ..errors import VkjitError

__all__ = ["kernel_only"]

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel_only(function: Function) -> Function:
    """The stub with its signature and docstring; calling it outside a kernel raises VkjitError."""
    name = function.__qualname__

    @functools.wraps(function)
    def stub(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise VkjitError(
            f"vk.{name} has a meaning inside kernels only: call it in a function decorated with @vk.kernel or @vk.func"
        )

    return cast(Function, stub)
