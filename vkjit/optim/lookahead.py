"""Lookahead: slow weights, updated every k steps from the fast weights of another optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError
from ..tensor.autograd.mode import no_grad
from ..tensor.tensor import Tensor
from .optimizer import Group, Optimizer

__all__ = ["Lookahead"]


class Lookahead(Optimizer):
    """Lookahead wrapper (Zhang et al., 2019).

    optimizer makes the fast steps; its parameter groups are also those of the wrapper. After every k of its steps,
    slow += alpha * (fast - slow), where fast is a parameter and slow its slow weight, and the parameter is set to slow.
    alpha is in [0, 1]. `taken` counts the fast steps.
    """

    def __init__(self, optimizer: Optimizer, k: int = 5, alpha: float = 0.5) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"Lookahead takes an optimiser, found {type(optimizer).__name__}")
        if not isinstance(k, int) or k < 1 or not 0 <= alpha <= 1:
            raise ArgumentError(f"Lookahead needs k of at least 1 and alpha in [0, 1], found {k!r} and {alpha!r}")
        self.optimizer, self.k, self.alpha = optimizer, k, alpha
        # instead of super().__init__(), which would make new groups
        self.defaults, self.param_groups = optimizer.defaults, optimizer.param_groups
        self.state = {}
        self.taken = 0

    def add_param_group(self, group: Group) -> None:
        """Add a parameter group to the inner optimizer."""
        self.optimizer.add_param_group(group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a fast step. After every k-th step, update the slow weights and set the parameters to them."""
        with no_grad():  # parameters that are new since the last step start with their current values as slow weights
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter not in self.state:
                        self.state[parameter] = {"slow": parameter.detach().clone()}
        loss = self.optimizer.step(closure)
        self.taken += 1
        if self.taken % self.k == 0:
            self._update_slow_weights()
        return loss

    def _update_slow_weights(self) -> None:
        """Move the slow weights towards the fast ones, and set the parameters to the slow weights."""
        with no_grad():
            for parameter, state in self.state.items():
                slow: Any = state["slow"]
                fast: Any = parameter.detach()
                slow.add_((fast - slow) * self.alpha)
                parameter.copy_(slow)

    def state_dict(self) -> dict[str, Any]:
        """Return {"fast": inner optimizer's state, "slow": slow weights by parameter index, "taken": step count}."""
        indices = self._parameter_indices()
        slow = {indices[id(p)]: state["slow"] for p, state in self.state.items()}
        return {"fast": self.optimizer.state_dict(), "slow": slow, "taken": self.taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`. Tensors are copied."""
        if not isinstance(state_dict, Mapping) or not {"fast", "slow", "taken"} <= set(state_dict):
            raise ArgumentError('the state of a Lookahead is a mapping with "fast", "slow" and "taken"')
        parameters: list[Tensor] = [p for group in self.param_groups for p in group["params"]]
        slow = {int(number): value for number, value in state_dict["slow"].items()}
        for number, value in slow.items():
            if number >= len(parameters) or tuple(value.shape) != parameters[number].shape:
                raise ArgumentError(f"the state has slow weights for parameter {number} that don't fit the optimiser's")
        self.optimizer.load_state_dict(state_dict["fast"])
        self.param_groups = self.optimizer.param_groups
        self.taken = int(state_dict["taken"])
        self.state = {
            parameters[n]: {"slow": v.detach().to(device=parameters[n].device, copy=True)} for n, v in slow.items()
        }
