"""Tabular summary of a model: layers, output shapes, parameters, bytes, and optionally statistics of the outputs.

`summary` returns a `Summary` with one row per module, which prints as a table. Output shapes need example inputs;
without them the model isn't run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..runtime.handles import new_lock
from ..tensor.autograd.mode import no_grad
from ..tensor.tensor import Tensor
from .modules.hooks import Handle
from .modules.module import Module

__all__ = ["LayerRow", "OutputStatistics", "Summary", "summary"]


@dataclass(frozen=True, slots=True)
class OutputStatistics:
    """Statistics of a layer's output: mean, standard deviation, minimum and maximum of the finite elements, and the
    number of infinite or NaN elements.
    """

    mean: float
    deviation: float
    minimum: float
    maximum: float
    not_finite: int


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One module of the model.

    name: dotted name of the module ("" for the model itself); kind: name of its class; depth: number of enclosing
    modules; shape: shape of its output, None if it hasn't been run; parameters, trainable: number of elements of all
    and of the trainable parameters, without those of child modules; result_nbytes: bytes of its output; values:
    statistics of its output, if requested. Of an output with several tensors, only the first one counts.
    """

    name: str
    kind: str
    depth: int
    shape: tuple[int, ...] | None
    parameters: int
    trainable: int
    nbytes: int
    """Bytes of the module's parameters and buffers, without those of child modules."""
    result_nbytes: int
    values: OutputStatistics | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a model: one row per module, the model itself first.

    Shared parameters are counted once, in the first module that has them.
    """

    rows: tuple[LayerRow, ...]

    @property
    def parameters(self) -> int:
        """Number of elements of all parameters."""
        return sum(row.parameters for row in self.rows)

    @property
    def trainable(self) -> int:
        """Number of elements of the parameters that require a gradient."""
        return sum(row.trainable for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters and buffers."""
        return sum(row.nbytes for row in self.rows)

    @property
    def result_nbytes(self) -> int:
        """Bytes of the outputs of the innermost layers: roughly the activation memory of training."""
        # rows are in preorder: a module without children is followed by a row that isn't deeper, or by none
        next_rows = [*self.rows[1:], None]
        return sum(
            row.result_nbytes
            for row, next_row in zip(self.rows, next_rows, strict=True)
            if next_row is None or next_row.depth <= row.depth
        )

    def __str__(self) -> str:
        with_values = any(row.values for row in self.rows)
        columns = ["layer", "result", "parameters"] + (["mean", "deviation", "range"] if with_values else [])
        lines = [columns]
        for row in self.rows:
            label = f"{'  ' * row.depth}{row.kind}" + (f" ({row.name.rpartition('.')[2]})" if row.name else "")
            line = [label, "" if row.shape is None else str(row.shape), f"{row.parameters:,}" if row.parameters else ""]
            lines.append(line + (_statistics_cells(row.values) if with_values else []))
        text = format_table(lines)
        text.append(f"{self.parameters:,} parameters, {self.trainable:,} of them trainable, {format_size(self.nbytes)}")
        if self.result_nbytes:
            text.append(f"results of the layers: {format_size(self.result_nbytes)}")
        return "\n".join(text)


def format_table(lines: list[list[str]]) -> list[str]:
    """Format rows of cells as aligned lines of text, with the first row underlined."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return text


def _statistics_cells(values: OutputStatistics | None) -> list[str]:
    """Format statistics as table cells: mean, deviation, range."""
    if values is None:
        return ["", "", ""]
    bad = f", {values.not_finite} not finite" if values.not_finite else ""
    return [f"{values.mean:.4g}", f"{values.deviation:.4g}", f"{values.minimum:.4g} to {values.maximum:.4g}{bad}"]


def format_size(nbytes: int) -> str:
    """Format a byte count with four significant digits and a unit."""
    power = min(max(nbytes.bit_length() - 1, 0) // 10, 4)  # the largest with 1024**power <= nbytes, at most TiB
    return f"{nbytes / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _first_tensor(result: Any) -> Tensor | None:
    """Return the first tensor in a module's result, which may be nested in tuples and lists, or None."""
    if isinstance(result, Tensor):
        return result
    items = result if isinstance(result, (tuple, list)) else ()
    return next((tensor for item in items if (tensor := _first_tensor(item)) is not None), None)


def _statistics(tensor: Tensor) -> OutputStatistics:
    """Compute the statistics of a tensor on the host."""
    values = np.asarray(tensor.detach().numpy(), np.float64)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return OutputStatistics(math.nan, math.nan, math.nan, math.nan, values.size)
    return OutputStatistics(
        float(finite.mean()), float(finite.std()), float(finite.min()), float(finite.max()), values.size - finite.size
    )


def _row(name: str, module: Module, counted: set[int]) -> LayerRow:
    """Return the row of a module that hasn't been run.

    counted: ids of the tensors that earlier rows count, to which those of this module are added.
    """
    parameters = [p for p in module._parameters.values() if p is not None and id(p) not in counted]
    buffers = [b for b in module._buffers.values() if b is not None and id(b) not in counted]
    counted.update(id(t) for t in (*parameters, *buffers))
    return LayerRow(
        name=name,
        kind=type(module).__name__,
        depth=name.count(".") + 1 if name else 0,
        shape=None,
        parameters=sum(p.numel() for p in parameters),
        trainable=sum(p.numel() for p in parameters if p.requires_grad),
        nbytes=sum(t.nbytes for t in (*parameters, *buffers)),
        result_nbytes=0,
    )


def summary(model: Module, *inputs: Any, values: bool = False, **options: Any) -> Summary:
    """Return the summary of a model.

    If inputs or options (keyword arguments) are given, the model is called once with them, in inference mode without
    gradients. Rows then have the shape of each layer's output (the last, if it runs more than once), and with
    values=True its statistics, which are computed on the host. Without inputs, models on the device "meta" can be
    summarized as well.
    """
    counted: set[int] = set()
    rows = {id(module): _row(name, module, counted) for name, module in model.named_modules()}
    if inputs or options:
        _run(model, inputs, options, rows, values)
    return Summary(tuple(rows.values()))


inference_lock = new_lock()
"""Held while `summary` or `flow` has a model in inference mode: two at once would restore each other's mode."""


def _run(
    model: Module, inputs: tuple[Any, ...], options: dict[str, Any], rows: dict[int, LayerRow], values: bool
) -> None:
    """Call the model and record each layer's output in its row."""

    thread = threading.get_ident()

    def record_output(module: Module, _: Any, result: Any) -> None:
        tensor = _first_tensor(result)
        if tensor is not None and threading.get_ident() == thread:  # others may call the model meanwhile
            statistics = _statistics(tensor) if values else None
            rows[id(module)] = replace(
                rows[id(module)], shape=tensor.shape, result_nbytes=tensor.nbytes, values=statistics
            )  # fmt: skip

    with inference_lock:
        modes = [(module, module.training) for module in model.modules()]
        handles = [module.register_forward_hook(record_output) for module, _ in modes]
        try:
            model.eval()
            with no_grad():
                model(*inputs, **options)
        finally:
            try:
                restore_modules(handles, modes)
            except BaseException:  # an interrupt
                restore_modules(handles, modes)
                raise


def restore_modules(handles: Sequence[Handle], modes: Sequence[tuple[Module, bool]]) -> None:
    """Remove hooks, and set the `training` of modules."""
    for handle in handles:
        handle.remove()
    for module, training in modes:
        module.__dict__["training"] = training
