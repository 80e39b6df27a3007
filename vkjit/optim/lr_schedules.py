"""The usual schedules of the learning rate: `scheduler.step()` once per epoch (or step), after `optimizer.step()`.

Enters: an optimiser. Leaves: new values of `lr` in its groups. A schedule is a function of the number of steps and the
rate at the start. Where something else has changed a rate since (another schedule, a program), most schedules scale what they
find by what they would have changed, so that several of them work together; as PyTorch's, `LambdaLR`,
`CosineAnnealingWarmRestarts`, `CyclicLR` and `OneCycleLR` set their own rate whatever they find.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .optimizer import Optimizer

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "ReduceLROnPlateau", "StepLR", "per_group",
]  # fmt: skip


def per_group(value: Any, optimizer: Optimizer, name: str) -> list[Any]:
    """One value for all groups, or a list with one for each. Raises ArgumentError for lists of another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ArgumentError(f"{name} has {len(value)} values, the optimiser {count} groups")
    return list(value)


class LRScheduler:
    """A schedule. Subclasses write `factor(epoch)`, or `rate(epoch, base)` where it is no multiple of the base rate."""

    chains = True
    """Whether what others have changed about a rate stays, in proportion."""
    floor = 0.0
    """The rate that proportions are counted from."""
    _functions: tuple[str, ...] = ("optimizer",)
    """Attributes that are no part of the state."""

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule takes a vk.optim optimiser, found {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.last_epoch: float = 0
        self.base_lrs: list[float] = []
        self._left: list[float] = []
        """The rates as this schedule left them: other ones now are somebody else's doing."""
        self._shared: list[bool] = []
        """Whether somebody else has had to do with the rate of a group."""
        self._join()
        for number, base in enumerate(self.base_lrs):
            self._set(number, base)

    def factor(self, epoch: float) -> float:
        """What the base rate is multiplied by after `epoch` steps."""
        raise NotImplementedError(f"{type(self).__name__} has no factor()")

    def rate(self, epoch: float, base: float) -> float:
        """The rate after `epoch` steps."""
        return base * self.factor(epoch)

    def _rate_of(self, number: int, epoch: float) -> float:
        """The rate of one group, where nobody else has changed it."""
        return self.rate(epoch, self.base_lrs[number])

    def _join(self) -> None:
        """Takes in groups that have been added to the optimiser since."""
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            group.setdefault("initial_lr", group["lr"])
            self.base_lrs.append(group["initial_lr"])
            self._left.append(self.base_lrs[-1])
            self._shared.append(self.last_epoch > 0)  # a later group has its own rate: it is scaled from here on

    def _set(self, number: int, before: float) -> None:
        """The rate of a group for `last_epoch`; `before`: what it would have been so far without others."""
        group, now = self.optimizer.param_groups[number], self._rate_of(number, self.last_epoch)
        self._shared[number] |= self.chains and group["lr"] != self._left[number]
        if not self._shared[number]:
            group["lr"] = now
        elif now != before:
            found = group["lr"] - self.floor
            scaled = now - self.floor if before == self.floor else found * ((now - self.floor) / (before - self.floor))
            group["lr"] = (group["lr"] if before == self.floor else self.floor) + scaled
        self._left[number] = group["lr"]

    def restart(self, epoch: float) -> None:
        """Goes to a number of steps, with its own rates whatever others have done."""
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=False):
            group["lr"] = base
        self._place(epoch)

    def _place(self, epoch: float) -> None:
        """Goes to a number of steps from rates that others may have moved away from the base."""
        self.last_epoch = epoch
        for number, base in enumerate(self.base_lrs):
            self._left[number], self._shared[number] = base, False
            self._set(number, base)

    def step(self, epoch: float | None = None) -> None:
        """Goes on by one, or to a number of steps."""
        if epoch is not None:
            self.restart(epoch)
            return
        if self.chains:
            self._join()
        before = [self._rate_of(number, self.last_epoch) for number in range(len(self.base_lrs))]
        self.last_epoch += 1
        for number, rate in enumerate(before):
            self._set(number, rate)

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Numbers that a schedule goes on from, and the rates of now; functions are left out."""
        own = {k: v for k, v in vars(self).items() if k not in self._functions and not callable(v)}
        own.update({k: list(v) for k, v in own.items() if isinstance(v, list)})
        return {**own, "rates": self.get_last_lr()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, which sets the rates as well."""
        given = dict(state_dict)
        rates = given.pop("rates", None)
        unknown = sorted(set(given) - set(vars(self)))
        if unknown:
            raise ArgumentError(f"{type(self).__name__} has no {unknown[0]!r} in its state")
        bases = given.get("base_lrs", self.base_lrs)
        if len(bases) != len(self.base_lrs):
            raise ArgumentError(f"the state has {len(bases)} rates, the optimiser {len(self.base_lrs)} groups")
        vars(self).update({k: list(v) if isinstance(v, list) else v for k, v in given.items()})
        self._resume(rates)

    def _resume(self, rates: Sequence[float] | None) -> None:
        """The rates of a loaded state."""
        if rates is None:
            self.restart(self.last_epoch)
            return
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            group["lr"] = rate


class StepLR(LRScheduler):
    """lr = base * gamma^(epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """lr = base * gamma^(milestones that have passed)."""

    def __init__(self, optimizer: Optimizer, milestones: list[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        return self.gamma ** sum(milestone <= epoch for milestone in self.milestones)


class ExponentialLR(LRScheduler):
    """lr = base * gamma^epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        return float(self.gamma**epoch)


class LinearLR(LRScheduler):
    """lr goes in total_iters equal steps from base * start_factor to base * end_factor, and stays there."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        done = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start_factor + (self.end_factor - self.start_factor) * done


class ConstantLR(LRScheduler):
    """lr = base * factor for total_iters steps, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5) -> None:
        self.multiplier, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        return self.multiplier if epoch < self.total_iters else 1.0


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi epoch / T_max)) / 2."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        self.floor = eta_min
        super().__init__(optimizer)

    def rate(self, epoch: float, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class LambdaLR(LRScheduler):
    """lr = base * lr_lambda(epoch); lr_lambda: a function, no part of the state, or a list with one for each group."""

    chains = False
    _functions = ("optimizer", "lr_lambda", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[Any], float] | Sequence[Callable[[Any], float]]
    ) -> None:
        self.lr_lambda, self.lr_lambdas = lr_lambda, per_group(lr_lambda, optimizer, "lr_lambda")
        super().__init__(optimizer)

    def _rate_of(self, number: int, epoch: float) -> float:
        return self.base_lrs[number] * float(self.lr_lambdas[number](epoch))


class ReduceLROnPlateau(LRScheduler):
    """lr *= factor when a metric hasn't become better for more than `patience` steps:
    `scheduler.step(validation_loss)`.

    mode: "min" or "max", what is better; threshold: how much better counts, relative ("rel") or absolute ("abs");
    cooldown: steps to wait after a reduction; min_lr: the lowest rate, or a list with one for each group; changes of at most eps
    are left out.
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
        min_lr: float | Sequence[float] = 0.0,
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
        self.min_lr, self.eps = min_lr if isinstance(min_lr, (int, float)) else list(min_lr), eps
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_epochs = 0
        self.cooldown_left = 0
        super().__init__(optimizer)

    def _set(self, number: int, before: float) -> None:
        """The rate follows from the metrics: it is set in `step` alone."""

    def restart(self, epoch: float) -> None:
        """Rates stay as the metrics made them."""

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
        lowest = per_group(self.min_lr, self.optimizer, "min_lr")
        for group, least in zip(self.optimizer.param_groups, lowest, strict=True):
            rate = max(group["lr"] * self.multiplier, least)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
