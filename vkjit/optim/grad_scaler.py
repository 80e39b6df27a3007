"""Loss scaling, so that f16 gradients neither underflow nor overflow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError, VkjitError
from ..tensor.autograd.mode import no_grad
from ..tensor.ops import arithmetic, copies, elementwise, reductions
from .optimizer import Optimizer

__all__ = ["GradScaler"]


class GradScaler:
    """Dynamic loss scaling: `scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`.

    `scale` multiplies the loss by the current scale, and `step` divides the gradients by it before the optimizer's
    step. If a gradient isn't finite, the step is skipped, and `update` multiplies the scale by backoff_factor. After
    growth_interval successful steps in a row, `update` multiplies the scale by growth_factor. The check of the
    gradients reads from the device, and so waits for it, once per step.
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not (init_scale > 0 and growth_factor > 1 and 0 < backoff_factor < 1 and growth_interval >= 1):
            raise ArgumentError(
                "GradScaler needs init_scale above 0, growth_factor above 1, backoff_factor in (0, 1) and growth_interval of at "
                f"least 1, found {init_scale}, {growth_factor}, {backoff_factor}, {growth_interval}"
            )
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval
        self.enabled = enabled
        self._scale, self._good_steps = float(init_scale), 0
        self._finite: dict[int, bool] = {}
        """Optimizers (ids) whose gradients have been unscaled since the last update. True if these are all finite."""
        self._stepped: list[Optimizer] = []
        """Optimizers that have been stepped since the last update."""

    def get_scale(self) -> float:
        """Return the factor by which losses are multiplied."""
        return self._scale if self.enabled else 1.0

    def scale(self, loss: Any) -> Any:
        """Return the loss times the scale; a list or tuple of losses is scaled element by element."""
        if not self.enabled:
            return loss
        if isinstance(loss, (list, tuple)):
            return type(loss)(self.scale(item) for item in loss)
        return arithmetic.mul(loss, self._scale)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide an optimizer's gradients by the scale, and check that they are finite.

        `step` calls this unless it has been called since the last update, for example to clip the gradients.
        """
        if not self.enabled:
            return
        self._refuse_second(optimizer)
        if id(optimizer) in self._finite:
            raise VkjitError("the gradients of this optimiser have been unscaled since the last update() already")
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.meta.grad is not None]
        sums = []
        with no_grad():
            for parameter in parameters:
                gradient: Any = parameter.meta.grad
                parameter.meta.grad = arithmetic.mul(gradient, 1.0 / self._scale)
                sums.append(reductions.sum(elementwise.abs(parameter.meta.grad)).to("f32"))
            # infinite or NaN if a gradient is: this takes a single read from the device
            total = reductions.sum(copies.stack(sums)).item() if sums else 0.0
        # the sum of finite values may overflow: if it isn't finite, check the values themselves
        self._finite[id(optimizer)] = math.isfinite(total) or all(
            elementwise.isfinite(p.meta.grad).all().item() for p in parameters
        )

    def _refuse_second(self, optimizer: Optimizer) -> None:
        """Raise VkjitError if the optimizer has been stepped since the last update().

        A second step would have new, scaled gradients, but the scaler has recorded the optimizer's as unscaled.
        """
        if any(stepped is optimizer for stepped in self._stepped):
            raise VkjitError(
                "this optimiser has been stepped already since the last update(): call update() after each step"
            )

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscale the optimizer's gradients unless that has been done, and call optimizer.step() if they are finite.

        Raises VkjitError for a second step without `update` in between.
        """
        if not self.enabled:
            return optimizer.step(*args, **kwargs)
        self._refuse_second(optimizer)
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped.append(optimizer)
        return optimizer.step(*args, **kwargs) if self._finite[id(optimizer)] else None

    def update(self) -> None:
        """Adjust the scale for the next step, after all optimizers have been stepped."""
        if not self.enabled:
            return
        if not self._finite:
            raise VkjitError("update() without a step() or unscale_() since the last one")
        if all(self._finite.values()):
            self._good_steps += 1
            if self._good_steps == self.growth_interval:
                self._scale *= self.growth_factor
                self._good_steps = 0
        else:
            self._scale *= self.backoff_factor
            self._good_steps = 0
        self._finite.clear()
        self._stepped.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, and the number of successful steps since it last changed."""
        return {"scale": self._scale, "good_steps": self._good_steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`, or from PyTorch's GradScaler, including its factors and interval.

        Raises ArgumentError for invalid states, before anything is changed.
        """
        entries = dict(state_dict) if isinstance(state_dict, Mapping) else {}
        steps = entries.pop("good_steps", entries.pop("_growth_tracker", None))  # the second is PyTorch's name
        scale = entries.pop("scale", None)
        numbers = (scale, steps, *entries.values())
        if not all(isinstance(n, (int, float)) and math.isfinite(n) and n >= 0 for n in numbers) or not scale:
            raise ArgumentError(
                f"the state of a GradScaler has a scale above 0 and good_steps of at least 0, found {state_dict!r}"
            )
        unknown = sorted(set(entries) - {"growth_factor", "backoff_factor", "growth_interval"})
        if unknown:
            raise ArgumentError(f"GradScaler has no {unknown[0]!r} in its state")
        vars(self).update(entries)  # growth_factor, backoff_factor and growth_interval, if given
        self._scale, self._good_steps = float(scale), int(steps)
