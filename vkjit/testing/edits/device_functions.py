"""Device functions that a kernel calls, and replacement of one of them.

Device functions are found through the globals and the closure of the kernel's Python function; those of the library
are excluded. A replacement copies the functions on the call path and keeps their source.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, FunctionType
from typing import Any

from vkjit.frontend import DeviceFunction

__all__ = ["device_functions", "with_device_function"]


def device_functions(function: FunctionType) -> list[DeviceFunction]:
    """Return all device functions that are reachable, each once, callers before callees."""
    functions: dict[int, DeviceFunction] = {}
    pending = [function]
    while pending:
        for _, value in _called(pending.pop(0)):
            if id(value) not in functions:
                functions[id(value)] = value
                pending.append(_function(value))
    return list(functions.values())


def with_device_function(function: FunctionType, target: DeviceFunction, made: DeviceFunction) -> FunctionType:
    """Return the function with `made` in place of each use of `target`; the function itself if it doesn't reach it."""
    changed: dict[str, Any] = {}
    for name, value in _called(function):
        if value is target:
            changed[name] = made
        elif target in device_functions(_function(value)):
            changed[name] = DeviceFunction(with_device_function(_function(value), target, made), value.scope)
    if not changed:
        return function
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(CellType(changed[name]) if name in changed else cell for name, cell in cells)
    around = {**function.__globals__, **{n: v for n, v in changed.items() if n not in code.co_freevars}}
    copy = FunctionType(code, around, function.__name__, function.__defaults__, closure or None)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def _called(function: FunctionType) -> Iterator[tuple[str, DeviceFunction]]:
    code = function.__code__
    around: dict[str, Any] = {n: function.__globals__.get(n) for n in code.co_names}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        around[name] = cell.cell_contents
    for name, value in around.items():
        if isinstance(value, DeviceFunction) and not _function(value).__module__.startswith("vkjit."):
            yield name, value


def _function(value: DeviceFunction) -> FunctionType:
    assert isinstance(value.fn, FunctionType)
    return value.fn
