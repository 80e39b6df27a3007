"""Further learning-rate schedulers: polynomial, warm restarts, cyclic, and combinations of schedulers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .lr_schedules import LRScheduler, per_group
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "CosineAnnealingWarmRestarts", "CyclicLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "SequentialLR",
]  # fmt: skip


class PolynomialLR(LRScheduler):
    """lr = base * (1 - epoch / total_iters)^power until epoch total_iters, then 0."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def factor(self, epoch: float) -> float:
        return float((1 - min(epoch, self.total_iters) / self.total_iters) ** self.power) if self.total_iters else 0.0


class MultiplicativeLR(LRScheduler):
    """lr = base * lr_lambda(1) * ... * lr_lambda(epoch).

    lr_lambda is a function, or a list with one function per group. `state_dict` doesn't include functions.
    """

    _excluded_from_state = ("optimizer", "lr_lambda", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[Any], float] | Sequence[Callable[[Any], float]]
    ) -> None:
        self.lr_lambda, self.lr_lambdas = lr_lambda, per_group(lr_lambda, optimizer, "lr_lambda")
        super().__init__(optimizer)

    def _set(self, number: int, before: float) -> None:
        """Do nothing: the initial rates stay unchanged."""

    def _factor(self, number: int, epoch: float) -> float:
        """Return the product of the first `epoch` factors of group `number`."""
        return math.prod(float(self.lr_lambdas[number](e)) for e in range(1, int(epoch) + 1))

    def _go_to_epoch(self, epoch: float) -> None:
        self.last_epoch = epoch
        # groups added to the optimizer later have no base rate, and aren't scheduled
        for number, group in enumerate(self.optimizer.param_groups[: len(self.base_lrs)]):
            group["lr"] *= self._factor(number, epoch)

    def step(self, epoch: float | None = None) -> None:
        """Multiply the rates by the next factor.

        If `epoch` is given, go to that step instead, which calls lr_lambda for all steps up to it.
        """
        if epoch is not None:
            self.restart(epoch)
            return
        self.last_epoch += 1
        for group, function in zip(self.optimizer.param_groups, self.lr_lambdas, strict=False):
            group["lr"] *= float(function(self.last_epoch))


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing with warm restarts (Loshchilov and Hutter, 2017).

    The rate follows a cosine from base to eta_min over T_0 epochs, then restarts with a period T_mult times as long,
    and so on. `step(epoch)` accepts fractional epochs.
    """

    chains = False

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        if not isinstance(T_0, int) or not isinstance(T_mult, int) or T_0 < 1 or T_mult < 1:
            raise ArgumentError(f"T_0 and T_mult are ints of at least 1, found {T_0!r} and {T_mult!r}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer)

    def rate(self, epoch: float, base: float) -> float:
        period = self.T_0
        while epoch >= period:
            epoch -= period
            period *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / period)) / 2


class _MomentumCycle(LRScheduler):
    """Base class of schedulers that also cycle the momentum, which falls while the rate rises, and vice versa.

    The momentum is the optimizer's option "momentum" or, for Adam-like optimizers, the first element of "betas". It
    isn't changed if cycle_momentum is False.
    """

    chains = False

    def __init__(self, optimizer: Optimizer, cycle_momentum: bool, base_momentum: Any, max_momentum: Any) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule takes a vk.optim optimiser, found {type(optimizer).__name__}")
        self.cycle_momentum = cycle_momentum
        self.base_momentum = per_group(base_momentum, optimizer, "base_momentum")
        self.max_momentum = per_group(max_momentum, optimizer, "max_momentum")
        if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ArgumentError(
                f"{type(self).__name__} moves momentum, which {type(optimizer).__name__} hasn't: pass cycle_momentum=False"
            )
        super().__init__(optimizer)

    def momentum(self, number: int, epoch: float) -> float:
        """Return the momentum of group `number` after `epoch` steps."""
        raise NotImplementedError(f"{type(self).__name__} has no momentum()")

    def _set(self, number: int, before: float) -> None:
        super()._set(number, before)
        self._set_momentum(number)

    def _resume(self, rates: Sequence[float] | None) -> None:
        super()._resume(rates)
        for number in range(len(self.base_lrs)):
            self._set_momentum(number)

    def _set_momentum(self, number: int) -> None:
        """Set the momentum of group `number` for the current epoch."""
        if not self.cycle_momentum:
            return
        group = self.optimizer.param_groups[number]
        new_momentum = self.momentum(number, self.last_epoch)
        if "betas" in group:
            group["betas"] = (new_momentum, *group["betas"][1:])
        else:
            group["momentum"] = new_momentum


class CyclicLR(_MomentumCycle):
    """Cyclical learning rate (Smith, 2017).

    In each cycle the rate rises linearly from base_lr to max_lr in step_size_up steps, and falls back in step_size_down
    steps. base_lr, max_lr, base_momentum and max_momentum are numbers, or lists with one number per group.

    mode scales the amplitude max_lr - base_lr: "triangular" doesn't change it, "triangular2" halves it after each
    cycle, and "exp_range" multiplies it by gamma^epoch. scale_fn, if given, replaces the mode: it returns the factor of
    the amplitude, given the number of the cycle (from 1) or, with scale_mode="iterations", the epoch. cycle_momentum
    lowers the momentum from max_momentum to base_momentum while the rate rises; the optimizer must have a momentum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") or scale_mode not in ("cycle", "iterations"):
            raise ArgumentError(
                'mode is "triangular", "triangular2" or "exp_range", scale_mode "cycle" or "iterations", found '
                f"{mode!r}, {scale_mode!r}"
            )
        self.mode, self.gamma = mode, gamma
        self.step_size_up, self.step_size_down = step_size_up, step_size_down or step_size_up
        self.scale_fn, self.scale_mode = scale_fn, scale_mode
        self.base_lr = per_group(base_lr, optimizer, "base_lr")
        self.max_lr = per_group(max_lr, optimizer, "max_lr")
        super().__init__(optimizer, cycle_momentum, base_momentum, max_momentum)

    def _scale(self, cycle: float, epoch: float) -> float:
        """Return the factor of the amplitude, from the mode or scale_fn. cycle: the number of the cycle, from 1."""
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else epoch)
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (cycle - 1))
        return float(self.gamma**epoch) if self.mode == "exp_range" else 1.0

    def _rise(self, epoch: float) -> float:
        """Return (rate - base_lr) / (max_lr - base_lr) at an epoch."""
        cycle_length = self.step_size_up + self.step_size_down
        cycle, position = 1 + epoch // cycle_length, epoch % cycle_length
        if position <= self.step_size_up:
            fraction = position / self.step_size_up
        else:
            fraction = (cycle_length - position) / self.step_size_down
        return fraction * self._scale(cycle, epoch)

    def _rate_of(self, number: int, epoch: float) -> float:
        low, high = self.base_lr[number], self.max_lr[number]
        return float(low + (high - low) * self._rise(epoch))

    def momentum(self, number: int, epoch: float) -> float:
        low, high = self.base_momentum[number], self.max_momentum[number]
        return float(high - (high - low) * self._rise(epoch))


class OneCycleLR(_MomentumCycle):
    """One-cycle policy (Smith and Topin, 2019): one rise of the rate and one fall.

    The rate rises from its initial value, max_lr / div_factor, to max_lr. Then it falls to its final value, the initial
    value divided by final_div_factor. The cycle takes total_steps, or epochs * steps_per_epoch, steps. max_lr,
    base_momentum and max_momentum are numbers, or lists with one number per group.

    pct_start is the fraction of steps in which the rate rises; anneal_strategy is "cos" or "linear". three_phase splits
    the fall: first to the initial value, in as many steps as the rise, then to the final value. cycle_momentum lowers
    the momentum from max_momentum to base_momentum while the rate rises, and raises it while the rate falls; the
    optimizer must have a momentum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            total_steps = epochs * steps_per_epoch
        if (
            not isinstance(total_steps, int)
            or total_steps < 1
            or not 0 <= pct_start <= 1
            or anneal_strategy not in ("cos", "linear")
        ):
            raise ArgumentError(
                "OneCycleLR needs total_steps (or epochs and steps_per_epoch) of at least 1, pct_start in [0, 1] and "
                f'anneal_strategy "cos" or "linear", found {total_steps!r}, {pct_start!r}, {anneal_strategy!r}'
            )
        self.max_lr, self.total_steps, self.pct_start = per_group(max_lr, optimizer, "max_lr"), total_steps, pct_start
        self.anneal_strategy, self.three_phase = anneal_strategy, three_phase
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer, cycle_momentum, base_momentum, max_momentum)

    def _phases(self, first: float, top: float, last: float) -> list[tuple[float, float, float]]:
        """Return (last epoch, start value, end value) of each phase of a rate or momentum.

        The values at the start, at the turning point and at the end of the cycle are `first`, `top` and `last`.
        """
        # epochs count from 0, so a first phase of n steps ends at epoch n - 1, and a second one of n steps at 2n - 2
        steps_up = self.pct_start * self.total_steps
        end = float(self.total_steps - 1)
        if not self.three_phase:
            return [(steps_up - 1, first, top), (end, top, last)]
        return [(steps_up - 1, first, top), (2 * self.pct_start * self.total_steps - 2, top, first), (end, first, last)]

    def _value(self, epoch: float, phases: list[tuple[float, float, float]]) -> float:
        """Return the rate or momentum at an epoch, interpolated between the ends of a phase returned by `_phases`."""
        if epoch > self.total_steps:
            raise ArgumentError(f"OneCycleLR was made for {self.total_steps} steps, this is step {epoch}")
        start = 0.0
        for end, first, last in phases:
            if epoch <= end or end == phases[-1][0]:  # the last phase also has the epoch total_steps, after its end
                fraction = (epoch - start) / (end - start) if end != start else 1.0
                if self.anneal_strategy == "linear":
                    return first + (last - first) * fraction
                return last + (first - last) / 2 * (1 + math.cos(math.pi * fraction))
            start = end
        raise AssertionError("unreachable: the last phase takes every step")

    def _rate_of(self, number: int, epoch: float) -> float:
        top = self.max_lr[number]
        first = top / self.div_factor
        return self._value(epoch, self._phases(first, top, first / self.final_div_factor))

    def momentum(self, number: int, epoch: float) -> float:
        high, low = self.max_momentum[number], self.base_momentum[number]
        return self._value(epoch, self._phases(high, low, high))


class _Composite(LRScheduler):
    """Base class of schedulers that run other schedulers. `_initialize` replaces the constructor of `LRScheduler`."""

    def _initialize(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        """Initialize the instance after checking that the schedulers all belong to `optimizer`."""
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule takes a vk.optim optimiser, found {type(optimizer).__name__}")
        for position, schedule in enumerate(schedulers):
            if not isinstance(schedule, LRScheduler):
                raise ArgumentError(f"schedule {position} is a {type(schedule).__name__}, expected a schedule")
            if schedule.optimizer is not optimizer:
                raise ArgumentError(f"schedule {position} belongs to another optimiser")
        self.optimizer, self.schedulers, self.last_epoch = optimizer, list(schedulers), 0
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the step count, the rates, and the state of each scheduler."""
        states = [s.state_dict() for s in self.schedulers]
        return {
            "last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs), "schedulers": states, "rates": self.get_last_lr(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        missing = sorted({"schedulers", "last_epoch", "base_lrs"} - set(state_dict))
        if missing:
            raise ArgumentError(
                f"the state of a {type(self).__name__} lacks {', '.join(missing)}: it is another schedule's"
            )
        states = state_dict["schedulers"]
        if len(states) != len(self.schedulers):
            raise ArgumentError(f"the state has {len(states)} schedules, this one {len(self.schedulers)}")
        for scheduler, state in zip(self.schedulers, states, strict=True):
            scheduler.load_state_dict(state)
        self.last_epoch, self.base_lrs = state_dict["last_epoch"], list(state_dict["base_lrs"])
        self._resume(state_dict.get("rates"))


def _check_sequences(**arguments: Any) -> None:
    """Raise ArgumentError unless all arguments are lists or tuples."""
    for name, value in arguments.items():
        if not isinstance(value, list | tuple):
            raise ArgumentError(f"{name} is a list or tuple, found a {type(value).__name__}")


class SequentialLR(_Composite):
    """Run schedulers one after the other. Scheduler i takes over at step milestones[i - 1], which is its own step 0."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        _check_sequences(schedulers=schedulers, milestones=milestones)
        if not schedulers or len(schedulers) != len(milestones) + 1 or list(milestones) != sorted(milestones):
            raise ArgumentError(
                f"{len(schedulers)} schedules need {max(len(schedulers) - 1, 0)} rising milestones between them, found "
                f"{milestones}"
            )
        self._initialize(optimizer, schedulers)
        self.milestones = list(milestones)
        for group in optimizer.param_groups:  # each scheduler has set its own initial rate; only the first one applies
            group["lr"] = group["initial_lr"]
        self.schedulers[0].restart(0)

    def _go_to_epoch(self, epoch: float) -> None:
        self.last_epoch = epoch
        active = sum(epoch >= milestone for milestone in self.milestones)  # index of the active scheduler
        self.schedulers[active]._go_to_epoch(epoch - (self.milestones[active - 1] if active else 0))

    def step(self, epoch: float | None = None) -> None:
        """Advance by one step, or go to step `epoch`."""
        if epoch is not None:
            self.restart(epoch)
            return
        self.last_epoch += 1
        active = sum(self.last_epoch >= milestone for milestone in self.milestones)
        if active and self.last_epoch == self.milestones[active - 1]:  # it takes over in this step
            self.schedulers[active].restart(0)
        else:
            self.schedulers[active].step()


class ChainedScheduler(_Composite):
    """Several schedulers applied in sequence at each step, so that their factors multiply."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        _check_sequences(schedulers=schedulers)
        if not schedulers:
            raise ArgumentError("ChainedScheduler needs at least one schedule, found none")
        if not isinstance(schedulers[0], LRScheduler):
            raise ArgumentError(f"schedule 0 is a {type(schedulers[0]).__name__}, expected a schedule")
        self._initialize(optimizer or schedulers[0].optimizer, schedulers)

    def _go_to_epoch(self, epoch: float) -> None:
        self.last_epoch = epoch
        for schedule in self.schedulers:
            schedule._go_to_epoch(epoch)

    def step(self, epoch: float | None = None) -> None:
        """Advance each scheduler by one step, or go to step `epoch`."""
        if epoch is not None:
            self.restart(epoch)
            return
        self.last_epoch += 1
        for schedule in self.schedulers:
            schedule.step()
