"""Exponential moving average of a model's weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..dtypes import f32
from ..errors import ArgumentError
from ..runtime.open_blocks import block
from ..tensor.autograd.mode import no_grad
from ..tensor.ops.creation import tensor
from ..tensor.tensor import Tensor

__all__ = ["EMA"]


class EMA:
    """Exponential moving average of parameters: average = decay * average + (1 - decay) * parameter at each `update()`.

    warmup limits the decay of update t to (1 + t) / (10 + t), so that the first values of the parameters weigh less.
    Averages of 16-bit floats are kept in f32: in 16 bits they would soon stop changing, since updates would be smaller
    than half a unit in the last place.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float = 0.999, *, warmup: bool = False) -> None:
        if not 0 <= decay < 1:
            raise ArgumentError(f"EMA: decay lies in [0, 1), found {decay!r}")
        if not isinstance(parameters, Iterable):
            raise ArgumentError(
                f"EMA takes the parameters of a model, found a {type(parameters).__name__}: pass its parameters()"
            )
        self.parameters = list(parameters)
        not_a_tensor = next((p for p in self.parameters if not isinstance(p, Tensor)), None)
        if not_a_tensor is not None:
            raise ArgumentError(
                f"EMA takes the parameters of a model, found a {type(not_a_tensor).__name__}: pass model.parameters()"
            )
        if not self.parameters:
            raise ArgumentError("EMA needs at least one parameter, found none")
        self.decay, self.warmup, self.updates = decay, warmup, 0
        with no_grad():
            self.averages: list[Any] = [
                p.detach().to(f32 if p.dtype.itemsize == 2 else p.dtype, copy=True) for p in self.parameters
            ]

    def update(self) -> None:
        """Update the averages with the current parameters. Call it after `optimizer.step()`."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.warmup else self.decay
        with no_grad():
            for average, parameter in zip(self.averages, self.parameters, strict=True):
                average.add_((parameter.detach() - average) * (1 - decay))

    @block
    def averaged(self) -> Iterator[None]:
        """Context manager that sets the parameters to the averages: `with ema.averaged(): evaluate(model)`.

        At the end of the block, the parameters get their own values again.
        """
        with no_grad():
            saved = [p.detach().clone() for p in self.parameters]
        try:
            self._assign(self.averages)
            yield
        finally:
            try:
                self._assign(saved)
            except BaseException:  # an interrupt
                self._assign(saved)
                raise

    def _assign(self, values: Sequence[Tensor]) -> None:
        """Copy values to the parameters."""
        with no_grad():
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """Return the averages and the number of updates. Tensors are not copied."""
        return {"averages": list(self.averages), "updates": self.updates}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`. Tensors are copied."""
        if not isinstance(state_dict, Mapping) or not {"averages", "updates"} <= set(state_dict):
            raise ArgumentError('the state of an EMA is a mapping with "averages" and "updates"')
        loaded = [v if isinstance(v, Tensor) else tensor(v) for v in state_dict["averages"]]
        if [tuple(v.shape) for v in loaded] != [a.shape for a in self.averages]:
            raise ArgumentError("the averages of the state don't have the shapes of the parameters")
        with no_grad():
            for average, value in zip(self.averages, loaded, strict=True):
                average.copy_(value)
        self.updates = int(state_dict["updates"])
