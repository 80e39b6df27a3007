"""Where a wrong value comes from: who wrote it, what else writes the array, where a NaN was taken for a number,
where numbers became infinite.

Enters: a `Finding` and the shadow of its kernel. Leaves: places in the source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import CompileError, KernelError, Loc
from ..ir.core import Module
from ..jit import Kernel
from .finding import Finding
from .probing import module_of
from .schedules import PLAIN
from .shadow import Shadow, Write

__all__ = ["births", "nan_losses", "stores", "stores_of", "writer"]


def writer(shadow: Shadow, finding: Finding) -> Write | None:
    """Who wrote the first wrong element; None where nobody did, or the interpreter stops before."""
    flags = finding.flags
    if flags is None or not flags.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.flatnonzero(flags)[0]), flags.shape))
    schedule = replace(finding.schedule, optimisation=None, debug=None)
    try:
        shadow.run(finding.case, schedule)
    except (KernelError, CompileError):
        return None
    return shadow.writer(finding.case, finding.array, index)


def nan_losses(shadow: Shadow, finding: Finding) -> list[Loc]:
    """Where the kernel compares a NaN as if it were a number, for a result that should have been NaN or isn't."""
    difference = finding.difference
    if difference is None or (difference.expected.dtype.kind != "f" and difference.found.dtype.kind != "f"):
        return []
    with np.errstate(all="ignore"):
        odd = np.isnan(difference.expected.astype(np.float64)) != np.isnan(difference.found.astype(np.float64))
    holds = any(
        a.values is not None and a.dtype.is_float and np.isnan(a.distinct).any() for a in finding.case.arrays().values()
    )
    if not holds or not (odd & difference.wrong).any():
        return []
    with contextlib.suppress(KernelError, CompileError):
        shadow.run(finding.case, PLAIN)
    return _in_order(shadow.sights.losses)


def births(shadow: Shadow, finding: Finding) -> list[Loc]:
    """Where finite numbers make what isn't finite, for a result that should be."""
    difference = finding.difference
    if difference is None or difference.found.dtype.kind != "f" or difference.expected.dtype.kind not in "fiu":
        return []
    odd = ~np.isfinite(difference.found) & np.isfinite(difference.expected)
    if not (odd & difference.wrong).any():
        return []
    with contextlib.suppress(KernelError, CompileError):
        shadow.run(finding.case, PLAIN)
    return _in_order(shadow.sights.births)


def stores(kernel: Kernel, shadow: Shadow, finding: Finding) -> list[Loc]:
    """The places in the source that write the array."""
    if not finding.array:
        return []
    case = finding.case
    launch = shadow.launch(case)
    if launch is not None:
        return stores_of(launch.module, finding.array)
    ranks = {n: len(a.shape) for n, a in case.arrays().items()}  # nothing was launched: there are no workgroups
    return stores_of(module_of(kernel, case.dtypes, ranks, case.arguments), finding.array)


def stores_of(module: Module, array: str) -> list[Loc]:
    """Places of the stores and atomics on a parameter of the kernel, device functions included, in source order."""
    found: set[Loc] = set()
    pending = [(module.kernel, frozenset(i for i, p in enumerate(module.kernel.params) if p.name == array))]
    seen: set[Any] = set()
    while pending:
        function, numbers = pending.pop()
        if (function.name, numbers) in seen:
            continue
        seen.add((function.name, numbers))
        values = {function.params[i] for i in numbers}
        for op in function.body.walk():
            if op.name in ("store", "atomic", "atomic_cas", "atomic_store") and op.operands[0] in values:
                found.add(op.loc)
            if op.name == "call":
                passed = frozenset(i for i, v in enumerate(op.operands) if v in values)
                if passed:
                    pending.append((module.functions[op.attrs["callee"]], passed))
    return _in_order(found)


def _in_order(places: Iterable[Loc]) -> list[Loc]:
    return sorted(places, key=lambda loc: (loc.file, loc.line, loc.col))
