"""Plans of launches for machine code: see `machine_code`.

Enters: a launch as the short way knows it, with arguments. Leaves: a `Plan` for launches like this one, or None where there is
something that machine code doesn't do; `launcher`, which makes a function of a plan. Holds: a plan fits arguments only if
everything that decides which code runs is the same: the device, types and forms, values of constants, what is captured.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from vkjit.runtime.array import DeviceArray

from .. import cpython, trampoline
from .launch_abi import LITERAL, Kind, Operand, Plan, Table, Word, layout
from .machine_code import launch_code

if TYPE_CHECKING:
    from .fast_path import CallShape, FastLaunch

__all__ = ["Launcher", "Plan", "available", "launcher", "plan"]

Launcher = Callable[[Any, tuple[Any, ...]], bool]


@functools.cache
def _compiled() -> int | None:
    known = layout()
    return None if known is None else trampoline.compiled(lambda: launch_code(known), "vkjit_launch")


def available() -> bool:
    """Whether there is machine code for launches; it is compiled when this is first asked."""
    return _compiled() is not None


def launcher(plan: Plan) -> Launcher | None:
    """A function of a queue and of arguments that launches by this plan or those that follow it, and says whether it has."""
    address = _compiled()
    return None if address is None else cpython.method(address, plan)


_PLAIN = (int, float, bool, str)
"""Types of constants that never change."""


def plan(calls: CallShape, launch: FastLaunch, args: Sequence[Any], entry: Any) -> Plan | None:
    """Of launches like this one, `entry` its `DirectEntry`; None where there is something that native code doesn't do."""
    known = layout()
    owner, kernel, memory, addresses, claim = entry[1], entry[2], entry[16], entry[17], entry[20]
    watched = launch.grid, launch.fresh, claim
    if known is None or calls.cells is None or any(function is not None for function in watched):
        return None
    arrays = [args[place].__vkjit_array__ for place in calls.arrays]
    if calls.overlap(tuple(arrays)):
        return None  # the code for arrays that overlap; machine code leaves these to Python
    operands = _Operands(known.items, [len(a.descriptor) for a in arrays], calls.other_places, launch.constants)
    along = [operands.word(place) for place in launch.over]
    tables = _tables(operands, calls, launch, args, memory)
    if tables is None or any(operand is None or operand[0] == LITERAL for operand in along):
        return None
    queue, device = owner.queue, arrays[0].buffer.device
    methods = queue.lock.acquire, queue.lock.release
    kept = [(type(value), _kept(value)) for value in args]
    held = entry, device, queue.lock, methods, queue.group.epochs, calls.blocks, calls.cells, calls.names, kept
    words = {
        Word.RECORD: addresses[0], Word.DEVICE: id(device), Word.KERNEL: id(kernel), Word.LOCK: id(queue.lock),
        Word.ACQUIRE: id(methods[0]), Word.RELEASE: id(methods[1]), Word.EPOCHS: id(queue.group.epochs),
        Word.BLOCKS: id(calls.blocks), Word.ALONG: len(along), Word.X: launch.groups[0],
    }  # fmt: skip
    for operand, local, most, first in zip(
        along, launch.local, owner.limits, (Word.X_ARRAY, Word.Y_ARRAY), strict=False
    ):
        for i, value in enumerate((*(operand or ()), local, most)):
            words[Word(first + i)] = value
    return Plan(words, tables, held)


def _kept(value: Any) -> Any:
    """What of an argument a plan refers to: of an array its form, which stays for good, else itself, if it is small."""
    return value if type(value) in _PLAIN else None


def _tables(
    operands: _Operands, calls: CallShape, launch: FastLaunch, args: Sequence[Any], memory: bytearray
) -> list[Table] | None:
    """The tables of a plan; None where one has a row that can't be."""
    arrays: list[tuple[int, ...]] = []
    for place, written in zip(calls.arrays, calls.written, strict=True):
        slot, value = _slot(args[place]), args[place]
        counter = _counter(type(value)) if place in calls.told and type(value) is not DeviceArray else (0, 0, 0)
        if slot is None or counter is None:
            return None
        form = id(value.__vkjit_array__.spec_class)
        arrays.append((operands.argument(place), id(type(value)), slot, form, int(written), *counter, 0, 0, 0))
    others: list[tuple[int, ...]] = []
    for place, by_value in zip(calls.other_places, calls.by_value, strict=True):
        if by_value and type(args[place]) not in _PLAIN:
            return None
        others.append((operands.argument(place), id(type(args[place])), id(args[place]) if by_value else 0))
    names = [(id(space), id(name), 0 if value is calls.missing else id(value)) for space, name, value in calls.names]
    fields = _fields(operands, launch, args, memory)
    pairs = [_pair(operands, left, right) for left, right in launch.pairs]
    if fields is None:
        return None
    found = [pair for pair in pairs if pair is not None]
    if len(found) < len(pairs):
        return None
    return [
        (Word.NAMES, Word.NAME_ROWS, names),
        (Word.CELLS, Word.CELL_ROWS, [(id(cell), id(value)) for cell, value in calls.cells or ()]),
        (Word.ARRAYS, Word.ARRAY_ROWS, arrays),
        (Word.OTHERS, Word.OTHER_ROWS, others),
        (Word.FIELDS, Word.FIELD_ROWS, fields),
        (Word.PAIRS, Word.PAIR_ROWS, found),
    ]


class _Operands:
    """Where the words of a launch are: numbers as in `FastLaunch`."""

    def __init__(self, items: int, lengths: Sequence[int], others: Sequence[int], constants: Sequence[Any]) -> None:
        self._items = items
        self._arrays = [(array, self._items + 8 * i) for array, length in enumerate(lengths) for i in range(length)]
        self._others, self._constants = others, constants

    def word(self, place: int) -> Operand | None:
        """A number of an array, or a constant; None for anything else."""
        if 0 <= place < len(self._arrays):
            return self._arrays[place]
        value = self.constant(place)
        return (LITERAL, value) if type(value) is int and abs(value) < 2**63 else None

    def other(self, place: int) -> int | None:
        """The place among the arguments of one that is no array."""
        number = place - len(self._arrays)
        return self._others[number] if 0 <= number < len(self._others) else None

    def constant(self, place: int) -> Any:
        """What doesn't change between calls; None where that isn't one."""
        number = place - len(self._arrays) - len(self._others)
        return self._constants[number] if 0 <= number < len(self._constants) else None

    def argument(self, place: int) -> int:
        """Where the tuple of arguments has it, in bytes."""
        return self._items + 8 * place


_BYTES = {"b": 1, "h": 2, "i": 4, "q": 8}
_TRUTH, _SINGLE, _DOUBLE = "?", "f", "d"


def _fields(
    operands: _Operands, launch: FastLaunch, args: Sequence[Any], memory: bytearray
) -> list[tuple[int, ...]] | None:
    """Rows for the argument block; constants are put into the memory at once. None where a field is of another kind."""
    rows: list[tuple[int, ...]] = []
    places = iter(launch.places)
    for target, code in _codes(launch.block):
        place = next(places)
        constant, other = operands.constant(place), operands.other(place)
        if constant is not None:
            struct.pack_into(f"<{code}", memory, trampoline.BLOCK + target, constant)
            continue
        kind = _kind(code, int if other is None else type(args[other]))
        source = operands.word(place) if other is None else (LITERAL, operands.argument(other))
        if kind is None or source is None:
            return None
        size = 1 if code == _TRUTH else _BYTES.get(code.lower(), 8)
        rows.append((*source, trampoline.BLOCK + target, int(kind), size, *_range(code, size)))
    return rows


def _codes(text: str) -> Iterator[tuple[int, str]]:
    """The offset and the letter of each value in a struct format."""
    at = 0
    for count, code in re.findall(r"(\d*)([a-zA-Z?])", text):
        size = struct.calcsize(f"<{code}")
        for _ in range(int(count or 1)):
            if code != "x":
                yield at, code
            at += size


def _range(code: str, size: int) -> tuple[int, int]:
    """The least and the greatest integer that a field takes."""
    if code == _TRUTH or code.isupper():
        return 0, min(2 ** (8 * size), 2**63) - 1
    return -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1


def _kind(code: str, given: type[Any]) -> Kind | None:
    """How a field is filled from an argument of a type."""
    if code == _TRUTH:
        return Kind.TRUTH if given is bool else None
    if code in (_SINGLE, _DOUBLE):
        if given is float:
            return Kind.SINGLE if code == _SINGLE else Kind.DOUBLE
        return (Kind.SINGLE_OF_INTEGER if code == _SINGLE else Kind.DOUBLE_OF_INTEGER) if given is int else None
    return Kind.INTEGER if given in (int, bool) and code.lower() in _BYTES else None


def _pair(operands: _Operands, left: int, right: int) -> tuple[int, ...] | None:
    known, found = operands.word(left), operands.word(right)
    return None if known is None or found is None or found[0] == LITERAL else (*known, *found)


def _slot(value: Any) -> int | None:
    """Where an argument keeps its array: 0 for an array itself, None where it has to be asked."""
    kind = type(value)
    if kind is DeviceArray:
        return 0
    found = next((vars(c)["__vkjit_array__"] for c in kind.__mro__ if "__vkjit_array__" in vars(c)), None)
    if not isinstance(found, MemberDescriptorType) or "__getattribute__" in _names_of(kind):
        return None
    places = cpython.offsets(found.__objclass__, found.__name__)
    return None if places is None else places[found.__name__]


def _names_of(kind: type[Any]) -> set[str]:
    """What a class, and those it is derived from apart from object, define."""
    return {name for one in kind.__mro__[:-1] for name in vars(one)}


def _counter(kind: type[Any]) -> tuple[int, int, int] | None:
    """Where arguments of a class keep what counts their writes, its class, and where that keeps the number: what the class's
    `__vkjit_written__` names as its `counter`. None where it has to be called.
    """
    named = getattr(kind.__vkjit_written__, "counter", None)
    if named is None:
        return None
    holder, name, counter, number = named
    outer, inner = cpython.offsets(holder, name), cpython.offsets(counter, number)
    return None if outer is None or inner is None else (outer[name], id(counter), inner[number])
