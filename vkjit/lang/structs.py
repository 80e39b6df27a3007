"""Structs: named groups of values, `@vk.struct` on a class with annotated fields.

Fields are dtypes, vectors, other structs, arrays of known size (`vk.Array[vk.f32, "3 3"]`), or type variables (which
take any number). In a kernel the class makes values from its fields, in order or by keyword; values copy on assignment.
Functions in the class are device functions, whose first parameter is the value. Arrays of structs are NumPy's structured
arrays with `struct_dtype(S)`; on the host the class makes one such record.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import ArgumentError, InternalError

__all__ = ["Struct", "StructType", "on_host", "struct", "struct_dtype"]

Class = TypeVar("Class", bound=type)

_HOST: dict[str, Callable[..., Any]] = {}
"""What structs are outside kernels: "dtype" gives the NumPy type of a struct, "make" a record of fields."""


def on_host(**functions: Callable[..., Any]) -> None:
    """Gives structs their meaning outside kernels. Refuses a second one."""
    if _HOST.keys() & functions.keys():
        raise InternalError(f"structs have {', '.join(functions)} on the host already")
    _HOST.update(functions)


class StructType:
    """What `@vk.struct` makes of a class: `name`, the names of the `fields`, `defaults` of some, `cls` as written.

    `scope` holds the variables of the place where the decorator ran, for annotations that are text.
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

    def __call__(self, *fields: Any, **named: Any) -> Any:
        """On the host: a record of the struct's NumPy type, to pass to kernels."""
        return _HOST["make"](self, fields, named)

    def __repr__(self) -> str:
        return self.name


def struct_dtype(struct: Any) -> Any:
    """The NumPy type of a struct's elements in memory, laid out as `np.dtype(..., align=True)`; bool is one byte, bf16 is
    uint16, a vector or an array a subarray. Raises ArgumentError for what is no struct, or has fields of a type variable.
    """
    return _HOST["dtype"](struct)


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    class Struct(Any):
        """The base of a struct whose arrays a type checker shall accept: `p[i].x` where p is `vk.In[S, "N"]`."""

    @dataclass_transform()
    def struct(cls: Class) -> Class:
        """Makes a struct of a class with annotated fields. Raises ArgumentError for a class without any."""
        ...

else:

    class Struct:
        """The base of a struct whose arrays a type checker shall accept: `p[i].x` where p is `vk.In[S, "N"]`."""

    def struct(cls):
        """Makes a struct of a class with annotated fields. Raises ArgumentError for a class without any."""
        frame = sys._getframe(1)
        return StructType(cls, {**frame.f_globals, **frame.f_locals})
