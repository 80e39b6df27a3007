"""The launch cache: repeated calls of a kernel skip binding, matching and compiling.

A `CallForm` represents the calls of a kernel with the same number of arguments, keywords and grid. The key of a call
consists of everything that determines the code: the device, the arrays' specialization classes, the types of scalars,
the values of constants, and whether arrays overlap. It maps to a `CachedLaunch`, which fills the arrays' descriptors
and the scalars into a prepared launch. Kernels whose launches depend on shapes in ways that `ShapeRule` doesn't
describe (functions for the grid, allocated results, caps on loops) have one cached launch per layout of the arrays; for
a new layout, it is made without binding and compiling again (`Resolve`). Frequent and simple launches are compiled to
machine code if the device supports it (`CallForm.call`).

A cached launch has the same effect as the slow path. If it can't, it returns `MISS` and has no effect.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .. import dtypes
from ..compiler.fingerprint import Captures
from ..dtypes import DType
from ..frontend import KernelSpec, constant_key
from ..frontend.signature.free_names import MISSING
from ..frontend.signature.signature import is_own_key
from ..runtime import sanitizer_reports
from ..runtime.capture import is_capturing, open_captures
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
"""Result of a form for calls that must take the slow path."""

_MAX_LAUNCHES = 4096
_MAX_PLANS = 8
"""Maximum number of plans that machine code tries for a call."""
_FIRST_HITS, _HITS = 3, 64
"""Hits of a cached launch before it is compiled to machine code, and the period, in hits, of repeating that: other
plans may have displaced it."""
_F32_MAX = 3.4028234663852886e38


Resolve = Callable[[dict[int, Any], bool], "CachedLaunch | tuple[Any] | None"]
"""Makes the launch of a call, given the arguments by parameter and whether the call is new. For a new call, or one
whose launch can't be prepared, it launches at once, which is faster, and returns the result in a tuple. None if the
kernel must be compiled for the grid. Raises ShapeError if dimensions disagree."""


class ScalarCoercion:
    """The conversion of a scalar to the type of its parameter.

    Values of type `python` from `low` to `high` need none.
    """

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
        """Return the value, checked and converted as on the slow path."""
        kind: Any = type(value)
        if (kind is self.python and self.low <= value <= self.high) or (
            kind is np.float32 and self.dtype is dtypes.f32
        ):
            return value
        return bind.coerce_scalar(value, self.dtype, self.name)


class CachedLaunch:
    """The launch of calls with a certain key, on a grid of `groups` or, with `shapes`, for arrays of all shapes.

    `params` are the parameter indices of all arrays, those of `outs` last. `outs` are the arrays to allocate: bytes,
    type, shape, strides. `scalars` picks the scalars from the arguments that aren't arrays. `wrap` converts allocated
    arrays to results. `captures` are the captures of constants. With `poisoned`, allocated arrays are filled as by
    `bind.poison`.
    """

    __slots__ = (
        "_device", "_launcher", "_limits", "_outs", "_params", "_poisoned", "_scalars", "_wrap", "captures", "coercions",
        "groups", "hits", "launch", "plan", "shapes",
    )  # fmt: skip

    def __init__(
        self,
        device: Device,
        launch: PreparedLaunch,
        groups: Grid,
        shapes: ShapeRule | None,
        params: Sequence[int],
        outs: Sequence[DeviceArray],
        coercions: Iterable[ScalarCoercion],
        scalars: Callable[[Any], tuple[Any, ...]],
        wrap: Callable[[DeviceArray], Any],
        captures: tuple[Captures, ...],
        poisoned: bool,
    ) -> None:
        self._device, self.launch, self._launcher = device, launch, device.launcher(launch)
        self.groups, self.shapes, self._params, self._limits = groups, shapes, params, device.caps.max_groups
        self._outs = [(a.buffer.nbytes, a.dtype, a.shape, a.strides) for a in outs]
        self.coercions, self._scalars, self._wrap = tuple(coercions), scalars, wrap
        self._poisoned = poisoned
        self.captures = captures
        self.plan: Any = False if outs or captures else None
        """The launch as a plan for machine code; None if there is none yet, False if there can't be one."""
        self.hits = 0

    def run(self, arrays: list[DeviceArray], others: tuple[Any, ...]) -> Any:
        """Launch, and return the allocated arrays: one, a tuple, or None.

        `MISS` if the shapes or the grid don't fit.
        """
        __tracebackhide__ = True
        shapes, groups = self.shapes, self.groups
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
        if self.coercions:
            values += [c.coerce(value) for c, value in zip(self.coercions, self._scalars(others), strict=True)]
        launcher = self._launcher
        if launcher is None or not launcher(buffers, tuple(values), groups):
            extents = None
            if open_captures and is_capturing(self._device):
                extents = array_extents(zip(self._params, arrays, strict=True))
            self.launch.run(self._device, buffers, tuple(values), groups, extents)
        if made is None:
            return None
        return self._wrap(made[0]) if len(made) == 1 else tuple([self._wrap(array) for array in made])

    def _allocate(self, nbytes: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        array = DeviceArray(self._device.allocate(nbytes), 0, dtype, shape, strides)
        if self._poisoned:
            bind.poison(array)
        return array


@dataclass(slots=True)
class _ByLayout:
    """Cached launches by the layouts of the arrays; None for layouts that have been launched only once."""

    launches: dict[Any, CachedLaunch | None]
    resolve: Resolve | None
    captures: tuple[Captures, ...]


class CallForm:
    """The calls of a kernel with the same number of positional arguments, keywords and grid.

    `call` is the machine code of recent launches, a function of all arguments that returns False if Python must decide.
    """

    def __init__(self, spec: KernelSpec, captures: Captures, params: Sequence[int], in_key: Collection[int]) -> None:
        """`params` are the arguments' parameter indices; `in_key` those of arguments whose values are part of the key."""
        kinds = [spec.params[number].kind for number in params]
        self.params = tuple(params)
        self._arrays = tuple([place for place, kind in enumerate(kinds) if kind == "array"])
        self._others = tuple([place for place, kind in enumerate(kinds) if kind != "array"])
        self._scalars = tuple([place for place in self._others if kinds[place] == "scalar"])
        self.arrays = [params[place] for place in self._arrays]
        """The parameter indices of the arrays, in the order of the arguments."""
        self.scalars = [params[place] for place in self._scalars]
        """The parameter indices of the scalars, in the order of the arguments."""
        self._told = tuple([place for place in self._arrays if spec.params[params[place]].mode != "in"])
        self._written = [place in self._told for place in self._arrays]
        self._allocates = len(self._arrays) < len(spec.arrays)
        self._pick_others = picker(self._others)
        self.pick_scalars = picker([self._others.index(place) for place in self._scalars])
        """Selects the scalars from the arguments that aren't arrays."""
        self._in_key = {place for place in self._others if params[place] in in_key}
        self._names, self._cells, self._checks = captures.inline_checks()
        self._launches: dict[Any, CachedLaunch | _ByLayout] = {}
        self._count = 0
        self._plans: list[Any] = []
        self._device: Device | None = None
        self.call: Callable[..., bool] | None = None

    def launch(self, args: tuple[Any, ...]) -> Any:
        """Launch if the call is cached. Return the allocated arrays, or `MISS`."""
        __tracebackhide__ = True
        call, device = self.call, self._device
        if call is not None and device is not None and device.relaunch(call, args):  # now with an open submission
            return None
        try:
            key, arrays, others = self._look(args)
            found: Any = self._launches.get(key)
        except (AttributeError, TypeError, ValueError):  # not a device array, an unhashable constant, an empty cell
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
        """Return the cached launch for these layouts, or the result of `Resolve`, or `(MISS,)` if there is neither."""
        layouts = tuple([array.layout or (array.shape, array.strides) for array in arrays])
        found: Any = entry.launches.get(layouts)
        if found is None and entry.resolve is not None:
            found = entry.resolve(dict(zip(self.params, args, strict=True)), layouts not in entry.launches)
            self._keep(entry, layouts, found if found.__class__ is CachedLaunch else None)
        return (MISS,) if found is None else found

    def _look(self, args: tuple[Any, ...]) -> tuple[Any, list[DeviceArray], tuple[Any, ...]]:
        """Return the key of a call, its arrays and its other arguments.

        The key is None if it must take the slow path.
        """
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
        is_shared = False
        device = args[self._arrays[0]].__vkjit_array__.buffer.device
        key: list[Any] = [device]
        for place in self._arrays:
            given = args[place]
            array = given.__vkjit_array__
            buffer = array.buffer
            recording = getattr(given, "__vkjit_recording__", None)
            if recording is not None:
                requires_grad, history, recorded, is_enabled = recording(given)
                if is_enabled and (requires_grad or history != recorded):  # refused, unless the slow path allows it
                    return none
            if buffer.device is not device:
                return none
            if array.layout is None and buffer.shared:  # others may hold its memory, too
                is_shared = True
            arrays.append(array)
            buffers.add(buffer)
            key.append(array.spec_class)
        if is_shared or len(buffers) < len(arrays):
            key.append(bool(host_arrays.overlapping(arrays, self._written)))
        if self._allocates:  # results have the class of the arguments
            key += [type(args[place]) for place in self._arrays]
        others = self._pick_others(args) if self._others else ()
        for place, value in zip(self._others, others, strict=True):
            kind: Any = type(value)
            key.append(value.dtype if kind is np.ndarray else kind)  # a 0-d array is a typed scalar
            if place in self._in_key:
                key.append(value if is_own_key(kind) else constant_key(value))
        return tuple(key), arrays, others

    def add(self, args: tuple[Any, ...], found: CachedLaunch, resolve: Resolve | None) -> None:
        """Cache the launch of a call. `resolve` makes launches for arrays of other layouts."""
        try:
            key, arrays, _ = self._look(args)
            before = self._launches.get(key)
        except (AttributeError, TypeError, ValueError):
            return
        if key is None:
            return
        if found.shapes is not None:
            self._launches[key] = found
        else:
            entry = before
            if not isinstance(entry, _ByLayout) or entry.captures is not found.captures:
                entry = self._launches[key] = _ByLayout({}, resolve, found.captures)
            self._keep(entry, tuple([array.layout or (array.shape, array.strides) for array in arrays]), found)
        if before is not None:  # the kernel was recompiled
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

    def _accelerate(self, found: CachedLaunch, args: tuple[Any, ...]) -> None:
        """Compile a launch to machine code, which tries it before earlier ones."""
        if found.plan in self._plans:
            return
        arrays = [args[place].__vkjit_array__ for place in self._arrays]
        scalars = zip(found.coercions, [args[place] for place in self._scalars], strict=True)
        if (
            self._checks
            or any(type(value) is not coercion.python for coercion, value in scalars)
            or host_arrays.overlapping(arrays, self._written)  # runs other code, and machine code refuses it
        ):
            found.plan = False
            return
        pattern = CallPattern(
            args, self._arrays, found.groups, found.shapes, self._scalars, tuple(sorted(self._in_key)), self._told,
            names=self._names, cells=self._cells, blocks=sanitizer_reports.OPEN_BLOCKS, missing=MISSING,
        )  # fmt: skip
        device = arrays[0].buffer.device
        found.plan = device.plan(found.launch, pattern)
        if not found.plan:
            return
        if device is not self._device:
            self._drop_plans()
        self._device, self._plans = device, [found.plan, *self._plans[: _MAX_PLANS - 1]]
        self.call = device.accelerated(self._plans)

    def _drop_plans(self) -> None:
        self.call, self._plans, self._device = None, [], None


def shape_rule(spec: KernelSpec, arrays: Sequence[int], local: Grid, values: Sequence[Any]) -> ShapeRule | None:
    """Return the `ShapeRule` of launches for `arrays` (parameter indices); None if no rule describes them.

    `local` is the workgroup size, `values` has the values of Const parameters that are sizes of dimensions.
    """
    constants = {spec.params[i].name: values[i] for i in spec.size_constants}
    first: dict[str, tuple[int, int]] = {}
    equal, sizes = [], []
    for number, param in enumerate(arrays):
        dims = spec.params[param].dims
        for axis, dim in enumerate(dims.dims if dims is not None else ()):
            if dim.variadic or (dim.names and not dim.simple):
                return None
            if dim.text in constants:
                sizes.append((number, axis, int(constants[dim.text])))
            elif dim.simple:
                known = first.setdefault(dim.text, (number, axis))
                if known != (number, axis):
                    equal.append((known, (number, axis)))
            elif dim.value is not None:
                sizes.append((number, axis, dim.value({})))
    over = (
        None if spec.over is None else next(n for n, param in enumerate(arrays) if spec.params[param].name == spec.over)
    )
    return ShapeRule(tuple(equal), tuple(sizes), over, local)


def values_in_key(spec: KernelSpec, *launch_functions: Any) -> set[int]:
    """Return the indices of the parameters whose values affect the launch: constants, and what launch functions read."""
    read = {name for f in launch_functions if callable(f) for name in inspect.signature(f).parameters}
    return {i for i, p in enumerate(spec.params) if p.kind == "const" or (p.kind != "array" and p.name in read)}


def is_cacheable(spec: KernelSpec, args: Sequence[Any], params: Sequence[int]) -> bool:
    """Return True if the types of all scalars of a call follow from its key: from the arrays or from their own types.

    False for kernels with unannotated or composite parameters.
    """
    if any(p.kind == "any" or p.element is not None for p in spec.params):
        return False
    free = [i for i in spec.scalars if isinstance(spec.params[i].dtype, TypeVar)]
    if not free:
        return True
    by_arrays = {spec.params[i].dtype for i in spec.arrays}
    typed = [  # not by their values, as Python's numbers
        number
        for number, value in zip(params, args, strict=True)
        if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, np.float64)
    ]
    return all(spec.params[i].dtype in by_arrays or i in typed for i in free)


def constant_captures(values: Sequence[Any]) -> tuple[Captures, ...]:
    """Return the captures of constants: device functions, structs with methods, and tuples or dataclasses of these."""
    plain = (bool, int, float, str, type(None), np.generic, np.ndarray, DeviceArray)
    found = (Captures(v).read_now() for v in values if not isinstance(v, plain))
    return tuple(captures for captures in found if captures.any())
