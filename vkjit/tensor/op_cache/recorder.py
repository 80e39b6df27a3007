"""Records one call of a cached function: its work on the device, its nodes on the autograd tape, its results.

`LaunchRecorder` observes the device. The tape reports nodes to the `OpRecorder` in `state.recorder`, and functions that
depend on more than the call's key report that. While a call is recorded, no call inside it is replayed, since replays bypass both.

`OpRecorder.replay` turns the recording into a `Replay`. Each tensor that a node or the result refers to must be an operand,
or memory that the call allocated, or a view of one of these; otherwise the call isn't replayable.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from vkjit.dtypes import DType
from vkjit.runtime.array import DeviceArray, layout_of
from vkjit.runtime.device import Device
from vkjit.runtime.launch_recorder import LaunchRecorder, RecordedLaunch, Step

from ..autograd.mode import state
from ..autograd.tape import UNTRACKED, Node
from ..tensor import Tensor
from .nodes import ArrayPlan, Items, NodePlan, TensorNumber
from .replay import (
    FRESH,
    NO_MEMORY,
    NO_ROOT,
    ROOT_UNTRACKED,
    FastLaunch,
    PlannedStep,
    Replay,
    SingleLaunch,
    TensorPlan,
)

__all__ = ["OpRecorder"]

_MAX_STEPS = 64
_MAX_SCRATCH = 16 << 10
"""Maximum bytes of memory that a replay keeps for its later calls."""
_CONSTANTS = (int, float, str, type(None), DType)
"""Types of operands of nodes that the key determines (bool is an int), besides tuples of them."""


class _NotReplayableError(Exception):
    """The call did something that a replay can't do."""


class OpRecorder:
    """Records what this thread does between `start` and `stop`."""

    def __init__(self, device: Device, tensors: list[Tensor]) -> None:
        self._device = device
        self._tensors = tensors
        self._launches = LaunchRecorder(device, [tensor._array for tensor in tensors])
        self._nodes: list[tuple[Node, tuple[Any, ...], tuple[Tensor, ...]]] = []
        self._before = [(t._version.value, t._version.recorded, t.meta) for t in tensors]
        self._is_replayable = True
        self._numbers = {id(tensor): number for number, tensor in reversed(list(enumerate(tensors)))}
        self._plans: list[TensorPlan] = []
        self._kept_sources: set[int] = set()
        self._parameter_numbers: set[int | None] = set()
        self._planned: list[Tensor] = []  # keeps the ids of `_numbers` valid

    def start(self) -> bool:
        """Start, unless another observer records the device's launches; return True if started."""
        if not self._launches.start():
            return False
        state.recorder = self
        return True

    def stop(self) -> None:
        """Stop recording. May be called again, and if `start` was interrupted."""
        if state.recorder is self:
            state.recorder = None
        self._launches.stop()

    def note_node(self, node: Node, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
        """Note a node that was put on the tape."""
        self._nodes.append((node, inputs, outputs))

    def note_not_replayable(self) -> None:
        """Note that the call depends on something that isn't in its key."""
        self._is_replayable = False

    def replay(self, result: Any) -> Replay | None:
        """Return the replay of the recorded call, which returned `result`; None if it can't be replayed."""
        steps = self._launches.steps()
        if not self._is_replayable or steps is None or len(steps) > _MAX_STEPS:
            return None
        try:
            return self._replay(steps, result)
        except _NotReplayableError:
            return None

    def _replay(self, steps: list[Step], result: Any) -> Replay:
        nodes = [self._node_plan(*node) for node in self._nodes]
        kind: Any = None
        if isinstance(result, (tuple, list)):
            kind = tuple if result == () else getattr(type(result), "_make", type(result))
            results = tuple([None if item is None else self._number_of(item) for item in result])
        else:
            results = (self._number_of(result),)
        writes = self._writes()
        count, sizes = len(self._tensors), tuple(self._launches.sizes)
        self._drop_values(self._alive(results), count)
        kept = {plan.source for plan in self._plans} | self._kept_sources
        scratch = _scratch(self._device, steps, sizes, count, kept)
        nodes, plans = self._without_private(nodes, results)
        planned = _with_lifetimes(self._device, steps, count, kept, scratch)
        maker = self._maker(planned, plans, sizes, writes)
        return Replay(
            self._device,
            count,
            sizes,
            planned,
            plans,
            tuple(nodes),
            writes,
            results,
            kind,
            maker,
            maker.tensor if maker and plans and not nodes and kind is None else None,
            scratch,
        )

    def _alive(self, results: tuple[int | None, ...]) -> set[int | None]:
        """Return the numbers of the tensors whose values are needed after the call: results, and what nodes keep."""
        alive = set(results) | self._parameter_numbers
        for node, inputs, outputs in self._nodes:
            values = [*_kept(node, inputs), *(t for i, t in enumerate(outputs) if node.row.keeps_output(i))]
            alive |= {self._numbers[id(value)] for value in values if isinstance(value, Tensor)}
        roots = {self._plans[n - len(self._tensors)].root for n in alive if n is not None and n >= len(self._tensors)}
        return alive | roots

    def _drop_values(self, alive: set[int | None], count: int) -> None:
        """Give the other tensors no memory, so that it is reused within the call: nodes only refer to their metadata."""
        for place, plan in enumerate(self._plans):
            if place + count not in alive:
                self._plans[place] = plan._replace(source=NO_MEMORY)

    def _without_private(
        self, nodes: list[NodePlan], results: tuple[int | None, ...]
    ) -> tuple[list[NodePlan], tuple[TensorPlan | None, ...]]:
        """Return the plans of the nodes and of the tensors, without tensors that only a node's result refers to.

        No tensor object is made for them: a node that keeps such a result has its `TensorPlan` instead of its number.
        """
        count = len(self._tensors)
        used = {*results, *self._parameter_numbers, *[number for node in nodes for number, _, _ in node.inputs]}
        used |= {number for plan in self._plans for number in (plan.root, plan.shares)}
        private = {
            number for number, plan in enumerate(self._plans, count)
            if number not in used and (plan.shares, plan.is_view, plan.root) == (FRESH, False, NO_ROOT)
        }  # fmt: skip
        changed = [
            node._replace(outputs=tuple([
                (self._plans[number - count] if number in private else number, is_float, is_kept)
                for number, is_float, is_kept in node.outputs
            ]))
            for node in nodes
        ]  # fmt: skip
        plans = [None if number in private else plan for number, plan in enumerate(self._plans, count)]
        while plans and plans[-1] is None:
            plans.pop()
        return changed, tuple(plans)

    def _maker(
        self,
        steps: tuple[PlannedStep, ...],
        plans: tuple[TensorPlan | None, ...],
        sizes: tuple[int, ...],
        writes: tuple[tuple[int, int], ...],
    ) -> SingleLaunch | None:
        """Return the fast path for one launch that makes one new tensor, or writes the first operand."""
        if len(steps) != 1 or not isinstance(steps[0].step, FastLaunch):
            return None
        launch = steps[0].step
        if not plans and not sizes:
            return SingleLaunch(self._device, launch, None)
        if len(plans) != 1 or plans[0] is None or len(sizes) != 1 or writes:
            return None
        source, shares, offset, dtype, layout, is_view, root, version = plans[0]
        if (source, shares, offset, is_view, root, version) != (len(self._tensors), FRESH, 0, False, NO_ROOT, 0):
            return None
        return SingleLaunch(self._device, launch, (sizes[0], dtype, layout))

    def _writes(self) -> tuple[tuple[int, int], ...]:
        """Return the operands whose memory was written, each with the number of counted writes."""
        writes: dict[int, tuple[int, int]] = {}
        for number, (tensor, (value, recorded, meta)) in enumerate(zip(self._tensors, self._before, strict=True)):
            version = tensor._version
            if version.recorded != recorded or tensor.meta is not meta:
                raise _NotReplayableError  # autograd recorded a write in place
            if version.value != value:
                writes.setdefault(id(version), (number, version.value - value))
        for node, inputs, _ in self._nodes if writes else ():
            if any(isinstance(value, Tensor) and id(value._version) in writes for value in _kept(node, inputs)):
                raise _NotReplayableError  # whether the node saw the value before or after the write isn't known
        return tuple(writes.values())

    def _node_plan(self, node: Node, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> NodePlan:
        operands: list[tuple[int | None, Any, bool]] = []
        for position, value in enumerate(inputs):
            number, constant = (self._number_of(value), None) if isinstance(value, Tensor) else (None, _constant(value))
            operands.append((number, constant, node.row.keeps_input(position)))
        templates = {word: self._template(value) for word, value in node.params.items()}
        filled = tuple(
            [(word, t) for word, t in templates.items() if isinstance(t, (TensorNumber, ArrayPlan, Items, dict))]
        )
        made = tuple(
            [
                (self._number_of(tensor, is_output=True), tensor._array.dtype.is_float, node.row.keeps_output(position))
                for position, tensor in enumerate(outputs)
            ]
        )
        return NodePlan(node.name, node.row, templates, filled, tuple(operands), node.needs, made, object())

    def _template(self, value: Any) -> Any:
        """Return a value with the tensors and arrays in it replaced by what stands for them."""
        if isinstance(value, Tensor):
            number = self._number_of(value)
            self._parameter_numbers.add(number)
            return TensorNumber(number)
        if isinstance(value, dict):
            return {word: self._template(item) for word, item in value.items()}
        if isinstance(value, tuple) and any(isinstance(item, (Tensor, DeviceArray)) for item in value):
            return Items(getattr(type(value), "_make", type(value)), tuple([self._template(item) for item in value]))
        if not isinstance(value, DeviceArray):
            return _constant(value)
        source = self._launches.number_of(value.buffer)
        if source is None:
            raise _NotReplayableError
        offset = value.offset
        if source < len(self._tensors):
            offset -= self._tensors[source]._array.offset
        self._kept_sources.add(source)
        return ArrayPlan(source, offset, value.dtype, layout_of(value.dtype, value.shape, value.strides))

    def _number_of(self, tensor: Any, is_output: bool = False) -> int:
        """Return the number of a tensor: operands first, then those that the replay makes, in order."""
        number = self._numbers.get(id(tensor))
        if number is not None:
            return number
        if tensor.__class__ is not Tensor or (tensor.meta.requires_grad and tensor.meta.node is None):
            raise _NotReplayableError
        if tensor.meta.requires_grad and not is_output:
            raise _NotReplayableError  # made by a node that wasn't noted
        plan = self._tensor_plan(tensor)
        number = self._numbers[id(tensor)] = len(self._tensors) + len(self._plans)
        self._plans.append(plan)
        self._planned.append(tensor)
        return number

    def _tensor_plan(self, tensor: Tensor) -> TensorPlan:
        array, version = tensor._array, tensor._version
        source = self._launches.number_of(array.buffer)
        layout = layout_of(array.dtype, array.shape, array.strides)
        if source is None or tensor._history != version.recorded:
            raise _NotReplayableError
        if source >= len(self._tensors):  # memory that the call allocated
            root = NO_ROOT if tensor._root is None else self._made_root(tensor._root)  # comes before its views
            owner = next((n for n, t in enumerate(self._planned) if t._version is version), None)
            shares = FRESH if owner is None else len(self._tensors) + owner
            if version.recorded:
                raise _NotReplayableError
            return TensorPlan(source, shares, array.offset, array.dtype, layout, tensor._is_view, root, version.value)
        owner = next((n for n, t in enumerate(self._tensors) if t._version is version), None)
        if owner is None:
            raise _NotReplayableError
        base = self._tensors[owner]
        if base._array.buffer is not array.buffer:
            raise _NotReplayableError
        expected = base if base._root is None else base._root
        if tensor._root is not None and tensor._root is not UNTRACKED and tensor._root is not expected:
            raise _NotReplayableError
        # an untracked operand's views are untracked, too; a replay copies that from its own operand
        inherits = base._root is UNTRACKED and (tensor.meta.node is not None or not base.meta.requires_grad)
        if tensor._root is UNTRACKED and not inherits:
            root = ROOT_UNTRACKED
        else:
            root = NO_ROOT if tensor._root is None else owner
        distance = array.offset - base._array.offset
        return TensorPlan(owner, owner, distance, array.dtype, layout, tensor._is_view, root, 0)

    def _made_root(self, root: Any) -> int:
        if root is UNTRACKED:
            return ROOT_UNTRACKED
        return self._number_of(root, is_output=True)


def _kept(node: Node, inputs: tuple[Any, ...]) -> list[Any]:
    """Return the operands whose values a node keeps."""
    return [value for position, value in enumerate(inputs) if node.row.keeps_input(position)]


def _constant(value: Any) -> Any:
    """Return a value after checking that it holds no memory, so that the key determines it."""
    if isinstance(value, (tuple, list)):
        for item in value:
            _constant(item)
    elif is_dataclass(value):
        for field in fields(value):
            _constant(getattr(value, field.name))
    elif not isinstance(value, _CONSTANTS):
        raise _NotReplayableError
    return value


def _scratch(device: Device, steps: list[Step], sizes: tuple[int, ...], count: int, kept: set[int]) -> tuple[int, ...]:
    """Return the numbers of the allocated buffers whose memory is kept for later calls, if it is little.

    These are buffers that the call alone uses. Only on the device cpu, whose launches are complete when they return:
    elsewhere a call would wait for the one before it.
    """
    used = {number for step in steps for number in step.used if number >= count} - kept
    few = sum(sizes[number - count] for number in used) <= _MAX_SCRATCH
    return tuple(sorted(used)) if few and device.caps.kind == "llvm-cpu" else ()


def _with_lifetimes(
    device: Device, steps: list[Step], count: int, kept: set[int], scratch: tuple[int, ...]
) -> tuple[PlannedStep, ...]:
    """Attach to each step the buffers to allocate before it and to release after it, except for those in `scratch`.

    Buffers numbered from `count` on live from the first step that uses them to the last; those in `kept` to the end.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        for number in step.used:
            if number >= count and number not in scratch:
                first.setdefault(number, place)
                last[number] = place
    for number in kept:
        if number >= count:
            first.setdefault(number, 0)
            last.pop(number, None)
    return tuple(
        [
            PlannedStep(
                tuple(sorted(n for n, at in first.items() if at == place)),
                FastLaunch(device, step) if isinstance(step, RecordedLaunch) else step,
                tuple(sorted(n for n, at in last.items() if at == place)),
            )
            for place, step in enumerate(steps)
        ]
    )
