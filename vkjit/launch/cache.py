"""Repeated launches of device arrays: what shapes, strides and types decide is worked out once.

Enters: the arguments of a call. Leaves: a key that is equal for calls that launch alike, and `CachedLaunch`s that repeat such a
launch without binding, matching or compiling again. Calls with NumPy arrays take the long way.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import dtypes
from ..compiler.fingerprint import Captures
from ..dtypes import DType
from ..frontend import KernelSpec, constant_key
from ..runtime import sanitizer_reports
from ..runtime.array import ROW_ALIGNMENT
from ..runtime.device import Device, DeviceArray
from . import bind, extensions, host_arrays
from .plan import Grid, LaunchPlan

__all__ = ["CachedLaunch", "Call", "CallKeys", "ScalarCoercion", "sanitized"]

Launcher = Callable[[LaunchPlan, Grid, Sequence[Any]], None]

MAX_CACHED_LAUNCHES = 4096
MAX_PREPARED_LAUNCHES = 64
_F32_LARGEST = 3.4028234663852886e38


class Call(NamedTuple):
    """One call as `CallKeys` sees it: its key, and the values by parameter number (device arrays, scalars, constants)."""

    key: tuple[Any, ...]
    values: list[tuple[int, Any]]
    changed: list[Any]
    """Tensors that the kernel may write: they are told so afterwards."""

    @property
    def cache_key(self) -> tuple[Any, ...]:
        """The key, and what a `sanitized` block around the call asks for."""
        checks = sanitizer_reports.THREAD_CHECKS.checks
        return self.key if checks is None else (checks, *self.key)


class ScalarCoercion:
    """How a scalar becomes the type of its parameter: numbers of the type `python` from low to high are taken as they are."""

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
            self.high = _F32_LARGEST if dtype.bits == 32 else math.inf
            self.python, self.low = float, -self.high

    @property
    def types(self) -> tuple[type | None, ...]:
        """The types of numbers that go into the argument block as they are: Python's, and for f32 NumPy's."""
        return self.python, np.float32 if self.dtype is dtypes.f32 else None

    def coerce(self, value: Any) -> Any:
        """Any other value, checked; one that has the type already stays."""
        if type(value) is np.ndarray and self.dtype.is_float and value.dtype is self.dtype.numpy:
            return value
        return bind.coerce_scalar(value, self.dtype, self.name)


@dataclass(frozen=True, slots=True)
class CachedLaunch:
    """A launch to repeat.

    `template` has the values of parameters that the call doesn't give, `coercions` how its scalars become the types
    of their parameters, `outs` the arrays to allocate: parameter, bytes, type, shape, strides. `counted` are the
    integer scalars that loops may depend on, `prepared` the prepared launches by their values. `poisoned`: what is
    allocated is filled first. `launcher`: launches under the sanitizer, where the environment asked for `checks`;
    None for what a block or the kernel asked for.
    """

    plan: LaunchPlan
    guard: Callable[[], LaunchPlan]
    grid: Grid
    template: list[Any]
    coercions: tuple[tuple[int, ScalarCoercion], ...]
    outs: tuple[tuple[int, int, DType, tuple[int, ...], tuple[int, ...]], ...]
    wrap: Callable[[DeviceArray], Any]
    device: Device
    captures: tuple[Captures, ...]
    counted: tuple[int, ...]
    poisoned: bool
    launcher: Launcher | None = None
    checks: tuple[str, ...] | None = None
    prepared: dict[tuple[Any, ...], Callable[[list[Any]], None]] = field(default_factory=dict)

    def current(self) -> bool:
        """Whether captured values of constant functions, and what the environment asks for, are still the same."""
        if self.checks is not None and self.checks != sanitizer_reports.current_checks():
            return False
        return not any(c.changed() for c in self.captures)

    def run(self, call: Call) -> Any:
        """Launches, and returns the arrays that it allocated (one, a tuple, or None)."""
        values = self.template.copy()
        for position, value in call.values:
            values[position] = value
        for position, fit in self.coercions:
            number = values[position]
            kind = type(number)
            if kind is not fit.python or not fit.low <= number <= fit.high:
                values[position] = fit.coerce(number)
        made = []
        for position, nbytes, dtype, shape, strides in self.outs:
            array = DeviceArray(self.device.allocate(nbytes), 0, dtype, shape, strides)
            if self.poisoned:
                bind.poison(array)
            values[position] = array
            made.append(array)
        numbers = tuple([values[i] for i in self.counted])
        launch = self.prepared.get(numbers)
        if launch is None:
            launch = self._prepare(numbers, values)
        launch(values)
        if not made:
            return None
        return self.wrap(made[0]) if len(made) == 1 else tuple(self.wrap(a) for a in made)

    def _prepare(self, numbers: tuple[Any, ...], values: list[Any]) -> Callable[[list[Any]], None]:
        """The launch for these values of the integer scalars, guarded where loops may pass the driver's cap; remembered."""
        counts = values.copy()
        for position, fit in self.coercions:
            if position in self.counted:
                counts[position] = fit.dtype.numpy.type(values[position])
        plan = self.plan.variant(self.grid, counts, self.guard)
        way: Callable[[list[Any]], None]
        if self.launcher is not None:
            way = functools.partial(self.launcher, plan, self.grid)
        else:
            prepared = plan.prepare(self.grid, values)
            way = functools.partial(plan.launch, self.grid) if prepared is None else prepared.launch
        if len(self.prepared) < MAX_PREPARED_LAUNCHES:
            self.prepared[numbers] = way
        return way


def sanitized(
    checks: tuple[str, ...], own: tuple[str, ...] | None, found: list[sanitizer_reports.SanitizerReport] | None
) -> tuple[Launcher | None, tuple[str, ...] | None]:
    """`launcher` and `checks` of a recipe: for a launch with `checks`, of a kernel that asks for `own` by itself."""
    if not checks:
        return None, None

    def launcher(plan: LaunchPlan, groups: Grid, values: Sequence[Any]) -> None:
        extensions.get("sanitized launch")(plan, groups, values, found)

    return launcher, checks if own is None and sanitizer_reports.THREAD_CHECKS.checks is None else None


class CallKeys:
    """Makes the keys of a kernel's calls."""

    def __init__(self, spec: KernelSpec, *launch_functions: Any) -> None:
        self._spec = spec
        self._slots: dict[Any, list[tuple[int, bool, bool]]] = {}
        self._written = [p.mode != "in" for p in spec.params]
        asked = {name for f in launch_functions if callable(f) for name in inspect.signature(f).parameters}
        self._by_value = [p.kind == "const" or (p.kind != "array" and p.name in asked) for p in spec.params]
        self._usable = all(p.kind != "any" and p.element is None for p in spec.params)

    def slots_of(self, count: int, names: tuple[str, ...]) -> list[tuple[int, bool, bool]]:
        """For each argument of a call of this form: its parameter, whether that is an array, whether its value counts.

        Empty where the call has to go the long way.
        """
        positions = bind.parameter_indices(self._spec, count, names) if self._usable else None
        params = self._spec.params
        return [(p, params[p].kind == "array", self._by_value[p]) for p in positions or ()]

    def of(self, groups: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call, or None where it has to go the long way (NumPy arrays, arguments that don't fit)."""
        form: Any = (len(args), *kwargs) if kwargs else len(args)
        slots = self._slots.get(form)
        if slots is None:
            slots = self._slots[form] = self.slots_of(len(args), tuple(kwargs))
        key: list[Any] = [groups, form]
        values: list[tuple[int, Any]] = []
        arrays: list[DeviceArray] = []
        device: Device | None = None
        buffers = set()
        places = 0
        changed: list[Any] = []
        for (position, is_array, by_value), value in zip(slots, (*args, *kwargs.values()) if kwargs else args):  # noqa: B905
            kind = type(value)
            if is_array:
                array = value if kind is DeviceArray else getattr(value, "__vkjit_array__", None)
                if array is None:
                    return None
                if array is not value and self._written[position] and hasattr(value, "__vkjit_written__"):
                    changed.append(value)
                key += (kind, array.dtype, array.shape, array.strides)
                buffer = array.buffer
                if buffer.device is not device:
                    if device is not None:
                        return None
                    device = buffer.device
                places |= buffer.address | array.offset
                buffers.add(id(buffer))
                arrays.append(array)
                values.append((position, array))
                continue
            if kind is np.ndarray:
                kind = value.dtype  # a typed number
            key += (kind, constant_key(value)) if by_value else (kind,)
            values.append((position, value))
        if not arrays:
            return None
        shared = len(buffers) < len(arrays) and self._overlap(arrays, slots)
        key += (device, shared, places % ROW_ALIGNMENT == 0)
        return Call(tuple(key), values, changed)

    def _overlap(self, arrays: list[DeviceArray], slots: list[tuple[int, bool, bool]]) -> bool:
        """Whether arrays in one buffer overlap and one of them is written."""
        return host_arrays.overlaps(arrays, [self._written[position] for position, is_array, _ in slots if is_array])


def is_cacheable(spec: KernelSpec, bound_by_arrays: frozenset[str], values: list[tuple[int, Any]]) -> bool:
    """Whether the scalars' types follow from the arrays, or from their own types, which are part of the key."""
    typed = {i for i, v in values if isinstance(v, (np.ndarray, np.generic)) and not isinstance(v, np.float64)}
    return all(
        p.dtype.__name__ in bound_by_arrays or i in typed if isinstance(p.dtype, TypeVar) else p.dtype is not None
        for i, p in enumerate(spec.params)
        if p.kind == "scalar"
    )


def constant_captures(values: list[Any]) -> tuple[Captures, ...]:
    """What constants capture: device functions, structs with methods, tuples and dataclasses that hold such."""
    plain = (bool, int, float, str, type(None), np.generic, np.ndarray, DeviceArray)
    found = (Captures(v).read_now() for v in values if not isinstance(v, plain))
    return tuple(captures for captures in found if captures.any())
