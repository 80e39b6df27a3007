"""How tensors flow through a model: each operation of a call, what it takes and what it gives.

Enters: a model and example inputs. Leaves: a `Flow` with a row per operation, in the order in which they ran; it prints as a table.
The model runs once, without gradients and in inference mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..autograd.mode import no_grad, state
from ..tensor.tensor import Tensor
from .module import Module
from .summary import shown_size, table

__all__ = ["Flow", "FlowRow", "flow"]


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One operation: the layer that ran it (dotted name, "" for the model), its name, names of the tensors it takes, and of each
    tensor that it gives the name, shape and element type.
    """

    layer: str
    operation: str
    takes: tuple[str, ...]
    gives: tuple[tuple[str, tuple[int, ...], str], ...]
    live_nbytes: int
    """Of results that later operations, or the caller, still need, this one's included. A view counts as what it looks at."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The rows, and the names of what the call gave. Inputs are called "input 0", ..., parameters and buffers by their dotted
    names, results "t0", "t1", ..., tensors from elsewhere "constant".
    """

    rows: tuple[FlowRow, ...]
    results: tuple[str, ...]

    @property
    def peak_nbytes(self) -> int:
        """The most that results took at one time."""
        return max((row.live_nbytes for row in self.rows), default=0)

    def __str__(self) -> str:
        lines = [["layer", "operation", "takes", "gives", "live"]]
        for row in self.rows:
            gives = ", ".join(f"{name} {dtype} {shape}" for name, shape, dtype in row.gives)
            lines.append([row.layer, row.operation, ", ".join(row.takes), gives, shown_size(row.live_nbytes)])
        text = table(lines)
        return "\n".join(
            [*text, f"gives {', '.join(self.results) or 'no tensor'}; peak {shown_size(self.peak_nbytes)}"]
        )


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of arguments or results, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


class _Watcher:
    """Names tensors and notes operations. Keeps all tensors, so that none takes another's place."""

    def __init__(self, model: Module, inputs: Any) -> None:
        self.layers: list[str] = []
        self.noted: list[tuple[str, str, tuple[str, ...], tuple[Tensor, ...]]] = []
        self._names: dict[int, str] = {}
        self._places: dict[Any, str] = {}
        self._kept: list[Tensor] = []
        self._count = 0
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._call(tensor, name)
        for number, tensor in enumerate(_tensors(inputs)):
            self._call(tensor, f"input {number}")
        self._given = {id(tensor._array.buffer) for tensor in self._kept}

    def _call(self, tensor: Tensor, name: str) -> None:
        self._kept.append(tensor)
        self._names[id(tensor)] = self._places[_place(tensor)] = name

    def name(self, tensor: Tensor) -> str:
        """A tensor's name; one that no operation gave has that of the latest one at its place."""
        return self._names.get(id(tensor)) or self._places.get(_place(tensor), "constant")

    def __call__(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Runs an operation and notes it; what it is made of runs unwatched."""
        takes = tuple(self.name(t) for t in (*_tensors(args), *_tensors(params)))
        state.watch = None
        try:
            result = call(*args, **params)
        finally:
            state.watch = self
        gives = tuple(_tensors(result))
        for tensor in gives:
            self._call(tensor, f"t{self._count}")
            self._count += 1
        self.noted.append((self.layers[-1] if self.layers else "", name, takes, gives))
        return result

    def rows(self, results: tuple[str, ...]) -> Iterator[FlowRow]:
        """The rows, with what was needed after each."""
        last = {name: number for number, (_, _, takes, _) in enumerate(self.noted) for name in takes}
        last.update(dict.fromkeys(results, len(self.noted)))
        for number, (layer, operation, takes, gives) in enumerate(self.noted):
            live = {
                id(t._array.buffer): t._array.buffer.nbytes
                for before, (*_, given) in enumerate(self.noted[: number + 1])
                for t in given
                if id(t._array.buffer) not in self._given
                if before == number or last.get(self._names[id(t)], -1) > number
            }
            named = tuple((self._names[id(t)], t.shape, t.dtype.name) for t in gives)
            yield FlowRow(layer, operation, takes, named, sum(live.values()))


def _place(tensor: Tensor) -> Any:
    array = tensor._array
    return id(array.buffer), array.offset, array.shape, array.strides


@contextmanager
def _watching(model: Module, watcher: _Watcher) -> Iterator[None]:
    """The model in inference mode, its layers telling when they begin and end, all operations told to the watcher."""
    modes = [(module, module.training) for module in model.modules()]
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: watcher.layers.append(name)))
        handles.append(module.register_forward_hook(lambda *_: (watcher.layers.pop(), None)[1]))
    saved = state.watch
    try:
        model.eval()
        with no_grad():
            state.watch = watcher
            yield
    finally:
        state.watch = saved
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.__dict__["training"] = training


def flow(model: Module, *inputs: Any, **options: Any) -> Flow:
    """The flow of tensors in one call of a model: a row per operation."""
    watcher = _Watcher(model, (inputs, options))
    with _watching(model, watcher):
        result = model(*inputs, **options)
    results = tuple(watcher.name(t) for t in _tensors(result))
    return Flow(tuple(watcher.rows(results)), results)
