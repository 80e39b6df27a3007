"""Trace of the data flow through a model: the operations of one call with their inputs, outputs and live memory.

`flow` runs a model once on example inputs, in inference mode without gradients, and returns a `Flow` with one row per
operation in execution order. A `Flow` prints as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..runtime.open_blocks import block
from ..tensor.autograd.mode import changed_modes, no_grad, state
from ..tensor.tensor import Tensor
from .modules.module import Module
from .summary import format_size, format_table, inference_lock, restore_modules

__all__ = ["Flow", "FlowRow", "flow"]


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One operation of the trace.

    layer: dotted name of the innermost module that called the operation ("" for the model itself); operation: its name;
    takes: names of its input tensors; gives: name, shape and element type of each output tensor. `Flow` describes the
    names of tensors.
    """

    layer: str
    operation: str
    takes: tuple[str, ...]
    gives: tuple[tuple[str, tuple[int, ...], str], ...]
    live_nbytes: int
    """Bytes that results of operations occupy after this operation: its own, and those that are needed later.

    A view counts as its entire buffer, and each buffer is counted once. Inputs and parameters don't count.
    """


@dataclass(frozen=True, slots=True)
class Flow:
    """The trace of one call: its rows, and the names of the tensors that the model returned.

    The model's inputs are named "input 0", "input 1", ...; parameters and buffers by their dotted names; results of
    operations "t0", "t1", ...; all other tensors "constant".
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
    """Interceptor of operations (`state.interceptor`) that names tensors and logs each operation.

    All named tensors are kept alive, because names are looked up by `id`, and ids of freed objects are reused. `layers`
    is the stack of running modules; `log` has (layer, operation, input names, output tensors) of each operation.
    """

    def __init__(self, model: Module, inputs: Any) -> None:
        self.layers: list[str] = []
        self.log: list[tuple[str, str, tuple[str, ...], tuple[Tensor, ...]]] = []
        self._names: dict[int, str] = {}
        self._names_by_layout: dict[Any, str] = {}
        self._kept_alive: list[Tensor] = []
        self._count = 0
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._assign_name(tensor, name)
        for number, tensor in enumerate(_tensors(inputs)):
            self._assign_name(tensor, f"input {number}")
        # those of the parameters, buffers and inputs named so far
        self._external_buffers = {id(tensor._array.buffer) for tensor in self._kept_alive}

    def _assign_name(self, tensor: Tensor, name: str) -> None:
        """Name a tensor and keep it alive."""
        self._kept_alive.append(tensor)
        self._names[id(tensor)] = self._names_by_layout[_layout_key(tensor)] = name

    def name(self, tensor: Tensor) -> str:
        """Return the name of a tensor.

        A tensor that hasn't been named, such as an alias, has the name of the last named tensor with the same buffer,
        offset and layout, or else "constant".
        """
        return self._names.get(id(tensor)) or self._names_by_layout.get(_layout_key(tensor), "constant")

    def __call__(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Run an operation and log it. Operations that it calls internally aren't logged."""
        takes = tuple(self.name(t) for t in (*_tensors(args), *_tensors(params)))
        with changed_modes(interceptor=None):
            result = call(*args, **params)
        gives = tuple(_tensors(result))
        for tensor in gives:
            self._assign_name(tensor, f"t{self._count}")
            self._count += 1
        self.log.append((self.layers[-1] if self.layers else "", name, takes, gives))
        return result

    def rows(self, results: tuple[str, ...]) -> Iterator[FlowRow]:
        """Yield a row per logged operation. `results`: names of the tensors that the model returns."""
        # number of the last operation that takes each tensor (by name); the model's results are used after the last one
        last_use = {name: number for number, (_, _, takes, _) in enumerate(self.log) for name in takes}
        last_use.update(dict.fromkeys(results, len(self.log)))
        for number, (layer, operation, takes, gives) in enumerate(self.log):
            # bytes by buffer, so that views of one buffer count once; the model's inputs and parameters don't count
            live = {
                id(t._array.buffer): t._array.buffer.nbytes
                for step, (*_, outputs) in enumerate(self.log[: number + 1])
                for t in outputs
                if id(t._array.buffer) not in self._external_buffers
                # results of this operation, and earlier results that a later operation takes
                if step == number or last_use.get(self._names[id(t)], -1) > number
            }
            described = tuple((self._names[id(t)], t.shape, t.dtype.name) for t in gives)
            yield FlowRow(layer, operation, takes, described, sum(live.values()))


def _layout_key(tensor: Tensor) -> Any:
    """Return a key that is equal for tensors with the same buffer, offset and layout."""
    array = tensor._array
    return id(array.buffer), array.offset, array.shape, array.strides


@block
def _recording(model: Module, recorder: _Recorder) -> Iterator[None]:
    """Context manager in which the model is in inference mode, and the recorder logs its layers and operations."""

    def is_own() -> bool:
        return state.interceptor is recorder  # False in other threads, which may call the model meanwhile

    def enter(name: str) -> None:
        if is_own():
            recorder.layers.append(name)

    def leave(*_: Any) -> None:
        if is_own():
            recorder.layers.pop()

    with inference_lock:
        modes = [(module, module.training) for module in model.modules()]
        handles = []
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: enter(name)))
            handles.append(module.register_forward_hook(leave))
        try:
            model.eval()
            with no_grad(), changed_modes(interceptor=recorder):
                yield
        finally:
            try:
                restore_modules(handles, modes)
            except BaseException:  # an interrupt
                restore_modules(handles, modes)
                raise


def flow(model: Module, *inputs: Any, **options: Any) -> Flow:
    """Call a model with inputs and options (keyword arguments), and return the trace: one row per operation."""
    recorder = _Recorder(model, (inputs, options))
    with _recording(model, recorder):
        result = model(*inputs, **options)
    results = tuple(recorder.name(t) for t in _tensors(result))
    return Flow(tuple(recorder.rows(results)), results)
