"""The usual schedules of the learning rate: `scheduler.step()` once per epoch (or step), after `optimizer.step()`.

Enters: an optimiser. Leaves: new values of `lr` in its groups. A schedule is a function of the number of steps and the
rate at the start, so that a resumed one gives the same rates as an unbroken one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from .optimizer import Optimizer

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "ReduceLROnPlateau", "StepLR",
]  # fmt: skip


class LRScheduler:
    """A schedule. Subclasses write `factor(epoch)`, or `rate(epoch, base)` where it is no multiple of the base rate."""

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule takes a vk.optim optimiser, found {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.last_epoch = 0
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self._set()

    def factor(self, epoch: int) -> float:
        """What the base rate is multiplied by after `epoch` steps."""
        raise NotImplementedError(f"{type(self).__name__} has no factor()")

    def rate(self, epoch: int, base: float) -> float:
        """The rate after `epoch` steps."""
        return base * self.factor(epoch)

    def _set(self) -> None:
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = self.rate(self.last_epoch, base)

    def step(self) -> None:
        """Goes on by one."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Numbers that a schedule goes on from; functions are left out."""
        return {k: v for k, v in vars(self).items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        unknown = sorted(set(state_dict) - set(vars(self)))
        if unknown:
            raise ArgumentError(f"{type(self).__name__} has no {unknown[0]!r} in its state")
        vars(self).update(state_dict)
        if len(self.base_lrs) != len(self.optimizer.param_groups):
            raise ArgumentError(
                f"the state has {len(self.base_lrs)} rates, the optimiser {len(self.optimizer.param_groups)} groups"
            )
        self._set()


class StepLR(LRScheduler):
    """lr = base * gamma^(epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """lr = base * gamma^(milestones that have passed)."""

    def __init__(self, optimizer: Optimizer, milestones: list[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return self.gamma ** sum(milestone <= epoch for milestone in self.milestones)


class ExponentialLR(LRScheduler):
    """lr = base * gamma^epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return float(self.gamma**epoch)


class LinearLR(LRScheduler):
    """lr goes in total_iters equal steps from base * start_factor to base * end_factor, and stays there."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


class ConstantLR(LRScheduler):
    """lr = base * factor for total_iters steps, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5) -> None:
        self.multiplier, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return self.multiplier if epoch < self.total_iters else 1.0


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi epoch / T_max)) / 2."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, epoch: int, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class LambdaLR(LRScheduler):
    """lr = base * lr_lambda(epoch); the function is no part of the state."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return self.lr_lambda(epoch)


class ReduceLROnPlateau(LRScheduler):
    """lr *= factor when a metric hasn't become better for more than `patience` steps:
    `scheduler.step(validation_loss)`.

    mode: "min" or "max", what is better; threshold: how much better counts, relative ("rel") or absolute ("abs");
    cooldown: steps to wait after a reduction; min_lr: the lowest rate; changes of at most eps are left out.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f'mode is "min" or "max", threshold_mode "rel" or "abs", found {mode!r}, {threshold_mode!r}'
            )
        if not 0 <= factor < 1:
            raise ArgumentError(f"factor lies in [0, 1), found {factor}")
        self.mode, self.multiplier, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lr, self.eps = min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_epochs = 0
        self.cooldown_left = 0
        super().__init__(optimizer)

    def _set(self) -> None:
        """The rate follows from the metrics: it is set in `step` alone."""

    def _is_better(self, metric: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "abs":
            return sign * metric > sign * self.best + self.threshold
        return sign * metric > sign * self.best * (1 + sign * self.threshold) if math.isfinite(self.best) else True

    def step(self, metrics: Any = None) -> None:
        """Takes the metric of one more epoch: a number, or a tensor of one element (which is waited for)."""
        if metrics is None:
            raise ArgumentError("ReduceLROnPlateau.step() takes the metric that it watches")
        self.last_epoch += 1
        metric = float(metrics)
        if self._is_better(metric):
            self.best, self.bad_epochs = metric, 0
        else:
            self.bad_epochs += 1
        if self.cooldown_left > 0:
            self.cooldown_left -= 1
            self.bad_epochs = 0
        if self.bad_epochs > self.patience:
            self._reduce()
            self.cooldown_left, self.bad_epochs = self.cooldown, 0

    def _reduce(self) -> None:
        for group in self.optimizer.param_groups:
            rate = max(group["lr"] * self.multiplier, self.min_lr)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
