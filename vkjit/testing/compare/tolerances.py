"""Derive how far two correct results may differ, from element types, error bounds of operations and loop trip counts.

Each floating point operation has a documented error bound in ULPs (`vkjit.ir.ops`: 0.5 for + - *, 2.5 for / and sqrt, 4
for exp...). `ErrorBudget` adds these bounds along the longest path through the kernel, where a loop's body counts as
often as the loop iterates; eps is the type's machine epsilon, the relative size of a ULP:

    relative = 2 * sum(ulp(op) * eps(type of op)) + eps(output type)

The factor 2 accounts for rounding errors in both values that are compared. This bound is relative to the result, which
is valid only if no terms cancel. If elements exceed it, the kernel is run again in the interpreter with each rounding
operation perturbed by its bound (`execution.shadow`), and the spread of these runs widens the bound:

    |found - expected| <= relative * |expected| + SPREAD_FACTOR * spread + smallest normal number

`compare.outputs` applies these bounds. `tolerance`, for users, computes the first formula for a given number of
operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError
from vkjit.frontend.signature.annotations import dtype_of
from vkjit.ir.core import Module, Op, Region
from vkjit.ir.ops import OPS
from vkjit.ir.rewrite import LOOPS, clone_module
from vkjit.passes.analysis.trip_bound import Intervals, TripBound
from vkjit.passes.lowering.lower_exits import LowerExits
from vkjit.passes.transforms.inline import Inline

from ..execution.accumulations import ACCUMULATIONS, SUBGROUP_LEVELS, roundings
from ..execution.shadow import epsilon

__all__ = [
    "SPREAD_FACTOR",
    "ErrorBudget",
    "Tolerance",
    "as_tolerance",
    "rounded_operations",
    "smallest_normal",
    "tolerance",
]

SPREAD_FACTOR = 8.0
"""Factor on the measured spread in the allowed difference, since a few runs underestimate the possible spread."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A bound of the difference of a result from its expected value: relative * |expected| + absolute."""

    relative: float
    absolute: float = 0.0

    def allowed(self, expected: Any) -> Any:
        """Return the allowed difference for each expected value; the relative part is 0 for NaN and infinities."""
        with np.errstate(all="ignore"):
            magnitude = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return self.relative * magnitude + self.absolute


def smallest_normal(dtype: DType) -> float:
    """Return the smallest positive normal number of the type; devices may flush smaller (subnormal) numbers to zero."""
    return float(np.finfo(np.float32 if dtype is dtypes.bf16 else dtype.numpy).tiny)


def tolerance(
    dtype: Any, length: int = 1, *, operations: Sequence[str] = ("mul", "add"), ulp: float | None = None
) -> Tolerance:
    """Return the tolerance for a computation that repeats `operations` `length` times in the element type `dtype`.

    Its relative part is 2 * length * sum(ulp(op) * eps) + eps, where eps is the type's machine epsilon. Its absolute
    part is the smallest normal number.

    operations: names of IR operations ("add", "mul", "div", "sqrt", "exp"...). ulp: the error of one repetition in
    ULPs, instead of the sum over `operations`. For a sum of n terms, use `length=n, operations=["add"]`. Integers have
    no tolerance.
    """
    kind = dtype_of(dtype) or (dtype if isinstance(dtype, DType) else None)
    if kind is None:
        raise ArgumentError(f"tolerance: {dtype!r} is no element type")
    if not kind.is_float:
        return Tolerance(0.0)
    if length < 0:
        raise ArgumentError(f"tolerance: length is {length}, expected at least 0")
    ulps_per_repetition = sum(_ulp_of(name) for name in operations) if ulp is None else float(ulp)
    eps = epsilon(kind)
    return Tolerance(2 * length * ulps_per_repetition * eps + eps, smallest_normal(kind))


def _ulp_of(name: str) -> float:
    """Return the error bound of an operation in ULPs. Raises ArgumentError if it has none."""
    ulp = OPS[name].ulp if name in OPS else None
    if ulp is None:
        bounded = ", ".join(sorted(n for n, r in OPS.items() if r.ulp is not None))
        raise ArgumentError(f"tolerance: {name!r} has no error bound; those that have one: {bounded}")
    return float(ulp)


def as_tolerance(given: Any) -> Tolerance | None:
    """Convert the user's `tolerance=`: a relative bound, a (relative, absolute) pair or a Tolerance."""
    if given is None or isinstance(given, Tolerance):
        return given
    bounds = given if isinstance(given, tuple) else (given,)
    if len(bounds) in (1, 2) and all(isinstance(b, int | float) and not isinstance(b, bool) and b >= 0 for b in bounds):
        return Tolerance(*map(float, bounds))
    raise ArgumentError(
        f"tolerance is {given!r}: expected a relative bound, a (relative, absolute) pair or a Tolerance"
    )


def rounded_operations(module: Module) -> set[str]:
    """Return the names of the module's operations that may round.

    These are all elementwise operations with floating point results, and all others that have a rounding error. Exact
    elementwise operations such as `select` aren't filtered out: the caller compares the names with its own list of
    exact operations.
    """
    ops = (op for function in module.all_functions() for op in function.body.walk())
    return {op.name for op in ops if _is_elementwise_float(op) or _rounding_error(op) > 0}


@dataclass(frozen=True, slots=True)
class _Part:
    """The rounding error of a region or a structured operation (a loop or branch), as a formula of the launch's sizes.

    It is the sum of `fixed`, of `per_invocation` (atomics) times the number of invocations, of the parts `inside`, and
    of the largest of `choices` (the branches of an `if`); all of this times the trip count `trips` of a loop (None: 1).
    `unknown` marks a loop without a known trip count.
    """

    fixed: float = 0.0
    per_invocation: float = 0.0
    inside: tuple[_Part, ...] = ()
    choices: tuple[_Part, ...] = ()
    trips: TripBound | None = None
    unknown: bool = False


class ErrorBudget:
    """The accumulated rounding error of a module along its longest path, as a function of the launch's sizes."""

    def __init__(self, module: Module) -> None:
        # one function without early returns, so that all operations are in the kernel's own nested regions
        flat = Inline().run(LowerExits().run(clone_module(module)))
        self._intervals = Intervals(flat.kernel)
        self._invocations_per_group = int(np.prod(flat.kernel.attrs.get("local_size", (1, 1, 1))))
        self._root = self._of_region(flat.kernel.body)

    def evaluate(
        self, extents: Mapping[int, Sequence[int]], scalars: Mapping[int, int], groups: tuple[int, int, int]
    ) -> float | None:
        """Return the sum of ulp * eps along the longest path; None if a loop's trip count can't be bounded.

        `extents`, the shapes of arrays, and `scalars` are keyed by the index of the kernel's parameter; `groups` is the
        number of workgroups.
        """
        invocations = int(np.prod(groups)) * self._invocations_per_group

        def value(part: _Part) -> float:
            if part.unknown:
                raise KeyError  # as `trips.evaluate` does for a trip count that can't be bounded; caught below
            total = part.fixed + part.per_invocation * invocations + sum(map(value, part.inside))
            total += max(map(value, part.choices), default=0.0)
            return total if part.trips is None else total * max(part.trips.evaluate(extents, scalars, groups), 0)

        try:
            return value(self._root)
        except (KeyError, IndexError):
            return None

    def _of_region(self, region: Region) -> _Part:
        """Return the rounding error of a region: that of all its operations in sequence."""
        fixed, per_invocation, inside = 0.0, 0.0, []
        for op in region.ops:
            if op.name == "atomic":
                per_invocation += _rounding_error(op)
            elif not op.regions:
                fixed += _rounding_error(op)
            else:
                part = self._of_structured(op)
                if part is not None:
                    inside.append(part)
        return _Part(fixed, per_invocation, tuple(inside))

    def _of_structured(self, op: Op) -> _Part | None:
        """Return the rounding error of an operation with regions, a loop or branch; None if nothing in it rounds."""
        parts = tuple(p for p in map(self._of_region, op.regions) if p != _Part())  # without those that don't round
        if not parts:
            return None
        if op.name not in LOOPS:
            return _Part(choices=parts)
        trip_bound = self._intervals.trips(op)
        return _Part(inside=parts, trips=trip_bound) if trip_bound is not None else _Part(unknown=True)


def _is_elementwise_float(op: Op) -> bool:
    """True if the operation is elementwise and has a floating point result."""
    return _float_type(op) is not None and OPS[op.name].elementwise


def _float_type(op: Op) -> DType | None:
    """Return the floating point type of an operation's result, None if the result isn't a float."""
    dtype = getattr(op.results[0].type, "dtype", None) if op.results else None
    return dtype if isinstance(dtype, DType) and dtype.is_float else None


def _rounding_error(op: Op) -> float:
    """Return ulp * eps of one operation; for an atomic, that of the term that one invocation adds."""
    dtype = _float_type(op)
    if dtype is None:
        return 0.0
    single_rounding = 0.5 * epsilon(dtype)  # at most half a ULP
    if op.name == "atomic":
        return single_rounding if op.attrs.get("op") in ("add", "sub") else 0.0  # the others don't round
    if op.name in ("sg_reduce", "sg_scan"):
        return SUBGROUP_LEVELS * single_rounding if op.attrs.get("op") in ("add", "mul") else 0.0
    if op.name in ACCUMULATIONS:
        return roundings(op) * single_rounding
    if op.name == "cast":
        return single_rounding
    return float(OPS[op.name].ulp or 0.0) * epsilon(dtype)
