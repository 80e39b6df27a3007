"""The autograd tape: records operations, and computes gradients by walking it backwards.

`vkjit.tensor.dispatch` records each operation as a `Node` when it runs; `backward` and `grad` compute gradients. A node
keeps the operands and results that the operation's gradient rule needs to turn gradients of results into gradients of
operands. `vkjit.tensor.derivatives` registers the rules in `RULES`. They are written with tensor operations, so with
`create_graph=True` they are recorded in turn.

The tape has no container of its own: the `GradMeta` of each tensor refers to the node that computed the tensor, and the
node to the `GradMeta` of its operands.
"""

from __future__ import annotations

import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, InternalError, ShapeError, VkjitError
from vkjit.runtime.device import Device
from vkjit.runtime.handles import new_lock

from ..memory import allocate, write_value
from .mode import accumulating, modes, recording, state
from .rules import RULES, Gradient, RuleRow

if TYPE_CHECKING:
    from vkjit.runtime.array import DeviceArray
    from vkjit.runtime.capture import KeptVersion

    from ..tensor import Tensor, Version

__all__ = [
    "UNTRACKED", "VIEWS", "GradMeta", "Node", "accumulates_grad", "backward",
    "backward_since", "current_sequence_number", "grad", "record", "record_unchecked", "sequence", "versions_of",
]  # fmt: skip

sequence = itertools.count()
"""Source of `Node.number` and of the numbers that `current_sequence_number` returns."""


UNTRACKED: Any = type("Untracked", (), {"__repr__": lambda _self: "UNTRACKED"})()
"""The root (`Tensor.root`) of a view that was made without recording, so that it can't be traced to its owner."""

VIEWS = frozenset({"diagonal", "expand", "permute", "reshape", "slice", "windows"})
"""Operations whose result may be a view of their operand."""


class GradMeta:
    """Autograd's data about a tensor, without its values: the tape may keep it longer than the tensor.

    `node` is the operation that computed the tensor, None for a leaf. `grad` is the value of `Tensor.grad`; if
    `retains_grad` is set, a backward pass updates it for a non-leaf tensor, too. `hooks` are called with the tensor's
    gradient during a backward pass.
    """

    __slots__ = ("__weakref__", "_hooks", "device", "dtype", "grad", "node", "requires_grad", "retains_grad", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: Device, *, requires_grad: bool = False) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.requires_grad = requires_grad
        self.retains_grad = False
        self.grad: Tensor | None = None
        self.node: Node | None = None
        self._hooks: list[Callable[[Tensor], Tensor | None]] | None = None

    @property
    def hooks(self) -> list[Callable[[Tensor], Tensor | None]]:
        """The tensor's hooks, in the order in which they are called."""
        if self._hooks is None:
            self._hooks = []
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: list[Callable[[Tensor], Tensor | None]]) -> None:
        self._hooks = hooks


KeptOutput = tuple["type[Tensor]", "DeviceArray", "Version", "KeptVersion"]
"""A kept result: class, array, version counter, and version. Not the tensor itself, which refers to the node."""


class Node:
    """A recorded operation: its name, its gradient rule (`row`), and what the rule needs.

    `edges` has the GradMeta of each operand (None for scalars and other non-tensors), `params` the keyword parameters.
    `needs` has a bool for each operand, True if it requires a gradient. `number` increases in the order of recording.
    `input(i)` and `output(i)` return values that the rule asked to keep, checked for in-place changes. Results are held
    by weak references, so a tensor that is no longer used is freed at once, with all that its node keeps.
    """

    __slots__ = (
        "_inputs", "_outputs", "_parameters", "_released", "_results", "edges", "name", "needs", "number", "params", "row"
    )  # fmt: skip

    def __init__(
        self, name: str, row: RuleRow, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor]
    ) -> None:
        self.name = name
        self.row = row
        self.params = params
        self._parameters: Sequence[tuple[Tensor, KeptVersion]] = versions_of(params) if params else ()
        self.edges: tuple[GradMeta | None, ...] = tuple([getattr(value, "meta", None) for value in inputs])
        self.needs = tuple([edge is not None and edge.requires_grad for edge in self.edges])
        self.number = next(sequence)
        self._results = [weakref.ref(t.meta) for t in outputs]
        self._inputs: list[tuple[Any, KeptVersion] | None] | None = None  # None for an operand that isn't kept
        if row.keeps_inputs:
            self._inputs = [_kept(v) if row.keeps_input(i) else None for i, v in enumerate(inputs)]
        self._outputs: list[KeptOutput | None] | None = None
        if row.keeps_outputs:
            self._outputs = [
                (type(t), t._array, t._version, t.kept_version()) if row.keeps_output(i) else None
                for i, t in enumerate(outputs)
            ]
        self._released = False

    @classmethod
    def of_view(cls, name: str, row: RuleRow, edge: GradMeta, params: dict[str, Any], result: GradMeta) -> None:
        """Record a view whose rule keeps no values, of an operand that requires a gradient; faster than the constructor."""
        node: Any = cls.__new__(cls)
        node.name, node.row, node.params, node._parameters = name, row, params, ()
        node.edges, node.needs, node.number = (edge,), (True,), next(sequence)
        node._results, node._inputs, node._outputs, node._released = [weakref.ref(result)], None, None, False
        result.requires_grad, result.node = True, node

    @property
    def results(self) -> list[GradMeta | None]:
        """The GradMeta of each result; None if the tensor is gone and nothing on the tape depends on it."""
        return [reference() for reference in self._results]

    def input(self, position: int) -> Any:
        """Return the kept value of the operand at `position`.

        Raises VkjitError if the operand was changed in place after the operation was recorded, InternalError if the
        rule didn't ask to keep it.
        """
        kept = None if self._inputs is None else self._inputs[position]
        if kept is None:
            raise InternalError(f"the gradient rule of {self.name} reads an operand that it did not ask to keep")
        value, version = kept
        self._check(value, version, f"operand {position}")
        return value

    def output(self, position: int = 0) -> Tensor:
        """Return the kept value of the result at `position`, attached to this node for double backward.

        Raises VkjitError if the result was changed in place after the operation was recorded, InternalError if the rule
        didn't ask to keep it.
        """
        kept = None if self._outputs is None else self._outputs[position]
        if kept is None:
            raise InternalError(f"the gradient rule of {self.name} reads a result that it did not ask to keep")
        kind, array, counter, version = kept
        value = kind.sharing(array, counter)
        self._check(value, version, f"result {position}")
        return value.with_grad_meta(self._results[position]() or self._restored(position, value))

    def _restored(self, position: int, value: Tensor) -> GradMeta:
        """Make a GradMeta for a result whose own is gone, so that gradients of its kept value reach this node.

        Other threads and signal handlers that restore the result at the same time get the same GradMeta: a node can
        refer to only one, and gradients of another would be lost.
        """
        is_float = value.dtype.is_float
        meta = GradMeta(value.shape, value.dtype, value.device, requires_grad=is_float)
        meta.node = self if is_float else None
        meta = _restoring.setdefault((self, position), meta)
        try:
            if (current := self._results[position]()) is None:
                self._results[position] = weakref.ref(meta)
            return current or meta
        finally:
            _restoring.pop((self, position), None)

    def _check(self, value: Any, version: KeptVersion, what: str) -> None:
        """Raise VkjitError if a kept tensor was written since it had this version; `what` names it in the message."""
        if hasattr(value, "is_unchanged") and not value.is_unchanged(version):
            raise VkjitError(
                f"{what} of {self.name} (shape {value.shape}) was changed in place after it was recorded, and its old "
                "values are needed for the gradient: use an operation that makes a new tensor, or .clone() first"
            )

    def release(self) -> None:
        """Drop the kept values, after a backward pass without `retain_graph`."""
        self._inputs = self._outputs = None
        self._released = True

    def vjp(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Return the gradients of the operands, given those of the results."""
        if self._released:
            raise VkjitError(
                f"backward through {self.name} a second time, but what it kept has been released: call "
                f"backward(retain_graph=True) the first time"
            )
        for tensor, version in self._parameters:
            self._check(tensor, version, "an index")
        results = tuple(self.row.vjp(self, *gradients))
        if len(results) != len(self.edges):
            raise InternalError(
                f"the gradient rule of {self.name} gave {len(results)} gradients for {len(self.edges)} inputs"
            )
        return results


_restoring: dict[tuple[Node, int], GradMeta] = {}  # by node and position; see `Node._restored`

NodeClass: type[Node] = Node
"""The class of newly recorded nodes; anomaly mode replaces it."""


def versions_of(params: dict[str, Any]) -> list[tuple[Tensor, KeptVersion]]:
    """Return the tensors among the parameters of an operation (indices), with their versions."""
    return [(t, t.kept_version()) for value in params.values() for t in _tensors_of(value)]


def _tensors_of(value: Any) -> tuple[Any, ...]:
    """Return the tensors in a parameter: the value itself, or the attribute `tensors` of a parsed index."""
    if type(value) in _PLAIN:
        return ()
    return (value,) if hasattr(value, "version") else tuple(getattr(value, "tensors", ()))


_PLAIN = frozenset({bool, int, float, str, tuple, dict, type(None)})
"""Types of parameters in which `_tensors_of` doesn't look for tensors."""


def _kept(value: Any) -> tuple[Any, KeptVersion]:
    """Return the pair (value, version) that a node keeps for an operand.

    A tensor is kept as an alias, since an in-place operation may later attach the tensor itself to another node.
    """
    return (value.alias(), value.kept_version()) if hasattr(value, "_version") else (value, 0)


def record(
    name: str, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor], *, always: bool = False
) -> None:
    """Record an operation if recording is on, an operand requires a gradient, and the operation has a gradient rule.

    With `always`, the operation is recorded even if recording is off.
    """
    if (recording.get() or always) and any(getattr(v, "requires_grad", False) for v in inputs):
        record_unchecked(name, inputs, params, outputs)


def record_unchecked(name: str, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor]) -> None:
    """Record an operation without checking that an operand requires a gradient; its float results then require one.

    Does nothing if the operation has no gradient rule.
    """
    row = RULES.get(name)
    if row is None:
        return
    floats = [t for t in outputs if t._array.dtype.is_float]
    if not floats:
        return
    for tensor in floats:
        tensor.meta.requires_grad = True
    node = NodeClass(name, row, inputs, params, outputs)
    for tensor in floats:
        tensor.meta.node = node
        if tensor._root is UNTRACKED:
            _find_root(name, inputs, tensor)
    recorder = modes.get().recorder
    if recorder is not None:
        recorder.note_node(node, inputs, tuple(outputs))


def _find_root(name: str, inputs: tuple[Any, ...], result: Tensor) -> None:
    """Set the root of an untracked view that a recorded operation returned.

    Forward functions run with recording off, so `Tensor.view_of` marked the view untracked.
    """
    if all(result._version is not getattr(value, "_version", None) for value in inputs):
        result._root = None  # a view of memory that the operation allocated
    elif name in VIEWS:
        source = inputs[0]
        result._root = source if source._root is None else source._root


_BY_NUMBER = operator.attrgetter("number")


def _collect(roots: Sequence[Tensor]) -> list[Node]:
    """Return the nodes of the roots and all nodes that they depend on, newest first.

    This is a topological order, since a node is recorded after the nodes that computed its operands.
    """
    seen: set[int] = set()
    nodes: list[Node] = []
    stack: list[Node | None] = [root.meta.node for root in roots]
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        nodes.append(node)
        stack += [edge.node for edge in node.edges if edge is not None]
    nodes.sort(key=_BY_NUMBER, reverse=True)
    return nodes


def _seed(tensor: Tensor, gradient: Tensor | None) -> Tensor:
    """Return the gradient with which a backward pass starts at `tensor`: `gradient`, or 1 if that is None.

    Raises ShapeError if a given gradient doesn't have the tensor's shape, or if it is None and the tensor has more than
    one element.
    """
    if gradient is None:
        if tensor.numel() != 1:
            raise ShapeError(
                f"backward() without a gradient needs a tensor of one element, found shape {tensor.shape}: reduce it "
                f"(.sum(), .mean()) or pass gradient="
            )
        ones = allocate(tensor.shape, tensor.dtype, tensor.device)
        write_value(ones, 1)
        return tensor.of(ones)
    if gradient.shape != tensor.shape:
        raise ShapeError(f"the gradient has shape {gradient.shape}, expected the tensor's {tensor.shape}")
    return gradient


class _BackwardPass:
    """A backward pass: visits nodes from the newest to the oldest.

    The gradients delivered for a tensor (identified by its `GradMeta`) are summed until the node that computed the
    tensor is visited. After the pass, `target_gradients` has the gradients of the tensors in `targets`.
    """

    def __init__(self, targets: Sequence[GradMeta] = ()) -> None:
        self._pending: dict[GradMeta, Tensor] = {}
        self._targets = frozenset(targets)
        self._updates: list[tuple[GradMeta, Tensor]] = []
        """Gradients to be added to `.grad` at the end of the pass."""
        self.target_gradients: dict[GradMeta, Tensor] = {}

    def start(self, roots: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Deliver the gradients with which the pass starts (see `_seed`)."""
        for root in roots:
            if root._history != root._version.recorded:
                root.follow()
        for root, given in zip(roots, gradients, strict=True):
            gradient, pending = _seed(root, given), self._pending
            pending[root.meta] = pending[root.meta] + gradient if root.meta in pending else gradient

    def run(
        self, roots: Sequence[Tensor], *, retain_graph: bool, create_graph: bool, update_grad: bool, since: int = 0
    ) -> None:
        """Run the pass from the roots, with which it was started.

        With `create_graph`, the gradient rules are recorded. With `update_grad`, add the gradients of leaves and of
        tensors with `retains_grad` to their `.grad`. Unless `retain_graph` is set, visited nodes release their kept
        values, except those with a `number` below `since`.
        """
        recorded, accumulated = recording.get(), accumulating.get()
        try:
            recording.set(create_graph)
            accumulating.set(update_grad)
            self._visit_nodes(roots, retain_graph, update_grad, since)
            self._visit_leaves(update_grad)
            _update_grads(self._updates)
        finally:
            try:
                recording.set(recorded)
            finally:  # also if an interrupt comes in between
                accumulating.set(accumulated)

    def _visit_nodes(self, roots: Sequence[Tensor], retain_graph: bool, update_grad: bool, since: int) -> None:
        """Visit all nodes; parameters as for `run`."""
        pending, anomaly = self._pending, state.anomaly
        for node in _collect(roots):
            gradients: list[Tensor | None] = []
            is_reached = False
            for reference in node._results:
                meta = reference()
                gradient = None if meta is None else pending.pop(meta, None)
                if meta is not None and gradient is not None:
                    is_reached = True
                    if meta._hooks or self._targets:
                        gradient = self._observed(meta, gradient)
                    if update_grad and meta.retains_grad:
                        self._updates.append((meta, gradient))
                gradients.append(gradient)
            if not is_reached:
                continue
            results = node.vjp(gradients) if anomaly is None else anomaly.vjp(node, gradients)
            for edge, need, gradient in zip(node.edges, node.needs, results, strict=True):
                if need and edge is not None and gradient is not None:
                    if gradient._array.shape != edge.shape:
                        raise InternalError(
                            f"the gradient rule of {node.name} gave shape {gradient.shape} for an input of {edge.shape}"
                        )
                    if gradient._array.dtype is not edge.dtype:
                        gradient = gradient.to(edge.dtype)
                    pending[edge] = pending[edge] + gradient if edge in pending else gradient
            results = ()  # the pass refers to pending gradients only
            if not retain_graph and node.number >= since:
                node.release()

    def _visit_leaves(self, update_grad: bool) -> None:
        """Handle the gradients that are still pending: they belong to tensors that no visited node computed."""
        for meta in list(self._pending):
            gradient = self._pending.pop(meta)
            if meta._hooks or self._targets:
                gradient = self._observed(meta, gradient)
            if update_grad and meta.node is None:
                self._updates.append((meta, gradient))

    def _observed(self, meta: GradMeta, gradient: Tensor) -> Tensor:
        """Return a tensor's gradient after its hooks have run; note it if the tensor is a target."""
        for hook in meta.hooks:
            replaced = hook(gradient)
            if replaced is None:
                continue
            if replaced.shape != gradient.shape or replaced.dtype != gradient.dtype:
                raise ArgumentError(
                    f"a hook gave a gradient of {replaced.dtype} {replaced.shape} for one of {gradient.dtype} "
                    f"{gradient.shape}: shape and type must stay"
                )
            gradient = replaced
        if meta in self._targets:
            self.target_gradients[meta] = gradient
        return gradient


def accumulates_grad() -> bool:
    """True if the current backward pass adds to `.grad`, as `backward()` does and `grad()` doesn't."""
    return accumulating.get()


_grads_lock = new_lock()
"""Held while a gradient is added to `.grad`, so that backward passes of several threads lose none."""


def _update_grads(updates: list[tuple[GradMeta, Tensor]]) -> None:
    """Add gradients collected during a backward pass to `.grad`, and empty the list.

    A user may write into `.grad`, so a gradient tensor becomes `.grad` without a copy only if nothing else refers to
    its memory. Otherwise it is cloned. The backward pass must have dropped its own references to the gradients (see
    `_is_shared`).
    """
    use_counts: dict[int, int] = {}  # number of collected gradients by the identity of their memory
    for pair in updates:
        key = id(pair[1]._version)
        use_counts[key] = use_counts.get(key, 0) + 1
    while updates:
        pair = updates.pop()
        meta = pair[0]
        with _grads_lock:
            # the gradient stays in the pair: a local variable would be one more reference to it
            if meta.grad is not None:
                meta.grad = meta.grad + pair[1]
            elif use_counts[id(pair[1]._version)] > 1 or _is_shared(pair) or not pair[1].is_contiguous():
                meta.grad = pair[1].clone()
            else:
                meta.grad = pair[1]


def _reference_count(pair: tuple[Any, Any]) -> int:
    """Return the number of references to the pair's second item, including references made by this call."""
    return sys.getrefcount(pair[1])


# An unshared gradient is recognized by its reference counts. The counts that an unshared object has depend on the
# Python version, so they are measured here, with pairs like those of `_update_grads`.


class _Probe:
    """Stands for an unshared gradient: an object with a `_version` to which nothing else refers."""

    __slots__ = ("_version",)

    def __init__(self) -> None:
        self._version = object()


def _memory_reference_count(pair: tuple[Any, Any]) -> int:
    """Return the number of references to the second item's `_version`, including references made by this call."""
    return sys.getrefcount(pair[1]._version)


_UNSHARED_COUNT = _reference_count((None, object()))
"""Reference count of a gradient tensor to which only its pair refers."""
_UNSHARED_MEMORY_COUNT = _memory_reference_count((None, _Probe()))
"""Reference count of the `_version` of a tensor whose memory no other tensor shares."""


def _is_shared(pair: tuple[GradMeta, Tensor]) -> bool:
    """True if the gradient tensor is referenced outside the pair, or another tensor shares its memory."""
    return _reference_count(pair) > _UNSHARED_COUNT or _memory_reference_count(pair) > _UNSHARED_MEMORY_COUNT


def backward(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Compute the gradients of `tensors` with respect to the leaves that require a gradient, and add them to `.grad`.

    `gradients` are the gradients with respect to `tensors` that the pass starts with; they may be omitted for tensors
    of one element, which start with 1.
    """
    backward_since(0, tensors, gradients, retain_graph=retain_graph, create_graph=create_graph)


def backward_since(
    since: int,
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Run `backward`, but don't release the kept values of nodes recorded before `since`.

    `since` is a value returned by `current_sequence_number()`. Checkpointing uses this function for the segment that it
    recomputes: the older nodes belong to the outer graph, whose backward pass still needs their values.
    """
    for tensor in tensors:
        if not tensor.requires_grad:
            raise ArgumentError(
                "backward() on a tensor that doesn't require a gradient: set requires_grad=True on what it is "
                "computed from"
            )
    walk = _BackwardPass()
    walk.start(tensors, gradients or [None] * len(tensors))
    keep = retain_graph or create_graph
    walk.run(tensors, retain_graph=keep, create_graph=create_graph, update_grad=True, since=since)


def current_sequence_number() -> int:
    """Return a number that is above the `number` of all existing nodes and below the `number` of all later nodes."""
    return next(sequence)


def _listed(tensors: Any) -> list[Any]:
    """Return a list of tensors, given as a single tensor or as a sequence."""
    return [tensors] if hasattr(tensors, "meta") else list(tensors)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of `outputs` with respect to `inputs`, one tensor per input; `.grad` doesn't change.

    `grad_outputs` are the gradients with respect to `outputs` that the pass starts with (None: 1, for outputs of one
    element). An input that wasn't used to compute the outputs raises ArgumentError; with `allow_unused`, its gradient
    is None.
    """
    roots, targets = _listed(outputs), _listed(inputs)
    weights = [None] * len(roots) if grad_outputs is None else _listed(grad_outputs)
    walk = _BackwardPass([t.meta for t in targets])
    walk.start(roots, weights)
    keep = create_graph if retain_graph is None else retain_graph
    walk.run(roots, retain_graph=keep, create_graph=create_graph, update_grad=False)
    results = tuple(walk.target_gradients.get(t.meta) for t in targets)
    if not allow_unused and any(r is None for r in results):
        position = next(i for i, r in enumerate(results) if r is None)
        raise ArgumentError(
            f"input {position} (shape {targets[position].shape}) was not used to compute the outputs: pass "
            "allow_unused=True to get None for it"
        )
    return results
