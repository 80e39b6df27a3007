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
    bias-corrected running means of gradients and of their squares. The ratio |p| / |u| of norms is 1 if either is 0.
    The norms cost a few launches per tensor.
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
        self._rates: dict[str, Tensor] = {}
        """By device and type: the learning rate that a captured step reads."""

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

        Also updates the learning rate that the captured step reads on the device.
        """
        hyperparameters = super().advance(graph)
        assert self._captured is not None
        with no_grad():
            for rate in self._rates.values():
                rate.fill_(self._captured[1][0][1]["lr"])
        return hyperparameters

    def _rate(self, parameter: Tensor, group: Group) -> Any:
        """Return the learning rate: a number or, in a captured step, a device tensor, which an earlier ordinary step
        created.
        """
        dtype = dtypes.f64 if parameter.dtype is dtypes.f64 else dtypes.f32
        key = f"{parameter.device}: {dtype}"
        if not is_capturing(parameter.device):
            if key not in self._rates:
                self._rates[key] = creation.full((), group["lr"], dtype=dtype, device=parameter.device)
            return group["lr"]
        if key not in self._rates:
            raise ArgumentError(
                "LAMB keeps its learning rate on the device: take an ordinary step before the captured one"
            )
        return self._rates[key]

    def _after(self, parameters: Sequence[Tensor], group: Group) -> None:
        """Apply the updates that the kernel has stored in the state, scaled by the trust ratio of each tensor."""
        for parameter in parameters:
            update: Any = self.state[parameter]["update"]
            value: Any = parameter.detach()
            parameter_norm, update_norm = value.norm(), update.norm()
            nonzero: Any = (parameter_norm > 0) & (update_norm > 0)
            ratio: Any = arithmetic.where(nonzero, parameter_norm / arithmetic.where(nonzero, update_norm, 1.0), 1.0)
            parameter.sub_(update * (ratio * self._rate(parameter, group)))
