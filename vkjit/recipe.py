"""Repeated launches of device arrays: what shapes, strides and types decide is worked out once.

Enters: the arguments of a call. Leaves: a key that is equal for calls that launch alike, and `Recipe`s that repeat such a
launch without binding, matching or compiling again. Calls with NumPy arrays take the long way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from . import arguments, staging
from .dtypes import DType
from .frontend import Captures, DeviceFunction, KernelSpec
from .plan import Grid, LaunchPlan
from .runtime.interface import Device, DeviceArray

__all__ = ["Call", "Keys", "Recipe"]

MOST_RECIPES = 4096
_F32_LARGEST = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Call:
    """One call as `Keys` sees it: its key, and the values by parameter number (device arrays, scalars, constants)."""

    key: tuple[Any, ...]
    values: list[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A launch to repeat.

    `template` has the values of parameters that the call doesn't give, `fits` the scalars with their types and names,
    `outs` the arrays to allocate: parameter, bytes, type, shape, strides.
    """

    plan: LaunchPlan
    guard: Callable[[], LaunchPlan]
    grid: Grid
    template: list[Any]
    fits: tuple[tuple[int, DType, str], ...]
    outs: tuple[tuple[int, int, DType, tuple[int, ...], tuple[int, ...]], ...]
    wrap: Callable[[DeviceArray], Any]
    device: Device
    captures: tuple[Captures, ...]

    def current(self) -> bool:
        """Whether captured values of constant functions are still the same."""
        return not any(c.changed() for c in self.captures)

    def run(self, call: Call) -> Any:
        """Launches, and returns the arrays that it allocated (one, a tuple, or None)."""
        values = self.template.copy()
        for position, value in call.values:
            values[position] = value
        for position, dtype, name in self.fits:
            value = values[position]
            if type(value) is np.ndarray and dtype.is_float and value.dtype is dtype.numpy:
                continue  # a typed number, which the argument block takes as it is
            if type(value) is not float or dtype.bits != 32 or not -_F32_LARGEST <= value <= _F32_LARGEST:
                values[position] = arguments.fit_scalar(value, dtype, name)
            elif not dtype.is_float:
                values[position] = arguments.fit_scalar(value, dtype, name)  # raises: a float for an integer
        made = []
        for position, nbytes, dtype, shape, strides in self.outs:
            array = DeviceArray(self.device.allocate(nbytes), 0, dtype, shape, strides)
            values[position] = array
            made.append(array)
        plan = self.plan
        if plan.trip_bound is not None and plan.may_pass_cap(self.grid, values):
            plan = self.guard()
        plan.launch(self.grid, values)
        if not made:
            return None
        return self.wrap(made[0]) if len(made) == 1 else tuple(self.wrap(a) for a in made)


class Keys:
    """Makes the keys of a kernel's calls."""

    def __init__(self, spec: KernelSpec, *launch_functions: Any) -> None:
        self._spec = spec
        self._slots: dict[tuple[int, tuple[str, ...]], list[int] | None] = {}
        self._written = [p.mode != "in" for p in spec.params]
        asked = {name for f in launch_functions if callable(f) for name in inspect.signature(f).parameters}
        self._by_value = [p.kind == "const" or (p.kind != "array" and p.name in asked) for p in spec.params]
        self._usable = all(p.kind != "any" for p in spec.params)

    def of(self, groups: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call, or None where it has to go the long way (NumPy arrays, arguments that don't fit)."""
        if not self._usable:
            return None
        names = tuple(kwargs)
        form = (len(args), names)
        if form not in self._slots:
            self._slots[form] = arguments.positions(self._spec, len(args), names)
        slots = self._slots[form]
        if not slots:
            return None
        key: list[Any] = [groups, names, len(args)]
        values: list[tuple[int, Any]] = []
        arrays: list[DeviceArray] = []
        written: list[bool] = []
        for position, value in zip(slots, (*args, *kwargs.values()) if kwargs else args, strict=True):
            kind = type(value)
            if self._spec.params[position].kind == "array":
                array = value if kind is DeviceArray else getattr(value, "__vkjit_array__", None)
                if array is None:
                    return None
                key += (kind, array.dtype, array.shape, array.strides)
                arrays.append(array)
                written.append(self._written[position])
                values.append((position, array))
                continue
            if kind is np.ndarray:
                kind = value.dtype  # a typed number
            key += (kind, value) if self._by_value[position] else (kind,)
            values.append((position, value))
        if not arrays:
            return None
        device = arrays[0].buffer.device
        buffers = {id(a.buffer) for a in arrays}
        if len(arrays) > 1 and any(a.buffer.device is not device for a in arrays):
            return None
        key.append(device)
        key.append(len(buffers) < len(arrays) and staging.overlaps(arrays, written))
        return Call(tuple(key), values)


def settled(spec: KernelSpec, bound_by_arrays: frozenset[str], values: list[tuple[int, Any]]) -> bool:
    """Whether the scalars' types follow from the arrays, or from their own types, which are part of the key."""
    typed = {i for i, v in values if isinstance(v, (np.ndarray, np.generic)) and not isinstance(v, np.float64)}
    return all(
        p.dtype.__name__ in bound_by_arrays or i in typed if isinstance(p.dtype, TypeVar) else p.dtype is not None
        for i, p in enumerate(spec.params)
        if p.kind == "scalar"
    )


def constant_captures(values: list[Any]) -> tuple[Captures, ...]:
    """What device functions given as constants capture."""
    return tuple(Captures(v.fn) for v in values if isinstance(v, DeviceFunction))
