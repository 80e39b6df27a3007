"""Replays a recorded call for other tensors of the same layouts.

Tensors are numbered: the operands, then those that the replay makes (`TensorPlan`), in order. Buffers are numbered the same way:
those of the operands, then those that the replay allocates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from vkjit.dtypes import DType
from vkjit.runtime.array import LAYOUT_ALIGNMENT, DeviceArray
from vkjit.runtime.capture import open_captures
from vkjit.runtime.device import Device
from vkjit.runtime.launch_recorder import RecordedLaunch, Step
from vkjit.runtime.prepared_launch import CallPattern

from ..autograd import tape
from ..autograd.tape import UNTRACKED, GradMeta, Node
from ..tensor import Tensor, Version
from .nodes import NodePlan, put_node

__all__ = [
    "FRESH",
    "NO_MEMORY",
    "NO_ROOT",
    "ROOT_UNTRACKED",
    "FastLaunch",
    "PlannedStep",
    "Replay",
    "SingleLaunch",
    "TensorPlan",
    "tensor_of",
]

FRESH = -1
"""`TensorPlan.shares` of a tensor with a version counter of its own."""
NO_MEMORY = -1
"""`TensorPlan.source` of a tensor to whose metadata alone nodes refer."""
NO_ROOT, ROOT_UNTRACKED = -1, -2
"""`TensorPlan.root` of a tensor without a root, and of one whose root isn't tracked."""

_new = object.__new__


class FastLaunch:
    """A launch through the fastest path of the device: machine code as soon as there is some, else its `Launcher`."""

    __slots__ = ("_groups", "_launch", "_launcher", "call")

    def __init__(self, device: Device, step: RecordedLaunch) -> None:
        self._launch, self._groups = step.launch, step.groups
        self._launcher = device.launcher(step.launch) if min(step.groups) > 0 else None
        self.call: Callable[..., bool] | Literal[False] | None = None
        """The launch as machine code, a function of the objects by number; False if there never is any."""

    def run(self, device: Device, objects: Sequence[Any]) -> None:
        """Launch with these arrays and buffers, by number, after `call` has refused, or if there is none.

        Other objects aren't used.
        """
        call = self.call
        if call and device.relaunch(call, objects):
            return
        buffers, values = _buffers_and_addresses(objects)
        launcher = self._launcher
        if launcher is None or not launcher(buffers, values, self._groups):
            self._launch.run(device, buffers, values, self._groups)
        elif call is None:
            numbers = tuple(range(len(objects)))
            plan = device.plan(self._launch, CallPattern(tuple(objects), numbers, self._groups, checked=False))
            if plan is not None:
                self.call = plan and device.accelerated([plan])


class SingleLaunch:
    """A call of one launch on arrays, which makes one new array or writes the first of them."""

    __slots__ = ("_device", "_launch", "_made")

    def __init__(self, device: Device, launch: FastLaunch, made: tuple[int, DType, Any] | None) -> None:
        """`made` is what the call makes: the bytes of its buffer, the type, and its `layout_of`."""
        self._device, self._launch, self._made = device, launch, made

    def __call__(self, *arrays: DeviceArray) -> bool:
        """Launch a call that makes no array; return False if an array is on another device."""
        device, call = self._device, self._launch.call
        if not call or not call(*arrays):  # machine code looks at the device itself
            if any(array.buffer.device is not device for array in arrays):
                return False
            self._launch.run(device, arrays)
        return True

    def tensor(self, arrays: Sequence[DeviceArray]) -> Tensor | None:
        """As a call, but return the new array as a tensor, or None; written out, since most operations come here."""
        device, call = self._device, self._launch.call
        nbytes, dtype, layout = self._made  # type: ignore[misc]  # used for calls that make an array
        buffer = device.allocate(nbytes)
        address = buffer.address
        if address % LAYOUT_ALIGNMENT or not call or not call(*arrays, buffer):
            if any(array.buffer.device is not device for array in arrays):
                return None
            self._launch.run(device, (*arrays, buffer))
            return tensor_of(DeviceArray.at(buffer, dtype, layout))
        array: Any = _new(DeviceArray)
        array.buffer, array.offset, array.dtype = buffer, 0, dtype
        _, array.spec_class, tail, array.shape, array.strides, array.layout = layout
        array.descriptor = (address, *tail)
        tensor: Any = _new(Tensor)
        version = _new(Version)
        version.value = version.recorded = 0
        tensor._array, tensor._version, tensor._is_view = array, version, False
        tensor._history, tensor._root = 0, None
        meta = tensor.meta = _new(GradMeta)
        meta.shape, meta.dtype, meta.device = array.shape, dtype, device
        meta.requires_grad = meta.retains_grad = False
        meta.grad = meta.node = meta._hooks = None
        return tensor  # type: ignore[no-any-return]


class PlannedStep(NamedTuple):
    """A step of a replay. `fresh` and `gone` are the numbers of the buffers to allocate before it and to release after it."""

    fresh: tuple[int, ...]
    step: FastLaunch | Step
    gone: tuple[int, ...]


class TensorPlan(NamedTuple):
    """A tensor that a replay makes.

    It is at `offset` bytes in buffer `source`, or, as a view of an operand, `offset` bytes after that operand. `shares` is the
    number of the tensor whose version counter it shares, or FRESH. `root` is the number of the tensor that it is a view of
    for autograd (an operand stands for its own root, if it has one), NO_ROOT or ROOT_UNTRACKED. `version` counts the
    writes before it was returned.
    """

    source: int
    shares: int
    offset: int
    dtype: DType
    layout: Any
    is_view: bool
    root: int
    version: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The work of a call on `count` tensors.

    `maker` is the fast path of a call of one launch (see `SingleLaunch`), or None. `sizes` are the bytes of the
    allocated buffers. `writes` are the operands whose memory is written, each with the number of
    writes to count. `results` are numbers of tensors; `kind` makes the return value of several results, and is None
    for a single one.
    """

    device: Device
    count: int
    sizes: tuple[int, ...]
    steps: tuple[PlannedStep, ...]
    plans: tuple[TensorPlan | None, ...]
    nodes: tuple[NodePlan, ...]
    writes: tuple[tuple[int, int], ...]
    results: tuple[int | None, ...]
    kind: Callable[[Any], Any] | None
    maker: SingleLaunch | None
    make_result: Callable[..., Any] | None
    """`SingleLaunch.tensor`, if its array is all that the call makes and no node is put on the tape; else None."""
    scratch: tuple[int, ...]
    """The numbers of buffers whose memory is kept for later calls; see `recorder`."""
    free_scratch: deque[list[Any]] = field(default_factory=deque)
    """The buffers in `scratch`, one list per concurrent call."""

    def run(self, operands: list[Tensor]) -> Any:
        """Run the call and return its result; None if it must take the slow path this time, and nothing has happened."""
        if open_captures or tape.NodeClass is not Node:  # a graph capture needs arrays, steps hold addresses
            return None
        objects: list[Any] = [tensor._array for tensor in operands]  # arrays of operands, then buffers, by number
        maker = self.maker
        if maker is not None:
            if not self.plans:
                if maker(*objects):
                    return self._finish(operands, operands, objects)
            elif (made := maker.tensor(objects)) is not None:
                return self._finish(operands, [*operands, made], objects)
        device = self.device
        for array in objects:
            if array.buffer.device is not device:
                return None
        self._run_steps(device, objects)
        tensors: list[Any] = operands
        if self.plans:
            tensors = [*operands]
            for plan in self.plans:
                tensors.append(None if plan is None else _tensor(plan, tensors, objects, self.count))
        return self._finish(operands, tensors, objects)

    def _finish(self, operands: list[Tensor], tensors: list[Tensor], buffers: list[Any]) -> Any:
        """Put the nodes on the tape, count the writes and return the result."""
        for node in self.nodes:
            put_node(node, tensors, buffers, self.count)
        for number, count in self.writes:
            operands[number]._version.value += count
        if self.kind is None:
            return tensors[self.results[0]]  # type: ignore[index]  # a single result is a tensor
        return self.kind([None if number is None else tensors[number] for number in self.results])

    def _run_steps(self, device: Device, objects: list[Any]) -> None:
        """Launch, and add the buffers to the objects; None stands for those that are released."""
        sizes, count = self.sizes, self.count
        if not self.steps:
            objects += [device.allocate(size) for size in sizes]
            return
        objects += sizes  # placeholders until the buffers are allocated
        if self.scratch:
            try:
                kept = self.free_scratch.pop()
            except IndexError:
                kept = [device.allocate(sizes[number - count]) for number in self.scratch]
            for number, buffer in zip(self.scratch, kept, strict=True):
                objects[number] = buffer
        for fresh, step, gone in self.steps:
            for number in fresh:
                objects[number] = device.allocate(sizes[number - count])
            if step.__class__ is FastLaunch:
                call = step.call
                if not call or not call(*objects):
                    step.run(device, objects)
            else:
                step.run(device, *_buffers_and_addresses(objects))  # type: ignore[call-arg]
            for number in gone:
                objects[number] = None
        if self.scratch:
            self.free_scratch.append(kept)


def _buffers_and_addresses(objects: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Return the buffers of arrays and buffers by number, and their addresses, as launches outside of machine code take them."""
    buffers = [o.buffer if o.__class__ is DeviceArray else o for o in objects]
    return buffers, tuple(
        [o.descriptor[0] if o.__class__ is DeviceArray else getattr(o, "address", 0) for o in objects]
    )


def tensor_of(array: DeviceArray) -> Tensor:
    """As `Tensor.of`."""
    tensor: Any = _new(Tensor)
    version = _new(Version)
    version.value = version.recorded = 0
    tensor._array, tensor._version, tensor._is_view = array, version, False
    tensor._history, tensor._root = 0, None
    meta = tensor.meta = _new(GradMeta)
    meta.shape, meta.dtype, meta.device = array.shape, array.dtype, array.buffer.device
    meta.requires_grad = meta.retains_grad = False
    meta.grad = meta.node = meta._hooks = None
    return tensor  # type: ignore[no-any-return]


def _tensor(plan: TensorPlan, tensors: list[Tensor], buffers: list[Any], count: int) -> Tensor:
    """Make a tensor, as `Tensor.of` and `Tensor.view_of` do."""
    source, shares, offset, dtype, layout, is_view, root, written = plan
    tensor: Any = _new(Tensor)
    if source == NO_MEMORY:
        device = tensors[0]._array.buffer.device
        version = _new(Version) if shares == FRESH else tensors[shares]._version
        if shares == FRESH:
            version.value, version.recorded = written, 0
        tensor._history = version.recorded
    elif source < count:
        base: Any = tensors[source]
        array = base._array
        tensor._array = DeviceArray.placed(array.buffer, array.offset + offset, dtype, layout)
        version = base._version
        tensor._history = version.recorded
        device = array.buffer.device
    else:
        buffer = buffers[source]
        tensor._array = DeviceArray.placed(buffer, offset, dtype, layout)
        device = buffer.device
        if shares == FRESH:
            version = _new(Version)
            version.value, version.recorded = written, 0
        else:
            version = tensors[shares]._version
        tensor._history = 0
    tensor._version, tensor._is_view = version, is_view
    if root == NO_ROOT:
        tensor._root = None
    elif root == ROOT_UNTRACKED:
        tensor._root = UNTRACKED
    else:
        owner = tensors[root]
        tensor._root = owner if owner._root is None else owner._root
    meta = tensor.meta = _new(GradMeta)
    meta.shape, meta.dtype, meta.device = layout[3], dtype, device
    meta.requires_grad = meta.retains_grad = False
    meta.grad = meta.node = meta._hooks = None
    return tensor  # type: ignore[no-any-return]
