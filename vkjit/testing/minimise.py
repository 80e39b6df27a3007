"""Makes a failing case smaller: schedules, sizes, types, layouts, values.

Enters: a `Finding` and a way to examine candidates. Leaves: the finding of a case to which no single step is a smaller
failing one, or the best within a budget. Knowing what a case is, this makes steps that a shrinker of draws can't
make: one size changes and all arrays are cut to fit; half of an array becomes zero; a size and a number change together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..jit import Kernel
from .case import ArrayInput, Case
from .coupled import simpler_together, smaller_together
from .drawing import MOST_ELEMENTS, Drawing, dtype_of_param
from .finding import Finding
from .layouts import C_ORDER
from .resizing import Resize, smaller_sizes
from .schedules import PLAIN, Schedule

__all__ = ["grown", "minimise"]

Try = Callable[[Case, Schedule], "Finding | None"]
"""Examines a case, the schedule being that of the failing executor; None where it doesn't fail in the same way."""


def minimise(finding: Finding, drawing: Drawing, attempt: Try, *, runs: int = 600, seconds: float = 8.0) -> Finding:
    """The smallest finding reached."""
    return _Search(finding, drawing, attempt, runs, time.thread_time() + seconds).run()


def grown(case: Case, drawing: Drawing, kernel: Kernel) -> Iterator[Case]:
    """Larger cases of the same kind: each dimension in turn a little longer than two workgroups or tiles."""
    tile = max((kernel.declared_local() or (64,))[0], 8)
    search = Resize(drawing)
    for name, size in case.dims.items():
        sizes = drawing.dimensions.sizes[name]
        wanted = 2 * tile + 5
        if isinstance(size, int) and sizes.choices is None and size < wanted:
            made = search.resized(case, {**case.dims, name: wanted if sizes.high is None else min(wanted, sizes.high)})
            if made is not None and made.size() > case.size() and drawing.allowed(made):
                yield made


class _Search:
    """Greedy descent: the first candidate that still fails is the next start."""

    def __init__(self, finding: Finding, drawing: Drawing, attempt: Try, runs: int, deadline: float) -> None:
        self.best = finding
        self.drawing = drawing
        self.attempt = attempt
        self.runs = runs
        self.deadline = deadline
        self.seen: set[bytes] = set()

    def run(self) -> Finding:
        steps: list[Callable[[], Iterator[tuple[Case, Schedule]]]] = [
            self._schedules, self._sizes, self._coupled_sizes, self._types, self._layouts, self._scalars, self._arrays,
            self._coupled_values,
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
        return self.runs <= 0 or time.thread_time() > self.deadline

    def _first_failing(self, candidates: Iterator[tuple[Case, Schedule]]) -> bool:
        for case, schedule in candidates:
            if self._spent():
                return False
            fitted = case.settled()
            if fitted is None:
                continue
            case = fitted
            key = _key(case, schedule)
            if key in self.seen:
                continue
            self.seen.add(key)
            if not self.drawing.allowed(case):
                continue
            self.runs -= 1
            found = self.attempt(case, schedule)
            if found is not None:
                self.best = found
                return True
        return False

    # -- steps: each yields candidates, simplest first

    def _schedules(self) -> Iterator[tuple[Case, Schedule]]:
        schedule = self.best.schedule
        if schedule != PLAIN:
            yield self.best.case, PLAIN
        for name in schedule.given():
            yield self.best.case, replace(schedule, **{name: getattr(PLAIN, name)})
        if isinstance(schedule.order, int):
            yield self.best.case, replace(schedule, order="reverse")

    def _sizes(self) -> Iterator[tuple[Case, Schedule]]:
        case = self.best.case
        for name, size in case.dims.items():
            for smaller in smaller_sizes(self.drawing, name, size):
                for from_end in (False, True):
                    made = Resize(self.drawing, from_end).resized(case, {**case.dims, name: smaller})
                    if made is not None:
                        yield made, self.best.schedule

    def _types(self) -> Iterator[tuple[Case, Schedule]]:
        """Simpler element types, where the values fit them."""
        case = self.best.case
        for name, dtype in case.dtypes.items():
            choices = self.drawing.types[name]
            for simpler in choices[: choices.index(dtype)]:
                made = self._retyped(case, name, simpler)
                if made is not None:
                    yield made, self.best.schedule

    def _retyped(self, case: Case, variable: str, dtype: Any) -> Case | None:
        arguments = dict(case.arguments)
        for param in self.drawing.spec.params:
            if getattr(param.dtype, "__name__", None) != variable or param.dtype is case.dtypes[variable]:
                continue
            value = arguments[param.name]
            if isinstance(value, ArrayInput) and value.distinct_shape != value.shape:
                return None
            held = value.values if isinstance(value, ArrayInput) else np.asarray(value)
            if held is None:
                arguments[param.name] = replace(value, dtype=dtype)
                continue
            with np.errstate(all="ignore"):
                made = held.astype(dtype.numpy)
                if not np.array_equal(made.astype(held.dtype), held, equal_nan=held.dtype.kind == "f"):
                    return None
            arguments[param.name] = (
                replace(value, dtype=dtype, values=made) if isinstance(value, ArrayInput) else made.item()
            )
        return replace(case, dtypes={**case.dtypes, variable: dtype}, arguments=arguments)

    def _layouts(self) -> Iterator[tuple[Case, Schedule]]:
        for name, given in self.best.case.arrays().items():
            if given.layout.pitch:
                continue  # a field of structs, which lie as they are
            if given.layout != C_ORDER and given.distinct_shape == given.shape:
                yield self.best.case.with_argument(name, replace(given, layout=C_ORDER)), self.best.schedule
            elif given.layout != C_ORDER and math.prod(given.shape) <= MOST_ELEMENTS:
                plain = replace(given, layout=C_ORDER, values=None if given.values is None else np.array(given.values))
                yield self.best.case.with_argument(name, plain), self.best.schedule
        for pair in self.best.case.aliases:
            rest = tuple(p for p in self.best.case.aliases if p != pair)
            yield replace(self.best.case, aliases=rest), self.best.schedule

    def _scalars(self) -> Iterator[tuple[Case, Schedule]]:
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

    def _coupled_sizes(self) -> Iterator[tuple[Case, Schedule]]:
        """Sizes, and what depends on them, changed together."""
        for case in smaller_together(self.best.case, self.drawing):
            yield case, self.best.schedule

    def _coupled_values(self) -> Iterator[tuple[Case, Schedule]]:
        """Values that depend on each other, changed together."""
        for case in simpler_together(self.best.case, self.drawing):
            yield case, self.best.schedule


def _simpler_numbers(value: Any) -> Iterator[Any]:
    """Numbers to try in the place of one: the simplest ones, then those on the way to zero, in ever smaller steps."""
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
    """How simple a number is: zero, then small whole numbers, then the rest."""
    number = float(value)
    if not np.isfinite(number):
        return (3, 0.0, True)
    return (0 if number == 0 else 1 if number == int(number) else 2, abs(number), number < 0)


def _simpler_values(values: Any) -> Iterator[Any]:
    """Arrays that are simpler than `values`: all zero, all one, parts of it zero or one, whole numbers."""
    flat = values.reshape(-1)
    zero, one = values.dtype.type(0), values.dtype.type(1)
    for number in (zero, one):
        made = np.full_like(values, number)
        if not np.array_equal(made, values) and not (number == one and ((flat == zero) | (flat == one)).all()):
            yield made
    with np.errstate(all="ignore"):
        interesting = np.flatnonzero((flat != zero) | (flat != flat))
    size = len(interesting)
    if size and interesting[-1] >= size:  # all that matters, moved to the front
        made = np.zeros_like(flat)
        made[:size] = flat[interesting]
        yield made.reshape(values.shape)
    while size > 0:
        for start in range(0, len(interesting), size):
            made = flat.copy()
            made[interesting[start : start + size]] = zero
            yield made.reshape(values.shape)
        size //= 2
    for place in interesting[:16]:
        if values.dtype == np.bool_:
            continue
        own = flat[place].item()
        numbers = list(_simpler_numbers(own))
        for simpler in numbers[1:] if place in interesting[:4] else numbers[1:6]:
            if _rank(simpler) < _rank(own) and (simpler >= 0 or values.dtype.kind != "u"):
                made = flat.copy()
                made[place] = simpler
                yield made.reshape(values.shape)


def _key(case: Case, schedule: Schedule) -> bytes:
    """What tells two candidates apart."""
    parts = [
        repr((case.aliases, sorted(case.dims.items()), sorted((n, t.name) for n, t in case.dtypes.items()), schedule))
    ]
    for name, value in case.arguments.items():
        if isinstance(value, ArrayInput):
            held = b"" if value.values is None else value.distinct.tobytes()
            parts.append(f"{name}{value.shape}{value.layout}{hash(held)}")
        else:
            parts.append(f"{name}{value!r}")
    return "|".join(parts).encode()
