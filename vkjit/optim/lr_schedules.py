"""Basic learning-rate schedulers: call `scheduler.step()` once per epoch (or batch), after `optimizer.step()`.

A scheduler sets `lr` in the optimizer's parameter groups, as a function of its number of steps and the initial rate. If
something else (another scheduler, the program) has changed a rate in the meantime, most schedulers multiply the current
value by the ratio between their own new and previous rates, so that several schedulers compose. As in PyTorch,
`LambdaLR`, `CosineAnnealingWarmRestarts`, `CyclicLR` and `OneCycleLR` overwrite the rate instead.

In formulas, base is the initial rate of a parameter group, and epoch the number of scheduler steps so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError, shown
from .optimizer import Optimizer

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "ReduceLROnPlateau", "StepLR", "per_group",
]  # fmt: skip


def per_group(value: Any, optimizer: Optimizer, name: str) -> list[Any]:
    """Return `value` as a list with one value per parameter group; a single value is repeated.

    Raises ArgumentError, naming the option `name`, if `value` is a list of another length.
    """
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ArgumentError(f"{name} has {len(value)} values, the optimiser {count} groups")
    return list(value)


class LRScheduler:
    """Base class of schedulers.

    Subclasses implement `factor(epoch)`, or, if the rate isn't a multiple of the base rate, `rate(epoch, base)`. Both
    methods accept any epoch, not only the next one; epoch 0 yields the initial value.
    """

    chains = True
    """True if the scheduler scales a rate that something else has changed; False if it overwrites the rate."""
    floor = 0.0
    """Lower limit of the schedule. When a rate is scaled (see `chains`), it is rate - floor that is multiplied."""
    _excluded_from_state: tuple[str, ...] = ("optimizer",)
    """Names of attributes that `state_dict` leaves out."""

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule takes a vk.optim optimiser, found {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.last_epoch: float = 0
        self.base_lrs: list[float] = []
        self._left: list[float] = []
        """The rates as this scheduler last set them; a different current value was set by something else."""
        self._shared: list[bool] = []
        """By group: True if something other than this scheduler has changed its rate."""
        self._add_new_groups()
        for number, base in enumerate(self.base_lrs):
            self._set(number, base)

    def factor(self, epoch: float) -> float:
        """Return the factor of the base rate after `epoch` steps."""
        raise NotImplementedError(f"{type(self).__name__} has no factor()")

    def rate(self, epoch: float, base: float) -> float:
        """Return the rate after `epoch` steps for the base rate `base`."""
        return base * self.factor(epoch)

    def _rate_of(self, number: int, epoch: float) -> float:
        """Return the rate of group `number` after `epoch` steps, if nothing else changes it."""
        return self.rate(epoch, self.base_lrs[number])

    def _add_new_groups(self) -> None:
        """Start scheduling parameter groups that have been added to the optimizer since the last call."""
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            group.setdefault("initial_lr", group["lr"])
            self.base_lrs.append(group["initial_lr"])
            self._left.append(self.base_lrs[-1])
            self._shared.append(self.last_epoch > 0)  # a group added later keeps its own rate, scaled from now on

    def _set(self, number: int, before: float) -> None:
        """Set the rate of group `number` for `last_epoch`.

        before: the rate of the previous epoch by this scheduler alone, without changes by others.
        """
        group, new_rate = self.optimizer.param_groups[number], self._rate_of(number, self.last_epoch)
        self._shared[number] |= self.chains and group["lr"] != self._left[number]
        if not self._shared[number]:
            group["lr"] = new_rate
        elif new_rate != before:
            # multiply the current distance from the floor by the ratio between this scheduler's own new and previous
            # distances; if its previous distance was 0, add the new one to the current rate
            distance, own_distance, previous_distance = (rate - self.floor for rate in (group["lr"], new_rate, before))
            if before == self.floor:
                group["lr"] = group["lr"] + own_distance
            else:
                group["lr"] = self.floor + distance * (own_distance / previous_distance)
        self._left[number] = group["lr"]

    def restart(self, epoch: float) -> None:
        """Go to step `epoch` and discard changes of the rates made outside this scheduler."""
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=False):
            group["lr"] = base
        self._go_to_epoch(epoch)

    def _go_to_epoch(self, epoch: float) -> None:
        """Go to step `epoch` without resetting the current rates.

        A current rate that differs from the base rate counts as set by something else, and is scaled if `chains`.
        """
        # as if this scheduler had set the base rates at epoch 0, and the rates had been changed since
        self.last_epoch = epoch
        for number, base in enumerate(self.base_lrs):
            self._left[number], self._shared[number] = base, False
            self._set(number, base)

    def step(self, epoch: float | None = None) -> None:
        """Advance by one step, or go to step `epoch`."""
        if epoch is not None:
            self.restart(epoch)
            return
        if self.chains:
            self._add_new_groups()
        previous_rates = [self._rate_of(number, self.last_epoch) for number in range(len(self.base_lrs))]
        self.last_epoch += 1
        for number, previous_rate in enumerate(previous_rates):
            self._set(number, previous_rate)

    def get_last_lr(self) -> list[float]:
        """Return the current rate of each parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's attributes, except functions, and the current rates."""
        attributes = {k: v for k, v in vars(self).items() if k not in self._excluded_from_state and not callable(v)}
        attributes.update({k: list(v) for k, v in attributes.items() if isinstance(v, list)})
        return {**attributes, "rates": self.get_last_lr()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from `state_dict`, including the rates."""
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"the state of a schedule is a mapping, found a {type(state_dict).__name__}")
        attributes = dict(state_dict)
        rates = attributes.pop("rates", None)
        unknown = sorted(set(attributes) - set(vars(self)))
        if unknown:
            raise ArgumentError(f"{type(self).__name__} has no {unknown[0]!r} in its state")
        bases = attributes.get("base_lrs", self.base_lrs)
        if len(bases) != len(self.base_lrs):
            raise ArgumentError(f"the state has {len(bases)} rates, the optimiser {len(self.base_lrs)} groups")
        vars(self).update({k: list(v) if isinstance(v, list) else v for k, v in attributes.items()})
        self._resume(rates)

    def _resume(self, rates: Sequence[float] | None) -> None:
        """Set the rates of a loaded state. If the state has no rates (None), compute them from the epoch."""
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
    """lr = base * gamma^(number of milestones reached)."""

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
    """lr goes linearly from base * start_factor to base * end_factor in total_iters steps, then stays constant."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        fraction = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start_factor + (self.end_factor - self.start_factor) * fraction


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
    """lr = base * lr_lambda(epoch).

    lr_lambda is a function, or a list with one function per group. `state_dict` doesn't include functions.
    """

    chains = False
    _excluded_from_state = ("optimizer", "lr_lambda", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[Any], float] | Sequence[Callable[[Any], float]]
    ) -> None:
        self.lr_lambda, self.lr_lambdas = lr_lambda, per_group(lr_lambda, optimizer, "lr_lambda")
        for function in self.lr_lambdas:
            if not callable(function):
                raise ArgumentError(f"LambdaLR takes a function of the epoch as lr_lambda, found {shown(function)}")
        super().__init__(optimizer)

    def _rate_of(self, number: int, epoch: float) -> float:
        return self.base_lrs[number] * float(self.lr_lambdas[number](epoch))


class ReduceLROnPlateau(LRScheduler):
    """Multiply lr by `factor` when a metric hasn't improved for more than `patience` steps:
    `scheduler.step(validation_loss)`.

    mode is "min" or "max", the direction of improvement. threshold is the minimum improvement, relative or absolute by
    threshold_mode ("rel" or "abs"). cooldown is the number of steps to wait after a reduction. min_lr is the lowest
    rate, or a list with one rate per group. Reductions of at most eps are skipped.
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
        """Do nothing: the rate depends on the metrics and is set only in `step`."""

    def restart(self, epoch: float) -> None:
        """Do nothing: rates stay as set by the metrics."""

    def _is_better(self, metric: float) -> bool:
        """True if a metric improves on the best one by more than the threshold."""
        sign = 1 if self.mode == "max" else -1  # sign * metric is larger for better metrics
        if self.threshold_mode == "abs":
            return sign * metric > sign * self.best + self.threshold
        if not math.isfinite(self.best):  # the first metric
            return True
        # above best * (1 + threshold) for "max", below best * (1 - threshold) for "min"
        return sign * metric > sign * self.best * (1 + sign * self.threshold)

    def step(self, metrics: Any = None) -> None:
        """Process the metric of one more epoch: a number or a one-element tensor, which is read from the device."""
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
        """Multiply the rate of each group by the factor, down to its lowest rate."""
        min_rates = per_group(self.min_lr, self.optimizer, "min_lr")
        for group, min_rate in zip(self.optimizer.param_groups, min_rates, strict=True):
            rate = max(group["lr"] * self.multiplier, min_rate)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
