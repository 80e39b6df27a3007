"""Autograd nodes that replays and cached views put on the tape, and the replay of their vector-Jacobian products.

A plan of a node determines everything that the node's gradient rule depends on, except the gradients of the results. So
the rule does the same host work for equal plans and equal layouts of these gradients: it is recorded as one call of the
op cache, and replayed later (`ReplayedNode.vjp`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from vkjit.dtypes import DType
from vkjit.runtime import host_spans, sanitizer_reports
from vkjit.runtime.array import DeviceArray
from vkjit.runtime.dispatch_cache import table_of
from vkjit.runtime.replays import last_replay, writers
from vkjit.stdlib.registry import forced_class

from ..autograd import tape
from ..autograd.mode import modes, recording
from ..autograd.rules import RuleRow
from ..autograd.tape import GradMeta, Node
from ..tensor import Tensor, Version

if TYPE_CHECKING:
    from .replay import Replay, TensorPlan

__all__ = [
    "ArrayPlan",
    "Items",
    "NodePlan",
    "ReadNode",
    "ReplayedNode",
    "TensorNumber",
    "VjpReads",
    "VjpReplay",
    "handle_first_calls",
    "put_node",
]

_new = object.__new__
_GONE = ref(_new(GradMeta))
"""A dead reference, for results without a tensor."""
_blocks, _listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners


class TensorNumber(NamedTuple):
    """Stands for a tensor in a template (see `_filled`): operands have the first numbers, then the tensors that are
    made."""

    number: int


class ArrayPlan(NamedTuple):
    """Stands for an array in a template; the fields are those of `TensorPlan`."""

    source: int
    offset: int
    dtype: DType
    layout: Any


class Items(NamedTuple):
    """Stands for a tuple in a template: its class, and templates of its items."""

    kind: Callable[[Any], Any]
    items: tuple[Any, ...]


class NodePlan(NamedTuple):
    """A node that a replay puts on the tape: the operation's name, parameters and operands.

    `filled_params` are the parameters that aren't the same in each call, as templates (see `_filled`). Each item of
    `operands` is (tensor's number or None, constant or None, whether the node keeps its value); of `outputs`, (tensor's
    number, or `TensorPlan` if only the node refers to the result; whether it is of a float type, and so requires a
    gradient; whether the node keeps its value). `token` stands for the plan in keys.
    """

    name: str
    row: RuleRow
    params: dict[str, Any]
    filled_params: tuple[tuple[str, Any], ...]
    inputs: tuple[tuple[int | None, Any, bool], ...]
    needs: tuple[bool, ...]
    outputs: tuple[tuple[int | TensorPlan, bool, bool], ...]
    token: object


class VjpReads(NamedTuple):
    """The positions of the operands and results whose kept values a gradient rule reads."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class VjpReplay(NamedTuple):
    """The replay of a node's vector-Jacobian product.

    Its operands are the gradients, the values in `reads`, and the tensors and arrays among the node's parameters.
    """

    replay: Replay
    reads: VjpReads


_note_vjp: Callable[..., Sequence[Any]]
"""Calls a gradient rule that isn't replayed yet; see `handle_first_calls`."""


def handle_first_calls(note_vjp: Callable[..., Sequence[Any]]) -> None:
    """Register the function that calls gradient rules that aren't replayed yet, and records them.

    The function is in `dispatch`, which imports this module and so can't be imported here.
    """
    global _note_vjp
    _note_vjp = note_vjp


class ReplayedNode(Node):
    """A node that a replay or a cached view has put on the tape according to `plan`."""

    __slots__ = ("plan",)
    plan: NodePlan

    def vjp(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients of the operands, given those of the results; replay an earlier call if possible.

        The rule runs as usual if the backward pass is itself recorded, if a setting or an observer of this thread could
        change what it does, if a kept value was changed in place (the rule raises the error), and if a gradient shares
        memory with another value.
        """
        mode = modes.get()
        if recording.get() or mode.special or mode.anomaly is not None or _blocks or self._released:
            return super().vjp(gradients)
        key: list[Any] = [self.plan.token]
        tensors: list[Any] = []
        for gradient in gradients:
            if gradient is None:
                key.append(None)
            elif gradient.__class__ is Tensor and gradient._array.layout is not None:
                key.append(gradient._array.layout)
                tensors.append(gradient)
                if gradient.meta.requires_grad:
                    return super().vjp(gradients)
            else:
                return super().vjp(gradients)
        table = table_of(tensors[0]._array.buffer.device)
        call = tuple(key)
        entry = table.get(call)
        if entry is False or forced_class() is not None:
            return super().vjp(gradients)
        if entry.__class__ is VjpReplay:
            operands = None if _listeners else self.operands(tensors, entry.reads)
            results = None if operands is None else entry.replay.run(operands)
            return super().vjp(gradients) if results is None else results
        return _note_vjp(self, gradients, tensors, call, table, entry)

    def output(self, position: int = 0) -> Tensor:
        """As `Node.output`."""
        self._keep_as_array(position)
        return super().output(position)

    def _keep_as_array(self, position: int) -> None:
        """Replace a result kept as plan and buffer by what `Node` keeps.

        Only the node refers to such a result. Most are read once, in the backward pass, or never.
        """
        outputs: Any = self._outputs
        kept = outputs and outputs[position]
        if kept and len(kept) == 3:
            plan, buffer, replay = kept
            version = Version()
            version.value = plan.version
            array = DeviceArray.placed(buffer, plan.offset, plan.dtype, plan.layout)
            outputs[position] = (Tensor, array, version, plan.version + replay)

    def operands(self, gradients: list[Any], reads: VjpReads) -> list[Any] | None:
        """Return the operands of a `VjpReplay`; None if they rule the replay out."""
        tensors = [*gradients]
        inputs: Any = self._inputs
        outputs: Any = self._outputs
        for position in reads.inputs:
            value, version = inputs[position]
            if value.version != version:
                return None
            tensors.append(value)
        for position in reads.outputs:
            self._keep_as_array(position)
            _, array, counter, version = outputs[position]
            value = Tensor(array, version=counter)
            if value.version != version:
                return None
            tensors.append(value)
        for value, version in self._parameters:
            if value.version != version:
                return None
        for word, _ in self.plan.filled_params:
            _add_memory(self.params[word], tensors)
        for number, gradient in enumerate(gradients):
            buffer = gradient._array.buffer
            for other in tensors[number + 1 :]:
                if other._array.buffer is buffer:
                    return None
        return tensors


class ReadNode:
    """A proxy that a gradient rule gets instead of the node, to note which kept values the rule reads."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.inputs_read: list[int] = []
        self.outputs_read: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def input(self, position: int) -> Any:
        """As `Node.input`."""
        value = self._node.input(position)
        if isinstance(value, Tensor) and position not in self.inputs_read:
            self.inputs_read.append(position)
        return value

    def output(self, position: int = 0) -> Tensor:
        """As `Node.output`."""
        if position not in self.outputs_read:
            self.outputs_read.append(position)
        return self._node.output(position)

    @property
    def reads(self) -> VjpReads:
        """What the rule has read so far."""
        return VjpReads(tuple(self.inputs_read), tuple(self.outputs_read))


def _add_memory(value: Any, tensors: list[Any]) -> None:
    """Add the tensors in a parameter to the list, and tensors for the arrays in it, in the order of the template."""
    if isinstance(value, Tensor):
        tensors.append(value)
    elif isinstance(value, DeviceArray):
        tensors.append(Tensor.of(value))
    elif isinstance(value, (dict, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            _add_memory(item, tensors)


def put_node(plan: NodePlan, tensors: list[Any], buffers: list[Any], count: int) -> None:
    """Put a node on the tape, as `tape.record_unchecked` does."""
    name, row, params, filled_params, operands, needs, outputs, _ = plan
    node = _new(ReplayedNode)
    parameters: Any = ()
    if filled_params:
        filled = {word: _filled(template, tensors, buffers, count) for word, template in filled_params}
        params = params | filled
        parameters = tape.versions_of(filled)
    edges: list[GradMeta | None]
    inputs: list[Any] | None = None
    if row.keeps_inputs:
        edges, inputs = [], []
        for number, constant, is_kept in operands:
            if number is None:
                edges.append(None)
                inputs.append((constant, 0) if is_kept else None)
                continue
            tensor = tensors[number]
            edges.append(tensor.meta)
            if is_kept:  # as `Tensor.alias`
                kept: Any = _new(Tensor)
                version = kept._version = tensor._version
                kept._array, kept.meta, kept._root = tensor._array, tensor.meta, None
                kept._history, kept._is_view = tensor._history, tensor._is_view
                inputs.append((kept, version.value + last_replay(tensor._array.buffer) if writers else version.value))
            else:
                inputs.append(None)
    else:
        edges = [None if number is None else tensors[number].meta for number, _, _ in operands]
    results: list[Any] = []
    kept_outputs: Any = [] if row.keeps_outputs else None
    result: Any  # a number or a plan
    for result, is_float, is_kept in outputs:
        kept_output: Any = None
        if result.__class__ is int:
            tensor = tensors[result]
            meta = tensor.meta
            if is_float:
                meta.requires_grad, meta.node = True, node
            results.append(ref(meta))
            if is_kept:
                kept_output = (Tensor, tensor._array, tensor._version, tensor.version)
        else:
            results.append(_GONE)
            if is_kept:
                buffer = buffers[result.source]  # see `_keep_as_array`
                kept_output = (result, buffer, last_replay(buffer) if writers else 0)
        if kept_outputs is not None:
            kept_outputs.append(kept_output)
    node.plan, node.name, node.row, node.params, node.needs = plan, name, row, params, needs
    node.edges, node._results, node.number = tuple(edges), results, next(tape.sequence)
    node._parameters, node._inputs, node._outputs, node._released = parameters, inputs, kept_outputs, False


def _filled(template: Any, tensors: list[Any], buffers: list[Any], count: int) -> Any:
    """Return the value that a template stands for: a tensor, an array, a tuple or dictionary of templates, or itself."""
    kind = template.__class__
    if kind is TensorNumber:
        return tensors[template.number]
    if kind is ArrayPlan:
        source, offset, dtype, layout = template
        if source < count:
            base = tensors[source]._array
            return DeviceArray.placed(base.buffer, base.offset + offset, dtype, layout)
        return DeviceArray.placed(buffers[source], offset, dtype, layout)
    if kind is Items:
        return template.kind([_filled(item, tensors, buffers, count) for item in template.items])
    if kind is dict:
        return {word: _filled(item, tensors, buffers, count) for word, item in template.items()}
    return template
