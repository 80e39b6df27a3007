"""Adam and its variants: running means of gradients and of their squares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..stdlib.optim import rules
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from .multi_tensor import UpdatePlan
from .optimizer import Group, Optimizer

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam", "count_step"]

MEANS = ("exp_avg", "exp_avg_sq")
"""Names of Adam's states: the running means of gradients and of their squares."""


def count_step(parameter: Tensor, state: dict[str, Any], names: tuple[str, ...], **initial: Any) -> int:
    """Increment the parameter's step count in `state`, and return it: 1 in the first step.

    Also adds what `state` lacks: zero tensors for `names` and, in the first step, the values in `initial`.
    """
    if "step" not in state:
        state["step"] = 0
        state.update(initial)
    for name in names:
        if name not in state:
            state[name] = creation.zeros_like(parameter)
    state["step"] += 1
    step: int = state["step"]
    return step


class Adam(Optimizer):
    """Adam optimizer (Kingma and Ba, 2015).

    p -= lr * m' / (sqrt(v') + eps), with bias-corrected running means m' of gradients and v' of their squares.
    weight_decay adds weight_decay * p to the gradient or, with decoupled_weight_decay, decays weights as in `AdamW`.
    amsgrad uses the largest running mean of squares so far, instead of the current one.
    """

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
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, options)

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        names = (*MEANS, "max_exp_avg_sq") if group["amsgrad"] else MEANS
        step = count_step(parameter, state, names)
        (beta1, beta2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
        hyperparameters = (
            rate / (1 - beta1**step), 1 - beta1, beta2, 1 - beta2, group["eps"], decay, 1 - rate * decay,
            math.sqrt(1 - beta2**step),
        )  # fmt: skip
        return UpdatePlan(rules.adam, names, hyperparameters, (group["decoupled_weight_decay"], group["amsgrad"]))


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before each step (Loshchilov and Hutter, 2019)."""

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
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)


class Adamax(Optimizer):
    """Adamax optimizer: Adam with the infinity norm (Kingma and Ba, 2015).

    p -= lr * m' / u, with the bias-corrected running mean m' of gradients and u = max(beta2 * u, abs(g) + eps).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        names = ("exp_avg", "exp_inf")
        step = count_step(parameter, state, names)
        beta1, beta2 = group["betas"]
        hyperparameters = (group["lr"] / (1 - beta1**step), 1 - beta1, beta2, group["eps"], group["weight_decay"])
        return UpdatePlan(rules.adamax, names, hyperparameters)


class NAdam(Optimizer):
    """NAdam optimizer: Adam with Nesterov momentum (Dozat, 2016).

    The momentum coefficient grows with the steps: mu = beta1 * (1 - 0.5 * 0.96^(step * momentum_decay)).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        step = count_step(parameter, state, MEANS, mu_product=1.0)
        (beta1, beta2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
        # the momentum coefficients of this step and the next one
        mu, next_mu = (beta1 * (1 - 0.5 * 0.96 ** (s * group["momentum_decay"])) for s in (step, step + 1))
        mu_product = state["mu_product"] = float(state["mu_product"]) * mu  # of all steps so far
        decoupled = group["decoupled_weight_decay"]
        hyperparameters = (
            rate * (1 - mu) / (1 - mu_product), 1 - beta1, beta2, 1 - beta2, group["eps"],
            1 - rate * decay if decoupled else decay, rate * next_mu / (1 - mu_product * next_mu),
            math.sqrt(1 - beta2**step),
        )  # fmt: skip
        return UpdatePlan(rules.nadam, MEANS, hyperparameters, (decoupled,))


class RAdam(Optimizer):
    """Rectified Adam (Liu et al., 2020).

    In the first few steps, in which the variance of the adaptive rate is intractable, the update is the momentum alone.
    After that, Adam's update is multiplied by a rectification factor.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        step = count_step(parameter, state, MEANS)
        (beta1, beta2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
        decoupled = group["decoupled_weight_decay"]
        # lengths of the simple moving average that approximates the running mean (rho in the paper)
        max_sma_length = 2 / (1 - beta2) - 1
        sma_length = max_sma_length - 2 * step * beta2**step / (1 - beta2**step)
        rectified = sma_length > 5  # PyTorch's limit; the variance is intractable up to a length of 4
        rectification = 1.0
        if rectified:
            rectification = math.sqrt(
                (sma_length - 4)
                * (sma_length - 2)
                * max_sma_length
                / ((max_sma_length - 4) * (max_sma_length - 2) * sma_length)
            )
        hyperparameters = (
            rate / (1 - beta1**step), 1 - beta1, beta2, 1 - beta2, group["eps"],
            1 - rate * decay if decoupled else decay, rectification, math.sqrt(1 - beta2**step),
        )  # fmt: skip
        return UpdatePlan(rules.radam, MEANS, hyperparameters, (decoupled, rectified))
