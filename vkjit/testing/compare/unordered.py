"""Outputs with rows in unspecified order, for example because invocations append to them by an atomic counter.

The user names such outputs by `unordered=`. Before a comparison, the expected rows are reordered so that each lies at
the index of an equal row that the kernel produced; a comparison then reports only rows that have no equal. Rows are
slices along the first axis. Outputs of one group, such as keys and values, are reordered together.
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
"""Maximum number of unmatched rows for which the nearest expected row is searched; more are paired in sorted order."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """A group of outputs, by name, whose rows belong together and may come in any order.

    `counter` is the output whose first element is the number of valid rows; rows after these aren't compared. None
    means that all rows are valid.
    """

    names: tuple[str, ...]
    counter: str | None = None


def unordered_of(spec: KernelSpec, parts: Mapping[str, Sequence[str]], given: Any) -> tuple[Unordered, ...]:
    """Convert the user's `unordered=` to groups of outputs.

    `unordered=` is the name of an output, several names, tuples of names (groups), or a dictionary that maps names or
    tuples to the name of the output that counts the rows. `parts` maps each parameter to the names of its arrays:
    several for an array of structs, whose fields have common rows. Raises ArgumentError for names that aren't outputs.
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
    """Return a name or a collection of names as a list."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, (tuple, list, set, frozenset)):
        return list(given)
    raise ArgumentError(f"unordered: {given!r}: expected names of outputs")


def rows_of(group: Unordered, counts: Mapping[str, Any], extent: int) -> int:
    """Return the number of valid rows of a group: its counter's value in `counts`, clamped to [0, extent].

    Without a counter all `extent` rows are valid.
    """
    if group.counter is None or group.counter not in counts:
        return extent
    value = np.asarray(counts[group.counter]).reshape(-1)[:1]
    return int(np.clip(value[0], 0, extent)) if value.size and np.isfinite(value[0]) else extent


def aligned(found: Sequence[Array], expected: Sequence[Array], kinds: Sequence[DType]) -> list[Array]:
    """Return the expected arrays with their rows reordered to lie at the indices of equal rows of the found arrays.

    The arrays are the outputs of one group, of the types `kinds`, and are reordered together. Rows without an equal are
    paired with the nearest. All arrays must have the same number of rows.
    """
    if not len(found[0]):
        return list(expected)
    found_rows = [f.reshape(len(f), -1) for f in found]
    expected_rows = [_rounded(e, kind).reshape(len(e), -1) for e, kind in zip(expected, kinds, strict=True)]
    order, unmatched_found, unmatched_expected = _equal_rows(_keys(found_rows), _keys(expected_rows))
    for i, row in zip(*_paired(found_rows, expected_rows, unmatched_found, unmatched_expected), strict=True):
        order[i] = row
    return [e[order] for e in expected]


def _rounded(expected: Array, kind: DType) -> Array:
    """Round expected numbers to the output's type."""
    with np.errstate(all="ignore"):
        converted = expected.astype(kind.numpy)
        return decode(encode(converted, kind), kind) if kind.is_float else converted


def _keys(columns: Sequence[Array]) -> Array:
    """Return a byte key per row of the arrays taken together; rows with equal numbers have equal keys, NaN included."""
    byte_columns = []
    for column in columns:
        values = column
        if values.dtype.kind == "f":
            values = np.where(
                np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0)
            )  # turns -0 into 0
        byte_columns.append(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1))
    packed = np.ascontiguousarray(np.concatenate(byte_columns, axis=1))
    if packed.shape[1] == 0:
        return np.zeros(len(packed), np.uint8)
    return packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)


def _equal_rows(found_keys: Array, expected_keys: Array) -> tuple[Array, Array, Array]:
    """Match equal rows one to one, given the keys of the found rows and of the expected rows.

    Returns for each found row the index of an equal expected row (-1: none), and the indices of the unmatched found and
    expected rows.
    """
    _, numbers = np.unique(np.concatenate([found_keys, expected_keys]), return_inverse=True)
    numbers = numbers.reshape(-1)
    found_ranked, expected_ranked = _ranked(numbers[: len(found_keys)]), _ranked(numbers[len(found_keys) :])
    index_of = {key: i for i, key in enumerate(expected_ranked)}
    matches = np.array([index_of.pop(key, -1) for key in found_ranked], np.int64)
    return matches, np.flatnonzero(matches < 0), np.array(sorted(index_of.values()), np.int64)


def _ranked(numbers: Array) -> list[tuple[int, int]]:
    """Pair each number with the count of its earlier occurrences, which makes equal numbers distinct."""
    seen: dict[int, int] = {}
    ranked = []
    for number in numbers.tolist():
        seen[number] = seen.get(number, -1) + 1
        ranked.append((number, seen[number]))
    return ranked


def _paired(
    found_rows: Sequence[Array], expected_rows: Sequence[Array], unmatched_found: Array, unmatched_expected: Array
) -> tuple[Array, Array]:
    """Pair unmatched found rows with unmatched expected rows; return both as arrays of indices, in pairs.

    Single numbers, and very many rows, are paired in sorted order; otherwise each row is paired with the nearest that
    is left.
    """
    columns = sum(m.shape[1] for m in found_rows)
    if columns == 1 or not 0 < len(unmatched_found) <= _MAX_PAIRED:
        return unmatched_found[_order(found_rows, unmatched_found)], unmatched_expected[
            _order(expected_rows, unmatched_expected)
        ]
    with np.errstate(all="ignore"):
        found_values = np.concatenate([m[unmatched_found].astype(np.float64) for m in found_rows], axis=1)
        expected_values = np.concatenate([t[unmatched_expected].astype(np.float64) for t in expected_rows], axis=1)
    chosen, free = [], np.ones(len(unmatched_expected), bool)
    for row in found_values:
        with np.errstate(all="ignore"):
            distance = np.abs(expected_values - row) / (np.abs(expected_values) + np.finfo(np.float32).tiny)
        distance = np.where((expected_values == row) | (np.isnan(expected_values) & np.isnan(row)), 0.0, distance)
        worst = np.where(np.isnan(distance), np.inf, distance).max(axis=1, initial=0.0)
        candidates = np.flatnonzero(free)
        nearest = int(candidates[np.argmin(worst[candidates])])
        free[nearest] = False
        chosen.append(nearest)
    return unmatched_found, unmatched_expected[chosen]


def _order(columns: Sequence[Array], rows: Array) -> Array:
    """Return the order that sorts the given rows lexicographically."""
    keys = [c[rows, k] for c in columns for k in range(c.shape[1])]
    return np.lexsort(keys[::-1]) if keys else np.arange(len(rows))
