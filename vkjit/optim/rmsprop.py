"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..stdlib import optimizers
from ..tensor import creation
from ..tensor.tensor import Tensor
from .optimizer import Group, Optimizer

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """p -= lr * g / (sqrt(v) + eps), v = alpha * v + (1 - alpha) * g^2 (Hinton, 2012).

    momentum: the steps are summed as SGD's velocity; centered: v less the squared running mean of g.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
            "centered": centered, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: Group) -> None:
        wanted = [("square_avg", True), ("momentum_buffer", group["momentum"] > 0), ("grad_avg", group["centered"])]
        for name, used in wanted:
            if used and name not in state:
                state[name] = creation.zeros_like(parameter)
        square, velocity, mean = (state[name]._array if used else None for name, used in wanted)
        state["step"] = state.get("step", 0) + 1
        assert square is not None
        optimizers.rmsprop(
            parameter._array,
            gradient._array,
            square,
            velocity,
            mean,
            rate=group["lr"],
            alpha=group["alpha"],
            epsilon=group["eps"],
            decay=group["weight_decay"],
            momentum=group["momentum"],
        )
