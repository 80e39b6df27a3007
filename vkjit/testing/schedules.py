"""Schedules: everything about a launch that must not change its result.

Enters: a kernel and a device. Leaves: `Schedule`s to try, the plain one first: the workgroup's size where the kernel
leaves it open, the order of workgroups, the subgroup's size and cut grids in the interpreter, the optimisation level
and the width of vectors on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..frontend import Signature
from ..jit import Kernel
from ..lang.control import Tune
from ..runtime.interface import Device

__all__ = ["FREE", "PLAIN", "Schedule", "choices_for", "variant"]

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to launch a kernel; None leaves a matter as it is.

    `local`: the workgroup's size. `order` of workgroups: "forward", "reverse" or the seed of a permutation
    (interpreter). `subgroup_size` (interpreter). `most_groups`: larger grids are cut into several dispatches
    (interpreter). `optimisation`: 0 to 2. `vector_width`: invocations per vector (processor); 1 on a Vulkan device means
    that neighbouring elements are read and written one by one. `strict`, `debug`: as at the decoration.
    """

    local: Triple | None = None
    order: str | int = "forward"
    subgroup_size: int | None = None
    most_groups: int | None = None
    optimisation: int | None = None
    strict: bool | None = None
    debug: bool | None = None
    vector_width: int | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.given().items()) or "as decorated"

    def given(self) -> dict[str, Any]:
        """The fields that say something."""
        pairs = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return {name: value for name, value, default in pairs if value != default}


PLAIN = Schedule()

FREE = frozenset({"order", "subgroup_size"})
"""What is told to a device at the launch; everything else is compiled for."""


def variant(kernel: Kernel, schedule: Schedule, **options: Any) -> Kernel:
    """The kernel as if it had been decorated with what the schedule says, and with these options of `Kernel`."""
    for name in ("local", "strict", "debug"):
        if getattr(schedule, name) is not None:
            options[name] = getattr(schedule, name)
    if schedule.strict:
        options["fast_math"] = False
    made = kernel.variant(**options)
    if schedule.vector_width == 1:
        made.__class__ = _ByElements
    return made


class _ByElements(Kernel):
    """A kernel that never knows that its arrays are aligned, so that accesses aren't joined."""

    def _signature(self, *args: Any) -> Signature:
        return replace(super()._signature(*args), aligned=False)


def choices_for(
    kernel: Kernel, device: Device, *, uses_subgroups: bool, has_groups: bool, strict: Sequence[bool | None] = (None,)
) -> list[tuple[str, list[Any]]]:
    """Field names with the values to try, the usual one first; fields that have one value only are left out."""
    found: list[tuple[str, list[Any]]] = [("local", _locals(kernel, uses_subgroups, has_groups))]
    if device.caps.kind == "interpreter":
        found += [("order", ["forward", "reverse", 1, 2])]
        found += [("most_groups", [None, 2])]
        if uses_subgroups:
            found += [("subgroup_size", _subgroup_sizes(kernel))]
    else:
        found += [("optimisation", [None, 0, 1]), ("vector_width", _vector_widths(device))]
    found += [("strict", list(dict.fromkeys((None, *strict))))]
    return [(name, values) for name, values in found if len(values) > 1]


def _locals(kernel: Kernel, uses_subgroups: bool, has_groups: bool) -> list[Triple | None]:
    """Workgroup sizes. A grid given with the launch belongs to one size."""
    if isinstance(kernel._local, Tune):
        return [None, *(_triple(c) for c in kernel._local.choices[1:])]
    if kernel._local is not None or has_groups:
        return [None]
    if uses_subgroups:
        return [None, (64, 1, 1), (128, 1, 1)]
    if kernel.spec.over is None:
        return [None, (32, 1, 1)]
    flat: list[Triple | None] = [None, (1, 1, 1), (32, 1, 1), (48, 1, 1)]
    return [*flat, (8, 8, 1)] if _rank(kernel) > 1 else flat


def _vector_widths(device: Device) -> list[int | None]:
    """The processor's own width and narrower ones; on other devices, accesses joined and not."""
    if device.caps.kind != "llvm-cpu":
        return [None, 1]
    return [None, *(width for width in (4, 8) if width < device.caps.subgroup_size)]


def _rank(kernel: Kernel) -> int:
    """Axes of the array that the kernel runs over, as far as its annotation says."""
    dims = next((p.dims for p in kernel.spec.params if p.name == kernel.spec.over), None)
    return 0 if dims is None else dims.rank or 0


def _triple(size: Any) -> Triple:
    padded = (*(size if isinstance(size, tuple) else (size,)), 1, 1)
    return padded[0], padded[1], padded[2]


def _subgroup_sizes(kernel: Kernel) -> list[int | None]:
    local = kernel.declared_local() or (64,)
    total = 1
    for size in local:
        total *= size
    return [None, *(size for size in (4, 8, 16, 64) if total % size == 0)]
