"""Graph capture and replay: launches are recorded once and replayed with a single submission.

`vkjit.runtime.capture` records the launches, copies and fills of a block as entries. This module lets the caller
replace named arrays and scalars of these entries before a replay. A replay does what the captured block would do with
the current arguments, in order with all other work on the device. Grids, shapes and the selected kernels stay as
captured, so replacements must satisfy everything that the captured kernels assume: layouts, alignment, and arrays that
don't overlap.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ..backends.selection import device as open_device
from ..errors import ArgumentError, DeviceError
from ..launch import bind, host_arrays, plan
from ..runtime import replays
from ..runtime.array import ROW_ALIGNMENT
from ..runtime.capture import Argument, Capture, DeviceGraph, Entry, Fill, Launch, Place, is_capturing
from ..runtime.device import Buffer, Device, DeviceArray
from ..runtime.draws import SCALARS
from ..runtime.handles import new_lock
from ..runtime.open_blocks import block

__all__ = ["Graph", "capture"]

_FILL_ALIGNMENT = 4
"""Fills write whole 32-bit words: their addresses and sizes are multiples of this many bytes."""


class Graph:
    """A captured sequence of launches, copies and fills, which can be replayed with new arguments; see `capture`.

    `arrays` are the arrays named in `capture`, by name.
    """

    def __init__(self, device: Device, arrays: dict[str, DeviceArray]) -> None:
        self.device = device
        self._arrays = arrays
        """The current array of each name."""
        self._arguments = {name: Argument(array) for name, array in arrays.items()}
        """The `Argument` of each name. Views of a named array hold it, and so become views of a replacement."""
        self._clock = replays.Clock()
        self._watched: dict[int, Buffer] = {}
        """The buffers that the graph writes, by id. `replays` maps each to `_clock`, for autograd's checks."""
        self._argument_places: dict[str, list[Place]] = {}
        """Where the captured entries refer to the buffer of each named array."""
        self._alignments: dict[str, int] = {}
        """The alignment in bytes that the captured kernels assume of each named array."""
        self._graph: DeviceGraph | None = None
        """The captured entries; None while the graph can't be replayed."""
        self._state = "its capture hasn't ended"
        """Why the graph can't be replayed, for the error message."""
        self._lock = new_lock()

    def __repr__(self) -> str:
        steps = "closed" if self._graph is None else f"{len(self._graph.entries)} steps"
        return f"<Graph of {self.device.name}, {steps}, arguments {', '.join(self.arguments) or 'none'}>"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The argument names that `replay` takes: the arrays named in `capture`, and scalars as "kernel.parameter"."""
        return (*self._arrays, *self._scalars())

    def replay(self, *unnamed: NoReturn, **values: Any) -> None:
        """Run the captured work once, without blocking the host. New arguments remain set for later replays.

        An array must have the shape, element type, strides and device of the array it replaces, the same alignment
        where kernels rely on it, and no memory in common with anything else that the graph uses. Views of the old array
        that the captured block made become views of the new one. A scalar is named
        `kernel.parameter`, passed as `**{"kernel.parameter": 2.0}`, or just `parameter` if only one kernel of the graph
        has a scalar of that name.

        Raises ArgumentError for arguments that don't fit, DeviceError if the graph is closed.
        """
        if unnamed:
            names = ", ".join(self.arguments) or "none"
            raise ArgumentError(f"replay() takes arguments by name, such as replay(x=other); this graph has {names}")
        with self._lock:  # keeps arguments of other threads from being mixed in
            graph = self._recorded()
            if values:
                self._replace(graph, values)
            if not is_capturing(self.device):
                self._clock.advance()
                for argument in self._arguments.values():
                    argument.note_replay()
            graph.replay()

    def close(self) -> None:
        """Release the graph's memory. The graph can't be replayed afterwards."""
        with self._lock:
            graph, self._graph = self._graph, None
            if graph is not None:
                self._state = "it was closed"
                graph.close()

    def _finish(self, graph: DeviceGraph) -> None:
        """Store the captured entries and make the graph replayable.

        Raises ArgumentError if a named array is unused, shares its buffer with other data of the graph, or overlaps
        another argument.
        """
        for name, array in self._arrays.items():
            low, high = host_arrays.byte_range(array)
            self._argument_places[name] = [place for e in graph.entries for place in e.places(array.buffer)]
            self._alignments[name] = max((_assumed_alignment(e, array) for e in graph.entries), default=1)
            is_used = self._argument_places[name] or self._arguments[name].viewed
            if not is_used and 0 not in array.shape:  # no kernels are launched for empty arrays
                raise ArgumentError(f"capture(): {name} isn't used by what was captured")
            if any(not _stays_within(array, low, high, e) for e in graph.entries):
                raise ArgumentError(
                    f"capture(): {name} shares its buffer with other data of the graph: pass a copy of it"
                )
        self._check_disjoint("capture()", graph, self._arrays)
        self._graph = graph
        self._watch(graph)

    def _watch(self, graph: DeviceGraph) -> None:
        """Register the graph's clock with `replays` for each buffer it writes; unregister it for the others.

        So autograd notices replays that overwrite saved values.
        """
        written = {id(buffer): buffer for entry in graph.entries for buffer in entry.writes}
        replays.forget(self._clock, [b for key, b in self._watched.items() if key not in written])
        replays.watch(self._clock, [b for key, b in written.items() if key not in self._watched])
        self._watched = written

    def _recorded(self) -> DeviceGraph:
        """Return the captured entries. Raises DeviceError if the graph can't be replayed."""
        if self._graph is None:
            raise DeviceError(f"this graph can't be replayed: {self._state}")
        return self._graph

    def _replace(self, graph: DeviceGraph, values: dict[str, Any]) -> None:
        """Set new arguments in the captured entries. All arguments are checked before any is set."""
        arrays = {name: self._fitting(name, value) for name, value in values.items() if name in self._arrays}
        scalars = self._scalars()
        scalar_updates = [
            _encoded_scalar(scalars[self._full_name(name, scalars)], name, values[name])
            for name in values
            if name not in arrays
        ]
        updated = self._arrays | arrays
        self._check_disjoint("replay()", graph, updated)
        try:
            for name, array in arrays.items():
                address_change = array.address - self._arrays[name].address
                for place in self._argument_places[name]:
                    place.move(array.buffer, address_change)
            for updates in scalar_updates:
                for launch, field, data in updates:
                    launch.set_scalar(field, data)
            self._arrays = updated
            for name, array in arrays.items():
                self._arguments[name].array = array
                self._arguments[name].memory = getattr(values[name], "memory_key", None)
            if arrays:
                self._watch(graph)
            graph.changed()
        except BaseException:  # the graph may be partially updated
            self._graph, self._state = None, "replacing its arguments was interrupted; capture it again"
            raise

    def _fitting(self, name: str, value: Any) -> DeviceArray:
        """Return the new array for an argument. Raises ArgumentError if it can't replace the current one."""
        array, old = _device_array(name, value), self._arrays[name]
        for attribute, found, expected in (
            ("shape", array.shape, old.shape),
            ("type", array.dtype, old.dtype),
            ("strides", array.strides, old.strides),
            ("device", array.device.name, old.device.name),
        ):
            if found != expected:
                raise ArgumentError(f"replay(): argument {name} has {attribute} {found}, captured was {expected}")
        self._check_alignment(name, array, old)
        return array

    def _check_alignment(self, name: str, array: DeviceArray, old: DeviceArray) -> None:
        """Check the array's alignment, because the captured kernels were specialized for that of the old array.

        The addresses of both arrays must be equal modulo the alignment that `_assumed_alignment` returns.
        """
        unit = self._alignments[name]
        found, expected = array.address % unit, old.address % unit
        if found == expected or 0 in old.shape:
            return
        captured_offset = f"{expected} bytes past one" if expected else "at one"
        copy = f"a copy such as {name}.clone()"
        advice = f"capture with {copy} and pass another" if expected else f"pass {copy}"
        raise ArgumentError(
            f"replay(): argument {name} begins {found} bytes past a multiple of {unit} bytes; the captured array began "
            f"{captured_offset}, and kernels of the graph rely on that: {advice}, or capture with an array that begins like "
            "this one"
        )

    def _check_disjoint(self, what: str, graph: DeviceGraph, arrays: dict[str, DeviceArray]) -> None:
        """Check that the arguments share no memory with each other or with unnamed arrays of the graph.

        The captured kernels were selected for non-overlapping arguments. `what` begins the error message.
        """
        ranges = {name: host_arrays.byte_range(array) for name, array in arrays.items() if 0 not in array.shape}
        names = list(ranges)
        for i, name in enumerate(names):
            low, high = ranges[name]
            for other in names[:i]:
                if low < ranges[other][1] and ranges[other][0] < high:
                    raise ArgumentError(f"{what}: arguments {other} and {name} have memory in common: pass a copy")
        named_buffers = {id(array.buffer) for array in self._arrays.values()}
        others = {id(b): b for e in graph.entries for b in (*e.reads, *e.writes) if id(b) not in named_buffers}
        for name, array in arrays.items():
            if id(array.buffer) in others:
                raise ArgumentError(f"{what}: argument {name} is memory that the graph uses otherwise: pass a copy")

    def _scalars(self) -> dict[str, list[tuple[Launch, int]]]:
        """Return all scalars as "kernel.parameter" -> [(launch, parameter number)], with each launch that has one."""
        scalars: dict[str, list[tuple[Launch, int]]] = {}
        # each replay sets the seed and the counter of launches that draw random numbers, not the user
        drawn = () if self._graph is None else {id(draw.entry) for draw in self._graph.draws.draws}
        for entry in [] if self._graph is None else self._graph.entries:
            if not isinstance(entry, Launch):
                continue
            artifact = entry.kernel.artifact
            for number, name in enumerate(artifact.info.get("parameters", ())):
                if entry.scalar(number) is not None and not (name in SCALARS and id(entry) in drawn):
                    scalars.setdefault(f"{artifact.name}.{name}", []).append((entry, number))
        return scalars

    def _full_name(self, name: str, scalars: dict[str, Any]) -> str:
        """Complete a scalar's name to "kernel.parameter". Raises ArgumentError if it is unknown or ambiguous."""
        if name in scalars:
            return name
        fitting = [full for full in scalars if full.partition(".")[2] == name]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(self.arguments) or "none"
        problem = "could be " + " or ".join(fitting) if fitting else "is none of its arguments"
        raise ArgumentError(f"replay(): {name} {problem}; this graph has {names}")


@block
def capture(device: int | str | Device | None = None, /, *unnamed: NoReturn, **arrays: Any) -> Iterator[Graph]:
    """Context manager that records the launches, copies and fills of its block without running them.

    Only calls of this thread and asyncio task for one device (default: the default device) are recorded. Tensors made
    in the block belong to the graph; their contents are valid after a replay. `arrays` names tensors that later replays
    may replace: `with vk.capture(x=x) as g: ...`, then `g.replay(x=other)`. Host data that the block uploads are
    captured by value. Each replay draws new random numbers, as the block would.

    Captures nest: the work of an inner block is recorded in the inner graph only, and replays of the inner graph in the
    outer block are recorded in the outer graph.

    Raises ArgumentError if the block downloads results, which don't exist yet (a kernel's NumPy arguments are, too), or
    seeds random numbers. If the block raises an exception, the graph can't be replayed.
    """
    if unnamed or isinstance(device, np.ndarray) or hasattr(device, "__vkjit_array__"):
        raise ArgumentError("capture() takes arrays by name, such as capture(x=x), and before them a device at most")
    target = open_device(device)
    named = {name: _device_array(name, value) for name, value in arrays.items()}
    for name, array in named.items():
        if array.device is not target:
            raise ArgumentError(f"capture(): {name} is on {array.device.name}, but the capture is of {target.name}")
    graph = Graph(target, named)
    for name, value in arrays.items():
        graph._arguments[name].memory = getattr(value, "memory_key", None)
    recording = Capture(target, [*graph._arguments.values()], graph._clock)
    outer_exception = sys.exc_info()[1]
    try:
        recording.start()
        yield graph
    except (
        GeneratorExit
    ) as end:  # how `block` ends a generator, always; its context is the exception of the `with` block
        if end.__context__ is not outer_exception:
            graph._state = "its capture ended by an exception"
            raise
    finally:
        try:
            recording.stop()
        except BaseException:  # interrupted: stop() may be called again
            recording.stop()
            raise
    graph._state = "its capture was refused"  # holds if `_finish` raises
    made = target.make_graph(recording.entries)
    made.draws = recording.draws
    graph._finish(made)


def _device_array(name: str, value: Any) -> DeviceArray:
    """Return the device array of a tensor. Raises ArgumentError for other values."""
    array = getattr(value, "__vkjit_array__", value)
    if not isinstance(array, DeviceArray):
        raise ArgumentError(f"argument {name}: expected a tensor on a device, found {type(value).__name__}")
    return array


def _stays_within(array: DeviceArray, low: int, high: int, entry: Entry) -> bool:
    """True if the entry accesses the array's buffer only inside [low, high), the array's address range."""
    # A launch without known extents of its arrays counts as accessing everything up to the end of the buffer, and fills
    # write whole words. Both may go beyond the last array in a buffer, because buffers are padded to whole words.
    if not (isinstance(entry, Launch) and entry.extents):
        buffer_end = array.buffer.address + array.buffer.nbytes
        high = buffer_end if buffer_end - high < _FILL_ALIGNMENT else high
    return all(low <= begin and end <= high for begin, end in entry.ranges(array.buffer))


def _assumed_alignment(entry: Entry, array: DeviceArray) -> int:
    """Return the alignment in bytes, a power of two, that the entry assumes of its addresses in the array's buffer."""
    if isinstance(entry, Fill):
        return _FILL_ALIGNMENT if entry.target is array.buffer else 1
    if not isinstance(entry, Launch):
        return 1
    artifact = entry.kernel.artifact
    alignments = artifact.info.get("alignments", {})  # by parameter number
    numbers = {f.offset: f.arg for f in artifact.fields}  # parameter numbers by offset in the argument block
    arguments_used = (numbers[place.index] for place in entry.places(array.buffer) if place.part == "address")
    return max((alignments.get(number, ROW_ALIGNMENT) for number in arguments_used), default=1)


def _encoded_scalar(places: list[tuple[Launch, int]], name: str, value: Any) -> list[tuple[Launch, Any, bytes]]:
    """Encode a new value of a scalar as (launch, argument block field, bytes) for each launch that uses it.

    `places` holds these launches with the parameter's number in each. Raises ArgumentError for a scalar that bounds
    loops, if the driver limits iterations: the number of iterations was checked for the captured value.
    """
    updates = []
    for launch, number in places:
        field = launch.scalar(number)
        if field is None:
            continue
        bound = launch.kernel.artifact.info.get("trip_bound")
        if bound is not None and bound.depends_on(number):
            raise ArgumentError(
                f"replay(): {name} decides how often loops run, and this driver stops long ones: capture again"
            )
        dtype = launch.kernel.artifact.info.get("scalars", {}).get(number, field.dtype)  # bf16 is stored as f32
        fitted = bind.coerce_scalar(value, dtype, name)
        updates.append((launch, field, struct.pack("<" + plan.field_code("scalar", field.dtype), fitted)))
    return updates
