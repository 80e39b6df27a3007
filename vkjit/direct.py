"""The shortest way of a call: from positional arguments to a command buffer, without anything but what differs between calls.

Enters: launches that have just gone the long way. Leaves: a function per form of call (see `Shorts`), which repeats such
launches, with other arrays and other shapes too. Holds: a short call does what the long way would do, or says False and has
done nothing; it raises no errors of its own.

What decides the code that runs is in the key: the device, the form of each array, the types of numbers, the values of
constants, and whether arrays overlap. What the shapes decide is worked out in a few steps (names of dimensions that must agree,
the grid of a kernel over an array), or, where a function of the user or an expression decides, remembered by shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .direct_calls import CallForm, Entry, Short, call_form, key_of, picker, short_way
from .frontend import Captures, KernelSpec
from .frontend.dims import Dim
from .plan import Grid, LaunchPlan
from .runtime.array import DeviceArray
from .runtime.direct import Record

__all__ = ["Launched", "Shorts"]

_MOST_ENTRIES = 1024
_MOST_SHAPES = 4096


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that went the long way: `fits` are the types that its numbers must have, by parameter number; `simple`: no
    function of the user decides about `grid` and `local`.
    """

    plan: LaunchPlan
    grid: Grid
    values: Sequence[Any]
    fits: dict[int, type | None]
    local: Grid
    simple: bool


class Shorts:
    """The short ways of a kernel. `ways` has a function by number of arguments, or by grid and number of arguments."""

    def __init__(self, spec: KernelSpec, captures: Captures) -> None:
        self._spec = spec
        self._captures = captures
        self.ways: dict[Any, Short] = {}
        self._known: dict[Any, tuple[CallForm, dict[Any, Entry], dict[Any, dict[Any, Any]]]] = {}

    def remember(
        self, groups: Grid | None, args: Sequence[Any], slots: Sequence[tuple[int, bool, bool]], launched: Launched
    ) -> None:
        """Takes a launch whose arguments are the parameters `slots` says: number, whether an array, whether by value."""
        name = len(args) if groups is None else (groups, len(args))
        if name not in self._known:
            form = call_form(self._spec, slots)
            if not form.arrays:
                return
            self._known[name] = (form, {}, {})
        form, entries, shapes = self._known[name]
        record = launched.plan.record()
        if (
            record is None
            or min(launched.grid) == 0
            or any(
                type(args[place]) is not launched.fits[number]
                for place, number in zip(form.others, form.other_params, strict=True)
                if number in launched.fits
            )
        ):
            return
        arrays = [args[place].__vkjit_array__ for place in form.arrays]
        key = key_of(form, arrays, tuple(args[place] for place in form.others))
        if len(entries) >= _MOST_ENTRIES:
            entries.clear()
            shapes.clear()
        fields = _Fields(form, arrays, launched)
        if launched.simple and fields.plain:
            entries[key] = _computed(fields, record, launched)
        else:
            ways = shapes.setdefault(key, {})
            if len(ways) >= _MOST_SHAPES:
                ways.clear()
            ways[fields.shapes(fields.words(arrays))] = (record, *launched.grid)
            entries.setdefault(key, _looked_up(fields, ways))
        if name not in self.ways:
            self.ways[name] = short_way(form, entries, self._captures)


class _Fields:
    """Where things are in the words of a call: those of the arrays, one after another, then the other arguments.

    `plain`: the demands on shapes are names and numbers. `shapes` takes shapes and strides out of words, `reads` and `writes`
    buffers out of those of all arrays.
    """

    def __init__(self, form: CallForm, arrays: Sequence[DeviceArray], launched: Launched) -> None:
        self._starts: dict[int, int] = {}
        self._ranks: dict[int, int] = {}
        place = 0
        for number, array in zip(form.params, arrays, strict=True):
            self._starts[number], self._ranks[number] = place, len(array.shape)
            place += len(array.words)
        self.constants: list[Any] = []
        self._others = {number: place + i for i, number in enumerate(form.other_params)}
        self._end = place + len(form.other_params)
        self.form, self.launched = form, launched
        params = form.spec.params
        dims = [(n, d) for n in form.params if (spelled := params[n].dims) is not None for d in enumerate(spelled.dims)]
        self.plain = all(_is_plain(dim) for _, (_, dim) in dims)
        self._dims = dims
        self.reads = picker([form.params.index(n) for n in sorted(launched.plan.artifact.reads)])
        self.writes = picker([form.params.index(n) for n in sorted(launched.plan.artifact.writes)])
        self.shapes = picker([self.extent(n, i) for n in form.params for i in range(2 * self._ranks[n])])

    @staticmethod
    def words(arrays: Sequence[DeviceArray]) -> tuple[int, ...]:
        return tuple(word for array in arrays for word in array.words)

    def extent(self, number: int, axis: int) -> int:
        """The place of an extent of parameter `number`."""
        return self._starts[number] + 1 + axis

    def constant(self, value: Any) -> int:
        """A place behind the words for what doesn't change between calls."""
        self.constants.append(value)
        return self._end + len(self.constants) - 1

    def block(self) -> list[int]:
        """The places of what is packed, in order."""
        return [self._place(field) for field in self.launched.plan.artifact.fields]

    def _place(self, field: Any) -> int:
        if field.role in ("report", "print"):
            return self.constant(0)  # nothing is reported
        if field.role == "scalar":
            known = self._others.get(field.arg)
            return self.constant(self.launched.values[field.arg]) if known is None else known
        start, axis = self._starts[field.arg], int(field.axis)
        if field.role == "address":
            return start
        return start + 1 + axis + (self._ranks[field.arg] if field.role == "stride" else 0)

    def pairs(self) -> list[tuple[int, int]]:
        """Places of words that must be equal for the dimensions to agree."""
        first: dict[str, int] = {}
        found = []
        for number, (axis, dim) in self._dims:
            place = self.extent(number, axis)
            if dim.simple:
                known = first.setdefault(dim.text, place)
                if known != place:
                    found.append((known, place))
            elif dim.value is not None:
                found.append((self.constant(dim.value({})), place))
        return found


def _is_plain(dim: Dim) -> bool:
    """A name, a number, or `_`."""
    return not dim.variadic and (dim.simple or not dim.names)


def _computed(fields: _Fields, record: Record, launched: Launched) -> Entry:
    """For kernels whose grid and whose demands on shapes are simple."""
    pairs, pick = fields.pairs(), picker(fields.block())
    left, right = picker([a for a, _ in pairs]), picker([b for _, b in pairs])
    constants, reads, writes, checked = tuple(fields.constants), fields.reads, fields.writes, bool(pairs)
    over = fields.form.spec.over
    if over is None:
        x, y, z = launched.grid

        def fixed(buffers: Sequence[Any], words: tuple[Any, ...]) -> bool:
            words += constants
            if checked and left(words) != right(words):
                return False
            return record(reads(buffers), writes(buffers), x, y, z, pick(words))

        return fixed
    number = next(i for i, p in enumerate(fields.form.spec.params) if p.name == over)
    places = [fields.extent(number, axis) for axis in range(len(launched.values[number].shape))]
    limits = launched.plan.device.caps.max_groups
    (wide, high, deep), (most, most_y, most_z) = launched.local, limits
    if len(places) == 1:
        last = places[0]

        def line(buffers: Sequence[Any], words: tuple[Any, ...]) -> bool:
            words += constants
            x = -(-words[last] // wide)
            if x > most or (checked and left(words) != right(words)):
                return False
            return x == 0 or record(reads(buffers), writes(buffers), x, 1, 1, pick(words))

        return line
    *outer, row, last = places if len(places) > 1 else (fields.constant(1), fields.constant(1))
    constants = tuple(fields.constants)

    def plane(buffers: Sequence[Any], words: tuple[Any, ...]) -> bool:
        words += constants
        x, y, z = -(-words[last] // wide), -(-words[row] // high), 1
        for place in outer:
            z *= words[place]
        z = -(-z // deep)
        if x > most or y > most_y or z > most_z or (checked and left(words) != right(words)):
            return False
        return x == 0 or y == 0 or z == 0 or record(reads(buffers), writes(buffers), x, y, z, pick(words))

    return plane


def _looked_up(fields: _Fields, ways: dict[Any, tuple[Record, int, int, int]]) -> Entry:
    """For the others: what the long way has found for these shapes."""
    pick, shapes = picker(fields.block()), fields.shapes
    constants, reads, writes = tuple(fields.constants), fields.reads, fields.writes

    def known(buffers: Sequence[Any], words: tuple[Any, ...]) -> bool:
        way = ways.get(shapes(words))
        if way is None:
            return False
        record, x, y, z = way
        return record(reads(buffers), writes(buffers), x, y, z, pick(words + constants))

    return known
