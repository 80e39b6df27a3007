"""How much a launch has to do, before it is made: workgroups times loops.

Enters: a kernel and a case of huge extents. Leaves: whether the reference interpreter gets through it soon. A loop whose
length isn't known beforehand counts as endless.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import CompileError
from ..ir.core import Module, Region
from ..ir.rewrite import LOOPS, clone_module
from ..jit import Kernel
from ..passes.inline import Inline
from ..passes.lower_exits import LowerExits
from ..passes.trip_bound import Intervals
from ..runtime.interface import Device
from .case import ArrayInput, Case
from .composites import for_launch
from .probing import module_of
from .reference import call_by_name

__all__ = ["grid_of", "is_light", "is_short"]

MOST_STEPS = 1 << 16
"""Iterations of all workgroups together."""

MOST_LANES = 1 << 24
"""Iterations of all invocations together, if there are as many as elements."""


def is_light(kernel: Kernel, case: Case, groups: Any) -> bool:
    """Whether a launch of the case is over soon."""
    try:
        wanted = grid_of(kernel, case, groups)
        if wanted is None or math.prod(wanted) > MOST_STEPS:
            return False
        rounds = _rounds_of(kernel, case, wanted)
    except (CompileError, ZeroDivisionError):
        return False
    return rounds is not None and rounds * math.prod(wanted) <= MOST_STEPS


def is_short(kernel: Kernel, case: Case, groups: Any) -> bool:
    """Whether one invocation of the case, among those of a long array, is over soon; a loop whose length isn't known counts as
    one round."""
    try:
        wanted = grid_of(kernel, case, groups)
        rounds = None if wanted is None else _rounds_of(kernel, case, wanted)
    except (CompileError, ZeroDivisionError, AttributeError):
        return False
    return rounds is None or rounds * max(case.size(), 1) <= MOST_LANES


def _rounds_of(kernel: Kernel, case: Case, grid: tuple[int, int, int]) -> int | None:
    ranks = {n: len(a.shape) for n, a in case.arrays().items()}
    module = module_of(kernel, case.dtypes, ranks, case.arguments)
    values = list(case.arguments.values())
    extents = {i: v.shape for i, v in enumerate(values) if isinstance(v, ArrayInput)}
    scalars = {i: v for i, v in enumerate(values) if isinstance(v, int)}
    return _rounds(module, extents, scalars, grid)


def grid_of(kernel: Kernel, case: Case, groups: Any, device: Device | None = None) -> tuple[int, int, int] | None:
    """The grid, counted in workgroups of one invocation for kernels that run over an array; `device` is that of functions that
    ask for it."""
    if kernel.spec.over is not None:
        return math.prod(for_launch(kernel.expanded_spec, case.arguments)[kernel.spec.over].shape), 1, 1
    chosen = kernel._groups if groups is None else groups
    if callable(chosen):
        given = for_launch(kernel.expanded_spec, case.arguments)
        chosen = call_by_name(chosen, {**given, "dev": device}, "groups=")
    if chosen is None:
        return None
    padded = (*(chosen if isinstance(chosen, tuple) else (chosen,)), 1, 1)
    return int(padded[0]), int(padded[1]), int(padded[2])


def _rounds(
    module: Module, extents: Mapping[int, Sequence[int]], scalars: Mapping[int, int], groups: tuple[int, int, int]
) -> int | None:
    """Iterations of one invocation; None where a loop's length isn't known."""
    flat = Inline().run(LowerExits().run(clone_module(module)))
    intervals = Intervals(flat.kernel)

    def of(region: Region) -> int:
        total = 1
        for op in region.ops:
            inside = sum(of(r) for r in op.regions)
            if op.name in LOOPS:
                trips = intervals.trips(op)
                if trips is None:
                    raise KeyError
                inside *= max(trips.evaluate(extents, scalars, groups), 0)
            total += inside
        return total

    try:
        return of(flat.kernel.body)
    except (KeyError, IndexError):
        return None
