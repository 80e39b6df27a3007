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
    # pairs of a group, as the user wrote it, and its counter
    items: Any = given.items() if isinstance(given, Mapping) else [(names, None) for names in _listed(given)]
    groups = []
    for names, counter in items:
        group = tuple(_listed(names))
        mentioned = group if counter is None else (*group, counter)
        unknown = [n for n in mentioned if n not in outputs]
        if unknown or not group or counter in group:
            what = f"{unknown[0]!r} is no output" if unknown else "a counter is an output of its own"
            raise ArgumentError(
                f"unordered: {what}: expected names among {', '.join(outputs) or '(none)'}, as in unordered='y', "
                "unordered=[('keys', 'values')] for rows in common, or unordered={'y': 'count'} with their number"
            )
        groups.append(Unordered(tuple(part for n in group for part in parts[n]), counter))
    all_names = [n for group in groups for n in group.names]
    if len(set(all_names)) < len(all_names):
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
    first_element = np.asarray(counts[group.counter]).reshape(-1)[:1]  # empty if the counter has no elements
    if first_element.size and np.isfinite(first_element[0]):
        return int(np.clip(first_element[0], 0, extent))
    return extent


def aligned(found: Sequence[Array], expected: Sequence[Array], kinds: Sequence[DType]) -> list[Array]:
    """Return the expected arrays with their rows reordered to lie at the indices of equal rows of the found arrays.

    The arrays are the outputs of one group, of the types `kinds`, and are reordered together. A found row without an
    equal is paired with the nearest of the expected rows that are left. All arrays must have the same number of rows.
    """
    if not len(found[0]):
        return list(expected)
    # matrices with the outputs' rows
    found_rows = [f.reshape(len(f), -1) for f in found]
    expected_rows = [_rounded(e, dtype).reshape(len(e), -1) for e, dtype in zip(expected, kinds, strict=True)]
    # order[i] is the index of the expected row for found row i
    order, unmatched_found, unmatched_expected = _equal_rows(_keys(found_rows), _keys(expected_rows))
    pairs = zip(*_paired(found_rows, expected_rows, unmatched_found, unmatched_expected), strict=True)
    for found_index, expected_index in pairs:
        order[found_index] = expected_index
    return [e[order] for e in expected]


def _rounded(expected: Array, dtype: DType) -> Array:
    """Round expected numbers to the output's type."""
    with np.errstate(all="ignore"):
        converted = expected.astype(dtype.numpy)
        return decode(encode(converted, dtype), dtype) if dtype.is_float else converted


def _keys(matrices: Sequence[Array]) -> Array:
    """Return a key for each row, made of the bytes of the row's values in all matrices.

    Rows with equal numbers have equal keys: all NaN have the same bytes in keys, and so have zeros of both signs.
    """
    bytes_of_matrices = []
    for values in matrices:
        if values.dtype.kind == "f":
            without_negative_zero = values + values.dtype.type(0)  # -0 + 0 is +0
            values = np.where(np.isnan(values), values.dtype.type(np.nan), without_negative_zero)
        bytes_of_matrices.append(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1))
    row_bytes = np.ascontiguousarray(np.concatenate(bytes_of_matrices, axis=1))
    if row_bytes.shape[1] == 0:  # rows without elements are all equal
        return np.zeros(len(row_bytes), np.uint8)
    return row_bytes.view(np.dtype((np.void, row_bytes.shape[1]))).reshape(-1)


def _equal_rows(found_keys: Array, expected_keys: Array) -> tuple[Array, Array, Array]:
    """Match equal rows one to one, given the keys of the found rows and of the expected rows.

    Returns for each found row the index of an equal expected row (-1: none), and the indices of the unmatched found and
    expected rows.
    """
    # number the distinct keys: equal rows have equal numbers
    _, numbers = np.unique(np.concatenate([found_keys, expected_keys]), return_inverse=True)
    numbers = numbers.reshape(-1)
    found_distinct = _with_occurrence(numbers[: len(found_keys)])
    expected_distinct = _with_occurrence(numbers[len(found_keys) :])
    index_of = {row: i for i, row in enumerate(expected_distinct)}  # shrinks to the unmatched rows
    matches = np.array([index_of.pop(row, -1) for row in found_distinct], np.int64)
    return matches, np.flatnonzero(matches < 0), np.array(sorted(index_of.values()), np.int64)


def _with_occurrence(numbers: Array) -> list[tuple[int, int]]:
    """Pair each number with the count of its earlier occurrences, which makes equal numbers distinct."""
    last_occurrence: dict[int, int] = {}
    pairs = []
    for number in numbers.tolist():
        last_occurrence[number] = last_occurrence.get(number, -1) + 1
        pairs.append((number, last_occurrence[number]))
    return pairs


def _paired(
    found_rows: Sequence[Array], expected_rows: Sequence[Array], unmatched_found: Array, unmatched_expected: Array
) -> tuple[Array, Array]:
    """Pair unmatched found rows with unmatched expected rows.

    Returns two arrays of equal length: the indices of the found rows, and those of their expected rows. Rows of a
    single number, and very many rows, are paired in sorted order. Otherwise each found row is paired with the nearest
    expected row that is left.
    """
    numbers_per_row = sum(m.shape[1] for m in found_rows)
    if numbers_per_row == 1 or not 0 < len(unmatched_found) <= _MAX_PAIRED:
        found_order = _order(found_rows, unmatched_found)
        expected_order = _order(expected_rows, unmatched_expected)
        return unmatched_found[found_order], unmatched_expected[expected_order]
    with np.errstate(all="ignore"):
        found_values = np.concatenate([m[unmatched_found].astype(np.float64) for m in found_rows], axis=1)
        expected_values = np.concatenate([m[unmatched_expected].astype(np.float64) for m in expected_rows], axis=1)
    chosen, is_free = [], np.ones(len(unmatched_expected), bool)
    for row in found_values:
        # the distance of two rows is the largest relative difference of their numbers
        with np.errstate(all="ignore"):
            differences = np.abs(expected_values - row) / (np.abs(expected_values) + np.finfo(np.float32).tiny)
        same = (expected_values == row) | (np.isnan(expected_values) & np.isnan(row))
        differences = np.where(same, 0.0, differences)
        distances = np.where(np.isnan(differences), np.inf, differences).max(axis=1, initial=0.0)
        candidates = np.flatnonzero(is_free)
        nearest = int(candidates[np.argmin(distances[candidates])])
        is_free[nearest] = False
        chosen.append(nearest)
    return unmatched_found, unmatched_expected[chosen]


def _order(matrices: Sequence[Array], rows: Array) -> Array:
    """Return the order that sorts the rows with the indices `rows` lexicographically."""
    keys = [m[rows, column] for m in matrices for column in range(m.shape[1])]
    return np.lexsort(keys[::-1]) if keys else np.arange(len(rows))  # `lexsort` sorts by the last key first
