"""Look-up of a function's free names, and tests of the constants that are bound to them.

Used by `frontend.resolve`, and by the fingerprint of kernels, to find the constants that a kernel captures.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Iterator
from types import FunctionType, MappingProxyType
from typing import Any, cast

__all__ = [
    "LIBRARIES",
    "MISSING",
    "class_entry",
    "class_parts",
    "find_global",
    "is_frozen",
    "is_frozen_type",
    "is_mapping",
    "size_fault",
]

MISSING: Any = object()
"""The result of `find_global` for an undefined name."""

LIBRARIES = ("vkjit", "numpy", "torch", "jax", "tensorflow", "numba", "triton", "taichi", "scipy", "cupy")
"""Packages whose functions aren't compiled, and whose classes have no methods in kernels."""
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


def is_mapping(value: object) -> bool:
    """True for a dictionary, or a read-only view of one: kernels may capture those of constants by a name of theirs.

    The fingerprint checks the contents of a captured dictionary before each launch, but not those inside of constants.
    """
    return isinstance(value, dict | MappingProxyType)


def class_parts(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a user's class that its constants have in kernels, as (name, function or constant).

    Those are the functions of methods and properties, and constants; not the fields of dataclasses and named tuples, the
    members of enums, and what Python's own classes and decorators define.
    """
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    skipped = {f.name for f in fields}.union(getattr(kind, "__members__", ()), getattr(kind, "_fields", ()))
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in (*LIBRARIES, "builtins", "enum", "typing", "abc"):
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", None)
            if name.startswith("_") and name != "__call__":
                is_private = not name.endswith("_") and not issubclass(kind, tuple)
                if not is_private or not (function or isinstance(value, FunctionType | int | float | str | tuple)):
                    continue
            if name not in skipped and not hasattr(value, "__objclass__"):
                skipped.add(name)
                yield name, function or value


def class_entry(kind: type, name: str) -> Any:
    """Return what a class or the first of its bases has under a name, without calling descriptors; or MISSING."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), MISSING)


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
