"""Adam, and AdamW with weight decay apart from the gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..stdlib import optimizers
from ..tensor import creation
from ..tensor.tensor import Tensor
from .optimizer import Group, Optimizer

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """p -= lr * m' / (sqrt(v') + eps), with running means m of gradients and v of their squares, corrected for the
    start (Kingma and Ba, 2015). weight_decay adds weight_decay * p to the gradient; amsgrad divides by the largest v'
    so far.
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: Group) -> None:
        if not state:
            state["step"] = 0
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = creation.zeros_like(parameter)
        largest = None
        if group["amsgrad"]:
            if "max_exp_avg_sq" not in state:
                state["max_exp_avg_sq"] = creation.zeros_like(parameter)
            largest = state["max_exp_avg_sq"]._array
        state["step"] += 1
        optimizers.adam(
            parameter._array,
            gradient._array,
            state["exp_avg"]._array,
            state["exp_avg_sq"]._array,
            largest,
            step=state["step"],
            rate=group["lr"],
            betas=group["betas"],
            epsilon=group["eps"],
            decay=group["weight_decay"],
            decoupled=self.decoupled,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before each step (Loshchilov and Hutter, 2019)."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
