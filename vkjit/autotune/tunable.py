"""What a kernel has because of tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..lang.control import Tune
from ..plan import Grid

if TYPE_CHECKING:
    from ..frontend import KernelSpec
    from ..runtime.interface import Device
    from .kernels import Settings
    from .records import Record

__all__ = ["Tunable", "is_tunable"]


def is_tunable(spec: KernelSpec, local: Any) -> bool:
    """Whether anything is left to the library."""
    return isinstance(local, Tune) or any(isinstance(p.default, Tune) for p in spec.params)


class Tunable:
    """The part of `Kernel` that is about choices left to the library. `tuned` holds the answers by device and forms of the
    arguments."""

    spec: KernelSpec
    tuned: dict[Any, Settings | None]
    _local: Any
    _groups: Any
    _strict: bool
    _fast_math: bool

    @property
    def local(self) -> Any:
        """The workgroup size as it was declared."""
        return self._local

    @property
    def options(self) -> str:
        """The options that results depend on, in words."""
        return f"strict={self._strict} fast_math={self._fast_math}"

    def tune(self, *args: Any, groups: Any = None, budget: float = 10.0, **kwargs: Any) -> Record:
        """Measures what the kernel leaves to `vk.tune(...)`, for arguments of these types and shapes, and keeps the answer.

        `groups` is what stands in brackets at a launch; `budget` is in seconds, of compiling and measuring. Arrays that the
        kernel writes are copied, the caller's stay as they are. Candidates that give other results than the first choices
        are never taken. Later launches with such arguments, on a device of that name and driver, in this and in other
        processes, use the best choices, unless VKJIT_TUNE=0.

        Returns the `Record`: `.best`, `.gain`, and a row for each candidate. Raises ArgumentError where nothing is left open.
        """
        from .kernels import tune_kernel

        return tune_kernel(self, groups, args, kwargs, budget)  # type: ignore[arg-type]  # a Kernel is the only Tunable

    def tuned_settings(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Settings | None:
        """What tuning has found for a call; None where the defaults serve."""
        from .kernels import settings

        return settings(self, args, kwargs)  # type: ignore[arg-type]

    def shape_of_launch(self, groups: Any, device: Device, values: dict[str, Any]) -> tuple[Grid, Grid] | None:
        """(workgroups, invocations of each) of a launch with these arguments; None where that depends on what is left out."""
        if any(p.name not in values for p in self.spec.params if p.kind != "const"):
            return None
        listed = [values.get(p.name, _first(p.default)) for p in self.spec.params]
        shape = None if self.spec.over is None else tuple(values[self.spec.over].shape)
        local: Grid = self._local_size(device, listed, shape)  # type: ignore[attr-defined]
        given = None if groups is None else ((groups,) if isinstance(groups, int) else tuple(groups))
        grid: Grid = self._grid_size(given, device, listed, local, shape)  # type: ignore[attr-defined]
        return grid, local


def _first(value: Any) -> Any:
    from ..frontend import tune_choice

    return tune_choice(value)
