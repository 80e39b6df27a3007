"""Schedules: settings of the launch and the compiler that must not change a kernel's result, varied by property tests.

They are the workgroup size if the kernel doesn't declare one; in the interpreter, the order of workgroups, the subgroup
size, and whether the grid is split; on other devices, the optimization level and the vector width. The default schedule
is tried first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from vkjit.frontend import Signature
from vkjit.lang.control import Tune
from vkjit.launch.kernel import Kernel
from vkjit.runtime.device import Device

__all__ = ["FREE", "PLAIN", "Schedule", "choices_for", "variant"]

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Launch and compilation settings of a kernel; None keeps the default.

    `local` is the workgroup size; `strict` and `debug` are options of `vk.kernel`; `optimization` is the level, 0 to 2.
    Three fields apply to the interpreter only. `order` is the order of workgroups: "forward", "reverse" or the seed of
    a permutation. `subgroup_size` is the subgroup size. `max_groups` is the maximum number of workgroups per axis of a
    dispatch; larger grids are split. `vector_width` is the number of invocations per vector on CPUs; on Vulkan devices,
    the value 1 disables vectorized memory accesses.
    """

    local: Triple | None = None
    order: str | int = "forward"
    subgroup_size: int | None = None
    max_groups: int | None = None
    optimization: int | None = None
    strict: bool | None = None
    debug: bool | None = None
    vector_width: int | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.given().items()) or "as decorated"

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        pairs = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return {name: value for name, value, default in pairs if value != default}


PLAIN = Schedule()
"""The default schedule."""

FREE = frozenset({"order", "subgroup_size"})
"""Fields set on the device at launch; all others require compilation."""


def variant(kernel: Kernel, schedule: Schedule, **options: Any) -> Kernel:
    """Return the kernel compiled with the schedule's settings; `options` are further arguments of `Kernel.variant`."""
    for name in ("local", "strict", "debug"):
        if getattr(schedule, name) is not None:
            options[name] = getattr(schedule, name)
    if schedule.strict:  # excludes fast math
        options["fast_math"] = False
    changed = kernel.variant(**options)
    if schedule.vector_width == 1:
        # no option of a kernel disables vectorized accesses, so the new kernel is given a class that does
        changed.__class__ = _ByElements
    return changed


class _ByElements(Kernel):
    """A kernel compiled as if no array were 16-byte aligned, so that accesses aren't vectorized."""

    def _compile(self, key: tuple[Any, ...], device: Device, signature: Signature, values: list[Any]) -> Any:
        return super()._compile(key, device, replace(signature, aligned=False), values)


def choices_for(
    kernel: Kernel, device: Device, *, uses_subgroups: bool, has_groups: bool, strict: Sequence[bool | None] = (None,)
) -> list[tuple[str, list[Any]]]:
    """Return the fields of `Schedule` to vary on a device, each with the values to try, the default first.

    Fields with a single value are left out. `has_groups` is true if the test gives the grid, which fits only the
    default workgroup size. `strict` are the values to try for the field of this name besides None.
    """
    choices: list[tuple[str, list[Any]]] = [("local", _locals(kernel, uses_subgroups, has_groups))]
    if device.caps.kind == "interpreter":
        choices += [("order", ["forward", "reverse", 1, 2])]
        choices += [("max_groups", [None, 2])]
        if uses_subgroups:
            choices += [("subgroup_size", _subgroup_sizes(kernel))]
    else:
        choices += [("optimization", [None, 0, 1]), ("vector_width", _vector_widths(device))]
    choices += [("strict", list(dict.fromkeys((None, *strict))))]
    return [(name, values) for name, values in choices if len(values) > 1]


def _locals(kernel: Kernel, uses_subgroups: bool, has_groups: bool) -> list[Triple | None]:
    """Return the workgroup sizes to try, None for the default. If the test gives the grid, only the default fits it."""
    if isinstance(kernel._local, Tune):
        return [None, *(_triple(c) for c in kernel._local.choices[1:])]
    if kernel._local is not None or has_groups:
        return [None]
    if uses_subgroups:
        return [None, (64, 1, 1), (128, 1, 1)]
    if kernel.spec.over is None:
        return [None, (32, 1, 1)]
    # `over=` kernels work with any size: try one invocation, a common subgroup size, and a size that is no power of two
    flat: list[Triple | None] = [None, (1, 1, 1), (32, 1, 1), (48, 1, 1)]
    return [*flat, (8, 8, 1)] if _rank(kernel) > 1 else flat


def _vector_widths(device: Device) -> list[int | None]:
    """Return the vector widths to try; on Vulkan devices, 1 disables vectorized memory accesses."""
    if device.caps.kind != "llvm-cpu":
        return [None, 1]
    return [None, *(width for width in (4, 8) if width < device.caps.subgroup_size)]


def _rank(kernel: Kernel) -> int:
    """Return the rank of the array that the kernel runs over, 0 if its annotation doesn't tell."""
    dims = next((p.dims for p in kernel.spec.params if p.name == kernel.spec.over), None)
    return 0 if dims is None else dims.rank or 0


def _triple(size: Any) -> Triple:
    """Return a workgroup size, a number or a tuple, as (x, y, z)."""
    given = size if isinstance(size, tuple) else (size,)
    padded = (*given, 1, 1)
    return padded[0], padded[1], padded[2]


def _subgroup_sizes(kernel: Kernel) -> list[int | None]:
    """Return the subgroup sizes to try: None for the default, and sizes that divide the workgroup."""
    local = kernel.declared_local() or (64,)  # without a declaration, a size that all of them divide
    invocations = 1
    for size in local:
        invocations *= size
    return [None, *(size for size in (4, 8, 16, 64) if invocations % size == 0)]
