"""Run a case on one device under one schedule, in memory with known contents.

A case is the arguments of one launch (`cases.case`), a schedule the settings of the launch and the compiler
(`cases.schedules`).

Each array has its own buffer, with redzones before and after it: elements with known contents, which show writes
outside the array. Outs are filled with poison, a known byte, before the launch, which shows elements that the kernel
doesn't write. An `Outcome` holds the outputs and the locations of writes outside the arrays.

An `Executor` is a kernel on a device; `search.examiner` runs each case on several. `run` and `run_sanitized` are for
users.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.backends.interp import INTERPRETER_CAPS, InterpreterDevice
from vkjit.backends.selection import device as open_device, use_device
from vkjit.errors import ArgumentError
from vkjit.launch.kernel import Kernel
from vkjit.runtime.device import Buffer, Device, DeviceArray
from vkjit.runtime.dispatch_cache import renew
from vkjit.runtime.open_blocks import block
from vkjit.runtime.sanitizer_reports import DEFAULT_CHECKS, SanitizerReport, parse_checks

from ..cases.aliasing import alias_pairs
from ..cases.case import ArrayInput, Case, array, decode, encode, storage_of
from ..cases.composites import assemble, for_launch, plain_layouts, split_into_parts
from ..cases.layouts import image, stray_writes, view_of
from ..cases.schedules import PLAIN, Schedule, variant

__all__ = ["POISONS", "Executor", "Outcome", "executors", "run", "run_sanitized"]

interpreter_factory: ContextVar[Callable[[], InterpreterDevice]] = ContextVar(
    "interpreter_factory", default=InterpreterDevice
)
"""Creates the interpreter devices on which checks run; `time_limited` replaces it."""

POISONS = (0xFF, 0x3C)
"""Bytes that fill Outs before a launch: 0xFF makes NaN in floats and -1 in integers, 0x3C makes small floats.

An element that holds the poison after two launches with different poisons wasn't written.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a launch.

    `raw`: the outputs by name, with the array's shape, in the memory representation of their elements. `stray_writes`:
    by array name, where the kernel wrote outside the array, as offsets in elements from its first element; arrays
    without such writes are left out. `poison`: the byte that filled Outs before the launch.
    """

    raw: Mapping[str, npt.NDArray[Any]]
    stray_writes: Mapping[str, list[int]]
    poison: int

    def untouched(self, name: str) -> npt.NDArray[np.bool_]:
        """Return a mask of an Out's elements that still hold the poison."""
        raw = self.raw[name]
        pattern = np.frombuffer(bytes([self.poison]) * raw.itemsize, raw.dtype)[0]
        if raw.dtype.kind == "f":
            bits = np.dtype(f"u{raw.itemsize}")
            return np.asarray(raw.view(bits) == pattern.view(bits))
        return np.asarray(raw == pattern)


@dataclass(frozen=True, slots=True)
class Placed:
    """A case's arguments on a device.

    `before` has the initial bytes of each array's buffer, redzones included; `buffers` the buffers; `values` the launch
    arguments, arrays as `DeviceArray`.
    """

    before: Mapping[str, npt.NDArray[np.uint8]]
    buffers: Mapping[str, Buffer]
    values: Mapping[str, Any]

    def read(self, device: Device) -> dict[str, npt.NDArray[np.uint8]]:
        """Return the current bytes of the buffers by array name, redzones included."""
        after = {name: np.empty_like(data) for name, data in self.before.items()}
        for name, buffer in self.buffers.items():
            device.read(buffer, 0, after[name])
        return after


@dataclass(slots=True)
class Executor:
    """One kernel on one device, with its variants for different schedules.

    `groups` is the grid that the user gave for the launch, or a function that returns it, or None. `another` creates
    another interpreter of the same kind, for schedules that split the grid.

    The private fields are caches: compiled variants of the kernel by schedule settings; variants with the sanitizer,
    each with the list that receives its reports, by schedule and checks; interpreters with a limited grid, by the
    limit.
    """

    kernel: Kernel
    device: Device
    groups: Any = None
    another: Callable[[], InterpreterDevice] = InterpreterDevice
    _variants: dict[tuple[Any, ...], Kernel] = field(default_factory=dict)
    _sanitized: dict[tuple[Any, ...], tuple[Kernel, list[SanitizerReport]]] = field(default_factory=dict)
    _split_interpreters: dict[int, InterpreterDevice] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The device's name."""
        return self.device.name

    @property
    def interpreted(self) -> bool:
        """True for the reference interpreter."""
        return isinstance(self.device, InterpreterDevice)

    def sanitized(
        self, case: Case, schedule: Schedule = PLAIN, poison: int = POISONS[0], checks: Sequence[str] = DEFAULT_CHECKS
    ) -> tuple[Outcome, list[SanitizerReport]]:
        """Launch under the sanitizer; return the outcome and the sanitizer's reports. Raises what the launch raises."""
        key = (schedule, tuple(checks))
        if key not in self._sanitized:
            new_reports: list[SanitizerReport] = []
            # launches of this variant append their reports to the list, instead of raising
            sanitized_kernel = variant(self.kernel, schedule, sanitize=tuple(checks), found=new_reports)
            self._sanitized[key] = (sanitized_kernel, new_reports)
        kernel, reports = self._sanitized[key]
        reports.clear()
        outcome = self._run(kernel, case, schedule, poison)
        return outcome, list(reports)

    def run(self, case: Case, schedule: Schedule = PLAIN, poison: int = POISONS[0]) -> Outcome:
        """Launch the kernel on the case and wait for it.

        Raises what the launch raises, such as KernelError for errors that the kernel reports.
        """
        return self._run(self._variant(schedule), case, schedule, poison)

    def _run(self, kernel: Kernel, case: Case, schedule: Schedule, poison: int) -> Outcome:
        device = self._device_for(schedule)
        with self.placed(case, device, poison) as placed:
            with _scheduled(device, schedule), contextlib.redirect_stdout(io.StringIO()):
                self._launch(kernel, device, placed.values, case)
                device.synchronize()
            return self._collect(case, placed.before, placed.read(device), poison)

    @contextlib.contextmanager
    def placed(self, case: Case, device: Device, poison: int = POISONS[0]) -> Iterator[Placed]:
        """Allocate and fill the case's arguments on the device for the duration of the block."""
        before = {n: _bytes_of(a, poison) for n, a in case.arrays().items()}
        # of two aliased arrays, the second one uses the contents and buffer of the first one
        before.update({second: before[first] for first, second in case.aliases})
        owner_of = {second: first for first, second in case.aliases}
        buffers = {n: device.allocate(len(data)) for n, data in before.items() if n not in owner_of}
        buffers.update({second: buffers[first] for second, first in owner_of.items()})
        try:
            for name, data in before.items():
                device.write(buffers[name], 0, data)
            values = dict(case.arguments)
            for name, given in case.arrays().items():
                placement = given.layout.place(given.shape)
                offset = placement.first * given.dtype.itemsize
                values[name] = DeviceArray(buffers[name], offset, given.dtype, given.shape, placement.strides)
            yield Placed(before, buffers, values)
        finally:
            for buffer in buffers.values():
                buffer.close()

    def _launch(self, kernel: Kernel, device: Device, values: Mapping[str, Any], case: Case) -> None:
        """Launch with the arguments `values`; `groups`, if it is a function, is called with the case's arguments."""
        groups = self.groups
        if callable(groups):
            from ..cases.reference import call_by_name

            given = for_launch(kernel.expanded_spec, case.arguments)
            groups = call_by_name(groups, {**given, "dev": device}, "groups=")
        launch = kernel if groups is None else kernel[groups]
        with use_device(device):
            launch(**for_launch(kernel.expanded_spec, values))

    def _variant(self, schedule: Schedule) -> Kernel:
        """Return the kernel with the schedule's compilation settings, from a cache."""
        key = (schedule.local, schedule.strict, schedule.debug, schedule.optimization, schedule.vector_width)
        if key not in self._variants:
            self._variants[key] = variant(self.kernel, schedule)
        return self._variants[key]

    def _device_for(self, schedule: Schedule) -> Device:
        """Return the device, or an interpreter with a limited grid if the schedule splits grids."""
        if schedule.max_groups is None or not self.interpreted:
            return self.device
        if schedule.max_groups not in self._split_interpreters:
            interpreter = self.another()
            interpreter.limit(replace(INTERPRETER_CAPS, max_groups=(schedule.max_groups,) * 3))
            self._split_interpreters[schedule.max_groups] = interpreter
        return self._split_interpreters[schedule.max_groups]

    def _collect(self, case: Case, before: Mapping[str, Any], after: Mapping[str, Any], poison: int) -> Outcome:
        """Return the outcome, given the bytes of all buffers before and after the launch.

        Arrays that the kernel only reads are checked for stray writes, too.
        """
        raw, stray = {}, {}
        written = {p.name for p in self.kernel.expanded_spec.params if p.kind == "array" and p.mode != "in"}
        # arrays that the kernel only reads, but that share memory with one that it writes
        aliased_with_written = {first for first, second in case.aliases if second in written} - written
        for name, given in case.arrays().items():
            current = after[name]
            if np.array_equal(current, before[name]) and name not in written:
                continue
            storage = storage_of(given.dtype)
            if name in aliased_with_written:
                continue  # the shared memory is checked under the other array's name
            offsets = stray_writes(current, before[name], given.layout, given.shape, storage)
            if offsets:
                stray[name] = offsets
            if name in written:
                placement = given.layout.place(given.shape)
                view = view_of(current, placement, given.shape, storage) if 0 not in given.shape else None
                raw[name] = np.zeros(given.shape, storage) if view is None else np.array(view)
        return Outcome(raw, stray, poison)


@block
def _scheduled(device: Device, schedule: Schedule) -> Iterator[None]:
    """Within the block, apply those settings of a schedule that are device attributes or environment variables."""
    saved, caps = os.environ.get("VKJIT_OPT"), device.caps
    if schedule.optimization is not None:
        os.environ["VKJIT_OPT"] = str(schedule.optimization)
    if isinstance(device, InterpreterDevice):
        device.order = schedule.order
        sizes = INTERPRETER_CAPS.subgroup_sizes if schedule.subgroup_size is None else (schedule.subgroup_size,)
        device.limit(replace(device.caps, subgroup_sizes=sizes))
    elif caps.kind == "llvm-cpu" and schedule.vector_width is not None:
        device.limit(replace(caps, subgroup_sizes=(schedule.vector_width,)))
        renew(device)  # discards calls cached for the previous vector width
    try:
        yield
    finally:  # an interpreter isn't restored, since every launch sets its order and subgroup size
        if device.caps is not caps and caps.kind == "llvm-cpu":
            device.limit(caps)
            renew(device)
        if schedule.optimization is not None:
            if saved is None:
                del os.environ["VKJIT_OPT"]
            else:
                os.environ["VKJIT_OPT"] = saved


def _bytes_of(given: ArrayInput, poison: int) -> npt.NDArray[np.uint8]:
    """Return the initial bytes of an array's buffer, redzones included."""
    values = None if given.values is None else encode(given.distinct, given.dtype)
    return image(values, given.layout, given.shape, storage_of(given.dtype), poison)


def executors(kernel: Kernel, specs: Any, groups: Any = None) -> list[Executor]:
    """Create an executor per device, the interpreter first, since it reports errors that could crash a driver.

    `specs` are the devices as indices, names or device objects; None stands for the interpreter and the default device.
    `groups` is the user's grid. The interpreter is a new one, so that its settings can be changed.
    """
    if specs is None:
        opened = [open_device("interpreter"), open_device(None)]
    else:
        opened = [open_device(s) for s in (specs if isinstance(specs, (list, tuple)) else [specs])]
    if not opened:
        raise ArgumentError("devices: the list is empty")
    distinct = list(dict.fromkeys(opened))
    result = []
    if any(d.caps.kind == "interpreter" for d in distinct):
        make_interpreter = interpreter_factory.get()
        result.append(Executor(kernel, make_interpreter(), groups, make_interpreter))
    return result + [Executor(kernel, d, groups) for d in distinct if d.caps.kind != "interpreter"]


def run(
    kernel: Kernel,
    arguments: Mapping[str, Any] | Case,
    *,
    device: Any = None,
    schedule: Schedule = PLAIN,
    groups: Any = None,
    poison: int = POISONS[0],
    aliases: Sequence[tuple[str, str]] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Run the kernel once on given arguments and return its outputs by name.

    An output of struct type is returned both whole and by field (`p`, `p.x`). The memory around the arrays has known
    contents, so that writes outside them are detected.

    arguments: by parameter name: arrays from `vk.testing.array(...)` or NumPy, structured ones for arrays of structs
    (or their fields by name, `p.x`); numbers for scalars. device: an index, a name or a device (default: the default
    device). schedule: settings of the launch, such as the workgroup size. groups: the grid, if the kernel doesn't
    declare it. poison: the byte that fills Outs before the launch. aliases: pairs of names; the second array uses the
    memory of the first.

    Raises the errors that the kernel reports, and ArgumentError if it writes outside its arrays.
    """
    case = _case_of(kernel, arguments, aliases)
    outcome = _executor_of(kernel, device, groups).run(case, schedule, poison)
    if outcome.stray_writes:
        name, offsets = next(iter(outcome.stray_writes.items()))
        raise ArgumentError(f"{kernel.name} wrote outside of {name}, {offsets[0]} elements from its first one")
    outputs = {name: decode(raw, case.arguments[name].dtype) for name, raw in outcome.raw.items()}
    return {**outputs, **assemble(kernel.expanded_spec, outputs)}


def run_sanitized(
    kernel: Kernel,
    arguments: Mapping[str, Any] | Case,
    *,
    device: Any = "interpreter",
    groups: Any = None,
    aliases: Sequence[tuple[str, str]] = (),
    checks: bool | str | Sequence[str] | None = None,
) -> list[SanitizerReport]:
    """Run the kernel once under the sanitizer and return the sanitizer's reports. The arguments are those of `run`.

    checks: the sanitizer's checks (default: all that are on by default). Raises the errors that the kernel itself
    reports, such as a failed assert.
    """
    case = _case_of(kernel, arguments, aliases)
    selected = parse_checks(True if checks is None else checks)
    return _executor_of(kernel, device, groups).sanitized(case, replace(PLAIN, debug=True), POISONS[0], selected)[1]


def _case_of(kernel: Kernel, arguments: Mapping[str, Any] | Case, aliases: Sequence[tuple[str, str]]) -> Case:
    """Convert the arguments of `run` to a case."""
    if isinstance(arguments, Case):
        return arguments
    spec = kernel.expanded_spec
    given = {part: v for name, value in arguments.items() for part, v in split_into_parts(spec, name, value).items()}
    default_layouts = plain_layouts(spec)
    inputs = {n: array(v) if isinstance(v, np.ndarray) and v.ndim else v for n, v in given.items()}
    for name, value in given.items():
        if name in default_layouts and isinstance(value, np.ndarray):
            inputs[name] = replace(inputs[name], layout=default_layouts[name])
    return Case({}, {}, inputs, alias_pairs(kernel.spec, aliases))


def _executor_of(kernel: Kernel, device: Any, groups: Any) -> Executor:
    """Return an executor on the given device; the interpreter is a new one, so that its settings can be changed."""
    opened = open_device(device)
    return Executor(kernel, InterpreterDevice() if opened.caps.kind == "interpreter" else opened, groups)
