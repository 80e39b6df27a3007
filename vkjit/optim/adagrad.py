"""Adagrad and Adadelta: updates scaled by accumulated squared gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ArgumentError
from ..stdlib.optim import rules
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from .adam import count_step
from .multi_tensor import UpdatePlan
from .optimizer import Group, Optimizer

__all__ = ["Adadelta", "Adagrad"]


class Adagrad(Optimizer):
    """Adagrad optimizer (Duchi et al., 2011).

    p -= lr' * g / (sqrt(s) + eps), with lr' = lr / (1 + (step - 1) * lr_decay). s is initial_accumulator_value plus the
    sum of g^2 over all steps.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def _check(self, group: Group) -> None:
        super()._check(group)
        for name in ("lr_decay", "initial_accumulator_value"):
            if not group[name] >= 0:
                raise ArgumentError(f"Adagrad: {name} is at least 0, found {group[name]!r}")

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        if "sum" not in state:
            state["sum"] = creation.full_like(parameter, float(group["initial_accumulator_value"]))
        step = count_step(parameter, state, ("sum",))
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return UpdatePlan(rules.adagrad, ("sum",), (rate, group["eps"], group["weight_decay"]))


class Adadelta(Optimizer):
    """Adadelta optimizer (Zeiler, 2012).

    p -= lr * sqrt(u + eps) / sqrt(v + eps) * g, where v is the running mean of g^2, and u that of the squares of the
    updates sqrt(u + eps) / sqrt(v + eps) * g. Both decay by rho per step.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def _check(self, group: Group) -> None:
        super()._check(group)
        if not 0 <= group["rho"] <= 1:
            raise ArgumentError(f"Adadelta: rho lies in [0, 1], found {group['rho']!r}")

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        names = ("square_avg", "acc_delta")
        count_step(parameter, state, names)
        rho = group["rho"]
        return UpdatePlan(rules.adadelta, names, (group["lr"], rho, 1 - rho, group["eps"], group["weight_decay"]))
