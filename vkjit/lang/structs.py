"""Structs: values with named fields, declared by `@vk.struct` on a class with annotated fields.

The type of a field is a dtype, a vector, another struct, an array of known size (`vk.Array[vk.f32, "3 3"]`), or a type
variable (which stands for any dtype of numbers). In a kernel, calling the class creates a value from its fields, given
in order or by keyword. Assignment copies the value. Functions in the class are device functions whose first parameter
is the value. On the host, an array of structs S is a NumPy structured array of type `struct_dtype(S)`, and calling the
class creates one NumPy record.

Example::

    @vk.struct
    class Point:
        x: vk.f32
        y: vk.f32

        def length(self):
            return vk.hypot(self.x, self.y)
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import ArgumentError, InternalError
from ._portable import Portable

__all__ = ["Struct", "StructType", "on_host", "struct", "struct_dtype"]

Class = TypeVar("Class", bound=type)

_HOST: dict[str, Callable[..., Any]] = {}
"""The functions that structs call on the host, registered by `on_host`: "dtype" returns the NumPy type of a struct,
"make" creates a record from its fields.
"""


def on_host(**functions: Callable[..., Any]) -> None:
    """Register the functions `dtype` and `make` (see `_HOST`) that structs call on the host.

    Raises InternalError for functions that are registered already.
    """
    if _HOST.keys() & functions.keys():
        raise InternalError(f"structs have {', '.join(functions)} on the host already")
    _HOST.update(functions)


class StructType(Portable):
    """A struct type: the result of `@vk.struct`.

    `cls` is the decorated class and `name` its name. `fields` are the names of the fields, `defaults` the default
    values by field name. `scope` has the variables that are visible at the decorator, to resolve annotations that are
    strings.
    """

    def __init__(self, cls: type, scope: Mapping[str, Any] | None = None) -> None:
        annotations = inspect.get_annotations(cls)
        if not annotations:
            raise ArgumentError(f"@vk.struct: {cls.__name__} has no annotated fields: write e.g. `x: vk.f32`")
        self.cls = cls
        self.scope = scope or {}
        self.name = cls.__name__
        self.fields: tuple[str, ...] = tuple(annotations)
        self.defaults: Mapping[str, Any] = {n: cls.__dict__[n] for n in self.fields if n in cls.__dict__}
        functools.update_wrapper(cast(Any, self), cls, updated=())

    def _portable_parts(self) -> dict[str, Any]:
        texts = [text for text in inspect.get_annotations(self.cls).values() if isinstance(text, str)]
        names = {n.id for text in texts for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        return {"decorated": self.cls, "scope": {name: self.scope[name] for name in names if name in self.scope}}

    @classmethod
    def _from_parts(cls, **parts: Any) -> StructType:
        return cls(parts["decorated"], parts["scope"])

    def __call__(self, *fields: Any, **named: Any) -> Any:
        """Return a NumPy record of the struct, to pass to kernels."""
        return _HOST["make"](self, fields, named)

    def __repr__(self) -> str:
        return self.name


def struct_dtype(struct: Any) -> np.dtype[np.void]:
    """Return the NumPy type of a struct's elements in memory, laid out as by `np.dtype(..., align=True)`.

    A bool is one byte, a bf16 is a uint16, and a vector or an array is a subarray. Raises ArgumentError if `struct`
    isn't a struct, or if the type of a field is a type variable.
    """
    dtype: np.dtype[np.void] = _HOST["dtype"](struct)
    return dtype


if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import dataclass_transform

    class Struct(Any):
        """Optional base class of structs for type checkers, so that they accept `p[i].x` where p is `vk.In[S, "N"]`."""

    @dataclass_transform()
    def struct(cls: Class) -> Class:
        """Make a struct from a class with annotated fields. Raises ArgumentError if the class has none."""
        ...

else:

    class Struct:
        """Optional base class of structs for type checkers, so that they accept `p[i].x` where p is `vk.In[S, "N"]`."""

    def struct(cls):
        """Make a struct from a class with annotated fields. Raises ArgumentError if the class has none."""
        frame = sys._getframe(1)
        return StructType(cls, {**frame.f_globals, **frame.f_locals})
