"""Array sizes just past what a kernel's grid or blocks cover, at which boundary bugs show.

A kernel whose grid doesn't grow with the arrays, and that lacks a loop, misses the elements beyond the grid. A kernel
that processes arrays in blocks may fail after the last full block. So `sizes_past` returns sizes around two numbers:
the number of invocations of a fixed grid, and the size of a block. The block size is guessed from the values of Const
parameters, and from constants that the kernel's function uses. A small constant may be the number of elements per
invocation, so it is also multiplied by the workgroup size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from vkjit.errors import VkjitError
from vkjit.frontend import tune_choice
from vkjit.launch.grid import default_local_size
from vkjit.launch.kernel import Kernel

from ..cases.case import Case
from .strategies import Drawing
from .work_estimate import grid_of

__all__ = ["MAX_CASES", "MAX_SIZE", "sizes_past"]

MAX_SIZE = (1 << 18) + 1
"""Maximum size of a dimension, so that arrays take a few megabytes at most."""

MAX_CASES = 12
"""Maximum number of cases per kernel with sizes from this module."""

_MIN_BLOCK = 128
_MAX_BLOCK = 1 << 16
"""Fixed grids have at least `_MIN_BLOCK` invocations, blocks from 2 * `_MIN_BLOCK` to `_MAX_BLOCK` elements."""
_MAX_PER_INVOCATION = 64
"""Maximum constant that is taken for a number of elements per invocation."""


def sizes_past(drawing: Drawing, case_of: Callable[[int], Case | None]) -> list[int]:
    """Return sizes to try for one dimension, the most likely to fail first.

    `case_of` returns a case in which the dimension has a given size; None if the dimension can't have this size.
    """
    grids = _fixed_grids(drawing, case_of)
    blocks = _blocks(drawing.kernel, drawing.groups)
    sizes = [g + 1 for g in grids] + [b + 1 for b in blocks] + [2 * b + 1 for b in blocks]
    sizes += [g + d for g in grids for d in (-1, 0)] + [b + d for b in blocks for d in (-1, 0)]
    return list(dict.fromkeys(n for n in sizes if n <= MAX_SIZE))


def _fixed_grids(drawing: Drawing, case_of: Callable[[int], Case | None]) -> list[int]:
    """Return the numbers of invocations of a fixed grid, in total and per axis; [] if the grid depends on the size.

    `case_of` is that of `sizes_past`.
    """
    kernel = drawing.kernel
    if kernel.spec.over is not None:
        return []
    grids = {_grid(drawing, case_of(size)) for size in (3, 200)}  # for a small size and a larger one
    grid = grids.pop()
    if grids or grid is None:  # one more grid is left: the grid depends on the size
        return []
    declared = kernel.declared_local()
    local_sizes = [declared] if declared is not None else [default_local_size(1, d.caps) for d in drawing.devices]
    totals: dict[int, None] = {}
    for local_size in local_sizes:
        padded = (*local_size, 1, 1)[:3]
        axes = [g * n for g, n in zip(grid, padded, strict=True)]
        totals.update(dict.fromkeys([math.prod(axes), *axes]))
    return sorted(t for t in totals if _MIN_BLOCK <= t < MAX_SIZE)


def _grid(drawing: Drawing, case: Case | None) -> tuple[int, int, int] | None:
    """Return the number of workgroups along each axis for a case; None if it is unknown."""
    if case is None:
        return None
    try:
        return grid_of(drawing.kernel, case, drawing.groups, drawing.devices[0])
    except (VkjitError, ArithmeticError, AttributeError, TypeError, ValueError, IndexError, KeyError):
        return None  # the launch reports the error


def _blocks(kernel: Kernel, groups: Any) -> list[int]:
    """Return the two largest numbers that may be block sizes of the kernel, in elements.

    Candidates are default values of Const parameters, constants that are multiples of 32, and constants up to
    `_MAX_PER_INVOCATION` times the workgroup size. `groups` is the user's number of workgroups, or a function that
    computes it; constants in this function count, too.
    """
    const_values = {tune_choice(p.default) for p in kernel.spec.params if p.kind == "const"}
    functions = [f for f in (kernel.spec.fn, groups, kernel._groups, kernel._local) if isinstance(f, FunctionType)]
    numbers = {n for f in functions for n in _numbers_of(f)} | {n for n in const_values if type(n) is int}
    per_workgroup = {n for n in numbers if n in const_values or n % 32 == 0}
    invocations = math.prod(kernel.declared_local() or (1,))
    per_invocation = {invocations * n for n in numbers if 1 < n <= _MAX_PER_INVOCATION}
    return sorted({n for n in per_workgroup | per_invocation if 2 * _MIN_BLOCK <= n <= _MAX_BLOCK})[-2:]


def _numbers_of(function: FunctionType) -> Iterator[int]:
    """Yield the integers above 1 among the literals, module globals and closure variables that a function uses."""
    values = [function.__globals__.get(name) for name in function.__code__.co_names]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # empty cell
            continue
    for value in (*values, *function.__code__.co_consts):
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and number > 1:
                yield number
