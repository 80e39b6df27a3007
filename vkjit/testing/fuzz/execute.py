"""Execution of generated programs on the interpreter, in any form of the IR, and on devices.

`check` calls these functions. Runs work on copies of the given `Memory`. The result is an `Outcome`: the final buffers,
the error raised and the lines printed.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.backends.interp import run_module
from vkjit.compiler.driver import emit_module
from vkjit.errors import KernelError
from vkjit.ir.core import Module
from vkjit.ir.types import Array, Vector
from vkjit.launch.plan import LaunchPlan
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import Device, DeviceArray

from . import watch
from .assumptions import violated_attributes
from .program import Memory, Program

__all__ = ["Outcome", "interpret", "launch", "launch_module", "watched_launch"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    `buffers` are the final buffers by parameter index. `error` is the class name of the KernelError raised, "" for
    none. `lines` are the printed lines, sorted, since their order is unspecified.
    """

    buffers: dict[int, npt.NDArray[Any]]
    error: str = ""
    lines: tuple[str, ...] = ()


def interpret(program: Program, memory: Memory, module: Module | None = None, **options: Any) -> Outcome:
    """Run the program on the reference interpreter, with `module` instead of the program's module if it is given.

    `options` are those of `run_module`. Errors other than KernelError propagate.
    """
    run_memory = memory.copy()
    lines, error = [], ""
    executed = program if module is None else program.with_module(module)
    try:
        lines = run_module(executed.module, executed.groups, run_memory.arguments(program), **options)
    except KernelError as report:
        error = type(report).__name__
    return Outcome(run_memory.buffers, error, tuple(sorted(lines)))


def launch_module(program: Program, memory: Memory, module: Module, device: Device) -> Outcome:
    """Run a lowered module on a device."""
    return launch(program, memory, emit_module(module, device.caps), device)


def launch(program: Program, memory: Memory, artifact: KernelArtifact, device: Device) -> Outcome:
    """Run a compiled kernel on a device.

    Raises ValueError if the arrays don't have the properties that the kernel's attributes state (see `assumptions`).
    """
    broken = violated_attributes(program.module.kernel, program.layouts)
    if broken:
        raise ValueError("; ".join(broken))
    prepared = LaunchPlan(device, artifact)
    device_buffers: dict[int, Any] = {}
    values: list[Any] = []
    for number, (param, layout) in enumerate(zip(program.module.kernel.params, program.layouts, strict=True)):
        if layout is None:
            values.append(memory.scalars[number])
            continue
        assert isinstance(param.type, Array)
        host = memory.buffers[number]
        if id(host) not in device_buffers:
            device_buffers[id(host)] = _upload(device, host)
        offset = layout.first * _element_bytes(param.type)
        values.append(DeviceArray(device_buffers[id(host)], offset, param.type.dtype, layout.shape, layout.strides))
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        prepared.launch(program.groups, values)
        try:
            device.synchronize()
        except KernelError as report:
            error = type(report).__name__
    results = {number: _download(device, device_buffers[id(host)], host) for number, host in memory.buffers.items()}
    for buffer in device_buffers.values():
        buffer.close()
    return Outcome(results, error, tuple(sorted(printed.getvalue().splitlines(keepends=True))))


def watched_launch(
    program: Program, memory: Memory, artifact: KernelArtifact, device: Device
) -> tuple[Outcome, list[str]]:
    """Run a compiled kernel with every access checked (see `vkjit.testing.fuzz.watch`).

    Returns the outcome, and a line of text for each invalid access. All bytes from an array's lowest to its highest
    byte in memory may be accessed, including gaps between elements.
    """
    outcomes: list[Outcome] = []  # gets the outcome of the only launch
    lines = watch.run(
        device, artifact, _spans(program), lambda changed: outcomes.append(launch(program, memory, changed, device))
    )
    return outcomes[0], lines


def _spans(program: Program) -> dict[tuple[str, int], watch.Span]:
    """Return the accessible byte range of each array, relative to its first element.

    The keys are ("address", parameter index), as `watch.run` takes them.
    """
    kernel = program.module.kernel
    numbers = kernel.attrs.get("arg_index", range(len(kernel.params)))  # index in the launch arguments
    spans: dict[tuple[str, int], watch.Span] = {}
    for number, param, layout in zip(numbers, kernel.params, program.layouts, strict=True):
        if layout is None or not isinstance(param.type, Array):
            continue
        item = _element_bytes(param.type)
        # the offset of the last element along each axis; negative strides reach below the first element
        ends = [stride * (extent - 1) for stride, extent in zip(layout.strides, layout.shape, strict=True)]
        low, high = sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)
        spans["address", number] = (low * item, (high + 1) * item) if 0 not in layout.shape else (0, 0)
    return spans


def _element_bytes(array: Array) -> int:
    """Return the size of an element, which may be a vector, in bytes."""
    return array.dtype.itemsize * (array.element.size if isinstance(array.element, Vector) else 1)


def _upload(device: Device, host: npt.NDArray[Any]) -> Any:
    buffer = device.allocate(host.nbytes)
    device.write(buffer, 0, host.view(np.uint8))
    return buffer


def _download(device: Device, buffer: Any, host: npt.NDArray[Any]) -> npt.NDArray[Any]:
    raw = np.empty(host.nbytes, np.uint8)
    device.read(buffer, 0, raw)
    return raw.view(host.dtype)
