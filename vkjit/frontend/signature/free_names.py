"""Look-up of a function's free names, and tests of the constants that are bound to them.

Used by `frontend.resolve`, and by the fingerprint of kernels, to find the constants that a kernel captures.
"""

from __future__ import annotations

import builtins
import dataclasses
from types import FunctionType
from typing import Any, cast

__all__ = ["MISSING", "find_global", "is_frozen", "is_frozen_type", "size_fault"]

MISSING: Any = object()
"""The result of `find_global` for an undefined name."""

_OURS = ("vkjit.frontend", "vkjit.ir", "vkjit.lang")
"""Packages whose frozen dataclasses are kernel values, not user constants."""
_MAX_PARTS, _MAX_LEVELS = 1 << 20, 64
"""The maximum number of parts of a constant, counted as often as they occur in it, and of levels of nesting."""


def is_frozen(value: object) -> bool:
    """True if the value is an instance of a user's frozen dataclass, which kernels may capture as a constant."""
    return is_frozen_type(type(value))


def is_frozen_type(kind: type) -> bool:
    """True if the type is a user's frozen dataclass."""
    if str(kind.__module__).startswith(_OURS):
        return False
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def size_fault(value: object, max_parts: int = _MAX_PARTS) -> str:
    """Return "" if a tuple or frozen dataclass is small enough to be walked recursively, else what it has too much of.

    An object that contains itself is nested without end, and one with shared parts can have many parts in little memory.
    """
    count, pending = 0, [(value, 0)]
    while pending:
        item, level = pending.pop()
        if isinstance(item, tuple):
            parts: Any = item
        elif is_frozen(item) and not isinstance(item, type):
            parts = [getattr(item, field.name, None) for field in dataclasses.fields(cast(Any, item))]
        else:
            continue
        count += len(parts)
        if level == _MAX_LEVELS:
            return f"is nested more than {_MAX_LEVELS} levels deep, or contains itself"
        if count > max_parts:
            return f"has more than {max_parts} parts"
        pending += [(part, level + 1) for part in parts if not isinstance(part, int | float | str)]
    return ""


def find_global(function: FunctionType, name: str) -> Any:
    """Return the value of a name that isn't local to the function, or MISSING if it is undefined.

    It is looked up in the closure, the type parameters, the globals and the builtins, in this order.
    """
    code = function.__code__
    if name in code.co_freevars:
        cell = (function.__closure__ or ())[code.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return MISSING
    for parameter in getattr(function, "__type_params__", ()):
        if parameter.__name__ == name:
            return parameter
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, MISSING)
