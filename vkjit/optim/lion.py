"""Lion: updates of constant magnitude in the direction of the sign of the momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..stdlib.optim import rules
from ..tensor.tensor import Tensor
from .adam import count_step
from .multi_tensor import UpdatePlan
from .optimizer import Group, Optimizer

__all__ = ["Lion"]


class Lion(Optimizer):
    """Lion optimizer (Chen et al., 2023).

    p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p), then m = beta2 * m + (1 - beta2) * g.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        count_step(parameter, state, ("exp_avg",))
        beta1, beta2 = group["betas"]
        hyperparameters = (group["lr"], beta1, 1 - beta1, beta2, 1 - beta2, 1 - group["lr"] * group["weight_decay"])
        return UpdatePlan(rules.lion, ("exp_avg",), hyperparameters)
