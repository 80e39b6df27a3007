"""CPython internals for machine code: object layouts, C API addresses, and builtin functions from code addresses.

The offsets of `__slots__` values, of an object's type, of a tuple's items and so on aren't hardcoded for versions of
Python. Each is found by searching the memory of a probe object for a unique value. The results are None if the
interpreter isn't CPython, has no GIL, or has an unexpected layout.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import sysconfig
from collections.abc import Callable
from types import CellType
from typing import Any

__all__ = [
    "Owner", "api", "content_of_cells", "items_of_tuples", "method", "offsets", "payload_of_bytes", "type_of_objects", "usable",
]  # fmt: skip

_WORD = 8


def _words(value: object, nbytes: int) -> list[int]:
    """Return the first `nbytes` bytes of an object's memory as 64-bit words."""
    return list(struct.unpack(f"{nbytes // _WORD}Q", ctypes.string_at(id(value), nbytes)))


@functools.cache
def usable() -> bool:
    """Return True for a 64-bit CPython with a GIL and a recognized object layout."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or sysconfig.get_config_var("Py_TRACE_REFS"):
        return False
    return type_of_objects() is not None and items_of_tuples() is not None


@functools.cache
def type_of_objects() -> int | None:
    """Return the offset of an object's type."""

    class Probe:
        __slots__ = ()

    return _place_of(id(Probe), _words(Probe(), Probe.__basicsize__ & -_WORD))


@functools.cache
def items_of_tuples() -> int | None:
    """Return the offset of a tuple's first item; the others follow it."""
    probe = tuple(object() for _ in range(3))
    words = _words(probe, tuple.__basicsize__ + len(probe) * tuple.__itemsize__ & -_WORD)
    first = _place_of(id(probe[0]), words)
    if first is None or words[first // _WORD :][:3] != [id(item) for item in probe]:
        return None
    return first


@functools.cache
def content_of_cells() -> int | None:
    """Return the offset of a closure cell's value."""
    value = object()
    return _place_of(id(value), _words(CellType(value), CellType.__basicsize__ & -_WORD))


@functools.cache
def payload_of_bytes() -> int | None:
    """Return the offset of the data in an object of `bytes` or of a subclass."""
    mark = b"a mark that is nowhere else in it"
    found = ctypes.string_at(id(Owner(mark)), bytes.__basicsize__ + len(mark)).find(mark)
    return found if found > 0 and found % _WORD == 0 else None


class Owner(bytes):
    """The `self` object of a machine code function: addresses that the code reads; `kept` keeps their objects alive."""

    kept: Any = None


@functools.cache
def offsets(kind: type[Any], *names: str) -> dict[str, int] | None:
    """Return the offsets of slots in instances of a class and of its subclasses; None if they aren't found."""
    try:
        make: Any = type(kind)  # the probe's class has a `__del__` that does nothing
        silent = make(kind.__name__, (kind,), {"__slots__": (), "__del__": lambda _: None})
        made = silent.__new__(silent)
        probes = {name: object() for name in names}
        for name, value in probes.items():
            object.__setattr__(made, name, value)
        words = _words(made, kind.__basicsize__ & -_WORD)
        found = {name: _place_of(id(value), words) for name, value in probes.items()}
    except (AttributeError, TypeError):
        return None
    return None if None in found.values() else {name: place for name, place in found.items() if place is not None}


def api(name: str) -> int:
    """Return the address of a function of Python's C API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class _MethodDef(ctypes.Structure):
    """The C API's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_FASTCALL = 0x80
_defs: dict[int, _MethodDef] = {}
"""Definitions by function address; never freed, because functions refer to them."""


def method(address: int, owner: object) -> Callable[..., Any]:
    """Return a Python function that runs machine code.

    Its signature in C is `PyObject *f(PyObject *owner, PyObject *const *args, Py_ssize_t count)`. The code must never
    be unloaded.
    """
    made = _defs.setdefault(address, _MethodDef(b"vkjit", address, _FASTCALL, None))
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = new(ctypes.addressof(made), owner, None)
    return function


def _place_of(wanted: int, words: list[int]) -> int | None:
    """Return the byte offset of a word that occurs exactly once, else None."""
    return words.index(wanted) * _WORD if words.count(wanted) == 1 else None
