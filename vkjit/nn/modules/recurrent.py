"""Recurrent layers (RNN, LSTM, GRU) and their single-step cells.

The input projection of a layer is one matrix product over the whole sequence; only the state-dependent part runs step
by step. Names, shapes and the order of gates are PyTorch's.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.tensor.ops import copies, creation, views
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .container import check_layer_count
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

State = Any
"""A tensor, or for LSTM a pair (hidden, cell)."""

_GATES = {"rnn": 1, "lstm": 4, "gru": 3}
"""Number of gates: the rows of the weights are gates * hidden_size, one block of hidden_size rows per gate."""


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    """Return `F.linear(x, weight, bias)` with the static type Any instead of Tensor."""
    return F.linear(x, weight, bias)


def _step(
    kind: str, projected_input: Any, state: State, weight: Tensor, bias: Tensor | None, projection: Tensor | None
) -> State:
    """Return the state of a layer after one step, given the state before it and the projected input W_ih x + b_ih.

    kind: "tanh" or "relu" (RNN), "lstm" or "gru". weight and bias are W_hh and b_hh; projection is LSTM's W_hr, if any.
    """
    hidden = state[0] if kind == "lstm" else state
    projected_hidden = _linear(hidden, weight, bias)
    if kind == "tanh":
        return (projected_input + projected_hidden).tanh()
    if kind == "relu":
        return (projected_input + projected_hidden).relu()
    if kind == "lstm":
        i, f, g, o = views.chunk(projected_input + projected_hidden, 4, -1)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        output = o.sigmoid() * cell.tanh()
        return (output if projection is None else F.linear(output, projection)), cell
    # GRU: the reset gate r applies to the hidden part of n only, so both parts are kept apart
    r, z, n = views.chunk(projected_input, 3, -1)
    hr, hz, hn = views.chunk(projected_hidden, 3, -1)
    update, candidate = (z + hz).sigmoid(), (n + (r + hr).sigmoid() * hn).tanh()
    return candidate + update * (hidden - candidate)


def _uniform(module: Module, hidden: int) -> None:
    """Initialize all parameters uniformly within +-1/sqrt(hidden), where `hidden` is the hidden size."""
    bound = 1 / math.sqrt(hidden) if hidden else 0.0  # cells may have a hidden size of 0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


class _Recurrent(Module):
    """Base class of recurrent layers, which run over sequences.

    Layer k has these parameters, where gates is the number of gates (`_GATES`) and width is the size of a layer's
    output per step and direction: proj_size if set, else hidden_size.

    - weight_ih_l[k]: (gates * hidden_size, input size of layer k)
    - weight_hh_l[k]: (gates * hidden_size, width)
    - bias_ih_l[k] and bias_hh_l[k], if `bias`: (gates * hidden_size,)
    - weight_hr_l[k], if proj_size is set: (proj_size, hidden_size)

    The reverse direction has its own parameters, with the suffix `_reverse`. All are initialized uniformly within
    +-1/sqrt(hidden_size). In training, dropout is applied to the outputs of all layers but the last.
    """

    kind: str
    """"tanh" or "relu" (RNN), "lstm" or "gru"."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        if hidden_size < 1 or num_layers < 1 or not 0 <= proj_size < hidden_size:
            raise ArgumentError(
                f"{type(self).__name__} needs hidden_size and num_layers of at least 1 and proj_size below hidden_size, "
                f"found {hidden_size}, {num_layers}, {proj_size}"
            )
        if not 0 <= dropout <= 1:
            raise ArgumentError(f"a dropout probability lies in [0, 1], found {dropout}")
        check_layer_count(num_layers, type(self).__name__)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        rows = _GATES[self._family] * hidden_size
        width = proj_size or hidden_size
        output_size = width * (2 if bidirectional else 1)  # the outputs of both directions are concatenated
        for layer in range(num_layers):
            layer_input_size = input_size if layer == 0 else output_size
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih_{suffix}": (rows, layer_input_size),
                    f"weight_hh_{suffix}": (rows, width),
                }
                if bias:
                    shapes |= {f"bias_ih_{suffix}": (rows,), f"bias_hh_{suffix}": (rows,)}
                if proj_size:
                    shapes[f"weight_hr_{suffix}"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name, Parameter(creation.empty(shape, dtype=dtype, device=device)))
        self.reset_parameters()

    @property
    def _family(self) -> str:
        """Key of this layer in `_GATES`: its kind, or "rnn" for the kinds "tanh" and "relu"."""
        return self.kind if self.kind in _GATES else "rnn"

    def _suffixes(self, layer: int) -> list[str]:
        """Return the suffix of the parameter names of each direction of a layer."""
        return [f"l{layer}", f"l{layer}_reverse"] if self.bidirectional else [f"l{layer}"]

    def reset_parameters(self) -> None:
        """Reinitialize all parameters."""
        _uniform(self, self.hidden_size)

    def forward(self, x: Tensor, hx: State = None) -> tuple[Tensor, State]:
        """(L, N, input_size) and an initial state (directions * layers, N, width) -> (L, N, directions * width) and the
        final state.

        L is the number of steps, N the batch size. batch_first: (N, L, input_size). Without N the input is a single
        sequence. The initial state defaults to zeros. The state of an LSTM is a pair (hidden, cell), in which the cell
        has the width hidden_size.
        """
        single = x.ndim == 2
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__} takes 2 or 3 axes, the last of size {self.input_size}, found shape {x.shape}"
            )
        if single:
            x = views.unsqueeze(x, 1)
        elif self.batch_first:
            x = views.transpose(x, 0, 1)
        states = self._first_states(x, hx, single)
        final_states: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, self.dropout, True)
            direction_outputs = []
            for suffix in self._suffixes(layer):
                # the final states are appended in the order of the initial states
                outputs, state = self._run(x, states[len(final_states)], suffix)
                direction_outputs.append(outputs)
                final_states.append(state)
            x = copies.cat(direction_outputs, -1) if len(direction_outputs) > 1 else direction_outputs[0]
        if single:
            x = views.squeeze(x, 1)
        elif self.batch_first:
            x = views.transpose(x, 0, 1)
        return x, self._stacked(final_states, single)

    def _first_states(self, x: Tensor, hx: State, single: bool) -> list[State]:
        """Return the initial states, one for each direction of each layer, as a list in the order of the layers.

        Each state has a batch axis. x: the input (L, N, input_size); hx: the initial states passed to `forward`, or
        None for zeros; single: hx has no batch axis.
        """
        count = self.num_layers * (2 if self.bidirectional else 1)
        # the sizes of the last axes of the hidden state and, for LSTM, of the cell
        widths = [self.proj_size or self.hidden_size] + ([self.hidden_size] if self.kind == "lstm" else [])
        if hx is None:
            zeros = [creation.zeros(x.shape[1], width, dtype=x.dtype, device=x.device) for width in widths]
            return [tuple(zeros) if self.kind == "lstm" else zeros[0]] * count
        if self.kind == "lstm" and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise ArgumentError(f"LSTM takes its initial states as a tuple of two tensors, found {type(hx).__name__}")
        tensors = tuple(hx) if self.kind == "lstm" else (hx,)
        for tensor, width in zip(tensors, widths, strict=True):
            expected = (count, width) if single else (count, x.shape[1], width)
            if tensor.shape != expected:
                raise ShapeError(f"{type(self).__name__}: the state has shape {tensor.shape}, expected {expected}")
        batched = [views.unsqueeze(tensor, 1) if single else tensor for tensor in tensors]
        return [
            tuple(part_states[i] for part_states in batched) if self.kind == "lstm" else batched[0][i]
            for i in range(count)
        ]

    def _stacked(self, final_states: list[State], single: bool) -> State:
        """Stack the final states, one per layer and direction, to the form in which `forward` takes initial states."""
        # the hidden states of all layers and directions and, for LSTM, their cells
        by_component = list(zip(*final_states, strict=True)) if self.kind == "lstm" else [final_states]
        stacked: list[Any] = [copies.stack(list(component_states)) for component_states in by_component]
        states = [views.squeeze(s, 1) if single else s for s in stacked]
        return tuple(states) if self.kind == "lstm" else states[0]

    def _run(self, x: Tensor, state: State, suffix: str) -> tuple[Tensor, State]:
        """Run one direction of one layer over sequences x (L, N, inputs), from an initial state.

        Return the outputs (L, N, width) and the final state. `suffix` selects layer and direction: it is the suffix of
        their parameter names (see `_suffixes`).
        """
        parameter: Any = self._parameters.get  # None for a missing bias or projection
        projected_inputs: Any = _linear(x, parameter(f"weight_ih_{suffix}"), parameter(f"bias_ih_{suffix}"))
        weight, bias, projection = (parameter(f"{name}_{suffix}") for name in ("weight_hh", "bias_hh", "weight_hr"))
        steps = range(x.shape[0])
        outputs: list[Any] = [None] * len(steps)
        for t in reversed(steps) if suffix.endswith("_reverse") else steps:
            state = _step(self.kind, projected_inputs[t], state, weight, bias, projection)
            outputs[t] = state[0] if self.kind == "lstm" else state
        if not outputs:  # no steps, so nothing to stack: return an empty tensor (0, N, width)
            return projected_inputs[:, :, : self.proj_size or self.hidden_size], state
        return copies.stack(outputs), state

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
            ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(_Recurrent):
    """Elman RNN: h' = tanh(W_ih x + b_ih + W_hh h + b_hh) along a sequence, or relu(...) with nonlinearity="relu"."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f'nonlinearity is "tanh" or "relu", found {nonlinearity!r}')
        self.kind = self.nonlinearity = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )


class LSTM(_Recurrent):
    """Long short-term memory: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c').

    The state is a pair (h, c). The gates i, f, g, o are the four chunks of W_ih x + b_ih + W_hh h + b_hh. With
    proj_size, h' is multiplied by weight_hr_l[k], of shape (proj_size, hidden_size).
    """

    kind = "lstm"


class GRU(_Recurrent):
    """Gated recurrent unit: h' = (1 - sigmoid(z)) n + sigmoid(z) h.

    The gates r and z are the first two of three chunks of W_ih x + b_ih + W_hh h + b_hh. The candidate is n = tanh(W_in
    x + b_in + sigmoid(r) (W_hn h + b_hn)), where W_in, b_in, W_hn and b_hn are the third chunks of the parameters.
    """

    kind = "gru"


class _Cell(Module):
    """Base class of single-step cells. Their parameters are those of one layer of `_Recurrent` without projection.

    weight_ih: (gates * hidden_size, input_size), weight_hh: (gates * hidden_size, hidden_size), bias_ih and bias_hh:
    (gates * hidden_size,), or None without `bias`.
    """

    kind: str
    """"tanh" or "relu" (RNN), "lstm" or "gru"."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = dtypes.f32
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = _GATES[self.kind if self.kind in _GATES else "rnn"] * hidden_size  # "rnn" for "tanh" and "relu"
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        for name, shape in shapes.items():
            setattr(self, name, Parameter(creation.empty(shape, dtype=dtype, device=device)))
        for name in ("bias_ih", "bias_hh"):
            parameter = Parameter(creation.empty(rows, dtype=dtype, device=device)) if bias else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialize all parameters."""
        _uniform(self, self.hidden_size)

    def forward(self, x: Tensor, hx: State = None) -> State:
        """(N, input_size) or (input_size,), and a state (N, hidden_size) or (hidden_size,) -> the next state."""
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__} takes (N, {self.input_size}) or ({self.input_size},), found shape {x.shape}"
            )
        if hx is None:
            zeros = creation.zeros((*x.shape[:-1], self.hidden_size), dtype=x.dtype, device=x.device)
            hx = (zeros, zeros) if self.kind == "lstm" else zeros
        states, shape = hx if self.kind == "lstm" else (hx,), (*x.shape[:-1], self.hidden_size)
        if [getattr(state, "shape", None) for state in states] != [shape] * (2 if self.kind == "lstm" else 1):
            raise ShapeError(
                f"{type(self).__name__} takes a state of {'two tensors (h, c)' if self.kind == 'lstm' else 'a tensor'} of shape "
                f"{shape}, found {[getattr(state, 'shape', type(state).__name__) for state in states]}"
            )
        get: Any = self._parameters.get
        projected_input = _linear(x, get("weight_ih"), get("bias_ih"))
        return _step(self.kind, projected_input, hx, get("weight_hh"), get("bias_hh"), None)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of `RNN`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f'nonlinearity is "tanh" or "relu", found {nonlinearity!r}')
        self.kind = self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        text = super().extra_repr()
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"


class LSTMCell(_Cell):
    """One step of `LSTM`. The state is a pair (h, c)."""

    kind = "lstm"


class GRUCell(_Cell):
    """One step of `GRU`."""

    kind = "gru"
