"""Shrink a failing case of a property test: its schedule, sizes, types, layouts and values.

A case is the arguments of one launch, a schedule the settings of the launch and the compiler.

The result is a case that fails in the same way and is a local minimum, at which no single step gives a smaller failing
case, or the best one found within a budget. Since the shrinker knows the structure of a case, it takes steps that
hypothesis, which shrinks the draws that made the case, can't: resize one dimension and crop all arrays to fit, zero
half of an array, change a size and an integer argument together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from vkjit.launch.kernel import Kernel

from ..cases.case import ArrayInput, Case
from ..cases.layouts import C_ORDER
from ..cases.schedules import PLAIN, Schedule
from ..generate.strategies import MAX_ELEMENTS, Drawing, dtype_of_param
from ..search.finding import Finding
from .joint import jointly_simpler, jointly_smaller
from .resizing import Resize, smaller_sizes

__all__ = ["larger_cases", "shrink"]

Try = Callable[[Case, Schedule], "Finding | None"]
"""A function that examines a case under a schedule for the device that failed, and returns the finding if the case
fails in the same way as the original, else None.
"""


def shrink(finding: Finding, drawing: Drawing, attempt: Try, *, runs: int = 600, seconds: float = 8.0) -> Finding:
    """Return the finding of the smallest failing case reached within `runs` examinations and `seconds` of CPU time.

    `drawing` describes the test's types, ranges and conditions, which smaller cases must satisfy.
    """
    return _Search(finding, drawing, attempt, runs, time.thread_time() + seconds).run()


def larger_cases(case: Case, drawing: Drawing, kernel: Kernel) -> Iterator[Case]:
    """Yield larger variants of a case, in which one dimension is slightly longer than two workgroups.

    Failures of a shrunk case are reported for larger ones, too, where their pattern may be clearer.
    """
    workgroup_size = max((kernel.declared_local() or (64,))[0], 8)
    resize = Resize(drawing)
    for name, size in case.dims.items():
        sizes = drawing.dimensions.sizes[name]
        target = 2 * workgroup_size + 5
        if isinstance(size, int) and sizes.choices is None and size < target:
            larger = resize.resized(
                case, {**case.dims, name: target if sizes.high is None else min(target, sizes.high)}
            )
            if larger is not None and larger.size() > case.size() and drawing.allowed(larger):
                yield larger


class _Search:
    """A greedy descent: the first candidate that still fails becomes the next starting point."""

    def __init__(self, finding: Finding, drawing: Drawing, attempt: Try, runs: int, deadline: float) -> None:
        self.best = finding
        self.drawing = drawing
        self.attempt = attempt
        self.runs = runs
        self.deadline = deadline
        self.seen: set[bytes] = set()

    def run(self) -> Finding:
        """Repeat all steps until none succeeds or the budget is spent; return the best finding."""
        steps: list[Callable[[], Iterator[tuple[Case, Schedule]]]] = [
            self._schedules, self._sizes, self._joint_sizes, self._types, self._layouts, self._scalars, self._arrays,
            self._joint_values,
        ]  # fmt: skip
        improved = True
        while improved:
            improved = False
            for step in steps:
                while self._first_failing(step()):
                    improved = True
                    if self._spent():
                        return self.best
        return self.best

    def _spent(self) -> bool:
        """True if the budget of examinations or time is spent."""
        return self.runs <= 0 or time.thread_time() > self.deadline

    def _first_failing(self, candidates: Iterator[tuple[Case, Schedule]]) -> bool:
        """Examine candidates until one fails, which becomes `self.best`; False if none does."""
        for candidate, schedule in candidates:
            if self._spent():
                return False
            case = candidate.settled()  # aliased arrays get equal values again
            if case is None:
                continue
            key = _key(case, schedule)
            if key in self.seen:
                continue
            self.seen.add(key)
            if not self.drawing.allowed(case):
                continue
            self.runs -= 1
            finding = self.attempt(case, schedule)
            if finding is not None:
                self.best = finding
                return True
        return False

    # -- shrinking steps: each yields candidates, simplest first

    def _schedules(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield the case with more fields of the schedule at their defaults."""
        schedule = self.best.schedule
        if schedule != PLAIN:
            yield self.best.case, PLAIN
        for name in schedule.given():
            yield self.best.case, replace(schedule, **{name: getattr(PLAIN, name)})
        if isinstance(schedule.order, int):
            yield self.best.case, replace(schedule, order="reverse")

    def _sizes(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield cases in which one dimension is smaller, with arrays cropped at their end or beginning."""
        case = self.best.case
        for name, size in case.dims.items():
            for smaller in smaller_sizes(self.drawing, name, size):
                for from_end in (False, True):
                    smaller_case = Resize(self.drawing, from_end).resized(case, {**case.dims, name: smaller})
                    if smaller_case is not None:
                        yield smaller_case, self.best.schedule

    def _types(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield the case with simpler element types that represent its values exactly."""
        case = self.best.case
        for name, dtype in case.dtypes.items():
            choices = self.drawing.types[name]  # from simple to complex
            for simpler in choices[: choices.index(dtype)]:
                retyped = self._retyped(case, name, simpler)
                if retyped is not None:
                    yield retyped, self.best.schedule

    def _retyped(self, case: Case, variable: str, dtype: Any) -> Case | None:
        """Return the case with the element type `dtype` for a type variable; None if a value would change."""
        arguments = dict(case.arguments)
        for param in self.drawing.spec.params:
            # skip parameters of other types; `param.dtype` is a type variable or an element type
            if getattr(param.dtype, "__name__", None) != variable or param.dtype is case.dtypes[variable]:
                continue
            value = arguments[param.name]
            if isinstance(value, ArrayInput) and value.distinct_shape != value.shape:
                return None
            old = value.values if isinstance(value, ArrayInput) else np.asarray(value)
            if old is None:
                arguments[param.name] = replace(value, dtype=dtype)
                continue
            with np.errstate(all="ignore"):
                converted = old.astype(dtype.numpy)
                if not np.array_equal(converted.astype(old.dtype), old, equal_nan=old.dtype.kind == "f"):
                    return None
            if isinstance(value, ArrayInput):
                arguments[param.name] = replace(value, dtype=dtype, values=converted)
            else:
                arguments[param.name] = converted.item()
        return replace(case, dtypes={**case.dtypes, variable: dtype}, arguments=arguments)

    def _layouts(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield cases in which one array has C order, or one pair of arrays isn't aliased."""
        for name, given in self.best.case.arrays().items():
            if given.layout.pitch:
                continue  # a field in an array of structs, whose layout is fixed
            if given.layout != C_ORDER and given.distinct_shape == given.shape:
                yield self.best.case.with_argument(name, replace(given, layout=C_ORDER)), self.best.schedule
            elif given.layout != C_ORDER and math.prod(given.shape) <= MAX_ELEMENTS:
                # axes of stride 0 become ordinary ones, so the array is copied to memory of its own
                plain = replace(given, layout=C_ORDER, values=None if given.values is None else np.array(given.values))
                yield self.best.case.with_argument(name, plain), self.best.schedule
        for pair in self.best.case.aliases:
            remaining = tuple(p for p in self.best.case.aliases if p != pair)
            yield replace(self.best.case, aliases=remaining), self.best.schedule

    def _scalars(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield cases in which one scalar argument is simpler."""
        case = self.best.case
        for param in self.drawing.spec.params:
            value = case.arguments[param.name]
            domain = self.drawing.domains[param.name]
            if param.kind != "scalar" or domain.strategy is not None or isinstance(value, bool):
                continue
            for simpler in _simpler_numbers(value):
                if (
                    _rank(simpler) < _rank(value)
                    and domain.allows(np.asarray(simpler), case.dims)
                    and (simpler >= 0 or dtype_of_param(param, case.dtypes).is_signed)
                ):
                    yield case.with_argument(param.name, simpler), self.best.schedule

    def _arrays(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield cases in which the values of one array are simpler.

        If they come from a user's hypothesis strategy, only values that the array has already are used.
        """
        case = self.best.case
        for name, given in case.arrays().items():
            if given.values is None or given.values.size == 0:
                continue
            domain = self.drawing.domains[name]
            for distinct in _simpler_values(given.distinct):
                values = np.broadcast_to(distinct, given.shape) if given.distinct_shape != given.shape else distinct
                if domain.strategy is not None and not np.isin(distinct, given.distinct).all():
                    continue
                if domain.strategy is None and not domain.allows(distinct, case.dims):
                    continue
                yield case.with_argument(name, replace(given, values=values)), self.best.schedule

    def _joint_sizes(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield cases in which sizes and the values that depend on them change together."""
        for case in jointly_smaller(self.best.case, self.drawing):
            yield case, self.best.schedule

    def _joint_values(self) -> Iterator[tuple[Case, Schedule]]:
        """Yield cases in which interdependent values change together."""
        for case in jointly_simpler(self.best.case, self.drawing):
            yield case, self.best.schedule


def _simpler_numbers(value: Any) -> Iterator[Any]:
    """Yield replacements of a number: the simplest numbers, then ones between zero and the number that approach it."""
    if isinstance(value, float):
        yield from (0.0, 1.0, -1.0, 2.0)
        if np.isfinite(value):
            yield from (float(np.trunc(value)), float(np.trunc(value / 2)))
        return
    yield from (0, 1, 2, -1)
    step = abs(value) // 2
    while step > 0:
        yield value - step if value > 0 else value + step
        step //= 2


def _rank(value: Any) -> tuple[Any, ...]:
    """Return a sort key for simplicity: zero, small integers, fractions, then infinities and NaN."""
    number = float(value)
    if not np.isfinite(number):
        return (3, 0.0, True)
    if number == 0:
        kind = 0
    elif number == int(number):
        kind = 1
    else:
        kind = 2
    return (kind, abs(number), number < 0)


def _simpler_values(values: Any) -> Iterator[Any]:
    """Yield simpler arrays: zeros, ones, nonzero elements moved to the front, parts zeroed, one element simplified."""
    flat = values.reshape(-1)
    zero, one = values.dtype.type(0), values.dtype.type(1)
    only_zeros_and_ones = ((flat == zero) | (flat == one)).all()
    for number in (zero, one):
        candidate = np.full_like(values, number)
        # ones are no simpler than zeros and ones
        if not np.array_equal(candidate, values) and not (number == one and only_zeros_and_ones):
            yield candidate
    with np.errstate(all="ignore"):
        nonzero = np.flatnonzero((flat != zero) | (flat != flat))  # indices of nonzero elements, including NaN
    size = len(nonzero)
    if size and nonzero[-1] >= size:  # there are zeros before the last nonzero element: move nonzero ones to the front
        candidate = np.zeros_like(flat)
        candidate[:size] = flat[nonzero]
        yield candidate.reshape(values.shape)
    while size > 0:  # zero parts of `size` nonzero elements: all, halves, quarters...
        for start in range(0, len(nonzero), size):
            candidate = flat.copy()
            candidate[nonzero[start : start + size]] = zero
            yield candidate.reshape(values.shape)
        size //= 2
    # simplify single elements: only some of them, and fewer replacements for all but the first, to limit the candidates
    for index in nonzero[:16]:
        if values.dtype == np.bool_:
            continue
        value = flat[index].item()
        numbers = list(_simpler_numbers(value))  # the first one, 0, has been tried above
        for simpler in numbers[1:] if index in nonzero[:4] else numbers[1:6]:
            if _rank(simpler) < _rank(value) and (simpler >= 0 or values.dtype.kind != "u"):
                candidate = flat.copy()
                candidate[index] = simpler
                yield candidate.reshape(values.shape)


def _key(case: Case, schedule: Schedule) -> bytes:
    """Return a key that identifies a case and schedule, to skip candidates that have been examined."""
    parts = [
        repr((case.aliases, sorted(case.dims.items()), sorted((n, t.name) for n, t in case.dtypes.items()), schedule))
    ]
    for name, value in case.arguments.items():
        if isinstance(value, ArrayInput):
            contents = b"" if value.values is None else value.distinct.tobytes()
            parts.append(f"{name}{value.shape}{value.layout}{hash(contents)}")
        else:
            parts.append(f"{name}{value!r}")
    return "|".join(parts).encode()
