"""The launch cache: repeated calls of a kernel skip binding, matching and compiling.

A `CallForm` stands for the calls of a kernel with the same number of arguments, keywords and grid. Its call key consists of
the device, the arrays' specialization classes, the types of scalars, the values of constants, and whether arrays overlap: all
that decides which code runs. It maps to a `CachedLaunch`, which fills the arrays' descriptors and the scalars into a prepared
launch. Kernels whose launches depend on shapes in other ways than `ShapeRule` describes (functions of the user, allocated
results, caps on loops) have one cached launch per layout of the arrays; for new layouts, it is made without binding and
compiling anew (`Resolve`). Launches that are frequent and simple enough are handed to machine code, if the device has some
(`CallForm.call`).

A cached launch does what the slow path would do; where it can't, it answers `MISS`, and nothing has happened.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from .. import dtypes
from ..compiler.fingerprint import Captures
from ..dtypes import DType
from ..frontend import KernelSpec, constant_key
from ..frontend.signature.free_names import MISSING
from ..frontend.signature.signature import is_own_key
from ..runtime import sanitizer_reports
from ..runtime.capture import note_extents, shadowing
from ..runtime.device import Device, DeviceArray
from ..runtime.prepared_launch import CallPattern, PreparedLaunch, ShapeRule, picker
from . import bind, host_arrays
from .grid import Grid, grid_for_shape
from .plan import array_extents

__all__ = [
    "MISS",
    "CachedLaunch",
    "CallForm",
    "ScalarCoercion",
    "constant_captures",
    "is_cacheable",
    "shape_rule",
    "values_in_key",
]

MISS = object()
"""The answer of a form to calls that must take the slow path."""

_MAX_LAUNCHES = 4096
_MAX_PLANS = 8
"""Plans that machine code tries for a call."""
_FIRST_HITS, _HITS = 3, 64
"""Hits of a cached launch before it is handed to machine code, and until that is repeated if other plans have displaced it."""
_F32_MAX = 3.4028234663852886e38


Resolve = Callable[[dict[int, Any], bool], "CachedLaunch | tuple[Any] | None"]
"""Makes the launch of a call, given the arguments by parameter. If the call is new (or its grid must be split), it launches
at once, which is faster, and returns the result in a tuple. None if the kernel must be compiled for the grid. Raises ShapeError
if dimensions disagree."""


class ScalarCoercion:
    """The conversion of a scalar to the type of its parameter. Numbers of type `python` from `low` to `high` stay as they are."""

    __slots__ = ("dtype", "high", "low", "name", "python")

    def __init__(self, dtype: DType, name: str) -> None:
        self.dtype, self.name = dtype, name
        self.python: type | None = None
        self.low = self.high = 0.0
        if dtype.is_integer:
            limits = np.iinfo(dtype.numpy)
            self.python, self.low, self.high = int, int(limits.min), int(limits.max)
        elif dtype.kind == "bool":
            self.python, self.low, self.high = bool, 0, 1
        elif dtype.is_float and dtype.bits >= 32:
            self.high = _F32_MAX if dtype.bits == 32 else math.inf
            self.python, self.low = float, -self.high

    def coerce(self, value: Any) -> Any:
        """Return a value converted and checked, as the slow path does."""
        kind: Any = type(value)
        if (kind is self.python and self.low <= value <= self.high) or (
            kind is np.float32 and self.dtype is dtypes.f32
        ):
            return value
        return bind.coerce_scalar(value, self.dtype, self.name)


class CachedLaunch:
    """What a call with a certain key runs, on a grid of `groups` or for arrays of all `shapes`.

    `params` are the numbers of the parameters of all arrays, those of `outs` last. `outs` are the arrays that it allocates: bytes,
    type, shape, strides. `scalars` picks the scalars from the arguments that aren't arrays. `wrap` makes the results of
    allocated arrays. `captures` are those of constants.
    """

    __slots__ = (
        "_coercions", "_device", "_groups", "_launch", "_launcher", "_limits", "_outs", "_params", "_poisoned",
        "_scalars", "_shapes", "_wrap", "captures", "hits", "plan",
    )  # fmt: skip

    def __init__(
        self,
        device: Device,
        launch: PreparedLaunch,
        groups: Grid,
        shapes: ShapeRule | None,
        params: Sequence[int],
        outs: Sequence[DeviceArray],
        coercions: Sequence[ScalarCoercion],
        scalars: Callable[[Any], tuple[Any, ...]],
        wrap: Callable[[DeviceArray], Any],
        captures: tuple[Captures, ...],
        poisoned: bool,
    ) -> None:
        self._device, self._launch, self._launcher = device, launch, device.launcher(launch)
        self._groups, self._shapes, self._params, self._limits = groups, shapes, params, device.caps.max_groups
        self._outs = [(a.buffer.nbytes, a.dtype, a.shape, a.strides) for a in outs]
        self._coercions, self._scalars, self._wrap = tuple(coercions), scalars, wrap
        self._poisoned = poisoned
        self.captures = captures
        self.plan: Any = False if outs or captures else None
        """The launch as a plan for machine code; None if there is none yet, False if there never is."""
        self.hits = 0

    def run(self, arrays: list[DeviceArray], others: tuple[Any, ...]) -> Any:
        """Launch, and return the arrays that were allocated: one, a tuple, or None."""
        __tracebackhide__ = True
        shapes, groups = self._shapes, self._groups
        if shapes is not None:
            if not shapes.matches(arrays):
                return MISS
            if shapes.over is not None:
                groups = grid_for_shape(arrays[shapes.over].shape, shapes.local)
                (x, y, z), (most_x, most_y, most_z) = groups, self._limits
                if not (0 < x <= most_x and 0 < y <= most_y and 0 < z <= most_z):
                    return MISS
        made = None
        if self._outs:
            made = [self._allocate(*out) for out in self._outs]
            arrays = arrays + made
        values: list[Any] = []
        buffers: list[Any] = []
        for array in arrays:
            buffers.append(array.buffer)
            if shapes is None:
                values.append(array.descriptor[0])
            else:
                values += array.descriptor
        if self._coercions:
            values += [c.coerce(value) for c, value in zip(self._coercions, self._scalars(others), strict=True)]
        launcher = self._launcher
        if launcher is None or not launcher(buffers, tuple(values), groups):
            if shadowing.captured:
                note_extents(self._device, lambda: array_extents(zip(self._params, arrays, strict=True)))
            self._launch.run(self._device, buffers, tuple(values), groups)
        if made is None:
            return None
        return self._wrap(made[0]) if len(made) == 1 else tuple([self._wrap(array) for array in made])

    def _allocate(self, nbytes: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        array = DeviceArray(self._device.allocate(nbytes), 0, dtype, shape, strides)
        if self._poisoned:
            bind.poison(array)
        return array

    @property
    def serves_all_shapes(self) -> bool:
        """True if the launch doesn't depend on the layouts of the arrays."""
        return self._shapes is not None

    def takes_as_is(self, others: tuple[Any, ...]) -> bool:
        """Return True if the scalars need no conversion."""
        return all(type(v) is c.python for c, v in zip(self._coercions, self._scalars(others), strict=True))

    def make_plan(self, pattern: CallPattern) -> Any:
        """Make the plan for machine code, if possible, and return it."""
        self.plan = self._device.plan(self._launch, replace(pattern, groups=self._groups, shapes=self._shapes))
        return self.plan


@dataclass(slots=True)
class _ByLayout:
    """Launches by layouts of the arrays; None for calls that were launched once."""

    launches: dict[Any, CachedLaunch | None]
    resolve: Resolve | None
    captures: tuple[Captures, ...]


class CallForm:
    """The calls of a kernel with the same number of positional arguments, keywords and grid.

    `call` is the machine code of recent launches, a function of all arguments that returns False if Python must decide.
    """

    def __init__(self, spec: KernelSpec, captures: Captures, params: Sequence[int], in_key: Sequence[bool]) -> None:
        """`params` are the numbers of the arguments' parameters; `in_key` tells whose values are part of the key."""
        is_array = [spec.params[number].kind == "array" for number in params]
        self.params = tuple(params)
        self._arrays = tuple(place for place, array in enumerate(is_array) if array)
        self._written = tuple(spec.params[params[place]].mode != "in" for place in self._arrays)
        self._told = tuple(place for place, written in zip(self._arrays, self._written, strict=True) if written)
        self._others = tuple(place for place, array in enumerate(is_array) if not array)
        self._scalars = tuple(place for place in self._others if spec.params[params[place]].kind == "scalar")
        self._allocates = len(params) < sum(p.kind == "array" for p in spec.params) + len(self._others)
        self._pick_others = picker(self._others)
        self._in_key: set[int] = {place for place in self._others if in_key[place]}
        self._names, self._cells, self._checks = captures.inline_checks()
        self._launches: dict[Any, CachedLaunch | _ByLayout] = {}
        self._count = 0
        self._plans: list[Any] = []
        self._device: Device | None = None
        self.call: Callable[..., bool] | None = None

    def launch(self, args: tuple[Any, ...]) -> Any:
        """Launch if the call is known; return what it allocated, or `MISS`."""
        __tracebackhide__ = True
        if self.call is not None and self._retry(args):
            return None
        try:
            key, arrays, others = self._look(args)
            found: Any = self._launches.get(key)
        except (AttributeError, TypeError, ValueError):  # no device array, an unhashable constant, an empty cell
            return MISS
        if found is None or (found.captures and any(c.changed() for c in found.captures)):
            return MISS
        if found.__class__ is _ByLayout:
            found = self._at_layout(found, arrays, args)
        result = found[0] if found.__class__ is tuple else found.run(arrays, others)
        if result is MISS:
            return MISS
        for place in self._told:
            if args[place].__class__ is not DeviceArray and hasattr(args[place], "__vkjit_written__"):
                args[place].__vkjit_written__()
        if found.__class__ is CachedLaunch and found.plan is not False:
            found.hits += 1
            if found.hits % _HITS == _FIRST_HITS:
                self._accelerate(found, args)
        return result

    def _at_layout(self, entry: _ByLayout, arrays: list[DeviceArray], args: tuple[Any, ...]) -> Any:
        """Return the launch for these layouts, or what `Resolve` returned in its place, `MISS` in a tuple for None."""
        layouts = tuple([array.layout or (array.shape, array.strides) for array in arrays])
        found: Any = entry.launches.get(layouts)
        if found is None and entry.resolve is not None:
            found = entry.resolve(dict(zip(self.params, args, strict=True)), layouts not in entry.launches)
            self._keep(entry, layouts, found if found.__class__ is CachedLaunch else None)
        return (MISS,) if found is None else found

    def _look(self, args: tuple[Any, ...]) -> tuple[Any, list[DeviceArray], tuple[Any, ...]]:
        """Return the key of a call, its arrays and its other arguments; None for a call that must take the slow path."""
        none: tuple[Any, list[DeviceArray], tuple[Any, ...]] = None, [], ()
        if sanitizer_reports.OPEN_BLOCKS:
            return none
        for namespace, name, value in self._names:
            if namespace.get(name, MISSING) is not value:
                return none
        for cell, value in self._cells:
            if cell.cell_contents is not value:
                return none
        if self._checks and not all(holds() for holds in self._checks):
            return none
        arrays: list[DeviceArray] = []
        buffers: set[Any] = set()
        device = args[self._arrays[0]].__vkjit_array__.buffer.device
        key: list[Any] = [device]
        for place in self._arrays:
            array = args[place].__vkjit_array__
            buffer = array.buffer
            if buffer.device is not device:
                return none
            arrays.append(array)
            buffers.add(buffer)
            key.append(array.spec_class)
        if len(buffers) < len(arrays):
            key.append(host_arrays.overlaps(arrays, list(self._written)))
        if self._allocates:  # results are of the class of the arguments
            key += [type(args[place]) for place in self._arrays]
        others = self._pick_others(args) if self._others else ()
        for place, value in zip(self._others, others, strict=True):
            kind: Any = type(value)
            key.append(value.dtype if kind is np.ndarray else kind)  # an array of no dimensions is a typed number
            if place in self._in_key:
                key.append(value if is_own_key(kind) else constant_key(value))
        return tuple(key), arrays, others

    def add(self, args: tuple[Any, ...], found: CachedLaunch, resolve: Resolve | None) -> None:
        """Remember the launch of a call, and how to make launches for arrays of other shapes."""
        try:
            key, arrays, _ = self._look(args)
            before = self._launches.get(key)
        except (AttributeError, TypeError, ValueError):
            return
        if key is None:
            return
        if found.serves_all_shapes:
            self._launches[key] = found
        else:
            entry = before
            if not isinstance(entry, _ByLayout) or entry.captures is not found.captures:
                entry = self._launches[key] = _ByLayout({}, resolve, found.captures)
            self._keep(entry, tuple([array.layout or (array.shape, array.strides) for array in arrays]), found)
        if before is not None:  # it was compiled anew
            self._drop_plans()
        if len(self._launches) > _MAX_LAUNCHES:
            self._forget()

    def _keep(self, entry: _ByLayout, layouts: Any, found: CachedLaunch | None) -> None:
        self._count += layouts not in entry.launches
        if self._count > _MAX_LAUNCHES:
            self._forget()
        entry.launches[layouts] = found

    def _forget(self) -> None:
        self._launches.clear()
        self._count = 0
        self._drop_plans()

    def add_to_key(self, params: Sequence[int]) -> None:
        """Make the values of these parameters part of the key."""
        places = {self.params.index(number) for number in params}
        if not places <= self._in_key:
            self._in_key |= places
            self._forget()

    def cached_launch(
        self, device: Device, launch: PreparedLaunch, groups: Grid, shapes: ShapeRule | None, outs: dict[int, DeviceArray],
        coercions: dict[int, ScalarCoercion], wrap: Callable[[DeviceArray], Any], captures: tuple[Captures, ...],
        poisoned: bool,
    ) -> CachedLaunch:  # fmt: skip
        """Return what calls of this form run; `outs` and `coercions` are by parameter."""
        arrays, scalars = self.arrays_and_scalars
        pick = picker([self._others.index(place) for place in self._scalars])
        made = [coercions[number] for number in scalars]
        return CachedLaunch(
            device, launch, groups, shapes, [*arrays, *outs], [*outs.values()], made, pick, wrap, captures, poisoned
        )  # fmt: skip

    @property
    def arrays_and_scalars(self) -> tuple[list[int], list[int]]:
        """The numbers of the parameters of arrays, and of scalars, in the order of the arguments."""
        return [self.params[place] for place in self._arrays], [self.params[place] for place in self._scalars]

    def _retry(self, args: tuple[Any, ...]) -> bool:
        """Ask machine code again, after others are done launching and a submission is open."""
        call, device = self.call, self._device
        if call is None or device is None:
            return False
        return device.relaunch(call, args)

    def _accelerate(self, found: CachedLaunch, args: tuple[Any, ...]) -> None:
        """Hand a launch to machine code, to be tried before earlier ones."""
        if found.plan in self._plans:
            return
        arrays = [args[place].__vkjit_array__ for place in self._arrays]
        if (
            self._checks
            or not found.takes_as_is(self._pick_others(args))
            or host_arrays.overlaps(arrays, list(self._written))  # it runs other code, and machine code refuses it
        ):
            found.plan = False
            return
        pattern = CallPattern(
            args, self._arrays, scalars=self._scalars, constants=tuple(sorted(self._in_key)), written=self._told,
            names=self._names, cells=self._cells, blocks=sanitizer_reports.OPEN_BLOCKS, missing=MISSING,
        )  # fmt: skip
        if not found.make_plan(pattern):
            return
        device = arrays[0].buffer.device
        if device is not self._device:
            self._drop_plans()
        self._device, self._plans = device, [found.plan, *self._plans[: _MAX_PLANS - 1]]
        self.call = device.accelerated(self._plans)

    def _drop_plans(self) -> None:
        self.call, self._plans, self._device = None, [], None


def shape_rule(spec: KernelSpec, arrays: Sequence[int], local: Grid) -> ShapeRule | None:
    """Return how launches depend on the shapes of `arrays`, by parameter; None if that takes more than a `ShapeRule`.

    `local` is the workgroup size.
    """
    first: dict[str, tuple[int, int]] = {}
    equal, sizes = [], []
    for number, param in enumerate(arrays):
        dims = spec.params[param].dims
        for axis, dim in enumerate(dims.dims if dims is not None else ()):
            if dim.variadic or (dim.names and not dim.simple):
                return None
            if dim.simple:
                known = first.setdefault(dim.text, (number, axis))
                if known != (number, axis):
                    equal.append((known, (number, axis)))
            elif dim.value is not None:
                sizes.append((number, axis, dim.value({})))
    over = (
        None if spec.over is None else next(n for n, param in enumerate(arrays) if spec.params[param].name == spec.over)
    )
    return ShapeRule(tuple(equal), tuple(sizes), over, local)


def values_in_key(spec: KernelSpec, *launch_functions: Any) -> list[bool]:
    """Return for each parameter whether its value decides what runs: constants, and scalars that a launch function reads."""
    read = {name for f in launch_functions if callable(f) for name in inspect.signature(f).parameters}
    return [p.kind == "const" or (p.kind != "array" and p.name in read) for p in spec.params]


def is_cacheable(spec: KernelSpec, args: Sequence[Any], params: Sequence[int]) -> bool:
    """Return True if the types of a call's scalars follow from its key: from the arrays, or from their own types."""
    if any(p.kind == "any" or p.element is not None for p in spec.params):
        return False
    by_arrays = {p.dtype for p in spec.params if p.kind == "array" and isinstance(p.dtype, TypeVar)}
    typed = {
        number
        for number, value in zip(params, args, strict=True)
        if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, np.float64)
    }
    return all(
        p.dtype in by_arrays or number in typed if isinstance(p.dtype, TypeVar) else p.dtype is not None
        for number, p in enumerate(spec.params)
        if p.kind == "scalar"
    )


def constant_captures(values: Sequence[Any]) -> tuple[Captures, ...]:
    """Return what constants capture: device functions, structs with methods, tuples and dataclasses that hold such."""
    plain = (bool, int, float, str, type(None), np.generic, np.ndarray, DeviceArray)
    found = (Captures(v).read_now() for v in values if not isinstance(v, plain))
    return tuple(captures for captures in found if captures.any())
