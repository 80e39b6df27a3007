"""Pickling and copying of kernels, device functions and structs as Python does it with functions: by reference.

pickle stores a function by its module and qualified name. cloudpickle does, too, but stores functions of `__main__` and
nested ones by value. A `Portable` object leaves that choice to the pickler: it is pickled as a call of `restore` with
its carrier, a function that is found as its attribute `__carrier__`. What the object is made of are attributes of the
carrier, which cloudpickle stores where it stores the carrier by value.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any, TypeVar

__all__ = ["Portable", "restore"]

Self = TypeVar("Self", bound="Portable")


class Portable:
    """Mixin of objects that replace a function or class in its module."""

    @functools.cached_property
    def __carrier__(self) -> FunctionType:
        """The function that picklers store."""
        carrier = FunctionType(_carrier.__code__, {"__builtins__": {}}, "carrier")
        carrier.__module__ = self.__module__
        carrier.__qualname__ = f"{getattr(self, '__qualname__', '')}.__carrier__"
        carrier.__dict__.update(kind=type(self), parts=_Parts(self))
        return carrier

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (self.__carrier__,)

    def __copy__(self: Self) -> Self:
        return self

    def __deepcopy__(self: Self, _memo: object) -> Self:
        return self

    def _portable_parts(self) -> Mapping[str, Any]:
        """Return what the object is made of, as arguments of `_from_parts`."""
        raise NotImplementedError

    @classmethod
    def _from_parts(cls, **parts: Any) -> Any:
        """Return a new object."""
        raise NotImplementedError


class _Parts:
    """The parts of an object, which are collected if a pickler asks for them."""

    def __init__(self, owner: Portable) -> None:
        self.owner = owner

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (tuple(self.owner._portable_parts().items()),)


def _carrier() -> None:
    """Do nothing: carriers are never called."""


def restore(carrier: FunctionType) -> Any:
    """Return the object that a carrier belongs to, or a new one if the carrier was stored by value."""
    found: Any = sys.modules.get(carrier.__module__)
    for name in carrier.__qualname__.split(".")[:-1]:
        found = getattr(found, name, None)
    if getattr(found, "__carrier__", None) is carrier:
        return found
    return carrier.__dict__["kind"]._from_parts(**carrier.__dict__["parts"])
