"""The autograd tape: records operations, and computes gradients by walking it backwards.

`record` adds operations as they run; `backward` and `grad` compute gradients. A node keeps the operands and results
that the operation's rule (see `RULES`) needs to turn gradients of results into gradients of operands. Rules are written
with tensor operations, so with `create_graph=True` they are recorded in turn.
"""

from __future__ import annotations

import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, InternalError, ShapeError, VkjitError
from vkjit.runtime.device import Device

from ..memory import allocate, write_value
from .mode import set_grad_enabled, state

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "RULES",
    "UNTRACKED",
    "VIEWS",
    "GradMeta",
    "Node",
    "RemovableHandle",
    "RuleRow",
    "accumulates_grad",
    "backward",
    "backward_since",
    "current_sequence_number",
    "grad",
    "put",
    "record",
    "rule",
]

Gradient = Any
Rule = Callable[..., Sequence[Gradient]]

_sequence = itertools.count()


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A gradient rule: the vector-Jacobian product, and whether it needs operand values (all, or those at some
    positions) and result values.
    """

    vjp: Rule
    keeps_inputs: bool | tuple[int, ...]
    keeps_outputs: bool


RULES: dict[str, RuleRow] = {}
"""Operation name to its gradient rule. Its VJP is vjp(node, *gradients of results) -> a gradient (or None) per operand.
"""


def rule(name: str, *, inputs: bool | tuple[int, ...] = False, outputs: bool = False) -> Callable[[Rule], Rule]:
    """Register the VJP of an operation. Raises InternalError if it has one already.

    `inputs`, `outputs`: True if the rule reads the operands' or the results' values; for operands also a tuple of
    positions.
    """

    def register(function: Rule) -> Rule:
        if name in RULES:
            raise InternalError(f"operation {name} has a gradient rule already")
        RULES[name] = RuleRow(function, inputs, outputs)
        return function

    return register


UNTRACKED: Any = type("Untracked", (), {"__repr__": lambda _self: "UNTRACKED"})()
"""The root of a view whose relation to the tensor that owns its memory isn't known."""

VIEWS = frozenset({"diagonal", "expand", "permute", "reshape", "slice", "windows"})
"""Operations whose result may be a view of their operand."""


class GradMeta:
    """Autograd's data about a tensor; outlives the tensor's values while the tape refers to it."""

    __slots__ = ("__weakref__", "device", "dtype", "grad", "hooks", "node", "requires_grad", "retains_grad", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: Device, *, requires_grad: bool = False) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.requires_grad = requires_grad
        self.retains_grad = False
        self.grad: Tensor | None = None
        self.node: Node | None = None
        self.hooks: list[Callable[[Tensor], Tensor | None]] = []


class Node:
    """A recorded operation.

    `edges` has the GradMeta of each operand (None for scalars and other non-tensors), `params` the keyword parameters.
    `input(i)` and `output(i)` return values that the rule asked to keep, checked for in-place changes. Results are held
    by weak references, so a tensor that is no longer used is freed at once, with all that its node keeps.
    """

    __slots__ = (
        "_inputs",
        "_outputs",
        "_parameters",
        "_released",
        "_results",
        "edges",
        "name",
        "needs",
        "number",
        "params",
        "row",
    )

    def __init__(
        self, name: str, row: RuleRow, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor]
    ) -> None:
        self.name = name
        self.row = row
        self.params = params
        self._parameters = [(t, t.version) for value in params.values() for t in _tensors_of(value)] if params else ()
        self.edges: tuple[GradMeta | None, ...] = tuple([getattr(value, "meta", None) for value in inputs])
        self.needs = tuple([edge is not None and edge.requires_grad for edge in self.edges])
        self.number = next(_sequence)
        self._results = tuple([weakref.ref(t.meta) for t in outputs])
        keeps = row.keeps_inputs
        self._inputs: Any = None
        if keeps is True:
            self._inputs = list(map(_kept, inputs))
        elif keeps:
            self._inputs = {position: _kept(inputs[position]) for position in keeps}
        self._outputs = [(t.detach(), t.version) for t in outputs] if row.keeps_outputs else None
        self._released = False

    @property
    def results(self) -> list[GradMeta | None]:
        """The GradMeta of each result; None if the tensor is gone and nothing on the tape depends on it."""
        return [reference() for reference in self._results]

    def input(self, position: int) -> Any:
        """Return an operand as it was recorded. Raises VkjitError if it was changed in place since."""
        kept_inputs = self._inputs
        if kept_inputs is None or (type(kept_inputs) is dict and position not in kept_inputs):
            raise InternalError(f"the gradient rule of {self.name} reads an operand that it did not ask to keep")
        value, version = kept_inputs[position]
        self._check(value, version, f"operand {position}")
        return value

    def output(self, position: int = 0) -> Tensor:
        """Return a result as it was recorded, still on the tape (for double backward)."""
        if self._outputs is None:
            raise InternalError(f"the gradient rule of {self.name} reads a result that it did not ask to keep")
        value, version = self._outputs[position]
        self._check(value, version, f"result {position}")
        return value.with_grad_meta(self.results[position])

    def _check(self, value: Any, version: int, what: str) -> None:
        if getattr(value, "version", 0) != version:
            raise VkjitError(
                f"{what} of {self.name} (shape {value.shape}) was changed in place after it was recorded, and its old "
                "values are needed for the gradient: use an operation that makes a new tensor, or .clone() first"
            )

    def release(self) -> None:
        """Drop the kept values, after a backward pass that doesn't retain the graph."""
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


NodeClass: type[Node] = Node
"""The class of newly recorded nodes; anomaly mode replaces it."""


def _tensors_of(value: Any) -> tuple[Any, ...]:
    """Return the tensors in a parameter: the value itself, or its `tensors` (those of a parsed index)."""
    if type(value) in _PLAIN:
        return ()
    return (value,) if hasattr(value, "version") else tuple(getattr(value, "tensors", ()))


_PLAIN = frozenset({bool, int, float, str, tuple, dict, type(None)})
"""Types of parameters that hold no tensors that a rule reads."""


def _kept(value: Any) -> tuple[Any, int]:
    """Return an operand in the form a node keeps it: an alias, since the tensor's own place on the tape may change, and
    its version.
    """
    version = getattr(value, "_version", None)
    return (value, 0) if version is None else (value.alias(), version.value)


def record(
    name: str, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor], *, always: bool = False
) -> None:
    """Record an operation if recording is on (or `always`), an operand requires a gradient, and there is a gradient
    rule.
    """
    if (state.enabled or always) and any(getattr(v, "requires_grad", False) for v in inputs):
        put(name, inputs, params, outputs)


def put(name: str, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor]) -> None:
    """Record an operation with an operand that requires a gradient, if it has a gradient rule."""
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


def _find_root(name: str, inputs: tuple[Any, ...], result: Tensor) -> None:
    """Set the root of an untracked view that a recorded operation returned.

    The forward function ran with recording off, so its view was marked untracked.
    """
    if all(result._version is not getattr(value, "_version", None) for value in inputs):
        result._root = None  # a view of memory that the operation allocated
    elif name in VIEWS:
        source = inputs[0]
        result._root = source if source._root is None else source._root


_BY_NUMBER = operator.attrgetter("number")


def _collect(roots: Sequence[Node]) -> list[Node]:
    """Return all nodes that the roots depend on, newest first; operands are older than results, so this is a
    topological order.
    """
    seen: set[int] = set()
    nodes: list[Node] = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        nodes.append(node)
        stack += [edge.node for edge in node.edges if edge is not None and edge.node is not None]
    nodes.sort(key=_BY_NUMBER, reverse=True)
    return nodes


def _seed(tensor: Tensor, gradient: Tensor | None) -> Tensor:
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


class RemovableHandle:
    """A registered hook; `remove()` unregisters it and may be called any number of times."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks: list[Any] | None = hooks
        self._hook = hook
        hooks.append(hook)

    def remove(self) -> None:
        """Unregister the hook."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.remove(self._hook)

    __call__ = remove


class _Walk:
    """A backward pass: gradients accumulate per tensor (`GradMeta`) until the node that produced the tensor is visited."""

    def __init__(self, wanted: Sequence[GradMeta]) -> None:
        self._pending: dict[int, tuple[GradMeta, Tensor]] = {}
        self._wanted = {id(meta) for meta in wanted}
        self.found: dict[int, Tensor] = {}

    def deliver(self, meta: GradMeta, gradient: Tensor) -> None:
        key = id(meta)
        waiting = self._pending.get(key)
        self._pending[key] = (meta, gradient if waiting is None else waiting[1] + gradient)

    def take(self, meta: GradMeta) -> Tensor | None:
        """Remove and return the accumulated gradient of a tensor, after its hooks."""
        waiting = self._pending.pop(id(meta), None)
        if waiting is None:
            return None
        gradient = waiting[1]
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
        if id(meta) in self._wanted:
            self.found[id(meta)] = gradient
        return gradient

    def run(self, roots: Sequence[GradMeta], *, retain_graph: bool, fill: bool, since: int = 0) -> None:
        """Walk from the roots. With `fill`, add to `.grad` of leaves and of tensors that retain theirs.

        Nodes recorded before `since` keep their values in any case.
        """
        outer, state.accumulates_grad = state.accumulates_grad, fill
        try:
            self._walk(roots, retain_graph, fill, since)
        finally:
            state.accumulates_grad = outer

    def _walk(self, roots: Sequence[GradMeta], retain_graph: bool, fill: bool, since: int) -> None:
        fills = _Fills()
        vjp = Node.vjp if state.anomaly is None else state.anomaly.vjp
        for node in _collect([meta.node for meta in roots if meta.node is not None]):
            results = node.results
            gradients = [None if meta is None else self.take(meta) for meta in results]
            if fill:
                for meta, gradient in zip(results, gradients, strict=True):
                    if meta is not None and meta.retains_grad and gradient is not None:
                        fills.add(meta, gradient)
            if all(g is None for g in gradients):
                continue
            for edge, need, gradient in zip(node.edges, node.needs, vjp(node, gradients), strict=True):
                if need and gradient is not None:
                    assert edge is not None
                    self.deliver(edge, _checked_gradient(node, edge, gradient))
            if not retain_graph and node.number >= since:
                node.release()
        for meta, _ in list(self._pending.values()):
            gradient = self.take(meta)
            if fill and gradient is not None and meta.node is None:
                fills.add(meta, gradient)
        node = gradient = gradients = None  # type: ignore[assignment]  # drop the walk's references
        fills.deliver()


def accumulates_grad() -> bool:
    """True if the current backward pass adds to `.grad`, as `backward()` does and `grad()` doesn't."""
    return state.accumulates_grad


class _Fills:
    """Gradients collected for `.grad`. Each `.grad` must own its memory, so gradients referenced elsewhere are cloned."""

    def __init__(self) -> None:
        self._waiting: list[tuple[GradMeta, Tensor]] = []

    def add(self, meta: GradMeta, gradient: Tensor) -> None:
        self._waiting.append((meta, gradient))

    def deliver(self) -> None:
        """Update `.grad` of all tensors; call it when the walk no longer refers to any gradient."""
        memories: dict[int, int] = {}
        for key in [id(pair[1].memory_key) for pair in self._waiting]:
            memories[key] = memories.get(key, 0) + 1
        while self._waiting:
            pair = self._waiting.pop()
            meta = pair[0]
            if meta.grad is not None:
                meta.grad = meta.grad + pair[1]
            elif memories[id(pair[1].memory_key)] > 1 or _is_shared(pair) or not pair[1].is_contiguous():
                meta.grad = pair[1].clone()
            else:
                meta.grad = pair[1]


def _reference_count(pair: tuple[Any, Any]) -> int:
    return sys.getrefcount(pair[1])


class _Probe:
    __slots__ = ("memory_key",)

    def __init__(self) -> None:
        self.memory_key = object()


def _memory_reference_count(pair: tuple[Any, Any]) -> int:
    return sys.getrefcount(pair[1].memory_key)


_UNSHARED_COUNT = _reference_count((None, object()))
_UNSHARED_MEMORY_COUNT = _memory_reference_count((None, _Probe()))


def _is_shared(pair: tuple[GradMeta, Tensor]) -> bool:
    """True if the gradient tensor is referenced outside the pair, or another tensor shares its memory."""
    return _reference_count(pair) > _UNSHARED_COUNT or _memory_reference_count(pair) > _UNSHARED_MEMORY_COUNT


def _checked_gradient(node: Node, edge: GradMeta, gradient: Tensor) -> Tensor:
    if gradient.shape != edge.shape:
        raise InternalError(
            f"the gradient rule of {node.name} gave shape {gradient.shape} for an input of {edge.shape}"
        )
    return gradient if gradient.dtype is edge.dtype else gradient.to(edge.dtype)


def backward(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Compute the gradients of `tensors`, weighted by `gradients`, and add them to `.grad` of the leaves that require
    one.

    `gradients` may be omitted for tensors of one element.
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
    """Run `backward`, but retain the part of the graph recorded before `since`.

    `since` is a value returned by `current_sequence_number()`.
    """
    for tensor in tensors:
        if not tensor.requires_grad:
            raise ArgumentError(
                "backward() on a tensor that doesn't require a gradient: set requires_grad=True on what it is "
                "computed from"
            )
    walk = _Walk([])
    for tensor in tensors:
        tensor.follow()
    for tensor, gradient in zip(tensors, gradients or [None] * len(tensors), strict=True):
        walk.deliver(tensor.meta, _seed(tensor, gradient))
    with set_grad_enabled(create_graph):
        walk.run([t.meta for t in tensors], retain_graph=retain_graph or create_graph, fill=True, since=since)


def current_sequence_number() -> int:
    """Return a sequence number that is larger than those of all existing nodes and smaller than those of later ones."""
    return next(_sequence)


def _listed(tensors: Any) -> list[Any]:
    """Return one tensor, or a sequence of them, as a list."""
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

    An input that wasn't used raises ArgumentError, or gives None with `allow_unused`.
    """
    roots, targets = _listed(outputs), _listed(inputs)
    weights = [None] * len(roots) if grad_outputs is None else _listed(grad_outputs)
    for root in roots:
        root.follow()
    walk = _Walk([t.meta for t in targets])
    for tensor, weight in zip(roots, weights, strict=True):
        walk.deliver(tensor.meta, _seed(tensor, weight))
    keep = create_graph if retain_graph is None else retain_graph
    with set_grad_enabled(create_graph):
        walk.run([t.meta for t in roots], retain_graph=keep, fill=False)
    results = tuple(walk.found.get(id(t.meta)) for t in targets)
    if not allow_unused and any(r is None for r in results):
        position = next(i for i, r in enumerate(results) if r is None)
        raise ArgumentError(
            f"input {position} (shape {targets[position].shape}) was not used to compute the outputs: pass "
            "allow_unused=True to get None for it"
        )
    return results
