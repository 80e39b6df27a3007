"""RMSprop: updates scaled by a running mean of squared gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..stdlib.optim import rules
from ..tensor.tensor import Tensor
from .adam import count_step
from .multi_tensor import UpdatePlan
from .optimizer import Group, Optimizer

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """RMSprop optimizer (Hinton, 2012).

    p -= lr * g / (sqrt(v) + eps), with v = alpha * v + (1 - alpha) * g^2. With momentum, p -= lr * b instead, where b =
    momentum * b + g / (sqrt(v) + eps). centered subtracts the square of the running mean of g from v in this formula.
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

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        has_momentum, centered = group["momentum"] > 0, group["centered"]
        # the rule takes the first of these states, as many as it needs: grad_avg, for `centered`, is the third, so the
        # momentum buffer then exists even if unused
        names: tuple[str, ...] = ("square_avg", "momentum_buffer", "grad_avg")
        if centered:
            used = names
        else:
            used = names[:2] if has_momentum else names[:1]
        count_step(parameter, state, used)
        alpha = group["alpha"]
        hyperparameters = (group["lr"], alpha, 1 - alpha, group["eps"], group["weight_decay"], group["momentum"])
        return UpdatePlan(rules.rmsprop, used, hyperparameters, (has_momentum, centered))
