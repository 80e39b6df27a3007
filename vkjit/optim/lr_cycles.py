"""More schedules of the learning rate: polynomials, restarts, cycles, and schedules made of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .lr_schedules import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "CosineAnnealingWarmRestarts", "CyclicLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "SequentialLR",
]  # fmt: skip


class PolynomialLR(LRScheduler):
    """lr = base * (1 - epoch / total_iters)^power, 0 from total_iters on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return float((1 - min(epoch, self.total_iters) / self.total_iters) ** self.power)


class MultiplicativeLR(LRScheduler):
    """lr = base * lr_lambda(1) * ... * lr_lambda(epoch); the function is no part of the state."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return math.prod(self.lr_lambda(e) for e in range(1, epoch + 1))


class CosineAnnealingWarmRestarts(LRScheduler):
    """A cosine from base to eta_min over T_0 epochs, then again over T_mult times as many, and so on (Loshchilov and Hutter,
    2017).
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        if not isinstance(T_0, int) or not isinstance(T_mult, int) or T_0 < 1 or T_mult < 1:
            raise ArgumentError(f"T_0 and T_mult are ints of at least 1, found {T_0!r} and {T_mult!r}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer)

    def rate(self, epoch: int, base: float) -> float:
        period = self.T_0
        while epoch >= period:
            epoch -= period
            period *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / period)) / 2


class CyclicLR(LRScheduler):
    """Straight up from base_lr to max_lr in step_size_up steps and down in step_size_down, again and again (Smith, 2017).

    mode: "triangular", "triangular2" (each cycle half as high), "exp_range" (scaled by gamma^steps); scale_fn, a function of
    the cycle's number or with scale_mode="iterations" of the steps, in place of a mode.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") or scale_mode not in ("cycle", "iterations"):
            raise ArgumentError(
                'mode is "triangular", "triangular2" or "exp_range", scale_mode "cycle" or "iterations", found '
                f"{mode!r}, {scale_mode!r}"
            )
        self.base_lr, self.max_lr, self.mode, self.gamma = base_lr, max_lr, mode, gamma
        self.step_size_up, self.step_size_down = step_size_up, step_size_down or step_size_up
        self.scale_fn, self.scale_mode = scale_fn, scale_mode
        super().__init__(optimizer)

    def _scale(self, cycle: int, epoch: int) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else epoch)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (cycle - 1)
        return float(self.gamma**epoch) if self.mode == "exp_range" else 1.0

    def rate(self, epoch: int, base: float) -> float:
        total = self.step_size_up + self.step_size_down
        cycle, place = 1 + epoch // total, epoch % total
        height = place / self.step_size_up if place <= self.step_size_up else (total - place) / self.step_size_down
        return self.base_lr + (self.max_lr - self.base_lr) * height * self._scale(cycle, epoch)


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to that start / final_div_factor, over total_steps (Smith and Topin,
    2019).

    pct_start: the share of steps that go up; anneal_strategy: "cos" or "linear"; three_phase: down to the start first, then to
    the end.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                'OneCycleLR needs total_steps of at least 1, pct_start in [0, 1] and anneal_strategy "cos" or "linear", found '
                f"{total_steps!r}, {pct_start!r}, {anneal_strategy!r}"
            )
        self.max_lr, self.total_steps, self.pct_start = max_lr, total_steps, pct_start
        self.anneal_strategy, self.three_phase = anneal_strategy, three_phase
        self.first_lr = max_lr / div_factor
        self.last_lr = self.first_lr / final_div_factor
        super().__init__(optimizer)

    def _phases(self) -> list[tuple[float, float, float]]:
        """(last step, rate at the start, rate at the end) of each."""
        top = self.pct_start * self.total_steps - 1
        end = float(self.total_steps - 1)
        if not self.three_phase:
            return [(top, self.first_lr, self.max_lr), (end, self.max_lr, self.last_lr)]
        middle = 2 * self.pct_start * self.total_steps - 2
        return [
            (top, self.first_lr, self.max_lr),
            (middle, self.max_lr, self.first_lr),
            (end, self.first_lr, self.last_lr),
        ]

    def rate(self, epoch: int, base: float) -> float:
        del base
        if epoch > self.total_steps:
            raise ArgumentError(f"OneCycleLR was made for {self.total_steps} steps, this is step {epoch}")
        begin = 0.0
        phases = self._phases()
        for end, first, last in phases:
            if epoch <= end or end == phases[-1][0]:
                done = (epoch - begin) / (end - begin) if end != begin else 1.0
                if self.anneal_strategy == "linear":
                    return first + (last - first) * done
                return last + (first - last) / 2 * (1 + math.cos(math.pi * done))
            begin = end
        raise AssertionError("unreachable: the last phase takes every step")


class SequentialLR(LRScheduler):
    """One schedule after the other: the i-th from step milestones[i - 1] on, which counts as its step 0."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        if len(schedulers) != len(milestones) + 1 or list(milestones) != sorted(milestones):
            raise ArgumentError(
                f"{len(schedulers)} schedules need {len(schedulers) - 1} rising milestones between them, found {milestones}"
            )
        _check_same(optimizer, schedulers)
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def _set(self) -> None:
        number = sum(self.last_epoch >= milestone for milestone in self.milestones)
        chosen = self.schedulers[number]
        chosen.last_epoch = self.last_epoch - (self.milestones[number - 1] if number else 0)
        chosen._set()

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, and the state of each schedule."""
        return _collected(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        _distribute(self, state_dict)
        self._set()


class ChainedScheduler(LRScheduler):
    """Several schedules at once: their factors are multiplied. Each has to be a factor of the base rate."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ArgumentError("ChainedScheduler needs at least one schedule, found none")
        chosen = optimizer or schedulers[0].optimizer
        _check_same(chosen, schedulers)
        self.schedulers = list(schedulers)
        super().__init__(chosen)

    def factor(self, epoch: int) -> float:
        return math.prod(s.factor(epoch) for s in self.schedulers)

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, and the state of each schedule."""
        return _collected(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        _distribute(self, state_dict)
        self._set()


def _check_same(optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
    for position, schedule in enumerate(schedulers):
        if schedule.optimizer is not optimizer:
            raise ArgumentError(f"schedule {position} belongs to another optimiser")


def _collected(scheduler: Any) -> dict[str, Any]:
    parts = [s.state_dict() for s in scheduler.schedulers]
    return {"last_epoch": scheduler.last_epoch, "base_lrs": list(scheduler.base_lrs), "schedulers": parts}


def _distribute(scheduler: Any, state: dict[str, Any]) -> None:
    if len(state["schedulers"]) != len(scheduler.schedulers):
        raise ArgumentError(f"the state has {len(state['schedulers'])} schedules, this one {len(scheduler.schedulers)}")
    for one, part in zip(scheduler.schedulers, state["schedulers"], strict=True):
        one.load_state_dict(part)
    scheduler.last_epoch, scheduler.base_lrs = int(state["last_epoch"]), list(state["base_lrs"])
