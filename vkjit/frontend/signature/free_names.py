"""Look-up of a function's free names, and the test for frozen dataclasses of users.

Used by `frontend.resolve`, and by the fingerprint of kernels, to find the constants that a kernel captures.
"""

from __future__ import annotations

import builtins
from types import FunctionType
from typing import Any

__all__ = ["MISSING", "find_global", "is_frozen", "is_frozen_type"]

MISSING: Any = object()
"""The result of `find_global` for an undefined name."""

_OURS = ("vkjit.frontend", "vkjit.ir", "vkjit.lang")
"""Packages whose frozen dataclasses are kernel values, not user constants."""


def is_frozen(value: object) -> bool:
    """True if the value is an instance of a user's frozen dataclass, which kernels may capture as a constant."""
    return is_frozen_type(type(value))


def is_frozen_type(kind: type) -> bool:
    """True if the type is a user's frozen dataclass."""
    if str(kind.__module__).startswith(_OURS):
        return False
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


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
