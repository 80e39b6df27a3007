"""The device functions that a kernel calls, and copies of the kernel in which another function replaces one of them.

Device functions are found by the names that a Python function uses in its globals and closure. Device functions of
`vkjit` itself are excluded. To replace a device function, each function that calls it, directly or not, is copied with
other globals or another closure; the code object stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, FunctionType
from typing import Any

from vkjit.frontend import DeviceFunction

__all__ = ["device_functions", "with_device_function"]


def device_functions(function: FunctionType) -> list[DeviceFunction]:
    """Return all device functions that a function calls, directly or not, each once, in breadth-first order."""
    functions: dict[int, DeviceFunction] = {}
    pending = [function]
    while pending:
        for _, value in _called(pending.pop(0)):
            if id(value) not in functions:
                functions[id(value)] = value
                pending.append(_function(value))
    return list(functions.values())


def with_device_function(function: FunctionType, target: DeviceFunction, replacement: DeviceFunction) -> FunctionType:
    """Return a copy of the function that calls `replacement` wherever it calls `target`, directly or not.

    Returns the function itself if it never calls `target`.
    """
    changed: dict[str, Any] = {}
    for name, value in _called(function):
        if value is target:
            changed[name] = replacement
        elif target in device_functions(_function(value)):
            changed[name] = DeviceFunction(with_device_function(_function(value), target, replacement), value.scope)
    if not changed:
        return function
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(CellType(changed[name]) if name in changed else cell for name, cell in cells)
    new_globals = {**function.__globals__, **{n: v for n, v in changed.items() if n not in code.co_freevars}}
    copy = FunctionType(code, new_globals, function.__name__, function.__defaults__, closure or None)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def _called(function: FunctionType) -> Iterator[tuple[str, DeviceFunction]]:
    """Yield (name, device function) for each device function that a function uses, except those of `vkjit`."""
    code = function.__code__
    # co_names has names of globals and of attributes; co_freevars has names of closure variables
    used: dict[str, Any] = {n: function.__globals__.get(n) for n in code.co_names}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        used[name] = cell.cell_contents
    for name, value in used.items():
        if isinstance(value, DeviceFunction) and not (_function(value).__module__ or "").startswith("vkjit."):
            yield name, value


def _function(value: DeviceFunction) -> FunctionType:
    """Return the Python function of a device function."""
    assert isinstance(value.fn, FunctionType)
    return value.fn
