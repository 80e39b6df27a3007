"""What machine code needs of CPython: where objects keep what is in them, functions of the C API, and how Python calls it.

Enters: classes; addresses of machine code. Leaves: offsets into instances (of the values of `__slots__`, of an object's type, of a
tuple's items), addresses, and `method`, which makes machine code a function as those that are built in. Holds: no offset is
taken from knowledge of a version of Python: each is found by looking into an object made for that, whose parts are nowhere
else. Where the interpreter is another one, has no global lock, or looks different, the answer is None.
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
    """The memory at an object's address."""
    return list(struct.unpack(f"{nbytes // _WORD}Q", ctypes.string_at(id(value), nbytes)))


@functools.cache
def usable() -> bool:
    """Whether this is a CPython with a global lock and pointers of eight bytes."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or sysconfig.get_config_var("Py_TRACE_REFS"):
        return False
    return type_of_objects() is not None and items_of_tuples() is not None


@functools.cache
def type_of_objects() -> int | None:
    """Where an object keeps its type."""

    class Probe:
        __slots__ = ()

    return _place_of(id(Probe), _words(Probe(), Probe.__basicsize__ & -_WORD))


@functools.cache
def items_of_tuples() -> int | None:
    """Where a tuple keeps its first item; the others follow."""
    probe = tuple(object() for _ in range(3))
    words = _words(probe, tuple.__basicsize__ + len(probe) * tuple.__itemsize__ & -_WORD)
    first = _place_of(id(probe[0]), words)
    if first is None or words[first // _WORD :][:3] != [id(item) for item in probe]:
        return None
    return first


@functools.cache
def content_of_cells() -> int | None:
    """Where a closure's cell keeps its value."""
    value = object()
    return _place_of(id(value), _words(CellType(value), CellType.__basicsize__ & -_WORD))


@functools.cache
def payload_of_bytes() -> int | None:
    """Where an object of `bytes`, or of a class derived from it, keeps its bytes."""
    mark = b"a mark that is nowhere else in it"
    found = ctypes.string_at(id(Owner(mark)), bytes.__basicsize__ + len(mark)).find(mark)
    return found if found > 0 and found % _WORD == 0 else None


class Owner(bytes):
    """The owner of a method of machine code: addresses that the code reads, and in `kept` what they are of."""

    kept: Any = None


@functools.cache
def offsets(kind: type[Any], *names: str) -> dict[str, int] | None:
    """Where instances of a class, and of classes derived from it, keep these slots."""
    try:
        make: Any = type(kind)  # of a class that has nothing to do when it goes
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
    """The address of a function of Python's C API."""
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
"""What must stay for good, by address of the function."""


def method(address: int, owner: object) -> Callable[..., Any]:
    """A function for Python of machine code `PyObject *f(PyObject *owner, PyObject *const *args, Py_ssize_t count)`. The code has
    to stay for good."""
    made = _defs.setdefault(address, _MethodDef(b"vkjit", address, _FASTCALL, None))
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = new(ctypes.addressof(made), owner, None)
    return function


def _place_of(wanted: int, words: list[int]) -> int | None:
    """Its only place, in bytes."""
    return words.index(wanted) * _WORD if words.count(wanted) == 1 else None
