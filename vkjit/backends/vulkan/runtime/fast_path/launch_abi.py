"""What machine code for launches is told, as words of eight bytes in memory, and where it looks into Python's objects.

Enters: what `native_plan` finds out about a launch. Leaves: `Plan`s in memory, `Layout`. Holds: what lies at the address of
a plan is alive as long as the plan is.

A plan is a row of words, numbered by `Word`, with tables of rows of words behind it: `Row` for arrays, `Field` for what goes into
the argument block, `Pair` for words that must be equal, `Other` for arguments that are no arrays, `Cell` and `Name` for what the
kernel captures. An operand is the number of an array and where in its tuple of words the number lies, or `LITERAL` and a number.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from vkjit.runtime.array import DeviceArray

from .. import cpython
from ..memory.buffer import VulkanBuffer
from ..pipeline.pipeline import VulkanKernel
from ..queue.queue import Queue

__all__ = [
    "COMMAND",
    "LITERAL",
    "Cell",
    "Field",
    "Kind",
    "Layout",
    "Name",
    "Operand",
    "Other",
    "Pair",
    "Plan",
    "Row",
    "Table",
    "Word",
    "X",
    "Y",
    "layout",
]

Operand = tuple[int, int]

LITERAL = -1


class Word(IntEnum):
    """Words of a plan."""

    NEXT = 0
    RECORD = 1
    DEVICE = 2
    KERNEL = 3
    LOCK = 4
    ACQUIRE = 5
    RELEASE = 6
    EPOCHS = 7
    ARRAYS = 8
    ARRAY_ROWS = 9
    OTHERS = 10
    OTHER_ROWS = 11
    FIELDS = 12
    FIELD_ROWS = 13
    PAIRS = 14
    PAIR_ROWS = 15
    CELLS = 16
    CELL_ROWS = 17
    NAMES = 18
    NAME_ROWS = 19
    BLOCKS = 20
    ALONG = 21
    """Axes that are counted: 0 (the grid is fixed: X), 1 or 2."""
    X = 22
    X_ARRAY, X_PLACE, X_LOCAL, X_MOST = 23, 24, 25, 26
    Y_ARRAY, Y_PLACE, Y_LOCAL, Y_MOST = 27, 28, 29, 30
    WORDS = 31


class Row(IntEnum):
    """Words for an array. COUNTER is where the argument keeps an object of type COUNTS that counts how often it was written, in
    the slot at COUNT; COUNTS is 0 where nothing does. BUFFER and what follows are notes of the call that goes on.
    """

    PLACE, TYPE, SLOT, FORM, WRITTEN, COUNTER, COUNTS, COUNT, BUFFER, NUMBERS, NEW, WORDS = range(12)


class Other(IntEnum):
    """Words for an argument that is no array: EXACTLY is the object that it must be, or 0."""

    PLACE, TYPE, EXACTLY, WORDS = range(4)


class Cell(IntEnum):
    """Words for a closure's cell, and what it must hold."""

    CELL, VALUE, WORDS = range(3)


class Name(IntEnum):
    """Words for a name in a dict, and what it must stand for, 0: nothing."""

    NAMES, NAME, VALUE, WORDS = range(4)


class Pair(IntEnum):
    """Words for two operands that must be equal; the first may be a number."""

    ARRAY, PLACE, OTHER_ARRAY, OTHER_PLACE, WORDS = range(5)


class Field(IntEnum):
    """Words for what goes into the block: ARRAY is `LITERAL` where PLACE is one in the tuple of arguments."""

    ARRAY, PLACE, TARGET, KIND, BYTES, LEAST, MOST, WORDS = range(8)


class Kind(IntEnum):
    """Kinds of fields: integers, floats of either size from floats or integers, truth."""

    INTEGER, SINGLE, DOUBLE, SINGLE_OF_INTEGER, DOUBLE_OF_INTEGER, TRUTH = range(6)


COMMAND, X, Y = 40, 48, 32
"""Where a record has these; see `native`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets of slots, by class."""

    array: dict[str, int]
    buffer: dict[str, int]
    kernel: dict[str, int]
    queue: dict[str, int]
    plan: dict[str, int]
    type: int
    items: int
    content: int


Table = tuple[Word, Word, Sequence[tuple[int, ...]]]
"""Where a plan has the number of rows, and their address; the rows."""


class Plan:
    """A plan in memory, and what must not go away while machine code may look at it: the plans that follow, too."""

    __slots__ = ("_following", "_held", "_memory", "address")

    def __init__(self, words: dict[Word, int], tables: Sequence[Table], held: Any) -> None:
        size = int(Word.WORDS) + sum(len(row) for _, _, rows in tables for row in rows)
        self._memory = (ctypes.c_int64 * size)()
        self._held = held
        self._following: Plan | None = None
        self.address = ctypes.addressof(self._memory)
        for word, value in words.items():
            self._memory[word] = value
        place = int(Word.WORDS)
        for count, where, rows in tables:
            self._memory[count], self._memory[where] = len(rows), self.address + 8 * place
            for row in rows:
                self._memory[place : place + len(row)] = list(row)
                place += len(row)

    def follow(self, following: Plan | None) -> None:
        """Sets the plan that is tried when this one doesn't fit."""
        before, self._following = self._following, following
        self._memory[Word.NEXT] = 0 if following is None else following.address
        del before  # only now: nothing leads to it any more


@functools.cache
def layout() -> Layout | None:
    """None where this interpreter isn't one that can be looked into."""
    if not cpython.usable():
        return None
    places = cpython.type_of_objects(), cpython.items_of_tuples(), cpython.content_of_cells()
    found = (
        cpython.offsets(DeviceArray, "buffer", "spec_class", "descriptor"),
        cpython.offsets(
            VulkanBuffer, "device", "queue", "readers", "read_epoch", "write_epoch", "last_use", "last_write"
        ),
        cpython.offsets(VulkanKernel, "last_use", "user"),
        cpython.offsets(
            Queue, "lock", "command_handle", "epoch", "transferred", "bound", "serial", "recorded", "budget"
        ),
        cpython.offsets(Plan, "address"),
    )
    array, buffer, kernel, queue, plan = [one or {} for one in found]
    kind, items, content = [place or 0 for place in places]
    return Layout(array, buffer, kernel, queue, plan, kind, items, content) if all(found) and all(places) else None
