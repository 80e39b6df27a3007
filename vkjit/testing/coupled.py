"""Steps to smaller cases in which several things change at once: what depends on each other.

Enters: a case. Leaves: cases in which one size is smaller and other sizes, integer arguments or elements follow it (a length
and the array that it belongs to, two sizes that have to be equal); cases in which integer arguments move towards zero
together, or arrays that hold the same change alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .case import ArrayInput, Case
from .drawing import Drawing, dtype_of_param
from .resizing import Resize, smaller_sizes

__all__ = ["simpler_together", "smaller_together"]

_SMALL = 1 << 12
"""Elements of arrays whose values follow a size."""

Change = Callable[[Any], Any]


def simpler_together(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Integer arguments, or arrays, that change together; many of the cases don't satisfy the user's `where`."""
    yield from _integers_together(case, drawing)
    yield from _arrays_together(case, drawing)


def smaller_together(case: Case, drawing: Drawing) -> Iterator[Case]:
    """One size becomes smaller, and others, or integers, with it; many of the cases don't satisfy the user's `where`."""
    resize = Resize(drawing)
    for name, size in case.dims.items():
        if not isinstance(size, int):
            continue
        for smaller in smaller_sizes(drawing, name, size):
            for change in _changes(size, smaller):
                others = _other_sizes(case, drawing, name, change)
                for env in (others, {}) if others else ({},):
                    made = resize.resized(case, {**case.dims, name: smaller, **env})
                    if made is None:
                        continue
                    if env:
                        yield made
                    followed = _integers(made, drawing, change, arrays=False)
                    if followed is not None:
                        yield followed
                    followed = _integers(made, drawing, change, arrays=True)
                    if followed is not None:
                        yield followed


def _changes(size: int, smaller: int) -> tuple[Change, ...]:
    """How a number may follow a size: as it, with it, below it, in proportion."""
    return (
        lambda v: np.where(v == size, smaller, v),
        lambda v: np.where(v > 0, np.maximum(v - (size - smaller), 0), v),
        lambda v: np.minimum(v, smaller),
        lambda v: np.minimum(v, max(smaller - 1, 0)),
        lambda v: np.where((v > 0) & (v <= 4 * size), v * smaller // max(size, 1), v),
    )


def _other_sizes(case: Case, drawing: Drawing, name: str, change: Change) -> dict[str, int]:
    """Other sizes that the change makes smaller."""
    made = {}
    for other, size in case.dims.items():
        bounds = drawing.dimensions.sizes[other]
        if other == name or not isinstance(size, int) or other in drawing.dimensions.strategies:
            continue
        wanted = max(int(change(np.asarray(size))), bounds.low)
        if wanted < size and (bounds.choices is None or wanted in bounds.choices):
            made[other] = wanted
    return made


def _integers(case: Case, drawing: Drawing, change: Change, *, arrays: bool) -> Case | None:
    """The case with its integer arguments changed, and with those in arrays; None where nothing changes."""
    made, changed = case, False
    for param in drawing.spec.params:
        value, domain = case.arguments[param.name], drawing.domains[param.name]
        is_array = isinstance(value, ArrayInput)
        if param.kind == "const" or domain.strategy is not None or (is_array and not arrays):
            continue
        if not dtype_of_param(param, case.dtypes).is_integer or isinstance(value, bool):
            continue
        held = value.values if isinstance(value, ArrayInput) else np.asarray(value)
        if (
            held is None
            or held.size > _SMALL
            or (isinstance(value, ArrayInput) and value.distinct_shape != value.shape)
        ):
            continue
        new = np.asarray(change(held.astype(object) if held.dtype == np.uint64 else held.astype(np.int64)))
        new = new.astype(held.dtype)
        if np.array_equal(new, held) or not domain.allows(new, case.dims):
            continue
        changed = True
        made = made.with_argument(
            param.name, replace(value, values=new) if isinstance(value, ArrayInput) else new.item()
        )
    return made if changed else None


def _integers_together(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Pairs of integer arguments, and all of them, moved towards zero by the same amount."""
    names = [
        p.name for p in drawing.spec.params
        if p.kind == "scalar" and type(case.arguments[p.name]) is int and drawing.domains[p.name].strategy is None
    ]  # fmt: skip
    groups = [*itertools.combinations(names, 2), *([tuple(names)] if len(names) > 2 else [])]
    for group in groups:
        least = min(case.arguments[n] for n in group)
        step = abs(least)
        while step > 0:
            made = case
            for name in group:
                made = made.with_argument(name, case.arguments[name] - (step if least > 0 else -step))
            if all(drawing.domains[n].allows(np.asarray(made.arguments[n]), case.dims) for n in group):
                yield made
            step //= 2


def _arrays_together(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Arrays that hold the same become zero or one together, at all places or at half of them."""
    arrays = {
        n: a for n, a in case.arrays().items() if a.values is not None and a.values.size and not a.layout.repeated
    }
    for one, two in itertools.combinations(arrays, 2):
        first, second = arrays[one], arrays[two]
        if first.values is None or second.values is None or not _hold_the_same(first.values, second.values):
            continue
        flat = first.values.reshape(-1)
        half = len(flat) // 2
        for part in (
            slice(None),
            slice(half, None),
            slice(0, half),
            *(slice(k, k + 1) for k in range(min(len(flat), 8))),
        ):
            for number in (0, 1):
                new = flat.copy()
                simple = (flat[part] == 0) | (flat[part] == 1)  # those become zero, or stay
                new[part] = np.where(simple, flat[part] * number, number)
                if np.array_equal(new, flat):
                    continue
                made = case
                for name, given in ((one, first), (two, second)):
                    values = new.reshape(given.shape).astype(given.dtype.numpy)
                    if drawing.domains[name].strategy is None and drawing.domains[name].allows(values, case.dims):
                        made = made.with_argument(name, replace(given, values=values))
                yield made


def _hold_the_same(one: Any, two: Any) -> bool:
    return one.shape == two.shape and np.array_equal(
        one, two, equal_nan=one.dtype.kind == "f" and two.dtype.kind == "f"
    )
