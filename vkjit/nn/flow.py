"""Trace of the data flow through a model: the operations of one call with their inputs, outputs and live memory.

`flow` runs a model once on example inputs, in inference mode without gradients, and returns a `Flow` with one row per
operation in execution order. A `Flow` prints as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..tensor.autograd.mode import no_grad, state
from ..tensor.tensor import Tensor
from .modules.module import Module
from .summary import format_size, format_table

__all__ = ["Flow", "FlowRow", "flow"]


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One operation of the trace.

    layer: dotted name of the module that ran it ("" for the model); operation: its name; takes: names of its input
    tensors; gives: name, shape and element type of each output tensor.
    """

    layer: str
    operation: str
    takes: tuple[str, ...]
    gives: tuple[tuple[str, tuple[int, ...], str], ...]
    live_nbytes: int
    """Bytes of the results that are still needed by later operations or the caller, including this one's. A view counts
    its entire buffer.
    """


@dataclass(frozen=True, slots=True)
class Flow:
    """The trace of one call: its rows, and the names of the model's results.

    Inputs are named "input 0", ..., parameters and buffers by their dotted names, results "t0", "t1", ..., other
    tensors "constant".
    """

    rows: tuple[FlowRow, ...]
    results: tuple[str, ...]

    @property
    def peak_nbytes(self) -> int:
        """Peak of the live bytes over all operations."""
        return max((row.live_nbytes for row in self.rows), default=0)

    def __str__(self) -> str:
        lines = [["layer", "operation", "takes", "gives", "live"]]
        for row in self.rows:
            gives = ", ".join(f"{name} {dtype} {shape}" for name, shape, dtype in row.gives)
            lines.append([row.layer, row.operation, ", ".join(row.takes), gives, format_size(row.live_nbytes)])
        text = format_table(lines)
        return "\n".join(
            [*text, f"gives {', '.join(self.results) or 'no tensor'}; peak {format_size(self.peak_nbytes)}"]
        )


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors nested in arguments or results, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


class _Recorder:
    """Recorder that names tensors and logs operations. It keeps all tensors alive, so that their ids aren't reused."""

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
        """Return a tensor's name; an unrecorded one has the name of the last recorded tensor with the same buffer,
        offset and layout.
        """
        return self._names.get(id(tensor)) or self._places.get(_place(tensor), "constant")

    def __call__(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Run an operation and log it; operations that it calls internally aren't logged."""
        takes = tuple(self.name(t) for t in (*_tensors(args), *_tensors(params)))
        state.interceptor = None
        try:
            result = call(*args, **params)
        finally:
            state.interceptor = self
        gives = tuple(_tensors(result))
        for tensor in gives:
            self._call(tensor, f"t{self._count}")
            self._count += 1
        self.noted.append((self.layers[-1] if self.layers else "", name, takes, gives))
        return result

    def rows(self, results: tuple[str, ...]) -> Iterator[FlowRow]:
        """Yield the rows with their live bytes."""
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
def _recording(model: Module, watcher: _Recorder) -> Iterator[None]:
    """Within the block, the model is in inference mode, and its layers and operations are reported to the watcher."""
    modes = [(module, module.training) for module in model.modules()]
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: watcher.layers.append(name)))
        handles.append(module.register_forward_hook(lambda *_: (watcher.layers.pop(), None)[1]))
    saved = state.interceptor
    try:
        model.eval()
        with no_grad():
            state.interceptor = watcher
            yield
    finally:
        state.interceptor = saved
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.__dict__["training"] = training


def flow(model: Module, *inputs: Any, **options: Any) -> Flow:
    """Trace one call of a model: one row per operation."""
    watcher = _Recorder(model, (inputs, options))
    with _recording(model, watcher):
        result = model(*inputs, **options)
    results = tuple(watcher.name(t) for t in _tensors(result))
    return Flow(tuple(watcher.rows(results)), results)
