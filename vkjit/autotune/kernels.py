"""Autotuning of kernels whose Const parameters or local size are declared with `vk.tune(...)`.

Tuning a call produces a `Record`. Later launches with arguments of the same types and shapes, on a device of the same
name and driver, use the best choices in it. Arrays that the kernel writes are copied for tuning, so the caller's are
unchanged. Without a record, the first choices are used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..compiler.fingerprint import fingerprint, value_digest
from ..errors import ArgumentError, VkjitError
from ..frontend import ParamSpec
from ..lang.control import Tune
from ..launch.bind import bound_names
from ..launch.host_arrays import element_type
from ..runtime.device import Device, DeviceArray, contiguous_strides
from . import storage
from .problem import Candidate, Problem, key_of_device, tune
from .storage import Record

if TYPE_CHECKING:
    from ..launch.kernel import Kernel

__all__ = ["Settings", "tune_kernel", "tuned_settings"]

LOCAL = "local="
"""The name of the local size in choices."""
BUSY_GROUPS = 64
"""Number of workgroups below which the cost model assumes that a GPU is partly idle."""
MAX_COST_RATIO = 8.0
"""Candidates whose modeled cost exceeds the best one's by this factor are dropped."""

Choice = tuple[tuple[str, Any], ...]
"""Const parameters (and `LOCAL`) with their values."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A launch with the choices applied: the kernel to launch and additional Const arguments."""

    kernel: Kernel
    constants: dict[str, Any]


def _open_choices(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the tunable parameters that a call doesn't set, with their choices."""
    bound = bound_names(kernel.spec, len(args), kwargs)
    open_choices = {
        p.name: p.default.choices for p in kernel.spec.params if isinstance(p.default, Tune) and p.name not in bound
    }
    if isinstance(kernel.local, Tune):
        open_choices[LOCAL] = kernel.local.choices
    return open_choices


def _choices(choices: dict[str, tuple[Any, ...]]) -> Iterator[Choice]:
    """Yield all combinations, starting with the default."""
    for values in itertools.product(*choices.values()):
        yield tuple(zip(choices, values, strict=True))


def _choice_text(choice: Choice) -> str:
    return ", ".join(f"{name if name != LOCAL else 'local'}={value!r}" for name, value in choice)


def _apply(kernel: Kernel, choice: Choice) -> Settings:
    """Return the kernel and arguments for a choice."""
    constants = {name: value for name, value in choice if name != LOCAL}
    local = dict(choice).get(LOCAL)
    return Settings(kernel if local is None else kernel.variant(local=local), constants)


# -- launches


def tuned_settings(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Settings | None:
    """Return the tuned settings for a call, or None to use the defaults."""
    if not storage.enabled():
        return None
    choices = _open_choices(kernel, args, kwargs)
    if not choices:
        return None
    forms = _arguments_key(kernel, args, kwargs)
    device = _device_of(args, kwargs)
    cache_key = (device, forms)
    if cache_key not in kernel.tuned:
        record = storage.load(_key(kernel, forms), *key_of_device(device))
        best = record.best if record is not None else None
        stored = next((c for c in _choices(choices) if best is not None and _choice_text(c) == best.choice), None)
        kernel.tuned[cache_key] = _apply(kernel, stored) if stored is not None else None
    result: Settings | None = kernel.tuned[cache_key]
    return result


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Device:
    from ..backends.selection import default_device

    for value in (*args, *kwargs.values()):
        array = getattr(value, "__vkjit_array__", value)
        if isinstance(array, DeviceArray):
            return array.device
    return default_device()


def _arguments_key(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the cache key of a call: types and shapes of the arguments, values of Const arguments."""
    names = bound_names(kernel.spec, len(args), kwargs)
    values = dict(zip(names, (*args, *kwargs.values()), strict=True))
    return "; ".join(f"{p.name}: {_argument_key(p, values[p.name])}" for p in kernel.spec.params if p.name in values)


def _argument_key(param: ParamSpec, value: Any) -> str:
    if param.kind == "const":
        return repr(value) if isinstance(value, bool | int | float | str | tuple) else value_digest(value)
    array = getattr(value, "__vkjit_array__", value)
    if isinstance(array, DeviceArray):
        packed = array.strides == contiguous_strides(array.shape)
        return f"{array.dtype.name} {array.shape}{'' if packed else f' {array.strides}'}"
    if isinstance(array, np.ndarray):
        return f"{element_type(array, param.name).name} {array.shape}"
    return type(value).__name__


def _key(kernel: Kernel, forms: str) -> str:
    return f"{kernel.name} {fingerprint(kernel.spec.fn)} {kernel.options} | {forms}"


# -- tuning


def tune_kernel(kernel: Kernel, groups: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: float) -> Record:
    """Measure the choices for the tunable parameters that the call doesn't set. Raises ArgumentError if there are none."""
    choices = _open_choices(kernel, args, kwargs)
    if not choices:
        raise ArgumentError(
            f"{kernel.name} leaves nothing to tune in this call: give a Const parameter (or local=) the default "
            "vk.tune(first, second, ...), and don't pass it"
        )
    device, forms = _device_of(args, kwargs), _arguments_key(kernel, args, kwargs)
    bench = _Bench(kernel, groups, device, args, kwargs)
    candidates = _candidates(bench, list(_choices(choices)))
    problem = Problem(
        kernel.name,
        _key(kernel, forms),
        device,
        candidates,
        bench.launch,
        bench.results,
        bench.tolerance(),
        bench.reset,
    )
    try:
        record = tune(problem, budget)
    finally:
        bench.close()
    kernel.tuned.clear()
    return record


def _candidates(bench: _Bench, choices: list[Choice]) -> list[Candidate]:
    costs = [bench.cost(choice) for choice in choices]
    cheapest = min(costs)
    limit = max(MAX_COST_RATIO * cheapest, costs[0])  # the default is always measured
    return [
        Candidate(choice, _choice_text(choice), cost if cost <= limit else math.inf)
        for choice, cost in zip(choices, costs, strict=True)
    ]


class _Bench:
    """Scratch memory and launches for tuning one call. `returned` are the Outs that the last launch allocated."""

    def __init__(
        self, kernel: Kernel, groups: Any, device: Device, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.kernel, self.groups, self.device = kernel, groups, device
        self.names = bound_names(kernel.spec, len(args), kwargs)
        self.values = dict(zip(self.names, (*args, *kwargs.values()), strict=True))
        self.original: dict[str, DeviceArray] = {}
        self.own: list[DeviceArray] = []
        self.written: list[str] = []
        self.returned: list[Any] = []
        self.made: dict[Choice, Settings] = {}
        for param in kernel.spec.params:
            if param.kind == "array" and param.name in self.values:
                self._place(param)

    def _place(self, param: ParamSpec) -> None:
        """Move an argument to the device; copy it if the kernel writes it."""
        value = self.values[param.name]
        array = getattr(value, "__vkjit_array__", value)
        if isinstance(array, np.ndarray):
            array = self._uploaded(array, param.name)
        if param.mode != "in":
            self.original[param.name] = array
            array = self._copied(array)
            self.written.append(param.name)
        self.values[param.name] = array

    def _allocated(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        array = DeviceArray(
            self.device.allocate(max(math.prod(shape) * dtype.itemsize, 1)), 0, dtype, shape, contiguous_strides(shape)
        )
        self.own.append(array)
        return array

    def _uploaded(self, array: Any, name: str) -> DeviceArray:
        contiguous = np.ascontiguousarray(array)
        device_array = self._allocated(contiguous.shape, element_type(contiguous, name))
        self.device.write(device_array.buffer, 0, contiguous.reshape(-1).view(np.uint8))
        return device_array

    def _copied(self, array: DeviceArray) -> DeviceArray:
        """Copy the whole buffer, so that the array's offset stays the same."""
        buffer = self.device.allocate(array.buffer.nbytes)
        self.device.copy(array.buffer, 0, buffer, 0, array.buffer.nbytes)
        duplicate = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        self.own.append(duplicate)
        return duplicate

    def _settings(self, choice: Choice) -> Settings:
        if choice not in self.made:
            self.made[choice] = _apply(self.kernel, choice)
        return self.made[choice]

    def launch(self, choice: Choice) -> None:
        """Launch once with the choice."""
        chosen = self._settings(choice)
        call = chosen.kernel if self.groups is None else chosen.kernel[self.groups]
        outs = call(**self.values, **chosen.constants)
        if outs is not None:
            self.returned = list(outs) if isinstance(outs, tuple) else [outs]

    def reset(self) -> None:
        """Restore the written arrays."""
        for name, source in self.original.items():
            target = self.values[name]
            self.device.copy(source.buffer, 0, target.buffer, 0, source.buffer.nbytes)

    def results(self) -> list[Any]:
        """Return the arrays written by the last launch."""
        arrays = [self.values[name] for name in self.written] + self.returned
        return [self._read(array) for array in arrays]

    def _read(self, array: Any) -> Any:
        if not isinstance(array, DeviceArray):
            return np.asarray(array)
        raw = np.empty(array.buffer.nbytes, dtype=np.uint8)
        self.device.read(array.buffer, 0, raw)
        stored = array.dtype.storage
        size = array.dtype.itemsize
        flat = raw[array.offset % size : raw.nbytes - (raw.nbytes - array.offset) % size].view(stored)
        view = np.lib.stride_tricks.as_strided(
            flat[array.offset // size :], array.shape, tuple(s * size for s in array.strides), writeable=False
        )
        if array.dtype is dtypes.bf16:
            bits = view.astype(np.uint32) << np.uint32(16)
            return bits.view(np.float32)
        return np.array(view)

    def tolerance(self) -> float:
        """Return the relative tolerance for reordered sums, from the coarsest float type and the longest axis of the
        arguments.
        """
        arrays = [v for v in self.values.values() if isinstance(v, DeviceArray)]
        eps = max((2.0 ** -_MANTISSA.get(a.dtype.name, 60) for a in arrays), default=2.0**-24)
        longest = max((extent for a in arrays for extent in a.shape), default=1)
        return float(eps * (8 + 2 * longest**0.5))

    def cost(self, choice: Choice) -> float:
        """Return the modeled cost relative to a fully occupied device, counting idle workgroups and lanes."""
        chosen = self._settings(choice)
        try:
            shape = chosen.kernel.shape_of_launch(self.groups, self.device, {**self.values, **chosen.constants})
        except VkjitError:
            return math.inf
        if shape is None:
            return 1.0
        caps, total, lanes = self.device.caps, math.prod(shape[0]), math.prod(shape[1])
        idle = max(1.0, BUSY_GROUPS / max(total, 1)) if caps.kind in ("discrete", "integrated", "virtual") else 1.0
        return float(idle * max(1.0, caps.subgroup_size / max(lanes, 1)))

    def close(self) -> None:
        """Release the scratch memory."""
        self.device.synchronize()
        for array in self.own:
            array.buffer.close()
        self.own.clear()


_MANTISSA = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
