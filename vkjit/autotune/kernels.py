"""Tuning kernels whose Const parameters or local size are left to `vk.tune(...)`.

Enters: a kernel and the arguments of a launch. Leaves: a `Record`; and at later launches with arguments of these types and
shapes on a device of that name and driver, the choices that it found best. Holds: arrays that a kernel writes are copied
for tuning; the caller's are left alone. Without a record the first choices serve, always the same ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..arguments import bound_names
from ..errors import ArgumentError, VkjitError
from ..frontend import ParamSpec, fingerprint, value_digest
from ..lang.control import Tune
from ..runtime.interface import Device, DeviceArray, contiguous_strides
from ..staging import element_type
from . import records
from .problem import Candidate, Problem, key_of_device, tune
from .records import Record

if TYPE_CHECKING:
    from ..jit import Kernel

__all__ = ["Settings", "settings", "tune_kernel"]

LOCAL = "local="
"""What the local size is called among choices."""
BUSY_GROUPS = 64
"""Workgroups below which the cost model takes a GPU for idle in part."""
HOPELESS = 8.0
"""Candidates that the cost model expects to be so many times as slow as the best are dropped."""

Choice = tuple[tuple[str, Any], ...]
"""Names of Const parameters (and `LOCAL`) with their values."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A launch with choices made: by which kernel, and with which further Const arguments."""

    kernel: Kernel
    constants: dict[str, Any]


def _open(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What a call leaves open, with the choices for it."""
    bound = bound_names(kernel.spec, len(args), kwargs)
    found = {
        p.name: p.default.choices for p in kernel.spec.params if isinstance(p.default, Tune) and p.name not in bound
    }
    if isinstance(kernel.local, Tune):
        found[LOCAL] = kernel.local.choices
    return found


def _choices(left: dict[str, tuple[Any, ...]]) -> Iterator[Choice]:
    """All combinations, the default first."""
    for values in itertools.product(*left.values()):
        yield tuple(zip(left, values, strict=True))


def _words(choice: Choice) -> str:
    return ", ".join(f"{name if name != LOCAL else 'local'}={value!r}" for name, value in choice)


def _with(kernel: Kernel, choice: Choice) -> Settings:
    """The kernel and the arguments for a choice."""
    constants = {name: value for name, value in choice if name != LOCAL}
    local = dict(choice).get(LOCAL)
    return Settings(kernel if local is None else kernel.variant(local=local), constants)


# -- at launches


def settings(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Settings | None:
    """What tuning has found for a call; None where the defaults serve."""
    if not records.enabled():
        return None
    left = _open(kernel, args, kwargs)
    if not left:
        return None
    forms = _forms(kernel, args, kwargs)
    device = _device_of(args, kwargs)
    place = (device, forms)
    if place not in kernel.tuned:
        record = records.load(_key(kernel, forms), *key_of_device(device))
        best = record.best if record is not None else None
        found = next((c for c in _choices(left) if best is not None and _words(c) == best.choice), None)
        kernel.tuned[place] = _with(kernel, found) if found is not None else None
    known: Settings | None = kernel.tuned[place]
    return known


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Device:
    from ..devices import default_device

    for value in (*args, *kwargs.values()):
        array = getattr(value, "__vkjit_array__", value)
        if isinstance(array, DeviceArray):
            return array.device
    return default_device()


def _forms(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What answers depend on besides the kernel: types and shapes of the arguments, Const values."""
    names = bound_names(kernel.spec, len(args), kwargs)
    values = dict(zip(names, (*args, *kwargs.values()), strict=True))
    return "; ".join(f"{p.name}: {_form(p, values[p.name])}" for p in kernel.spec.params if p.name in values)


def _form(param: ParamSpec, value: Any) -> str:
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
    """Measures the choices that the call leaves open; ArgumentError where it leaves none."""
    left = _open(kernel, args, kwargs)
    if not left:
        raise ArgumentError(
            f"{kernel.name} leaves nothing to tune in this call: give a Const parameter (or local=) the default "
            "vk.tune(first, second, ...), and don't pass it"
        )
    device, forms = _device_of(args, kwargs), _forms(kernel, args, kwargs)
    bench = _Bench(kernel, groups, device, args, kwargs)
    candidates = _candidates(bench, list(_choices(left)))
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
    least = min(costs)
    limit = max(HOPELESS * least, costs[0])  # the default is measured whatever it may cost
    return [
        Candidate(choice, _words(choice), cost if cost <= limit else math.inf)
        for choice, cost in zip(choices, costs, strict=True)
    ]


class _Bench:
    """Scratch memory and launches of one call. `returned` are the Outs that the last launch allocated."""

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
        """The argument on the device; a copy of what the kernel writes."""
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
        made = DeviceArray(
            self.device.allocate(max(math.prod(shape) * dtype.itemsize, 1)), 0, dtype, shape, contiguous_strides(shape)
        )
        self.own.append(made)
        return made

    def _uploaded(self, array: Any, name: str) -> DeviceArray:
        whole = np.ascontiguousarray(array)
        made = self._allocated(whole.shape, element_type(whole, name))
        self.device.write(made.buffer, 0, whole.reshape(-1).view(np.uint8))
        return made

    def _copied(self, array: DeviceArray) -> DeviceArray:
        """The whole buffer again, so that the view lies in it as it does in the original."""
        buffer = self.device.allocate(array.buffer.nbytes)
        self.device.copy(array.buffer, 0, buffer, 0, array.buffer.nbytes)
        made = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        self.own.append(made)
        return made

    def _settings(self, choice: Choice) -> Settings:
        if choice not in self.made:
            self.made[choice] = _with(self.kernel, choice)
        return self.made[choice]

    def launch(self, choice: Choice) -> None:
        """One launch with the choice."""
        chosen = self._settings(choice)
        call = chosen.kernel if self.groups is None else chosen.kernel[self.groups]
        found = call(**self.values, **chosen.constants)
        if found is not None:
            self.returned = list(found) if isinstance(found, tuple) else [found]

    def reset(self) -> None:
        """Written arrays as they were."""
        for name, source in self.original.items():
            target = self.values[name]
            self.device.copy(source.buffer, 0, target.buffer, 0, source.buffer.nbytes)

    def results(self) -> list[Any]:
        """What the last launch wrote."""
        arrays = [self.values[name] for name in self.written] + self.returned
        return [self._read(array) for array in arrays]

    def _read(self, array: Any) -> Any:
        if not isinstance(array, DeviceArray):
            return np.asarray(array)
        held = np.empty(array.buffer.nbytes, dtype=np.uint8)
        self.device.read(array.buffer, 0, held)
        stored = array.dtype.storage
        size = array.dtype.itemsize
        flat = held[array.offset % size : held.nbytes - (held.nbytes - array.offset) % size].view(stored)
        view = np.lib.stride_tricks.as_strided(
            flat[array.offset // size :], array.shape, tuple(s * size for s in array.strides), writeable=False
        )
        if array.dtype is dtypes.bf16:
            words = view.astype(np.uint32) << np.uint32(16)
            return words.view(np.float32)
        return np.array(view)

    def tolerance(self) -> float:
        """What sums in another order may differ by, from the coarsest float type and the longest axis of the arguments."""
        arrays = [v for v in self.values.values() if isinstance(v, DeviceArray)]
        eps = max((2.0 ** -_MANTISSA.get(a.dtype.name, 60) for a in arrays), default=2.0**-24)
        longest = max((extent for a in arrays for extent in a.shape), default=1)
        return float(eps * (8 + 2 * longest**0.5))

    def cost(self, choice: Choice) -> float:
        """What the cost model expects, in units of a busy device: idle workgroups and idle lanes count."""
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
        """Gives the scratch memory back."""
        self.device.synchronize()
        for array in self.own:
            array.buffer.close()
        self.own.clear()


_MANTISSA = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
