"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ArgumentError
from ..stdlib.optim import rules
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from .multi_tensor import UpdatePlan
from .optimizer import Group, Optimizer

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum.

    p -= lr * v, with v = momentum * v + (1 - dampening) * g and g = gradient + weight_decay * p. In the first step, v
    is g. nesterov: p -= lr * (g + momentum * v). maximize negates the gradient.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError("SGD: nesterov=True needs momentum above 0 and dampening of 0")

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        has_momentum = bool(group["momentum"])
        is_first_step = False
        names: tuple[str, ...] = ()
        if has_momentum:
            names = ("momentum_buffer",)
            is_first_step = state.get("momentum_buffer") is None  # PyTorch's saved states may hold None
            if is_first_step:
                state["momentum_buffer"] = creation.zeros_like(parameter)
        hyperparameters = (group["lr"], group["momentum"], 1 - group["dampening"], group["weight_decay"])
        return UpdatePlan(rules.sgd, names, hyperparameters, (has_momentum, is_first_step, group["nesterov"]))
