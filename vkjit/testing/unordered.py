"""Outputs whose order isn't specified: rows that invocations append, in whatever order they come.

Enters: what the user says of such outputs, and two sets of rows. Leaves: for each found row the expected one that it is
compared with, so that a comparison names the rows that are too many, not those behind them. Rows are those of the first
axis; outputs of one group have their rows in common (a key and its value).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from ..errors import ArgumentError
from ..frontend import KernelSpec
from .case import decode, encode

__all__ = ["Unordered", "aligned", "rows_of", "unordered_of"]

Array = npt.NDArray[Any]

_MOST_PAIRED = 1024
"""Rows without an equal one that are paired with the nearest; more are paired in sorted order."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """Outputs whose rows belong together and come in any order. `counter`: the output whose first element says how many
    rows there are; what lies behind them is left alone. None: all of them."""

    names: tuple[str, ...]
    counter: str | None = None


def unordered_of(spec: KernelSpec, parts: Mapping[str, Sequence[str]], given: Any) -> tuple[Unordered, ...]:
    """What `unordered=` means: a name, names, tuples of names, or a dictionary of these to a counter's name.

    parts: the arrays that a parameter is passed as; those of a struct belong together. Raises ArgumentError for what are
    no outputs.
    """
    outputs = [p.name for p in spec.params if p.kind == "array" and p.mode != "in"]
    items: Any = given.items() if isinstance(given, Mapping) else [(i, None) for i in _listed(given)]
    made = []
    for names, counter in items:
        group = tuple(_listed(names))
        wrong = [n for n in (*group, *([] if counter is None else [counter])) if n not in outputs]
        if wrong or not group or counter in group:
            what = f"{wrong[0]!r} is no output" if wrong else "a counter is an output of its own"
            raise ArgumentError(
                f"unordered: {what}: expected names among {', '.join(outputs) or '(none)'}, as in unordered='y', "
                "unordered=[('keys', 'values')] for rows in common, or unordered={'y': 'count'} with their number"
            )
        made.append(Unordered(tuple(part for n in group for part in parts[n]), counter))
    seen = [n for group in made for n in group.names]
    if len(set(seen)) < len(seen):
        raise ArgumentError("unordered: an output is named twice")
    return tuple(made)


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, (tuple, list, set, frozenset)):
        return list(given)
    raise ArgumentError(f"unordered: {given!r}: expected names of outputs")


def rows_of(group: Unordered, counts: Mapping[str, Any], extent: int) -> int:
    """How many rows count: what the counter says, at most `extent`."""
    if group.counter is None or group.counter not in counts:
        return extent
    value = np.asarray(counts[group.counter]).reshape(-1)[:1]
    return int(np.clip(value[0], 0, extent)) if value.size and np.isfinite(value[0]) else extent


def aligned(found: Sequence[Array], expected: Sequence[Array], kinds: Sequence[DType]) -> list[Array]:
    """The expected arrays with their rows put where the found arrays have equal ones; those that are left are put beside the
    nearest. All have as many rows."""
    if not len(found[0]):
        return list(expected)
    mine = [f.reshape(len(f), -1) for f in found]
    theirs = [_rounded(e, kind).reshape(len(e), -1) for e, kind in zip(expected, kinds, strict=True)]
    places, left, over = _equal_rows(_keys(mine), _keys(theirs))
    for place, row in zip(*_paired(mine, theirs, left, over), strict=True):
        places[place] = row
    return [e[places] for e in expected]


def _rounded(expected: Array, kind: DType) -> Array:
    """Expected numbers as the output's type holds them."""
    with np.errstate(all="ignore"):
        made = expected.astype(kind.numpy)
        return decode(encode(made, kind), kind) if kind.is_float else made


def _keys(columns: Sequence[Array]) -> Array:
    """A key of bytes for each row; equal numbers have equal ones, NaN too."""
    cells = []
    for column in columns:
        held = column
        if held.dtype.kind == "f":
            held = np.where(np.isnan(held), held.dtype.type(np.nan), held + held.dtype.type(0))  # -0 + 0 is 0
        cells.append(np.ascontiguousarray(held).view(np.uint8).reshape(len(held), -1))
    packed = np.ascontiguousarray(np.concatenate(cells, axis=1))
    if packed.shape[1] == 0:
        return np.zeros(len(packed), np.uint8)
    return packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)


def _equal_rows(mine: Array, theirs: Array) -> tuple[Array, Array, Array]:
    """For each of my rows the number of an equal one of theirs, each used once (-1: none); which of mine and of theirs are
    left."""
    _, numbers = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
    numbers = numbers.reshape(-1)
    one, two = _ranked(numbers[: len(mine)]), _ranked(numbers[len(mine) :])
    place_of = {key: i for i, key in enumerate(two)}
    places = np.array([place_of.pop(key, -1) for key in one], np.int64)
    return places, np.flatnonzero(places < 0), np.array(sorted(place_of.values()), np.int64)


def _ranked(numbers: Array) -> list[tuple[int, int]]:
    """Each number with how many equal ones come before it."""
    seen: dict[int, int] = {}
    made = []
    for number in numbers.tolist():
        seen[number] = seen.get(number, -1) + 1
        made.append((number, seen[number]))
    return made


def _paired(mine: Sequence[Array], theirs: Sequence[Array], left: Array, over: Array) -> tuple[Array, Array]:
    """Rows without an equal one, mine beside theirs: in sorted order, or, with several columns, the nearest."""
    columns = sum(m.shape[1] for m in mine)
    if columns == 1 or not 0 < len(left) <= _MOST_PAIRED:
        return left[_order(mine, left)], over[_order(theirs, over)]
    with np.errstate(all="ignore"):
        ours = np.concatenate([m[left].astype(np.float64) for m in mine], axis=1)
        rest = np.concatenate([t[over].astype(np.float64) for t in theirs], axis=1)
    chosen, free = [], np.ones(len(over), bool)
    for row in ours:
        with np.errstate(all="ignore"):
            distance = np.abs(rest - row) / (np.abs(rest) + np.finfo(np.float32).tiny)
        distance = np.where((rest == row) | (np.isnan(rest) & np.isnan(row)), 0.0, distance)
        worst = np.where(np.isnan(distance), np.inf, distance).max(axis=1, initial=0.0)
        candidates = np.flatnonzero(free)
        nearest = int(candidates[np.argmin(worst[candidates])])
        free[nearest] = False
        chosen.append(nearest)
    return left, over[chosen]


def _order(columns: Sequence[Array], rows: Array) -> Array:
    keys = [c[rows, k] for c in columns for k in range(c.shape[1])]
    return np.lexsort(keys[::-1]) if keys else np.arange(len(rows))
