"""Where a function's free names lead: closure, globals, builtins."""

from __future__ import annotations

import builtins
from types import FunctionType
from typing import Any

__all__ = ["MISSING", "find_global"]

MISSING: Any = object()


def find_global(function: FunctionType, name: str) -> Any:
    """What a name that isn't local means: closure, globals, builtins; MISSING if nothing."""
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
