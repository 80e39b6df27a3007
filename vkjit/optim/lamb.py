"""LAMB: Adam with layer-wise trust ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from .. import dtypes
from ..errors import ArgumentError
from ..runtime.capture import is_capturing
from ..stdlib.optim import rules
from ..tensor.autograd.mode import no_grad
from ..tensor.ops import arithmetic, creation
from ..tensor.tensor import Tensor
from .adam import count_step
from .multi_tensor import UpdatePlan
from .optimizer import Group, Optimizer

__all__ = ["LAMB"]


class LAMB(Optimizer):
    """LAMB optimizer (You et al., 2020).

    p -= lr * |p| / |u| * u with Adam's update u = m' / (sqrt(v') + eps) + weight_decay * p, where m' and v' are the
    bias-corrected running means of gradients and of their squares. The ratio of the norms |p| and |u| is 1 if one of
    them is 0. The norms cost a few launches per tensor.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )
        self._rates: dict[tuple[int, str], Tensor] = {}
        """Learning rates that captured steps read, as 0-d tensors, by number of the group, and device and type."""

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        names = ("exp_avg", "exp_avg_sq", "update")
        step = count_step(parameter, state, names)
        beta1, beta2 = group["betas"]
        hyperparameters = (
            1 / (1 - beta1**step), 1 - beta1, beta2, 1 - beta2, group["eps"], group["weight_decay"],
            math.sqrt(1 - beta2**step),
        )  # fmt: skip
        return UpdatePlan(rules.lamb, names, hyperparameters)

    def advance(self, graph: Any) -> dict[str, Any]:
        """Count the next replay's step and return its hyperparameters, as `Optimizer.advance` does.

        Also updates the learning rates that the captured step reads on the device.
        """
        hyperparameters = super().advance(graph)
        with no_grad():
            for (number, _), rate in self._rates.items():
                rate.fill_(self.param_groups[number]["lr"])
        return hyperparameters

    def _rate(self, parameter: Tensor, number: int) -> Any:
        """Return the learning rate of group `number`: a number or, in a captured step, a 0-d tensor, which `advance` sets.

        The tensor is created by an ordinary step before the capture.
        """
        dtype = dtypes.f64 if parameter.dtype is dtypes.f64 else dtypes.f32
        key = number, f"{parameter.device}: {dtype}"
        lr = self.param_groups[number]["lr"]
        if not is_capturing(parameter.device):
            if key not in self._rates:
                self._rates[key] = creation.full((), lr, dtype=dtype, device=parameter.device)
            return lr
        if key not in self._rates:
            raise ArgumentError(
                "LAMB keeps its learning rate on the device: take an ordinary step before the captured one"
            )
        return self._rates[key]

    def _after_update(self, parameters: Sequence[Tensor], number: int) -> None:
        """Subtract the updates, which the kernel has stored in the states, times trust ratio and learning rate."""
        for parameter in parameters:
            update: Any = self.state[parameter]["update"]
            value: Any = parameter.detach()
            parameter_norm, update_norm = value.norm(), update.norm()
            nonzero: Any = (parameter_norm > 0) & (update_norm > 0)
            safe_update_norm: Any = arithmetic.where(nonzero, update_norm, 1.0)  # avoids divisions by 0
            ratio: Any = arithmetic.where(nonzero, parameter_norm / safe_update_norm, 1.0)
            parameter.sub_(update * (ratio * self._rate(parameter, number)))
