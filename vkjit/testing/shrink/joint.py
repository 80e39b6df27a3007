"""Joint shrinking steps: change several interdependent values of a case at once.

Some failures need values that depend on each other, such as an integer argument that must equal the length of an array,
or two sizes that must be equal; changing one of them alone makes the failure disappear. Therefore sizes, integer
arguments and elements of integer arrays are changed together with a size, pairs of integer arguments move toward zero
together, and arrays with equal contents get equal new contents. `shrinker` tries these cases besides those with a
single change. A `Drawing` describes the cases that a test allows: types, sizes, ranges of values and conditions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..cases.case import ArrayInput, Case
from ..generate.strategies import Drawing, dtype_of_param
from .resizing import Resize, smaller_sizes

__all__ = ["jointly_simpler", "jointly_smaller"]

_MAX_FOLLOWING = 1 << 12
"""Maximum number of elements of an integer array whose values are changed together with a size."""

Change = Callable[[Any], Any]
"""A function that maps an array of values to values changed together with a size."""


def jointly_simpler(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Yield simpler cases of the same sizes, in which several integer arguments or two arrays change together.

    Many of them don't satisfy the user's condition `where=`; the caller has to check it.
    """
    yield from _integers_together(case, drawing)
    yield from _arrays_together(case, drawing)


def jointly_smaller(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Yield cases in which one size shrinks and other sizes or integers change together with it.

    Many of them don't satisfy the user's condition `where=`; the caller has to check it.
    """
    resize = Resize(drawing)
    for name, size in case.dims.items():
        if not isinstance(size, int):
            continue
        for smaller in smaller_sizes(drawing, name, size):
            for change in _changes(size, smaller):
                others = _other_sizes(case, drawing, name, change)
                # first with other sizes changed, then with this size alone
                for changed_sizes in (others, {}) if others else ({},):
                    resized_case = resize.resized(case, {**case.dims, name: smaller, **changed_sizes})
                    if resized_case is None:
                        continue
                    if changed_sizes:  # without them, it's a case that `shrinker` tries itself
                        yield resized_case
                    # the same with changed integers: in arguments only, then in arrays, too
                    with_integers = _integers(resized_case, drawing, change, arrays=False)
                    if with_integers is not None:
                        yield with_integers
                    with_integers = _integers(resized_case, drawing, change, arrays=True)
                    if with_integers is not None:
                        yield with_integers


def _changes(size: int, smaller: int) -> tuple[Change, ...]:
    """Return functions that change values when a size shrinks from `size` to `smaller`.

    They assume, in order, that a value equals the size, differs from it by a constant, is bounded by it, is an index
    below it, or is proportional to it.
    """
    return (
        lambda v: np.where(v == size, smaller, v),
        lambda v: np.where(v > 0, np.maximum(v - (size - smaller), 0), v),
        lambda v: np.minimum(v, smaller),
        lambda v: np.minimum(v, max(smaller - 1, 0)),
        lambda v: np.where((v > 0) & (v <= 4 * size), v * smaller // max(size, 1), v),
    )


def _other_sizes(case: Case, drawing: Drawing, name: str, change: Change) -> dict[str, int]:
    """Return the other sizes that `change` reduces, with their new values, by name."""
    reduced = {}
    for other, size in case.dims.items():
        bounds = drawing.dimensions.sizes[other]
        if other == name or not isinstance(size, int) or other in drawing.dimensions.strategies:
            continue
        smaller = max(int(change(np.asarray(size))), bounds.low)
        if smaller < size and (bounds.choices is None or smaller in bounds.choices):
            reduced[other] = smaller
    return reduced


def _integers(case: Case, drawing: Drawing, change: Change, *, arrays: bool) -> Case | None:
    """Return the case with `change` applied to the integer arguments and, with `arrays`, to integer arrays.

    Arguments whose new values aren't allowed keep theirs. Returns None if nothing changes.
    """
    result, changed = case, False
    for param in drawing.spec.params:
        value, domain = case.arguments[param.name], drawing.domains[param.name]
        is_array = isinstance(value, ArrayInput)
        if param.kind == "const" or domain.strategy is not None or (is_array and not arrays):
            continue
        if not dtype_of_param(param, case.dtypes).is_integer or isinstance(value, bool):
            continue
        has_repeated_axes = isinstance(value, ArrayInput) and value.distinct_shape != value.shape
        old = value.values if isinstance(value, ArrayInput) else np.asarray(value)
        if old is None or old.size > _MAX_FOLLOWING or has_repeated_axes:
            continue
        # wide enough for all values and differences: Python integers for u64, else i64
        wide = old.astype(object) if old.dtype == np.uint64 else old.astype(np.int64)
        new = np.asarray(change(wide)).astype(old.dtype)
        if np.array_equal(new, old) or not domain.allows(new, case.dims):
            continue
        changed = True
        new_value = replace(value, values=new) if isinstance(value, ArrayInput) else new.item()
        result = result.with_argument(param.name, new_value)
    return result if changed else None


def _integers_together(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Yield cases in which pairs of integer arguments, or all of them, move toward zero by the same amount."""
    names = [
        p.name for p in drawing.spec.params
        if p.kind == "scalar" and type(case.arguments[p.name]) is int and drawing.domains[p.name].strategy is None
    ]  # fmt: skip
    groups = [*itertools.combinations(names, 2), *([tuple(names)] if len(names) > 2 else [])]
    for group in groups:
        smallest = min(case.arguments[n] for n in group)
        step = abs(smallest)  # the first step makes the smallest argument 0; later ones are smaller
        while step > 0:
            candidate = case
            for name in group:
                candidate = candidate.with_argument(name, case.arguments[name] - (step if smallest > 0 else -step))
            if all(drawing.domains[n].allows(np.asarray(candidate.arguments[n]), case.dims) for n in group):
                yield candidate
            step //= 2


def _arrays_together(case: Case, drawing: Drawing) -> Iterator[Case]:
    """Yield cases in which two equal arrays become 0 or 1 in the same elements: all, a half or a single one."""
    arrays = {
        n: a for n, a in case.arrays().items() if a.values is not None and a.values.size and not a.layout.repeated
    }
    for first_name, second_name in itertools.combinations(arrays, 2):
        first, second = arrays[first_name], arrays[second_name]
        if first.values is None or second.values is None or not _hold_the_same(first.values, second.values):
            continue
        flat = first.values.reshape(-1)
        half = len(flat) // 2
        single_elements = [slice(k, k + 1) for k in range(min(len(flat), 8))]
        for part in (slice(None), slice(half, None), slice(0, half), *single_elements):
            for number in (0, 1):
                new = flat.copy()
                # with `number` 1, zeros and ones stay as they are, since a one is no simpler than a zero
                is_simple = (flat[part] == 0) | (flat[part] == 1)
                new[part] = np.where(is_simple, flat[part] * number, number)
                if np.array_equal(new, flat):
                    continue
                candidate = case
                for name, given in ((first_name, first), (second_name, second)):
                    values = new.reshape(given.shape).astype(given.dtype.numpy)
                    if drawing.domains[name].strategy is None and drawing.domains[name].allows(values, case.dims):
                        candidate = candidate.with_argument(name, replace(given, values=values))
                yield candidate


def _hold_the_same(first: Any, second: Any) -> bool:
    """True if two arrays have the same shape and equal elements; NaN equals NaN."""
    both_floats = first.dtype.kind == "f" and second.dtype.kind == "f"
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=both_floats)
