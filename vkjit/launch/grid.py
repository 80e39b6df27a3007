"""Grids and workgroup sizes: computes the number and the size of the workgroups of a launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..frontend import KernelSpec, tune_choice
from ..runtime.device import Device, DeviceCaps
from ..runtime.prepared_launch import Grid

__all__ = ["Grid", "LaunchGrid", "checked_grid", "default_local_size", "grid_for_shape", "is_split", "parts"]


def default_local_size(rank: int, caps: DeviceCaps) -> Grid:
    """Return the workgroup size that the library chooses for a kernel over `rank` axes."""
    if caps.kind == "llvm-cpu":  # a workgroup is a loop over vectors: long, and along rows
        most = caps.max_invocations
        return (min(512, most), 1, 1) if rank <= 1 else (min(256, most), min(4, most // min(256, most)), 1)
    budget = min(256 if caps.kind not in ("cpu", "interpreter") else 128, caps.max_invocations)
    if rank <= 1:
        return (min(budget, caps.max_local_size[0]), 1, 1)
    wide = min(32, budget, caps.max_local_size[0])
    return (wide, max(1, min(budget // wide, caps.max_local_size[1])), 1)


def grid_for_shape(shape: tuple[int, ...], local: Grid) -> Grid:
    """Return the number of workgroups for one invocation per element.

    The last axis maps to x, the second to last to y, and all others, flattened, to z.
    """
    (wide, high, deep), rank, folded = local, len(shape), 1
    for extent in shape[:-2]:
        folded *= extent
    return (
        -(-shape[-1] // wide) if rank else 1,
        -(-shape[-2] // high) if rank > 1 else 1,
        -(-folded // deep),
    )


def checked_grid(value: Any, what: str, name: str) -> Grid:
    """Return a grid or workgroup size as three sizes.

    `what` and `name` name the argument and the kernel, for errors.
    """
    __tracebackhide__ = True
    sizes = (value,) if isinstance(value, (int, np.integer)) else value
    if not isinstance(sizes, (tuple, list)) or not 1 <= len(sizes) <= 3:
        raise ArgumentError(f"{name}: {what} is {value!r}: expected an int or a tuple of one to three ints")
    for size in sizes:
        if isinstance(size, (bool, np.bool_)):
            raise ArgumentError(f"{name}: {what} is {value!r}: expected ints, found a bool")
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise ArgumentError(f"{name}: {what} is {value!r}: expected ints of at least 0")
    padded = (*map(int, sizes), 1, 1)
    return (padded[0], padded[1], padded[2])


def is_split(groups: Grid, caps: DeviceCaps) -> bool:
    """Return True if a grid exceeds the device's limits, so that it takes several dispatches."""
    limits = caps.max_groups
    return groups[0] > limits[0] or groups[1] > limits[1] or groups[2] > limits[2]


def parts(groups: Grid, limits: Grid) -> Iterator[tuple[Grid, Grid]]:
    """Split a grid into (base, size) parts within the limits."""
    starts = [range(0, total, limit) for total, limit in zip(groups, limits, strict=True)]
    for z in starts[2]:
        for y in starts[1]:
            for x in starts[0]:
                width, height, depth = (min(m, t - b) for m, t, b in zip(limits, groups, (x, y, z), strict=True))
                yield (x, y, z), (width, height, depth)


class LaunchGrid:
    """The grid and workgroup size of a kernel, as declared with `over=`, `groups=` and `local=`."""

    def __init__(self, spec: KernelSpec, expanded: KernelSpec, groups: Any, local: Any) -> None:
        """`expanded` is the spec with structs split into components."""
        self._spec, self._expanded = spec, expanded
        self._groups, self._local = groups, local

    @property
    def local_is_computed(self) -> bool:
        """True if a function of the user chooses the workgroup size of each launch."""
        return callable(tune_choice(self._local))

    @property
    def groups_are_computed(self) -> bool:
        """True if a function of the user chooses the grid of each launch."""
        return callable(self._groups)

    def declared_local(self) -> tuple[int, ...] | None:
        """Return the declared workgroup size, if it is a constant."""
        chosen = tune_choice(self._local)
        return None if chosen is None or callable(chosen) else checked_grid(chosen, "local=", self._spec.name)

    def local_size(self, device: Device, values: list[Any], shape: tuple[int, ...] | None) -> Grid:
        __tracebackhide__ = True
        chosen = tune_choice(self._local)
        if callable(chosen):
            chosen = self._named(chosen, device, values)
        if chosen is None:
            return default_local_size(1 if shape is None else len(shape), device.caps)
        local = checked_grid(chosen, "local=", self._spec.name)
        if shape is not None:
            self._check_over_local(local, len(shape))
        caps = device.caps
        total = local[0] * local[1] * local[2]
        if (
            total == 0
            or total > caps.max_invocations
            or any(size > limit for size, limit in zip(local, caps.max_local_size, strict=True))
        ):
            raise ArgumentError(
                f"{self._spec.name}: a workgroup of {local} has {total} invocations; {device.name} takes 1 to "
                f"{caps.max_invocations}, per axis at most {caps.max_local_size}"
            )
        return local

    def _check_over_local(self, local: Grid, rank: int) -> None:
        """Raise ArgumentError for a workgroup with more axes than the array: it would process elements repeatedly."""
        if any(size > 1 for size in local[max(rank, 1) :]):
            raise ArgumentError(
                f"{self._spec.name} runs over {self._spec.over!r} of {rank} dimensions: local={local} has more; expected at most "
                f"{max(rank, 1)} sizes above 1"
            )

    def groups(
        self, groups: Grid | None, device: Device, values: list[Any], local: Grid, shape: tuple[int, ...] | None
    ) -> Grid:
        __tracebackhide__ = True
        if groups is not None:
            return groups
        if shape is not None:
            return grid_for_shape(shape, local)
        chosen = self._groups
        if chosen is None:
            raise ArgumentError(
                f"{self._spec.name} has neither over= nor groups=: launch it as {self._spec.name}[groups](...) with the "
                "number of workgroups"
            )
        if callable(chosen):
            chosen = self._named(chosen, device, values)
        return checked_grid(chosen, "groups=", self._spec.name)

    def over_shape(self, values: list[Any]) -> tuple[int, ...] | None:
        """Return the shape of the array that the kernel runs over; None without `over=`."""
        if self._spec.over is None:
            return None
        for composite in self._expanded.composites:
            if composite.parameter.name == self._spec.over:
                shape: tuple[int, ...] = values[composite.first].shape
                return shape[: len(shape) - composite.part_axes]
        position = self._expanded.over_position
        assert position is not None  # else it was split into a composite
        return tuple(values[position].shape)

    def check_axes(self, groups: Grid, read: tuple[int, ...]) -> None:
        """Raise ArgumentError for several workgroups along an axis that the kernel doesn't read: they repeat work."""
        __tracebackhide__ = True
        repeated = [axis for axis, size in enumerate(groups) if size > 1 and axis not in read]
        if not repeated:
            return
        axis = repeated[-1]
        sizes = groups[: max(i for i in range(3) if groups[i] > 1) + 1]
        kept = [count if i in read or i < axis else 1 for i, count in enumerate(sizes)]
        while len(kept) > 1 and kept[-1] == 1:
            kept.pop()
        instead, size = f"{self._spec.name}{kept}(...)", groups[axis]
        advice = f", as here; write {instead}"
        if self._local is None:
            advice = f": for workgroups of {size} invocations write @vk.kernel(local={size}) and {instead}"
        raise ArgumentError(
            f"{self._spec.name}{list(sizes)}: the kernel reads no vk.global_id({axis}), vk.group_id({axis}) or "
            f"vk.num_groups({axis}), "
            f"so that all {size} workgroups along axis {axis} would do the same work. In vkjit, [] holds the numbers "
            f"of workgroups per axis, and local= sets the size of a workgroup{advice}"
        )

    def _named(self, function: Callable[..., Any], device: Device, values: list[Any]) -> Any:
        """Call a function given as `groups=` or `local=` with the kernel arguments that its parameters name.

        `dev` names the device. Raises ArgumentError for unknown names.
        """
        available: dict[str, Any] = {p.name: v for p, v in zip(self._spec.params, values, strict=True)}
        available["dev"] = device
        wanted = list(inspect.signature(function).parameters)
        missing = [name for name in wanted if name not in available]
        if missing:
            raise ArgumentError(
                f"{self._spec.name}: the launch function asks for {missing[0]!r}; there are {', '.join(available)}"
            )
        return function(**{name: available[name] for name in wanted})
