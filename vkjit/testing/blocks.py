"""Sizes past which a kernel may stop to be right: what its grid covers, and the blocks in which it cuts its work.

Enters: a `Drawing`. Leaves: sizes worth trying for the long dimension, each with its neighbours: the invocations of a grid
that doesn't grow with the arrays, and the largest numbers that the kernel may use as a block (Const parameters, numbers of
its text and its module, and such a number of elements for each invocation of a workgroup).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from ..errors import VkjitError
from ..frontend import tune_choice
from ..jit import Kernel
from ..plan import default_local_size
from .case import Case
from .drawing import Drawing
from .weight import grid_of

__all__ = ["LARGEST", "MOST_CASES", "sizes_past"]

LARGEST = (1 << 18) + 1
"""The longest dimension: no more than some megabytes."""

MOST_CASES = 12

_SMALLEST = 128
_LARGEST_BLOCK = 1 << 16
_LARGEST_SHARE = 64
"""Elements that one invocation may take."""


def sizes_past(drawing: Drawing, case_of: Callable[[int], Case | None]) -> list[int]:
    """Sizes for the long dimension, those that find most first. `case_of` makes a case of that size."""
    grids = _fixed_grids(drawing, case_of)
    blocks = _blocks(drawing.kernel, drawing.groups)
    made = [g + 1 for g in grids] + [b + 1 for b in blocks] + [2 * b + 1 for b in blocks]
    made += [g + d for g in grids for d in (-1, 0)] + [b + d for b in blocks for d in (-1, 0)]
    return list(dict.fromkeys(n for n in made if n <= LARGEST))


def _fixed_grids(drawing: Drawing, case_of: Callable[[int], Case | None]) -> list[int]:
    """Invocations of a grid that is the same for all sizes: all of them, and those along each axis."""
    kernel = drawing.kernel
    if kernel.spec.over is not None:
        return []
    found = {_grid(drawing, case_of(size)) for size in (3, 200)}
    grid = found.pop()
    if found or grid is None:
        return []
    declared = kernel.declared_local()
    sizes = [declared] if declared is not None else [default_local_size(1, d.caps) for d in drawing.devices]
    totals: dict[int, None] = {}
    for local in sizes:
        padded = (*local, 1, 1)[:3]
        axes = [g * n for g, n in zip(grid, padded, strict=True)]
        totals.update(dict.fromkeys([math.prod(axes), *axes]))
    return sorted(t for t in totals if _SMALLEST <= t < LARGEST)


def _grid(drawing: Drawing, case: Case | None) -> tuple[int, int, int] | None:
    if case is None:
        return None
    try:
        return grid_of(drawing.kernel, case, drawing.groups, drawing.devices[0])
    except (VkjitError, ArithmeticError, AttributeError, TypeError, ValueError, IndexError, KeyError):
        return None  # the launch says what is wrong with it


def _blocks(kernel: Kernel, groups: Any) -> list[int]:
    """The two largest lengths in which the kernel may cut its work."""
    own = {tune_choice(p.default) for p in kernel.spec.params if p.kind == "const"}
    functions = [f for f in (kernel.spec.fn, groups, kernel._groups, kernel._local) if isinstance(f, FunctionType)]
    numbers = {n for f in functions for n in _numbers_of(f)} | {n for n in own if type(n) is int}
    whole = {n for n in numbers if n in own or n % 32 == 0}
    local = math.prod(kernel.declared_local() or (1,))
    shares = {local * n for n in numbers if 1 < n <= _LARGEST_SHARE}
    return sorted({n for n in whole | shares if 2 * _SMALLEST <= n <= _LARGEST_BLOCK})[-2:]


def _numbers_of(function: FunctionType) -> Iterator[int]:
    """Whole numbers in a function's text, its module or its closure."""
    values = [function.__globals__.get(name) for name in function.__code__.co_names]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # empty
            continue
    for value in (*values, *function.__code__.co_consts):
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and number > 1:
                yield number
