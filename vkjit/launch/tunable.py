"""The autotuning interface of `Kernel`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..frontend import tune_choice
from ..lang.control import Tune
from . import bind, extensions
from .grid import Grid, LaunchGrid

if TYPE_CHECKING:
    from ..autotune.kernels import TunedLaunch
    from ..autotune.storage import Record
    from ..frontend import KernelSpec
    from ..runtime.device import Device
    from .cache import CallForm

__all__ = ["Tunable", "has_open_choices"]


def has_open_choices(spec: KernelSpec, local: Any, given: Collection[int] = ()) -> bool:
    """True if a call with these parameters, by number, leaves a choice declared with `vk.tune(...)` to tuning."""
    return isinstance(local, Tune) or any(
        isinstance(p.default, Tune) and number not in given for number, p in enumerate(spec.params)
    )


class Tunable:
    """Mixin of `Kernel` for tunable parameters. `tuned` caches the settings by device, argument types and shapes."""

    spec: KernelSpec
    grid: LaunchGrid
    tuned: dict[Any, TunedLaunch | None]
    _forms: dict[Any, CallForm]
    _local: Any
    _groups: Any
    _strict: bool
    _fast_math: bool

    @property
    def local(self) -> Any:
        """The workgroup size as declared."""
        return self._local

    @property
    def options(self) -> str:
        """The options that affect results, as text."""
        return f"strict={self._strict} fast_math={self._fast_math}"

    def tune(self, *args: Any, groups: Any = None, budget: float = 10.0, **kwargs: Any) -> Record:
        """Measure the choices declared with `vk.tune(...)` for arguments of these types and shapes, and store the best.

        `groups` is the number of workgroups, as in `kernel[groups](...)`. `budget` is the time for compiling and
        measuring, in seconds. Arrays that the kernel writes are copied; the caller's are unchanged. Candidates whose
        results differ from those of the first choices are never selected. Later launches with such arguments, on a
        device of the same name and driver, in this and other processes, use the best choices unless VKJIT_TUNE=0.

        Returns the `Record`: `.best`, `.gain`, and a row for each candidate. Raises ArgumentError if the call leaves
        nothing to tune.
        """
        record: Record = extensions.get("tune")(self, groups, args, kwargs, budget)
        return record

    def tuned_settings(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TunedLaunch | None:
        """Return the tuned settings for a call, or None to use the defaults."""
        found: TunedLaunch | None = extensions.get("tuned settings")(self, args, kwargs)
        return found

    def forget_tuned_settings(self) -> None:
        """Have the next launches look for tuned settings again, those of earlier calls among them."""
        self.tuned.clear()
        self._forms.clear()

    def shape_of_launch(self, groups: Any, device: Device, values: dict[str, Any]) -> tuple[Grid, Grid] | None:
        """Return (workgroups, local size) of a launch; None if they depend on omitted arguments."""
        if any(p.name not in values for p in self.spec.params if p.kind != "const"):
            return None
        listed = [values.get(p.name, tune_choice(p.default)) for p in self.spec.params]
        if self.spec.size_constants:
            for i in self.spec.size_constants:
                listed[i] = values.get(self.spec.params[i].name, bind.MISSING)
            bind.bind_dims(self.spec, {i: listed[i].shape for i in self.spec.arrays}, listed)
        shape = None if self.spec.over is None else tuple(values[self.spec.over].shape)
        local: Grid = self.grid.local_size(device, listed, shape)
        given = None if groups is None else ((groups,) if isinstance(groups, int) else tuple(groups))
        grid: Grid = self.grid.groups(given, device, listed, local, shape)
        return grid, local
