"""Provenance of a wrong value: the source locations in the kernel from which the value comes.

These are the store that wrote the value, all stores to its array, comparisons with NaN operands, and operations that
create NaN or infinities. Most of them come from a shadow run (see `vkjit.testing.execution.shadow`): the interpreter
repeats the failing launch, and records the last writer of each element and events such as the creation of a NaN.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from vkjit.errors import CompileError, KernelError, Loc
from vkjit.ir.core import Module
from vkjit.launch.kernel import Kernel

from ..cases.schedules import PLAIN
from ..execution.shadow import Shadow, Write
from ..generate.usable_types import module_of
from ..search.finding import Finding

__all__ = ["nan_losses", "nonfinite_origins", "stores_of", "stores_to", "writer"]


def writer(shadow: Shadow, finding: Finding) -> Write | None:
    """Return the store that wrote the first wrong element; None if nothing wrote it or the shadow run fails."""
    flags = finding.flags
    if flags is None or not flags.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.flatnonzero(flags)[0]), flags.shape))
    schedule = replace(finding.schedule, optimization=None, debug=None)
    try:
        shadow.run(finding.case, schedule)
    except (KernelError, CompileError):
        return None
    return shadow.writer(finding.case, finding.array, index)


def nan_losses(shadow: Shadow, finding: Finding) -> list[Loc]:
    """Return the locations of operations that lose a NaN: comparisons and min/max operations that had a NaN operand.

    Returns [] unless an input contains NaN and some wrong element is NaN either in the found or in the expected output,
    but not in both.
    """
    difference = finding.difference
    if difference is None or (difference.expected.dtype.kind != "f" and difference.found.dtype.kind != "f"):
        return []
    with np.errstate(all="ignore"):
        nan_mismatch = np.isnan(difference.expected.astype(np.float64)) != np.isnan(difference.found.astype(np.float64))
    input_has_nan = any(
        a.values is not None and a.dtype.is_float and np.isnan(a.distinct).any() for a in finding.case.arrays().values()
    )
    if not input_has_nan or not (nan_mismatch & difference.wrong).any():
        return []
    with contextlib.suppress(KernelError, CompileError):
        shadow.run(finding.case, PLAIN)
    return _in_order(shadow.events.lost_nans)


def nonfinite_origins(shadow: Shadow, finding: Finding) -> list[Loc]:
    """Return the locations of operations that create NaN or infinities from finite operands.

    Returns [] unless a wrong element is NaN or infinite where a finite value was expected.
    """
    difference = finding.difference
    if difference is None or difference.found.dtype.kind != "f" or difference.expected.dtype.kind not in "fiu":
        return []
    newly_nonfinite = ~np.isfinite(difference.found) & np.isfinite(difference.expected)
    if not (newly_nonfinite & difference.wrong).any():
        return []
    with contextlib.suppress(KernelError, CompileError):
        shadow.run(finding.case, PLAIN)
    return _in_order(shadow.events.nonfinite)


def stores_to(kernel: Kernel, shadow: Shadow, finding: Finding) -> list[Loc]:
    """Return the locations of all stores to the array of a finding; [] if it names no array.

    The stores are those of the module to which the kernel is lowered for the finding's case (see `stores_of`).
    """
    if not finding.array:
        return []
    case = finding.case
    launch = shadow.launch(case)
    if launch is not None:
        return stores_of(launch.module, finding.array)
    # a grid without workgroups isn't launched; the kernel is lowered only to find its stores
    ranks = {n: len(a.shape) for n, a in case.arrays().items()}
    return stores_of(module_of(kernel, case.dtypes, ranks, case.arguments), finding.array)


def stores_of(module: Module, array: str) -> list[Loc]:
    """Return the locations of stores and atomics to the kernel parameter `array` in a lowered module, in source order.

    Follows the parameter into device functions to which it is passed.
    """
    locations: set[Loc] = set()
    pending = [(module.kernel, frozenset(i for i, p in enumerate(module.kernel.params) if p.name == array))]
    seen: set[Any] = set()
    while pending:
        function, param_indices = pending.pop()  # the numbers of the function's parameters that are the array
        if (function.name, param_indices) in seen:
            continue
        seen.add((function.name, param_indices))
        values = {function.params[i] for i in param_indices}
        for op in function.body.walk():
            if op.name in ("store", "atomic", "atomic_cas", "atomic_store") and op.operands[0] in values:
                locations.add(op.loc)
            if op.name == "call":
                passed = frozenset(i for i, v in enumerate(op.operands) if v in values)
                if passed:
                    pending.append((module.functions[op.attrs["callee"]], passed))
    return _in_order(locations)


def _in_order(locations: Iterable[Loc]) -> list[Loc]:
    """Return source locations in source order."""
    return sorted(locations, key=lambda loc: (loc.file, loc.line, loc.col))
