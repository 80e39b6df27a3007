"""Makes a failing case smaller: schedules, sizes, types, layouts, values.

Enters: a `Finding` and a way to examine candidates. Leaves: the finding of a case to which no single step is a smaller
failing one, or the best within a budget. Knowing what a case is, this makes steps that a shrinker of draws can't
make: one size changes and all arrays are cut to fit; half of an array becomes zero.
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
from .drawing import MOST_ELEMENTS, Drawing, dtype_of_param, scalar_of
from .elements import Domain
from .examine import Finding
from .layouts import C_ORDER
from .schedules import PLAIN, Schedule

__all__ = ["grown", "minimise"]

Try = Callable[[Case, Schedule], "Finding | None"]
"""Examines a case, the schedule being that of the failing executor; None where it doesn't fail in the same way."""


def minimise(finding: Finding, drawing: Drawing, attempt: Try, *, runs: int = 600, seconds: float = 8.0) -> Finding:
    """The smallest finding reached."""
    return _Search(finding, drawing, attempt, runs, time.thread_time() + seconds).run()


class _Resize:
    """Gives cases other sizes; what is cut off lies at the end of arrays, or at their beginning (`from_end`)."""

    def __init__(self, drawing: Drawing, from_end: bool = False) -> None:
        self.drawing = drawing
        self.from_end = from_end

    def resized(self, case: Case, env: dict[str, Any]) -> Case | None:
        """The case with other sizes: arrays are cut, and repeat their values where they grow."""
        if self.drawing.dimensions.loose_counts():
            return None
        shapes = self.drawing.dimensions.shapes(env, {})
        if shapes is None:
            return None
        arguments = dict(case.arguments)
        for name, given in case.arrays().items():
            shape = shapes[name]
            values = given.values
            if values is not None:
                if values.size == 0 and 0 not in shape:
                    return None
                values = _resized(given, shape, self.from_end)
                if values is None:
                    return None
            arguments[name] = ArrayInput(given.dtype, shape, values, given.layout if _fits(given, shape) else C_ORDER)
        made = Case(env, case.dtypes, arguments, case.aliases)
        return self._refitted(made, case)

    def _refitted(self, made: Case, case: Case) -> Case | None:
        """The case with values that depend on sizes (a count, a largest index) brought into their ranges."""
        for param in self.drawing.spec.params:
            domain, value = self.drawing.domains[param.name], made.arguments[param.name]
            if domain.free or domain.strategy is not None or param.kind == "const":
                continue
            outs = isinstance(value, ArrayInput) and value.values is None
            held = None if outs else value.distinct if isinstance(value, ArrayInput) else np.asarray(value)
            if held is None or domain.allows(held, made.dims):
                continue
            low, high = domain.bounds(made.dims)
            if domain.choices is not None:
                if isinstance(value, ArrayInput) or len(domain.choices) != 1:
                    return None
                number = Domain(low=domain.choices[0]).bounds(made.dims)[0]
                made = made.with_argument(param.name, scalar_of(number, dtype_of_param(param, case.dtypes)))
                continue
            if low is not None and high is not None and low > high:
                return None
            clipped = np.clip(held, low, high).astype(held.dtype)
            fitted = (
                replace(value, values=_spread(clipped, value.shape))
                if isinstance(value, ArrayInput)
                else clipped.item()
            )
            made = made.with_argument(param.name, fitted)
        return made


def _spread(distinct: Any, shape: tuple[int, ...]) -> Any:
    return distinct if distinct.shape == shape else np.broadcast_to(distinct, shape)


def grown(case: Case, drawing: Drawing, kernel: Kernel) -> Iterator[Case]:
    """Larger cases of the same kind: each dimension in turn a little longer than two workgroups or tiles."""
    tile = max((kernel.declared_local() or (64,))[0], 8)
    search = _Resize(drawing)
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
            self._schedules, self._sizes, self._types, self._layouts, self._scalars, self._arrays,
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
            for smaller in self._smaller(name, size):
                for from_end in (False, True):
                    made = _Resize(self.drawing, from_end).resized(case, {**case.dims, name: smaller})
                    if made is not None:
                        yield made, self.best.schedule

    def _smaller(self, name: str, size: Any) -> Iterator[Any]:
        bounds = self.drawing.dimensions.sizes[name]
        if name in self.drawing.dimensions.strategies:
            return
        if isinstance(size, tuple):
            if bounds.choices is None:
                yield from (size[:-1], *(tuple(max(n - 1, 0) for n in size),)) if size else ()
            return
        if bounds.choices is not None:
            yield from (c for c in bounds.choices if c < size)
            return
        yield from (n for n in range(bounds.low, min(size, bounds.low + 4)))
        step = size // 2
        while step > 0:
            if size - step > bounds.low + 3:
                yield size - step
            step //= 2

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
            is_float = isinstance(value, float)
            for simpler in (0.0, 1.0, -1.0, 2.0) if is_float else (0, 1, 2, -1):
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
        if not np.array_equal(made, values) and not (number == one and (flat == zero).all()):
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
        nearer = np.trunc(flat[place]) if values.dtype.kind == "f" else flat[place] // 2
        for simpler in (one, *([-one] if values.dtype.kind in "fi" else []), nearer):
            if values.dtype != np.bool_ and _rank(simpler) < _rank(flat[place]):
                made = flat.copy()
                made[place] = simpler
                yield made.reshape(values.shape)


def _resized(given: ArrayInput, shape: tuple[int, ...], from_end: bool) -> Any:
    """Values for another shape; axes that repeat are repeated anew. None for an array that would be too large."""
    if given.distinct_shape == given.shape or not _fits(given, shape):
        return (
            None
            if math.prod(shape) > max(MOST_ELEMENTS, math.prod(given.shape))
            else _cut(given.values, shape, from_end)
        )
    distinct = ArrayInput(given.dtype, shape, None, given.layout).distinct_shape
    return np.broadcast_to(_cut(given.distinct, distinct, from_end), shape)


def _cut(values: Any, shape: tuple[int, ...], from_end: bool) -> Any:
    """Values for another shape: the leading part (or the last), repeated where it is too short."""
    if values.ndim != len(shape):
        return np.resize(values, shape)
    for axis, size in enumerate(shape):
        if size != values.shape[axis]:
            start = max(values.shape[axis] - size, 0) if from_end else 0
            values = values.take((start + np.arange(size)) % max(values.shape[axis], 1), axis=axis)
    return np.array(values)


def _fits(given: ArrayInput, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(given.shape)


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
