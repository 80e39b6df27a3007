"""Outputs with rows in unspecified order, as when invocations append to them.

Found rows are matched with equal expected ones, so that a comparison names the superfluous rows rather than all rows
after them. Rows run along the first axis. Outputs of one group share their rows, such as keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError
from vkjit.frontend import KernelSpec

from ..cases.case import decode, encode

__all__ = ["Unordered", "aligned", "rows_of", "unordered_of"]

Array = npt.NDArray[Any]

_MAX_PAIRED = 1024
"""Maximum number of unmatched rows that are paired with the nearest; more are paired in sorted order."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """Outputs whose rows belong together and may come in any order.

    `counter`: the output whose first element is the number of valid rows; the others aren't compared. None: all are
    valid.
    """

    names: tuple[str, ...]
    counter: str | None = None


def unordered_of(spec: KernelSpec, parts: Mapping[str, Sequence[str]], given: Any) -> tuple[Unordered, ...]:
    """Convert `unordered=`: a name, several names, tuples of names, or a dictionary from these to a counter's name.

    parts: the arrays that each parameter consists of; those of a struct belong together. Raises ArgumentError for
    names that aren't outputs.
    """
    outputs = [p.name for p in spec.params if p.kind == "array" and p.mode != "in"]
    items: Any = given.items() if isinstance(given, Mapping) else [(i, None) for i in _listed(given)]
    groups = []
    for names, counter in items:
        group = tuple(_listed(names))
        wrong = [n for n in (*group, *([] if counter is None else [counter])) if n not in outputs]
        if wrong or not group or counter in group:
            what = f"{wrong[0]!r} is no output" if wrong else "a counter is an output of its own"
            raise ArgumentError(
                f"unordered: {what}: expected names among {', '.join(outputs) or '(none)'}, as in unordered='y', "
                "unordered=[('keys', 'values')] for rows in common, or unordered={'y': 'count'} with their number"
            )
        groups.append(Unordered(tuple(part for n in group for part in parts[n]), counter))
    seen = [n for group in groups for n in group.names]
    if len(set(seen)) < len(seen):
        raise ArgumentError("unordered: an output is named twice")
    return tuple(groups)


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, (tuple, list, set, frozenset)):
        return list(given)
    raise ArgumentError(f"unordered: {given!r}: expected names of outputs")


def rows_of(group: Unordered, counts: Mapping[str, Any], extent: int) -> int:
    """Return the number of valid rows: the counter's value, clamped to [0, extent]."""
    if group.counter is None or group.counter not in counts:
        return extent
    value = np.asarray(counts[group.counter]).reshape(-1)[:1]
    return int(np.clip(value[0], 0, extent)) if value.size and np.isfinite(value[0]) else extent


def aligned(found: Sequence[Array], expected: Sequence[Array], kinds: Sequence[DType]) -> list[Array]:
    """Reorder the rows of the expected arrays to match equal rows of the found ones; unmatched rows are paired with
    the nearest.

    All arrays must have the same number of rows.
    """
    if not len(found[0]):
        return list(expected)
    mine = [f.reshape(len(f), -1) for f in found]
    theirs = [_rounded(e, kind).reshape(len(e), -1) for e, kind in zip(expected, kinds, strict=True)]
    places, left, over = _equal_rows(_keys(mine), _keys(theirs))
    for place, row in zip(*_paired(mine, theirs, left, over), strict=True):
        places[place] = row
    return [e[places] for e in expected]


def _rounded(expected: Array, kind: DType) -> Array:
    """Round expected numbers to the output's type."""
    with np.errstate(all="ignore"):
        converted = expected.astype(kind.numpy)
        return decode(encode(converted, kind), kind) if kind.is_float else converted


def _keys(columns: Sequence[Array]) -> Array:
    """Return a byte key per row; rows with equal numbers have equal keys, NaN included."""
    cells = []
    for column in columns:
        values = column
        if values.dtype.kind == "f":
            values = np.where(
                np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0)
            )  # turns -0 into 0
        cells.append(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1))
    packed = np.ascontiguousarray(np.concatenate(cells, axis=1))
    if packed.shape[1] == 0:
        return np.zeros(len(packed), np.uint8)
    return packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)


def _equal_rows(mine: Array, theirs: Array) -> tuple[Array, Array, Array]:
    """Match equal rows one to one.

    Returns the index of a matching row in `theirs` for each row of `mine` (-1: none), and the indices of unmatched
    rows in both.
    """
    _, numbers = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
    numbers = numbers.reshape(-1)
    one, two = _ranked(numbers[: len(mine)]), _ranked(numbers[len(mine) :])
    place_of = {key: i for i, key in enumerate(two)}
    places = np.array([place_of.pop(key, -1) for key in one], np.int64)
    return places, np.flatnonzero(places < 0), np.array(sorted(place_of.values()), np.int64)


def _ranked(numbers: Array) -> list[tuple[int, int]]:
    """Pair each number with its count of earlier occurrences."""
    seen: dict[int, int] = {}
    ranked = []
    for number in numbers.tolist():
        seen[number] = seen.get(number, -1) + 1
        ranked.append((number, seen[number]))
    return ranked


def _paired(mine: Sequence[Array], theirs: Sequence[Array], left: Array, over: Array) -> tuple[Array, Array]:
    """Pair unmatched rows: in sorted order, or, with several columns, with the nearest."""
    columns = sum(m.shape[1] for m in mine)
    if columns == 1 or not 0 < len(left) <= _MAX_PAIRED:
        return left[_order(mine, left)], over[_order(theirs, over)]
    with np.errstate(all="ignore"):
        ours = np.concatenate([m[left].astype(np.float64) for m in mine], axis=1)
        others = np.concatenate([t[over].astype(np.float64) for t in theirs], axis=1)
    chosen, free = [], np.ones(len(over), bool)
    for row in ours:
        with np.errstate(all="ignore"):
            distance = np.abs(others - row) / (np.abs(others) + np.finfo(np.float32).tiny)
        distance = np.where((others == row) | (np.isnan(others) & np.isnan(row)), 0.0, distance)
        worst = np.where(np.isnan(distance), np.inf, distance).max(axis=1, initial=0.0)
        candidates = np.flatnonzero(free)
        nearest = int(candidates[np.argmin(worst[candidates])])
        free[nearest] = False
        chosen.append(nearest)
    return left, over[chosen]


def _order(columns: Sequence[Array], rows: Array) -> Array:
    keys = [c[rows, k] for c in columns for k in range(c.shape[1])]
    return np.lexsort(keys[::-1]) if keys else np.arange(len(rows))
