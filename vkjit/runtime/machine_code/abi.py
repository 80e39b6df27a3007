"""Memory layout of plans, which machine code reads, and of the Python objects that it accesses.

A plan is an array of 64-bit words, indexed by `Word`, followed by tables whose rows are described by the other
enumerations. It holds addresses of Python objects, which the `Plan` keeps alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..array import DeviceArray
from . import cpython

__all__ = [
    "ITSELF",
    "LITERAL",
    "NO_ARRAY",
    "Axis",
    "Cell",
    "Constant",
    "Field",
    "Kind",
    "Layout",
    "Name",
    "Pair",
    "Plan",
    "Row",
    "Word",
    "find_layout",
]


class Word(IntEnum):
    """Words of a plan. Those from ARRAYS on are numbers of rows, each followed by the address of the first row.

    RECORD is the address of memory in which the code passes arguments. The words from OWN on belong to the back end.
    """

    NEXT, RECORD, X, Y, Z, COUNT, DEVICE, BLOCKS = range(8)
    ARRAYS, CONSTANTS, FIELDS, PAIRS, AXES, CELLS, NAMES = range(8, 22, 2)
    OWN, WORDS = 22, 32


class Row(IntEnum):
    """Words of an array argument.

    PLACE is its offset in the argument array, TYPE its class, and SLOT the offset of the slot that holds its array.
    SPEC, SHAPE and STRIDES are the array's, or 0 if they aren't checked. WRITTEN is 1 if the kernel writes the array.
    COUNTER is the slot of a version counter of class COUNTS, which holds the version in the slot at COUNT; COUNTS is 0
    if writes aren't counted. META is the slot of a tensor's autograd state, which holds in the slot at REQUIRES whether
    the tensor requires a gradient, and VERSION that of an object that holds in the slot at RECORDED what the tensor's
    slot HISTORY does unless it is stale; META is 0 if neither is checked. The last three are set during a call: the
    buffer, the address of the items of the array's descriptor (Python integers; for a buffer, of its address), and the
    new version.
    """

    PLACE, TYPE, SLOT, SPEC, SHAPE, STRIDES, WRITTEN, COUNTER, COUNTS, COUNT = range(10)
    META, REQUIRES, VERSION, RECORDED, HISTORY, BUFFER, ITEMS, NEW, WORDS = range(10, 19)


ITSELF, NO_ARRAY = 0, -1
"""Values of SLOT if the argument is the array itself, or a buffer."""


class Constant(IntEnum):
    """Words of an argument that isn't an array: its offset, its class, and the object that it must be (0 for any)."""

    PLACE, TYPE, EXACTLY, WORDS = range(4)


class Field(IntEnum):
    """Words of a field of the argument block.

    Its value is the item at offset ITEM of the descriptor of array ARRAY, plus SHIFT, or, if ARRAY is LITERAL, the
    argument at offset ITEM. TARGET is its offset in the record. LEAST and MOST are the range of an integer of SIZE
    bytes.
    """

    ARRAY, ITEM, SHIFT, TARGET, KIND, SIZE, LEAST, MOST, WORDS = range(9)


class Pair(IntEnum):
    """Words of two descriptor items that must be equal. If ARRAY is LITERAL, the first is the number in ITEM itself."""

    ARRAY, ITEM, OTHER_ARRAY, OTHER_ITEM, WORDS = range(5)


class Axis(IntEnum):
    """Words of an axis of the grid, x before y.

    The extent is the item at ITEM of the descriptor of ARRAY. LOCAL is the workgroup size, MOST the limit of
    workgroups.
    """

    ARRAY, ITEM, LOCAL, MOST, WORDS = range(5)


LITERAL = -1


class Kind(IntEnum):
    """Conversions of scalars, by the type of the field: integer, f32, f64, bool."""

    INTEGER, SINGLE, DOUBLE, BOOL = range(4)


class Cell(IntEnum):
    """Words of a closure cell and of the value that it must hold."""

    CELL, VALUE, WORDS = range(3)


class Name(IntEnum):
    """Words of a dictionary entry: the dictionary, the key, and the value (0 if there must be no entry)."""

    DICTIONARY, KEY, VALUE, WORDS = range(4)


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets of slots and of the internals of CPython objects.

    `array` has the slots of arrays, `buffer` those of the back end's buffers, `own` those of its other classes, by
    name. `type` is the offset of an object's type, `items` of a tuple's items, `content` of a cell's value, and
    `payload` of the data of a `bytes` object.
    """

    array: dict[str, int]
    buffer: dict[str, int]
    own: dict[str, dict[str, int]]
    type: int
    items: int
    content: int
    payload: int


class Plan:
    """A plan in memory. It keeps `kept` and the next plan alive."""

    __slots__ = ("__weakref__", "_memory", "_next", "address", "kept")

    def __init__(self, words: dict[int, int], tables: dict[Word, Sequence[tuple[int, ...]]], kept: Any) -> None:
        size = int(Word.WORDS) + sum(len(row) for rows in tables.values() for row in rows)
        self._memory = (ctypes.c_int64 * size)()
        self._next: Plan | None = None
        self.kept = kept
        self.address = ctypes.addressof(self._memory)
        for word, value in words.items():
            self._memory[word] = value
        place = int(Word.WORDS)
        for word, rows in tables.items():
            self._memory[word], self._memory[word + 1] = len(rows), self.address + 8 * place
            for row in rows:
                self._memory[place : place + len(row)] = list(row)
                place += len(row)

    def set(self, word: int, value: int) -> None:
        self._memory[word] = value

    def follow_with(self, following: Plan | None) -> None:
        """Set the plan that is tried if this one doesn't match."""
        before, self._next = self._next, following
        self._memory[Word.NEXT] = 0 if following is None else following.address
        del before  # only now: machine code could reach it until here


Slots = tuple[Any, tuple[str, ...]]
"""A class and names of its slots."""


def find_layout(buffer: Slots, own: Sequence[Slots] = ()) -> Layout | None:
    """Return the offsets, or None for an interpreter whose object layout isn't recognized."""
    if not cpython.usable():
        return None
    internals = (
        cpython.type_of_objects(), cpython.items_of_tuples(), cpython.content_of_cells(), cpython.payload_of_bytes(),
    )  # fmt: skip
    array: Slots = DeviceArray, ("buffer", "spec_class", "descriptor", "shape", "strides")
    slots = [cpython.offsets(kind, *names) or {} for kind, names in (array, buffer, *own)]
    if not all(slots) or not all(internals):
        return None
    names = [kind.__name__ for kind, _ in own]
    return Layout(slots[0], slots[1], dict(zip(names, slots[2:], strict=True)), *[place or 0 for place in internals])
