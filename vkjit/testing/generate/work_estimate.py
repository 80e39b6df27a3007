"""Estimates of the work of a launch, which decide if the interpreter can run a large case in a short time.

The work is the number of loop iterations of one invocation, multiplied by the number of workgroups (`is_light`) or of
elements (`is_short`). The iterations are counted with upper bounds of the loops' trip counts, which are computed from
the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vkjit.errors import CompileError
from vkjit.ir.core import Module, Region
from vkjit.ir.rewrite import LOOPS, clone_module
from vkjit.launch.kernel import Kernel
from vkjit.passes.analysis.trip_bound import Intervals
from vkjit.passes.lowering.lower_exits import LowerExits
from vkjit.passes.transforms.inline import Inline
from vkjit.runtime.device import Device

from ..cases.case import ArrayInput, Case
from ..cases.composites import for_launch
from ..cases.reference import call_by_name
from .usable_types import module_of

__all__ = ["grid_of", "is_light", "is_short"]

MAX_STEPS = 1 << 16
"""`is_light`: maximum number of iterations, summed over all workgroups."""

MAX_LANE_ITERATIONS = 1 << 24
"""`is_short`: maximum number of iterations, summed over all invocations."""


def is_light(kernel: Kernel, case: Case, groups: Any) -> bool:
    """True if all workgroups together have at most `MAX_STEPS` iterations, with one invocation counted for each.

    False if the grid or a trip count is unknown.

    `groups` is the user's number of workgroups, or a function that computes it; None for that of the kernel.
    """
    try:
        grid = grid_of(kernel, case, groups)
        if grid is None or math.prod(grid) > MAX_STEPS:
            return False
        iterations = _iterations_of(kernel, case, grid)
    except (CompileError, ZeroDivisionError):
        return False
    return iterations is not None and iterations * math.prod(grid) <= MAX_STEPS


def is_short(kernel: Kernel, case: Case, groups: Any) -> bool:
    """True if all invocations together have at most `MAX_LANE_ITERATIONS` iterations, assuming one per element.

    Unlike `is_light`, also True if the grid or a trip count is unknown; False if the grid can't be computed or the
    kernel doesn't compile for the case. `groups` is that of `is_light`.
    """
    try:
        grid = grid_of(kernel, case, groups)
        iterations = None if grid is None else _iterations_of(kernel, case, grid)
    except (CompileError, ZeroDivisionError, AttributeError):
        return False
    return iterations is None or iterations * max(case.size(), 1) <= MAX_LANE_ITERATIONS


def _iterations_of(kernel: Kernel, case: Case, grid: tuple[int, int, int]) -> int | None:
    """Return an upper bound of the number of iterations of one invocation in a case; None if a trip count is unknown.

    `grid` is the number of workgroups along each axis.
    """
    ranks = {n: len(a.shape) for n, a in case.arrays().items()}
    module = module_of(kernel, case.dtypes, ranks, case.arguments)
    values = list(case.arguments.values())
    extents = {i: v.shape for i, v in enumerate(values) if isinstance(v, ArrayInput)}
    scalars = {i: v for i, v in enumerate(values) if isinstance(v, int)}
    return _iterations(module, extents, scalars, grid)


def grid_of(kernel: Kernel, case: Case, groups: Any, device: Device | None = None) -> tuple[int, int, int] | None:
    """Return the number of workgroups along each axis for a case; None if it is unknown.

    For a kernel that runs over the elements of an array (`over=`), the result is the number of these elements, as if
    workgroups had one invocation. `groups` is the user's number of workgroups, or a function that computes it; the
    function gets `device` as its parameter `dev`.
    """
    if kernel.spec.over is not None:
        return math.prod(for_launch(kernel.expanded_spec, case.arguments)[kernel.spec.over].shape), 1, 1
    grid = kernel._groups if groups is None else groups
    if callable(grid):
        given = for_launch(kernel.expanded_spec, case.arguments)
        grid = call_by_name(grid, {**given, "dev": device}, "groups=")
    if grid is None:
        return None
    padded = (*(grid if isinstance(grid, tuple) else (grid,)), 1, 1)
    return int(padded[0]), int(padded[1]), int(padded[2])


def _iterations(
    module: Module, extents: Mapping[int, Sequence[int]], scalars: Mapping[int, int], groups: tuple[int, int, int]
) -> int | None:
    """Return an upper bound of the number of iterations of one invocation; None if a trip count is unknown.

    Each region of a branch and the kernel itself count like an iteration, so that the result is never 0.

    `extents` are the shapes of the arrays and `scalars` the integer arguments, by parameter index. `groups` is the
    number of workgroups along each axis.
    """
    flat = Inline().run(LowerExits().run(clone_module(module)))
    intervals = Intervals(flat.kernel)

    def iterations_of(region: Region) -> int:
        total = 1
        for op in region.ops:
            iterations = sum(iterations_of(r) for r in op.regions)
            if op.name in LOOPS:
                trips = intervals.trips(op)
                if trips is None:
                    raise KeyError  # caught below, as are errors of `evaluate` for arguments that it doesn't know
                iterations *= max(trips.evaluate(extents, scalars, groups), 0)
            total += iterations
        return total

    try:
        return iterations_of(flat.kernel.body)
    except (KeyError, IndexError):
        return None
