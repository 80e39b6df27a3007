"""Structs: named groups of values, `@vk.struct` on a class with annotated fields.

Fields are dtypes, vectors, other structs, or type variables (which take any number). In a kernel the class makes
values from its fields, in order or by keyword; values copy on assignment and live in registers. Functions in the
class are device functions, whose first parameter is the value.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import ArgumentError, VkjitError

__all__ = ["StructType", "struct"]

Class = TypeVar("Class", bound=type)


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

    def __call__(self, *_fields: Any, **_named: Any) -> Any:
        raise VkjitError(f"{self.name}(...) makes a value inside kernels only")

    def __repr__(self) -> str:
        return self.name


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform()
    def struct(cls: Class) -> Class:
        """Makes a struct of a class with annotated fields. Raises ArgumentError for a class without any."""
        ...

else:

    def struct(cls):
        """Makes a struct of a class with annotated fields. Raises ArgumentError for a class without any."""
        frame = sys._getframe(1)
        return StructType(cls, {**frame.f_globals, **frame.f_locals})
