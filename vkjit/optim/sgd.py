"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ArgumentError
from ..stdlib import optimizers
from ..tensor import creation
from ..tensor.tensor import Tensor
from .optimizer import Group, Optimizer

__all__ = ["SGD"]


class SGD(Optimizer):
    """p -= lr * v, where v = momentum * v + (1 - dampening) * g and g = gradient + weight_decay * p.

    nesterov: p -= lr * (g + momentum * v). The first v is g itself. maximize: goes up instead of down.
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

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: Group) -> None:
        velocity, first = None, False
        if group["momentum"]:
            velocity = state.get("momentum_buffer")
            if velocity is None:
                first = True
                velocity = state["momentum_buffer"] = creation.empty_like(parameter)
        optimizers.sgd(
            parameter._array,
            gradient._array,
            None if velocity is None else velocity._array,
            rate=group["lr"],
            momentum=group["momentum"],
            dampening=group["dampening"],
            decay=group["weight_decay"],
            nesterov=group["nesterov"],
            first=first,
        )
