"""`DeviceFunction`, the result of `@vk.func`. Calls of it are lowered in `calls.device_functions`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, cast

from vkjit.errors import CompileError, VkjitError

from .annotations import Annotation, defining_scope, read_annotation

__all__ = ["DeviceFunction"]


class DeviceFunction:
    """A function that kernels call; it can't be called from Python.

    `fn` is the Python function. `scope` holds the local variables at the decorator, to resolve string annotations.
    """

    def __init__(self, fn: Callable[..., Any], scope: Mapping[str, Any] | None = None) -> None:
        if not isinstance(fn, FunctionType):
            hint = "decorate a function that is written with `def`"
            if isinstance(fn, DeviceFunction):
                hint = "it is decorated already: leave one decorator out"
            raise CompileError(f"expected a function, found {fn!r}", hint=hint)
        self.fn = fn
        self.scope = defining_scope(fn) if scope is None else scope
        functools.update_wrapper(cast(Any, self), fn)

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise VkjitError(f"{self.fn.__name__} is a device function: call it inside a kernel")

    def __repr__(self) -> str:
        return f"<device function {self.fn.__qualname__}>"

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The Python signature of the function."""
        return inspect.signature(self.fn)

    @functools.cached_property
    def annotations(self) -> dict[str, Annotation]:
        """The parsed annotations of all parameters, by name."""
        return {name: read_annotation(self.fn, name, self.scope) for name in self.signature.parameters}
