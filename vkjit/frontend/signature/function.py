"""Device functions: `DeviceFunction`, the result of `@vk.func`, and plain Python functions that kernels may call.

Calls of them are lowered in `calls.device_functions`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, cast

from vkjit.dtypes import DType
from vkjit.errors import CompileError, VkjitError
from vkjit.lang._portable import Portable

from ..source import FunctionSource, source_of
from .annotations import Annotation, defining_scope, read_annotation
from .free_names import LIBRARIES

__all__ = ["DeviceFunction", "is_helper"]

_PYTHON = (f"{os.path.dirname(os.__file__)}{os.sep}", "<frozen ")
"""Beginnings of the file names of Python's own modules."""
_HOST_TYPES = (float, int, bool, "float", "int", "bool")


def is_helper(value: object) -> bool:
    """True for a plain Python function that a kernel may call: any but those of this library, Python's and a few others."""
    if not isinstance(value, FunctionType):
        return False
    if (value.__module__ or "").split(".")[0] in LIBRARIES:
        return False
    file = value.__code__.co_filename
    return not file.startswith(_PYTHON) or "site-packages" in file


class DeviceFunction(Portable):
    """A function that kernels call; it can't be called from Python.

    `fn` is the Python function. `scope` holds the local variables at the decorator, to resolve string annotations.
    `is_helper` is True for a plain function, whose annotations may be meant for the host: Python's types, and those that
    kernels don't know, are ignored.
    """

    captured: Mapping[str, Any] = {}
    """The entries of names that it takes from an enclosing device function: none."""
    typevars: Mapping[str, DType] = {}
    """The type variables that are bound before its arguments bind others: none."""

    def __init__(
        self, fn: Callable[..., Any], scope: Mapping[str, Any] | None = None, *, is_helper: bool = False
    ) -> None:
        if not isinstance(fn, FunctionType):
            hint = "decorate a function that is written with `def`"
            if isinstance(fn, DeviceFunction):
                hint = "it is decorated already: leave one decorator out"
            raise CompileError(f"expected a function, found {fn!r}", hint=hint)
        self.fn = fn
        self.is_helper = is_helper
        self.scope = defining_scope(fn) if scope is None else scope
        functools.update_wrapper(cast(Any, self), fn)

    def _portable_parts(self) -> dict[str, Any]:
        return {"fn": self.fn, "annotations": self.annotations, "is_helper": self.is_helper}

    @classmethod
    def _from_parts(cls, **parts: Any) -> DeviceFunction:
        function = cls(parts["fn"], {}, is_helper=parts["is_helper"])
        function.annotations = parts["annotations"]
        return function

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise VkjitError(f"{self.fn.__name__} is a device function: call it inside a kernel")

    @property
    def name(self) -> str:
        """The function's name, for messages and the IR."""
        return self.fn.__name__

    @property
    def key(self) -> object:
        """What identifies the function among the instances of a kernel."""
        return self.fn

    @property
    def source(self) -> FunctionSource:
        """The source of the function. Raises CompileError if it can't be read."""
        return source_of(self.fn)

    def __repr__(self) -> str:
        return f"<device function {self.fn.__qualname__}>"

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The Python signature of the function."""
        return inspect.signature(self.fn)

    @functools.cached_property
    def annotations(self) -> dict[str, Annotation]:
        """The parsed annotations of all parameters, by name."""
        return {name: self._annotation(name) for name in self.signature.parameters}

    def _annotation(self, name: str) -> Annotation:
        if not self.is_helper:
            return read_annotation(self.fn, name, self.scope)
        if self.fn.__annotations__.get(name) in _HOST_TYPES:
            return None
        try:
            return read_annotation(self.fn, name, self.scope)
        except CompileError:
            return None
