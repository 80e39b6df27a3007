"""What the short way of calls needs to know of a kernel: see `runtime.direct`.

Enters: launches that have just gone the long way. Leaves: a function per form of call (see `FastPaths`), which repeats such
launches, with other arrays and other shapes too. Holds: a short call does what the long way would do, or says False and has
done nothing; it raises no errors of its own.

What decides the code that runs is in the key: the device, the form of each array, the types of numbers, the values of
constants, and whether arrays overlap. What the shapes decide is worked out in a few steps (names of dimensions that must agree,
the grid of a kernel over an array), or, where a function of the user or an expression decides, remembered by shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.vulkan.runtime.fast_path.fast_path import ARRAYS, CallShape, FastLaunch, FastPath
from ..compiler.fingerprint import Captures
from ..frontend import KernelSpec, constant_key
from ..frontend.signature.dims import Dim
from ..frontend.signature.free_names import MISSING
from ..frontend.signature.signature import is_own_key
from ..runtime import sanitizer_reports
from ..runtime.array import DeviceArray
from ..runtime.artifact import ArgField
from . import host_arrays
from .plan import Grid, LaunchPlan

__all__ = ["FastPaths", "Launched"]

_MAX_ENTRIES = 1024
_MAX_SHAPES = 4096


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that went the long way: `scalar_types` are the types that its numbers may have, by parameter number; `simple`: no
    function of the user decides about `grid` and `local`; `captures` is what its constants capture.
    """

    plan: LaunchPlan
    grid: Grid
    values: Sequence[Any]
    scalar_types: dict[int, tuple[type | None, ...]]
    local: Grid
    simple: bool
    captures: tuple[Captures, ...]


@dataclass(slots=True)
class _CallShapeState:
    """Calls of one form: the numbers of the parameters that arrays and other arguments belong to; by key, what is launched, and
    the grids that were found for shapes.
    """

    path: FastPath
    arrays: tuple[int, ...]
    others: tuple[int, ...]
    plans: dict[Any, tuple[LaunchPlan, tuple[Captures, ...]]]
    shapes: dict[Any, dict[Any, Grid]]


class FastPaths:
    """The short ways of a kernel. `by_call` are by number of arguments, or by grid and number of arguments."""

    def __init__(self, spec: KernelSpec, captures: Captures) -> None:
        self._spec = spec
        self._captures = captures
        self._known: dict[Any, _CallShapeState] = {}
        self.by_call: dict[Any, FastPath] = {}

    def remember(
        self,
        groups: Grid | None,
        given: tuple[Any, ...],
        args: Sequence[Any],
        slots: Sequence[tuple[int, bool, bool]],
        launched: Launched,
    ) -> None:
        """Takes a launch: the arguments as they were `given`, and with arrays in place of tensors. `slots` says of each argument
        the number of its parameter, whether that is an array, and whether its value counts.
        """
        name = len(args) if groups is None else (groups, len(args))
        if sum(is_array for _, is_array, _ in slots) not in ARRAYS or min(launched.grid) == 0:
            return
        if not launched.plan.is_single:
            return
        if any(
            i in launched.scalar_types and type(v) not in launched.scalar_types[i]
            for (i, _, _), v in zip(slots, args, strict=True)
        ):
            return
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._new_shape(slots)
        way, calls = known.path, known.path.shape
        arrays = [args[place].__vkjit_array__ for place in calls.arrays]
        others = () if calls.others is None else calls.others(args)
        key = (arrays[0].buffer.device, *(a.spec_class for a in arrays))
        if len({id(a.buffer) for a in arrays}) < len(arrays):
            key += calls.overlap(tuple(arrays))
        if others:
            key += calls.kinds(others)
        if len(calls.entries) >= _MAX_ENTRIES:
            way.forget()
            known.plans.clear()
            known.shapes.clear()
        plan, captures = known.plans.setdefault(key, (launched.plan, launched.captures))
        if plan is not launched.plan:
            if not any(c.changed() for c in captures):
                return  # a function of the user chooses workgroups by shape
            way.forget(key)
            known.plans[key], known.shapes[key] = (launched.plan, launched.captures), {}
        fields = _Fields(self._spec, known, arrays, launched)
        launch = fields.launch(known.shapes.setdefault(key, {}), arrays)
        if key not in calls.entries:
            entry = launched.plan.direct(launch)
            if entry is None:
                return
            way.add_entry(key, entry, launch, given)
        if name not in self.by_call:
            self.by_call[name] = way

    def _new_shape(self, slots: Sequence[tuple[int, bool, bool]]) -> _CallShapeState:
        spec = self._spec
        arrays = tuple(place for place, (_, is_array, _) in enumerate(slots) if is_array)
        others = tuple(place for place, (_, is_array, _) in enumerate(slots) if not is_array)
        numbers = tuple(slots[place][0] for place in arrays)
        written = tuple(spec.params[number].mode != "in" for number in numbers)
        names, cells, checks = self._captures.inline_checks()
        calls = CallShape(
            arrays=arrays,
            written=written,
            others=_picker(others) if others else None,
            kinds=_kinds([slots[place][2] for place in others]),
            names=names,
            more=_unchanged(cells, checks) if cells or checks else None,
            blocks=sanitizer_reports.OPEN_BLOCKS,
            overlap=_overlap(written),
            told=tuple(place for place, is_written in zip(arrays, written, strict=True) if is_written),
            other_places=others,
            by_value=tuple(slots[place][2] for place in others),
            cells=None if checks else tuple(cells),
            missing=MISSING,
        )
        return _CallShapeState(FastPath(calls), numbers, tuple(slots[place][0] for place in others), {}, {})


def _unchanged(cells: Sequence[tuple[Any, Any]], checks: Sequence[Callable[[], bool]]) -> Callable[[], bool]:
    def unchanged() -> bool:
        for cell, value in cells:
            if cell.cell_contents is not value:
                return False
        return all(holds() for holds in checks)

    return unchanged


def _fresh(captures: Sequence[Captures]) -> Callable[[], bool] | None:
    """Says whether what constants capture is still the same; None where they capture nothing."""
    if not captures:
        return None
    quick = [c.inline_checks() for c in captures]
    names = [name for found, _, _ in quick for name in found]
    cells, checks = [cell for _, held, _ in quick for cell in held], [check for _, _, rest in quick for check in rest]
    unchanged = _unchanged(cells, checks) if cells or checks else None

    def fresh() -> bool:
        for namespace, name, value in names:
            if namespace.get(name, MISSING) is not value:
                return False
        return unchanged is None or unchanged()

    return fresh


def _kinds(by_value: Sequence[bool]) -> Callable[[Any], tuple[Any, ...]]:
    """What counts of arguments that are no arrays: types of all, values of constants."""
    if not any(by_value):
        return lambda others: tuple(map(type, others))
    constants = _picker([place for place, value in enumerate(by_value) if value])

    def kinds(others: Any) -> tuple[Any, ...]:
        types, values = tuple(map(type, others)), constants(others)
        for value in values:
            kind: Any = type(value)
            if not is_own_key(kind):
                return types + tuple(map(constant_key, values))
        return types + values

    return kinds


def _overlap(written: Sequence[bool]) -> Callable[[tuple[DeviceArray, ...]], tuple[Any, ...]]:
    """What arrays in the same buffers add to the key: nothing, unless one that is written overlaps another."""

    def overlap(found: tuple[DeviceArray, ...]) -> tuple[Any, ...]:
        buffers = [id(a.buffer) for a in found]
        if any(is_written and buffers.count(b) > 1 for b, is_written in zip(buffers, written, strict=True)):
            return (True,) if host_arrays.overlaps(list(found), list(written)) else ()
        return ()

    return overlap


def _picker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the items at these places of a sequence, as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    if not places:
        return lambda _: ()
    place = places[0]
    return lambda items: (items[place],)


class _Fields:
    """Where things are in the words of a call: those of the arrays, one after another, then the other arguments, constants."""

    def __init__(
        self, spec: KernelSpec, known: _CallShapeState, arrays: Sequence[DeviceArray], launched: Launched
    ) -> None:
        self._starts: dict[int, int] = {}
        self._ranks: dict[int, int] = {}
        place = 0
        for number, array in zip(known.arrays, arrays, strict=True):
            self._starts[number], self._ranks[number] = place, len(array.shape)
            place += len(array.descriptor)
        self._others = {number: place + i for i, number in enumerate(known.others)}
        self._end = place + len(known.others)
        self._constants: list[Any] = []
        self._spec, self._launched = spec, launched
        self._dims: list[tuple[int, int, Dim]] = []
        for number in known.arrays:
            dims = spec.params[number].dims
            self._dims += [] if dims is None else [(self._extent(number, i), i, d) for i, d in enumerate(dims.dims)]

    def launch(self, grids: dict[Any, Grid], arrays: Sequence[DeviceArray]) -> FastLaunch:
        """The description. `grids` takes what was found for the shapes, where nothing simpler serves."""
        plan, launched = self._launched.plan, self._launched
        taken = tuple(self._place(field) for field in plan.artifact.fields)
        plain = launched.simple and all(_is_plain(dim) for _, _, dim in self._dims)
        over, grid = self._over() if plain and self._spec.over is not None else ((), None)
        pairs, mixed = self._pairs() if plain else ([], False)
        if not plain:
            shapes = _picker([start + 1 + i for n, start in self._starts.items() for i in range(2 * self._ranks[n])])
            if len(grids) >= _MAX_SHAPES:
                grids.clear()
            grids[shapes([word for array in arrays for word in array.descriptor])] = launched.grid
            grid = _looked_up(grids, shapes)
        left, right = (_picker(places) for places in zip(*pairs, strict=True)) if pairs else (None, None)
        return FastLaunch(
            plan.block_format,
            tuple(self._constants),
            left,
            right,
            mixed,
            _picker(taken),
            launched.grid,
            grid,
            over,
            launched.local,
            _fresh(launched.captures),
            taken,
            tuple(pairs),
        )

    def _extent(self, number: int, axis: int) -> int:
        return self._starts[number] + 1 + axis

    def _constant(self, value: Any) -> int:
        """A place behind the words for what doesn't change between calls."""
        self._constants.append(value)
        return self._end + len(self._constants) - 1

    def _place(self, field: ArgField) -> int:
        if field.role in ("report", "print"):
            return -1  # behind everything
        if field.role == "scalar":
            known = self._others.get(field.arg)
            return self._constant(self._launched.values[field.arg]) if known is None else known
        start = self._starts[field.arg]
        if field.role == "address":
            return start
        return start + 1 + field.axis + (self._ranks[field.arg] if field.role == "stride" else 0)

    def _over(self) -> tuple[tuple[int, ...], Callable[[tuple[Any, ...]], Grid | None] | None]:
        """The places of the extents along x and y, or what folds more axes than these."""
        number = next(i for i, p in enumerate(self._spec.params) if p.name == self._spec.over)
        rank = self._ranks[number]
        places = tuple(self._extent(number, axis) for axis in reversed(range(rank))) or (self._constant(1),)
        if rank <= 2:
            return places, None
        return (), _folded(places, self._launched.local, self._launched.plan.device.caps.max_groups)

    def _pairs(self) -> tuple[list[tuple[int, int]], bool]:
        """Places of words that must be equal for the dimensions to agree; False where equal shapes are enough for that."""
        first: dict[str, tuple[int, int]] = {}
        found, mixed = [], False
        for place, axis, dim in self._dims:
            if dim.simple:
                known, its_axis = first.setdefault(dim.text, (place, axis))
                if known != place:
                    found.append((known, place))
                    mixed |= axis != its_axis
            elif dim.value is not None:
                found.append((self._constant(dim.value({})), place))
                mixed = True
        return found, mixed


def _is_plain(dim: Dim) -> bool:
    """A name, a number, or `_`."""
    return not dim.variadic and (dim.simple or not dim.names)


def _folded(places: tuple[int, ...], local: Grid, limits: Grid) -> Callable[[tuple[Any, ...]], Grid | None]:
    """The grid of a kernel over three axes and more, as `grid_for_shape` finds it."""
    last, row, *outer = places
    (wide, high, deep), (most, most_rows, most_folds) = local, limits

    def folded(words: tuple[Any, ...]) -> Grid | None:
        x, y, z = -(-words[last] // wide), -(-words[row] // high), 1
        for place in outer:
            z *= words[place]
        z = -(-z // deep)
        return (x, y, z) if 0 < x <= most and 0 < y <= most_rows and 0 < z <= most_folds else None

    return folded


def _looked_up(grids: dict[Any, Grid], shapes: Callable[[Any], Any]) -> Callable[[tuple[Any, ...]], Grid | None]:
    return lambda words: grids.get(shapes(words))
