"""Autotuning of kernels whose Const parameters or workgroup size (`local`) are declared with `vk.tune(...)`.

`tune_kernel`, which implements `Kernel.tune`, measures all combinations of choices for one call and produces a
`Record`. Launches call `tuned_settings`: with arguments of the same types and shapes, on a device of the same name and
driver, they use the best combination in the record. Without a record, they use the first choice of each parameter.
Arrays that the kernel writes are copied for tuning, so the caller's arrays are unchanged.
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

__all__ = ["TunedLaunch", "tune_kernel", "tuned_settings"]

LOCAL = "local="
"""The name of the workgroup size in a `Choice`; not an identifier, so no parameter has this name."""
BUSY_GROUPS = 64
"""Number of workgroups below which the cost model assumes that a part of the GPU is idle."""
MAX_COST_RATIO = 8.0
"""Choices whose modeled cost exceeds the lowest one by more than this factor aren't measured."""

Choice = tuple[tuple[str, Any], ...]
"""One combination of choices: pairs of a Const parameter's name (or `LOCAL`) and its value."""


@dataclass(frozen=True, slots=True)
class TunedLaunch:
    """A `Choice` in the form that a launch needs: the kernel with its workgroup size set, and the Const arguments."""

    kernel: Kernel
    constants: dict[str, Any]


def _open_choices(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the possible values of each tunable parameter that the call doesn't set."""
    bound = bound_names(kernel.spec, args, kwargs)
    open_choices = {
        p.name: p.default.choices for p in kernel.spec.params if isinstance(p.default, Tune) and p.name not in bound
    }
    if isinstance(kernel.local, Tune):
        open_choices[LOCAL] = kernel.local.choices
    return open_choices


def _combinations(choices: dict[str, tuple[Any, ...]]) -> Iterator[Choice]:
    """Yield all combinations of values, starting with the default: the first value of each parameter."""
    for values in itertools.product(*choices.values()):
        yield tuple(zip(choices, values, strict=True))


def _choice_text(choice: Choice) -> str:
    """Format a choice, both for people and to identify it in a `Record`."""
    return ", ".join(f"{name if name != LOCAL else 'local'}={value!r}" for name, value in choice)


def _apply(kernel: Kernel, choice: Choice) -> TunedLaunch:
    """Return the kernel and the Const arguments to launch for a choice."""
    constants = {name: value for name, value in choice if name != LOCAL}
    local = dict(choice).get(LOCAL)
    return TunedLaunch(kernel if local is None else kernel.variant(local=local), constants)


# -- launches


def tuned_settings(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TunedLaunch | None:
    """Return the tuned settings for a call, or None to use the defaults. Results are cached in `kernel.tuned`."""
    if not storage.enabled() or len(args) > len(kernel.spec.params):  # binding the arguments raises the error
        return None
    choices = _open_choices(kernel, args, kwargs)
    if not choices:
        return None
    arguments_key = _arguments_key(kernel, args, kwargs)
    device = _device_of(args, kwargs)
    cache_key = (device, arguments_key)
    if cache_key not in kernel.tuned:
        record = storage.load(_record_key(kernel, arguments_key), *key_of_device(device))
        best = record.best if record is not None else None
        # the combination that the record calls best
        stored = next((c for c in _combinations(choices) if best is not None and _choice_text(c) == best.choice), None)
        kernel.tuned[cache_key] = _apply(kernel, stored) if stored is not None else None
    result: TunedLaunch | None = kernel.tuned[cache_key]
    return result


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Device:
    """Return the device of the first device array among the arguments, else the default device."""
    from ..backends.selection import default_device

    for value in (*args, *kwargs.values()):
        array = getattr(value, "__vkjit_array__", value)
        if isinstance(array, DeviceArray):
            return array.device
    return default_device()


def _arguments_key(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the part of a call's key that depends on its arguments: types, shapes, and values of Const arguments."""
    names = bound_names(kernel.spec, args, kwargs)
    values = dict(zip(names, (*args, *kwargs.values()), strict=True))
    return "; ".join(f"{p.name}: {_argument_key(p, values[p.name])}" for p in kernel.spec.params if p.name in values)


def _argument_key(param: ParamSpec, value: Any) -> str:
    """Return the text that stands for one argument in `_arguments_key`."""
    if param.kind == "const":
        return repr(value) if isinstance(value, bool | int | float | str | tuple) else value_digest(value)
    array = getattr(value, "__vkjit_array__", value)
    if isinstance(array, DeviceArray):
        packed = array.strides == contiguous_strides(array.shape)
        return f"{array.dtype.name} {array.shape}{'' if packed else f' {array.strides}'}"
    if isinstance(array, np.ndarray):
        return f"{element_type(array, param.name).name} {array.shape}"
    return type(value).__name__


def _record_key(kernel: Kernel, arguments_key: str) -> str:
    """Return the key of a call in records: the kernel's name, source and options, and the key of its arguments."""
    return f"{kernel.name} {fingerprint(kernel.spec.fn)} {kernel.options} | {arguments_key}"


# -- tuning


def tune_kernel(kernel: Kernel, groups: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: float) -> Record:
    """Measure all choices for the tunable parameters that the call doesn't set, for at most about `budget` seconds.

    `groups` is the grid in workgroups, None if the kernel determines it. Raises ArgumentError if there is nothing to
    tune.
    """
    choices = _open_choices(kernel, args, kwargs)
    if not choices:
        raise ArgumentError(
            f"{kernel.name} leaves nothing to tune in this call: give a Const parameter (or local=) the default "
            "vk.tune(first, second, ...), and don't pass it"
        )
    device, arguments_key = _device_of(args, kwargs), _arguments_key(kernel, args, kwargs)
    bench = _Bench(kernel, groups, device, args, kwargs)
    candidates = _candidates(bench, list(_combinations(choices)))
    problem = Problem(
        kernel.name,
        _record_key(kernel, arguments_key),
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
    kernel.forget_tuned_settings()  # so that the next launch loads the new record
    return record


def _candidates(bench: _Bench, choices: list[Choice]) -> list[Candidate]:
    """Return the choices with their modeled costs; infinite for those too expensive to be measured."""
    costs = [bench.cost(choice) for choice in choices]
    cheapest = min(costs)
    limit = max(MAX_COST_RATIO * cheapest, costs[0])  # the default is always measured
    return [
        Candidate(choice, _choice_text(choice), cost if cost <= limit else math.inf)
        for choice, cost in zip(choices, costs, strict=True)
    ]


class _Bench:
    """Launches of one call with different choices, in scratch memory instead of the caller's arrays."""

    def __init__(
        self, kernel: Kernel, groups: Any, device: Device, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.kernel, self.groups, self.device = kernel, groups, device
        self.names = bound_names(kernel.spec, args, kwargs)
        self.values = dict(zip(self.names, (*args, *kwargs.values()), strict=True))
        """The arguments by parameter name; arrays are on the device, and written ones are copies."""
        self.original: dict[str, DeviceArray] = {}
        """The unchanged originals of written arrays, by parameter name."""
        self.owned: list[DeviceArray] = []
        """The arrays that `close` releases."""
        self.written: list[str] = []
        """Names of the parameters that the kernel writes."""
        self.returned: list[Any] = []
        """The Out arrays that the last launch allocated."""
        self.settings: dict[Choice, TunedLaunch] = {}
        """The settings for the choices launched so far, which hold the compiled kernel variants."""
        for param in kernel.spec.params:
            if param.kind == "array" and param.name in self.values:
                self._place(param)

    def _place(self, param: ParamSpec) -> None:
        """Upload an array argument if it is a NumPy array, and copy it if the kernel writes it."""
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
        """Return a new contiguous array, which `close` releases."""
        array = DeviceArray(
            self.device.allocate(max(math.prod(shape) * dtype.itemsize, 1)), 0, dtype, shape, contiguous_strides(shape)
        )
        self.owned.append(array)
        return array

    def _uploaded(self, array: Any, name: str) -> DeviceArray:
        """Upload a NumPy array; `name` is the parameter's, for error messages."""
        contiguous = np.ascontiguousarray(array)
        device_array = self._allocated(contiguous.shape, element_type(contiguous, name))
        self.device.write(device_array.buffer, 0, contiguous.reshape(-1).view(np.uint8))
        return device_array

    def _copied(self, array: DeviceArray) -> DeviceArray:
        """Return a copy of an array. Copies the whole buffer, so that the array keeps its offset, and its alignment."""
        buffer = self.device.allocate(array.buffer.nbytes)
        self.device.copy(array.buffer, 0, buffer, 0, array.buffer.nbytes)
        duplicate = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        self.owned.append(duplicate)
        return duplicate

    def _settings(self, choice: Choice) -> TunedLaunch:
        """Return the settings for a choice. They are made only once, since their kernel variant holds compiled code."""
        if choice not in self.settings:
            self.settings[choice] = _apply(self.kernel, choice)
        return self.settings[choice]

    def launch(self, choice: Choice) -> None:
        """Launch once with the choice."""
        chosen = self._settings(choice)
        call = chosen.kernel if self.groups is None else chosen.kernel[self.groups]
        outs = call(**self.values, **chosen.constants)
        if outs is not None:
            self.returned = list(outs) if isinstance(outs, tuple) else [outs]

    def reset(self) -> None:
        """Copy the original contents back to the arrays that the kernel writes."""
        for name, source in self.original.items():
            target = self.values[name]
            self.device.copy(source.buffer, 0, target.buffer, 0, source.buffer.nbytes)

    def results(self) -> list[Any]:
        """Return the contents of the arrays written by the last launch, as NumPy arrays."""
        arrays = [self.values[name] for name in self.written] + self.returned
        return [self._read(array) for array in arrays]

    def _read(self, array: Any) -> Any:
        """Return the elements of an array of any strides; bf16 is widened to f32."""
        if not isinstance(array, DeviceArray):
            return np.asarray(array)
        raw = np.empty(array.buffer.nbytes, dtype=np.uint8)
        self.device.read(array.buffer, 0, raw)
        stored = array.dtype.storage
        size = array.dtype.itemsize
        # the whole buffer as elements, without partial ones at either end: strides may be negative
        flat = raw[array.offset % size : raw.nbytes - (raw.nbytes - array.offset) % size].view(stored)
        view = np.lib.stride_tricks.as_strided(
            flat[array.offset // size :], array.shape, tuple(s * size for s in array.strides), writeable=False
        )
        if array.dtype is dtypes.bf16:
            bits = view.astype(np.uint32) << np.uint32(16)  # bf16 is the upper half of f32
            return bits.view(np.float32)
        return np.array(view)

    def tolerance(self) -> float:
        """Return the relative tolerance that allows for sums in another order.

        It is derived from the least precise float type and the longest axis of the arguments: the rounding error of a
        sum of n terms grows like sqrt(n).
        """
        arrays = [v for v in self.values.values() if isinstance(v, DeviceArray)]
        # integers are exact, so they get more bits of precision than any float type: 60
        eps = max((2.0 ** -_MANTISSA.get(a.dtype.name, 60) for a in arrays), default=2.0**-24)
        longest = max((extent for a in arrays for extent in a.shape), default=1)
        return float(eps * (8 + 2 * longest**0.5))  # 8 and 2 are safety margins

    def cost(self, choice: Choice) -> float:
        """Return the modeled cost of a choice: the factor by which idle cores and lanes slow it down.

        1 means that the grid has enough workgroups to occupy a GPU, and a workgroup enough invocations to fill a
        subgroup. The cost is infinite if the device can't launch it.
        """
        chosen = self._settings(choice)
        try:
            shape = chosen.kernel.shape_of_launch(self.groups, self.device, {**self.values, **chosen.constants})
        except VkjitError:
            return math.inf
        if shape is None:
            return 1.0
        caps, workgroups, lanes = self.device.caps, math.prod(shape[0]), math.prod(shape[1])
        # idle cores are modeled for GPUs only
        idle = max(1.0, BUSY_GROUPS / max(workgroups, 1)) if caps.kind in ("discrete", "integrated", "virtual") else 1.0
        return float(idle * max(1.0, caps.subgroup_size / max(lanes, 1)))

    def close(self) -> None:
        """Release the scratch memory."""
        self.device.synchronize()
        for array in self.owned:
            array.buffer.close()
        self.owned.clear()


_MANTISSA = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
"""Bits of precision of float types, including the implicit bit."""
