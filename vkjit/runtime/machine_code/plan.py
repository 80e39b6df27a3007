"""Construction of the plan of a launch for machine code; `abi` defines its layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from ..array import DeviceArray
from ..prepared_launch import REPORT, CallPattern, Hole, PreparedLaunch, ShapeRule
from . import cpython
from .abi import ITSELF, LITERAL, NO_ARRAY, Kind, Plan, Word

if TYPE_CHECKING:
    from ..device import Buffer, Device

__all__ = ["make_plan"]

_WORD = 8
_PLAIN = (int, float, bool, str)
"""Immutable types of constants."""


def make_plan(
    launch: PreparedLaunch,
    pattern: CallPattern,
    device: Device,
    buffers: type[Buffer],
    block: tuple[int, int],
    own: dict[int, int],
    kept: Any,
) -> Plan | None:
    """Return the plan of a launch, or None if machine code can't run it.

    `buffers` is the class of the device's buffers. `block` is the address of the record and the offset of the argument
    block in it. `own` are the back end's words of the plan, which keeps `kept` alive.
    """
    sources: list[tuple[int, int]] = []
    """For each value, the number of the array and the item of its descriptor."""
    for number, place in enumerate(pattern.places):
        items = 1 if pattern.shapes is None else len(pattern.example[place].__vkjit_array__.descriptor)
        sources += [(number, item) for item in range(items)]
    holes = [hole for hole in launch.holes if hole.number != REPORT]  # report fields stay 0
    filled = {sources[hole.number][0] for hole in holes if hole.number < len(sources)}
    numbers = [n for n in range(len(pattern.places)) if pattern.checked or n in launch.used or n in filled]
    row_of = {number: row for row, number in enumerate(numbers)}
    record, offset = block
    rows: list[Any] = [
        _array_row(pattern, pattern.places[number], buffers, number in launch.writes) for number in numbers
    ]
    fields: list[Any] = [
        _word_row(hole, offset, row_of[sources[hole.number][0]], sources[hole.number][1])
        if hole.number < len(sources)
        else _scalar_row(hole, offset, pattern.scalars[hole.number - len(sources)], pattern.example)
        for hole in holes
    ]
    constants = [(_WORD * place, id(type(pattern.example[place])), 0) for place in pattern.scalars]
    constants += [(_WORD * p, id(type(pattern.example[p])), id(pattern.example[p])) for p in pattern.constants]
    is_plain = all(type(pattern.example[place]) in _PLAIN for place in pattern.constants)
    pairs, axes = ([], []) if pattern.shapes is None else _shape_rows(pattern, pattern.shapes, device.caps.max_groups)
    if None in rows or None in fields or axes is None or not is_plain:
        return None
    names = [(id(space), id(key), 0 if value is pattern.missing else id(value)) for space, key, value in pattern.names]
    cells = [(id(cell), id(value)) for cell, value in pattern.cells]
    classes = [type(value) for value in pattern.example]
    values = [value if type(value) in _PLAIN else None for value in pattern.example]
    checked = [_array_of(pattern.example[place], buffers) for place in pattern.places if pattern.checked]
    layouts = [(a.spec_class, a.shape, a.strides) for a in checked if a is not None]
    x, y, z = pattern.groups
    words: dict[int, int] = {
        Word.RECORD: record, Word.X: x, Word.Y: y, Word.Z: z, Word.COUNT: len(pattern.example), Word.DEVICE: id(device),
        Word.BLOCKS: id(pattern.blocks), **own,
    }  # fmt: skip
    tables: dict[Word, Sequence[tuple[int, ...]]] = {
        Word.ARRAYS: rows, Word.CONSTANTS: constants, Word.FIELDS: fields, Word.PAIRS: pairs, Word.AXES: axes,
        Word.CELLS: cells, Word.NAMES: names,
    }  # fmt: skip
    named = (pattern.names, pattern.cells, pattern.blocks)
    return Plan(words, tables, (launch, kept, device, named, classes, values, layouts))


def _array_of(value: Any, buffers: type[Buffer]) -> DeviceArray | None:
    return None if type(value) is buffers else value.__vkjit_array__


def _array_row(pattern: CallPattern, place: int, buffers: type[Buffer], written: bool) -> tuple[int, ...] | None:
    """Return the words of an array argument (see `Row`); None if its array or version counter isn't found."""
    value = pattern.example[place]
    slot = _slot(value, buffers)
    counter = _counter(type(value)) if place in pattern.written and type(value) is not DeviceArray else (0, 0, 0)
    if slot is None or counter is None:
        return None
    array = _array_of(value, buffers)
    checked = (0, 0, 0)
    if pattern.checked and array is not None:
        checked = (id(array.spec_class), 0, 0)
        if pattern.shapes is None:
            checked = (id(array.spec_class), id(array.shape), id(array.strides))
    recording = _recording(type(value)) if pattern.checked else (0,) * 5
    if recording is None:
        return None
    return (_WORD * place, id(type(value)), slot, *checked, int(written), *counter, *recording, 0, 0, 0)


def _slot(value: Any, buffers: type[Buffer]) -> int | None:
    """Return the offset of the slot in which an argument keeps its array; None if a property computes it."""
    kind = type(value)
    if kind in (DeviceArray, buffers):
        return ITSELF if kind is DeviceArray else NO_ARRAY
    found = next((vars(c)["__vkjit_array__"] for c in kind.__mro__ if "__vkjit_array__" in vars(c)), None)
    defined = {name for one in kind.__mro__[:-1] for name in vars(one)}
    if not isinstance(found, MemberDescriptorType) or "__getattribute__" in defined:
        return None
    places = cpython.offsets(found.__objclass__, found.__name__)
    return None if places is None else places[found.__name__]


def _counter(kind: type[Any]) -> tuple[int, int, int] | None:
    """Return the slot of a class's version counter, the counter's class, and the slot of the version in it.

    `__vkjit_written__.counter` names them. None without it: then `__vkjit_written__` must be called for each write.
    """
    named = getattr(kind.__vkjit_written__, "counter", None)
    if named is None:
        return None
    holder, name, counter, number = named
    outer, inner = cpython.offsets(holder, name), cpython.offsets(counter, number)
    return None if outer is None or inner is None else (outer[name], id(counter), inner[number])


def _recording(kind: type[Any]) -> tuple[int, ...] | None:
    """Return the slots from META to HISTORY in `Row`, which `__vkjit_launched__.slots` names; zeros without it."""
    named = getattr(getattr(kind, "__vkjit_launched__", None), "slots", None)
    if named is None:
        return (0,) * 5
    places: list[int] = []
    for holder, name, inner, number in named[:2]:
        outer, within = cpython.offsets(holder, name), cpython.offsets(inner, number)
        if outer is None or within is None:
            return None
        places += [outer[name], within[number]]
    history = cpython.offsets(named[0][0], named[2])
    return None if history is None else (*places, history[named[2]])


def _word_row(hole: Hole, block: int, row: int, item: int) -> tuple[int, ...]:
    """Return the words of a field that holds an item of a descriptor."""
    size, least, most = _range(hole.code)
    return (row, _WORD * item, hole.shift, block + hole.offset, int(Kind.INTEGER), size, least, most)


def _scalar_row(hole: Hole, block: int, place: int, example: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Return the words of a scalar's field; None for conversions that machine code doesn't support."""
    kind = _kind(hole.code, type(example[place]))
    if kind is None:
        return None
    return (LITERAL, _WORD * place, 0, block + hole.offset, int(kind), *_range(hole.code))


def _range(code: str) -> tuple[int, int, int]:
    """Return the size of a field in bytes, and the minimum and maximum integer that it holds."""
    size = struct.calcsize(f"<{code}")
    if code == "?" or code.isupper():
        return size, 0, min(2 ** (8 * size), 2**63) - 1
    return size, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1


def _shape_rows(pattern: CallPattern, rule: ShapeRule, limits: tuple[int, ...]) -> tuple[list[Any], list[Any] | None]:
    """Return the rows of `Pair` and of `Axis`; None for the axes if machine code can't compute the grid."""
    pairs: list[Any] = [(a, _WORD * (1 + i), b, _WORD * (1 + j)) for (a, i), (b, j) in rule.equal]
    pairs += [(LITERAL, size, array, _WORD * (1 + axis)) for array, axis, size in rule.sizes]
    if rule.over is None:
        return pairs, []
    rank = len(pattern.example[pattern.places[rule.over]].__vkjit_array__.shape)
    axes = [(rule.over, _WORD * (rank - i), rule.local[i], limits[i]) for i in range(rank)]
    return pairs, axes if 1 <= rank <= 2 else None


def _kind(code: str, given: type[Any]) -> Kind | None:
    if code == "?":
        return Kind.BOOL if given is bool else None
    if code in "fd":
        return (Kind.SINGLE if code == "f" else Kind.DOUBLE) if given is float else None
    return Kind.INTEGER if given is int and code.lower() in "bhiq" else None
