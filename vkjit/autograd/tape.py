"""The tape: which operation made which tensor, and the walk backwards over it.

Enters: operations as they run (`record`). Leaves: gradients (`backward`, `grad`). A node keeps its inputs and outputs;
a rule of the table `rules` turns gradients of outputs into gradients of inputs. Rules are written with tensor
operations, so with `create_graph=True` they are recorded in turn.
"""

from __future__ import annotations

import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from ..errors import ArgumentError, InternalError, ShapeError, VkjitError
from ..runtime.interface import Device
from .mode import set_grad_enabled, state

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor

__all__ = [
    "RULES",
    "UNTRACKED",
    "VIEWS",
    "GradMeta",
    "Node",
    "RemovableHandle",
    "RuleRow",
    "backward",
    "backward_since",
    "grad",
    "is_filling",
    "mark",
    "put",
    "record",
    "rule",
]

Gradient = Any
Rule = Callable[..., Sequence[Gradient]]

_sequence = itertools.count()


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A row of the table of gradients: the vector-Jacobian product and what it needs kept."""

    vjp: Rule
    keeps_inputs: bool | tuple[int, ...]
    keeps_outputs: bool


RULES: dict[str, RuleRow] = {}
"""Operation name to its vector-Jacobian product: vjp(node, *gradients of outputs) -> gradient (or None) per input."""


def rule(name: str, *, inputs: bool | tuple[int, ...] = False, outputs: bool = False) -> Callable[[Rule], Rule]:
    """Registers the VJP of an operation; refuses a second one. `inputs`, `outputs`: whether their values are needed, of
    inputs perhaps of some positions only.
    """

    def register(function: Rule) -> Rule:
        if name in RULES:
            raise InternalError(f"operation {name} has a gradient rule already")
        RULES[name] = RuleRow(function, inputs, outputs)
        return function

    return register


UNTRACKED: Any = type("Untracked", (), {"__repr__": lambda _self: "UNTRACKED"})()
"""The root of a view whose way from the tensor that owns its memory isn't known."""

VIEWS = frozenset({"diagonal", "expand", "permute", "reshape", "slice", "windows"})
"""Operations whose result may lie in the memory of their operand, and then is a part of it as it is."""


class GradMeta:
    """What autograd knows of one tensor; outlives the tensor's values while something on the tape refers to it."""

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
    """One recorded operation.

    `edges` has the GradMeta of each operand (None for numbers and tensors without gradient), `params` the keyword
    parameters. `input(i)` and `output(i)` give values that the rule asked to keep, checked for in-place changes.
    Results are held weakly, so that a tensor that nobody uses is freed at once, with all that its node keeps.
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
        """What is known of each result; None where the tensor is gone and nothing on the tape depends on it."""
        return [reference() for reference in self._results]

    def input(self, position: int) -> Any:
        """An operand as it was; an error where it has been changed in place since."""
        kept = self._inputs
        if kept is None or (type(kept) is dict and position not in kept):
            raise InternalError(f"the gradient rule of {self.name} reads an operand that it did not ask to keep")
        value, version = kept[position]
        self._check(value, version, f"operand {position}")
        return value

    def output(self, position: int = 0) -> Tensor:
        """A result as it was, still on the tape (for double backward)."""
        if self._outputs is None:
            raise InternalError(f"the gradient rule of {self.name} reads a result that it did not ask to keep")
        value, version = self._outputs[position]
        self._check(value, version, f"result {position}")
        return value.placed(self.results[position])

    def _check(self, value: Any, version: int, what: str) -> None:
        if getattr(value, "version", 0) != version:
            raise VkjitError(
                f"{what} of {self.name} (shape {value.shape}) was changed in place after it was recorded, and its old "
                "values are needed for the gradient: use an operation that makes a new tensor, or .clone() first"
            )

    def release(self) -> None:
        """Lets go of what was kept, after a backward pass that doesn't retain the graph."""
        self._inputs = self._outputs = None
        self._released = True

    def vjp(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Gradients of the inputs from gradients of the outputs."""
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
"""What operations are recorded as; anomaly mode exchanges it."""


def _vjp() -> Callable[[Node, Sequence[Gradient]], Sequence[Gradient]]:
    """How a walk gets the gradients of a node: as they are, or looked at by anomaly mode."""
    if state.anomaly is None:
        return Node.vjp
    from .anomaly import checked_vjp

    return checked_vjp


def _tensors_of(value: Any) -> tuple[Any, ...]:
    """The tensors in a parameter: itself, or what it says it holds (an index taken apart)."""
    if type(value) in _PLAIN:
        return ()
    return (value,) if hasattr(value, "version") else tuple(getattr(value, "tensors", ()))


_PLAIN = frozenset({bool, int, float, str, tuple, dict, type(None)})
"""Types of parameters that hold no tensors, or none that a rule reads as they were."""


def _kept(value: Any) -> tuple[Any, int]:
    """An operand as it is kept: another object for it, since the tensor's own place on the tape may change; its version."""
    version = getattr(value, "_version", None)
    return (value, 0) if version is None else (value.alias(), version.value)


def record(
    name: str, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor], *, always: bool = False
) -> None:
    """Puts an operation on the tape where one of its inputs requires a gradient and it has a rule. `always`: also while
    nothing else is recorded.
    """
    if (state.enabled or always) and any(getattr(v, "requires_grad", False) for v in inputs):
        put(name, inputs, params, outputs)


def put(name: str, inputs: tuple[Any, ...], params: dict[str, Any], outputs: Sequence[Tensor]) -> None:
    """Puts an operation of which an input requires a gradient on the tape, where it has a rule."""
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
    """The root of a view that a recorded operation made; it couldn't know that it was being recorded."""
    if all(result._version is not getattr(value, "_version", None) for value in inputs):
        result._root = None  # a view of what only the operation has seen
    elif name in VIEWS:
        source = inputs[0]
        result._root = source if source._root is None else source._root


_BY_AGE = operator.attrgetter("number")


def _collect(roots: Sequence[Node]) -> list[Node]:
    """All nodes that the roots depend on, youngest first: a valid order, since inputs are older than results."""
    seen: set[int] = set()
    found: list[Node] = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        found.append(node)
        stack += [edge.node for edge in node.edges if edge is not None and edge.node is not None]
    found.sort(key=_BY_AGE, reverse=True)
    return found


def _seed(tensor: Tensor, gradient: Tensor | None) -> Tensor:
    from ..tensor import creation
    from ..tensor.tensor import Tensor

    if gradient is None:
        if tensor.numel() != 1:
            raise ShapeError(
                f"backward() without a gradient needs a tensor of one element, found shape {tensor.shape}: reduce it "
                f"(.sum(), .mean()) or pass gradient="
            )
        made = creation.allocate(tensor.shape, tensor.dtype, tensor.device)
        creation.write_value(made, 1)
        return Tensor(made)
    if gradient.shape != tensor.shape:
        raise ShapeError(f"the gradient has shape {gradient.shape}, expected the tensor's {tensor.shape}")
    return gradient


class RemovableHandle:
    """A hook in its list; `remove()` takes it out, any number of times."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks: list[Any] | None = hooks
        self._hook = hook
        hooks.append(hook)

    def remove(self) -> None:
        """Takes the hook away."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.remove(self._hook)

    __call__ = remove


class _Walk:
    """One pass backwards: gradients arrive at metas, wait there, and are handed on when their node's turn comes."""

    def __init__(self, wanted: Sequence[GradMeta]) -> None:
        self._pending: dict[int, tuple[GradMeta, Tensor]] = {}
        self._wanted = {id(meta) for meta in wanted}
        self.found: dict[int, Tensor] = {}

    def deliver(self, meta: GradMeta, gradient: Tensor) -> None:
        key = id(meta)
        waiting = self._pending.get(key)
        self._pending[key] = (meta, gradient if waiting is None else waiting[1] + gradient)

    def take(self, meta: GradMeta) -> Tensor | None:
        """The whole gradient of a tensor, after its hooks."""
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
        """Walks from the roots; with `fill`, adds to `.grad` of leaves and of tensors that retain theirs. Nodes older than `since`
        are retained in any case.
        """
        outer, state.filling = state.filling, fill
        try:
            self._walk(roots, retain_graph, fill, since)
        finally:
            state.filling = outer

    def _walk(self, roots: Sequence[GradMeta], retain_graph: bool, fill: bool, since: int) -> None:
        fills = _Fills()
        vjp = _vjp()
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
                    self.deliver(edge, _fitted(node, edge, gradient))
            if not retain_graph and node.number >= since:
                node.release()
        for meta, _ in list(self._pending.values()):
            gradient = self.take(meta)
            if fill and gradient is not None and meta.node is None:
                fills.add(meta, gradient)
        node = gradient = gradients = None  # type: ignore[assignment]  # lets go of what the walk has held
        fills.deliver()


def is_filling() -> bool:
    """Whether the walk that calls a rule adds to `.grad`, as `backward()` does and `grad()` doesn't."""
    return state.filling


class _Fills:
    """Gradients on their way to `.grad`, which has memory of its own: what somebody else holds is copied."""

    def __init__(self) -> None:
        self._waiting: list[tuple[GradMeta, Tensor]] = []

    def add(self, meta: GradMeta, gradient: Tensor) -> None:
        self._waiting.append((meta, gradient))

    def deliver(self) -> None:
        """Fills `.grad` of all; called when the walk holds no gradient any more."""
        memories: dict[int, int] = {}
        for key in [id(pair[1].memory) for pair in self._waiting]:
            memories[key] = memories.get(key, 0) + 1
        while self._waiting:
            pair = self._waiting.pop()
            meta = pair[0]
            if meta.grad is not None:
                meta.grad = meta.grad + pair[1]
            elif memories[id(pair[1].memory)] > 1 or _is_held(pair) or not pair[1].is_contiguous():
                meta.grad = pair[1].clone()
            else:
                meta.grad = pair[1]


def _holders(pair: tuple[Any, Any]) -> int:
    return sys.getrefcount(pair[1])


class _Probe:
    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory = object()


def _memory_holders(pair: tuple[Any, Any]) -> int:
    return sys.getrefcount(pair[1].memory)


_ALONE = _holders((None, object()))
_MEMORY_ALONE = _memory_holders((None, _Probe()))


def _is_held(pair: tuple[GradMeta, Tensor]) -> bool:
    """Whether anything but the pair refers to the tensor, or any other tensor to its memory."""
    return _holders(pair) > _ALONE or _memory_holders(pair) > _MEMORY_ALONE


def _fitted(node: Node, edge: GradMeta, gradient: Tensor) -> Tensor:
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
    """Adds to `.grad` of every leaf that requires a gradient: the gradient of the tensors, weighted by `gradients`."""
    backward_since(0, tensors, gradients, retain_graph=retain_graph, create_graph=create_graph)


def backward_since(
    since: int,
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """As `backward`; what was recorded before the `mark()` that `since` is can be walked again in any case."""
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


def mark() -> int:
    """A moment: what is recorded later has a larger number."""
    return next(_sequence)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`: one tensor per input, None for those that weren't used where
    `allow_unused` allows that. `.grad` stays as it is.
    """
    from ..tensor.tensor import Tensor

    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    targets = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if grad_outputs is None:
        weights: list[Tensor | None] = [None] * len(roots)
    else:
        weights = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
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
