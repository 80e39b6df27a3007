"""Properties of single kernels that count, select, radix-sort, search and scatter, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.stdlib_properties.catalogue import KernelProperty
from vkjit.stdlib.elementwise import vec4
from vkjit.stdlib.index import bincount, compaction, compaction_tiles, gather_scatter
from vkjit.stdlib.scan_sort import merge_sort, radix_sort, radix_sort_ballot

__all__ = ["SELECTION", "in_order"]

_F32 = {"dtypes": [vk.f32]}

# -- compaction of nonzero elements


def _parts(x: Any, count: int, length: int) -> Any:
    """Split a vector or row into `count` parts of `length` elements; the last parts may be shorter or empty."""
    return [x[s * length : (s + 1) * length] for s in range(count)]


def _before(counts: Any) -> Any:
    """Return exclusive prefix sums followed by the total."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _count(x: Any, counts: Any, length: Any) -> Any:
    return np.array([np.count_nonzero(p) for p in _parts(x, len(counts), length)])


def _coordinates(flat: Any, strides: Any, extents: Any) -> Any:
    return flat[:, None] // strides % extents


def _selected() -> tuple[KernelProperty, ...]:
    lengths = {"length": (1, 90), "SIZE": [32]}
    sizes = {"dims": {"N": (0, 200), "S": (1, 4)}}
    return (
        KernelProperty(compaction._count_segments, _count, {"elements": {**lengths, "IN": [vk.f32]}, **sizes, **_F32}),
        KernelProperty(compaction._count_segments, _count, {
            "elements": {**lengths, "IN": [vk.i32], "x": [0, 1, -1, 0, 256]}, **sizes, "dtypes": [vk.i32]},
            "_count, whole numbers"),
        KernelProperty(compaction._scan_counts, _before, {  # sums that exceed 32 bits
            "elements": {"counts": (0, 2**31 - 1)}, "dims": {"S": (0, 70)}}),
        KernelProperty(compaction_tiles.scan_counts, _before, {
            "elements": {"counts": (0, 2**31 - 1)}, "dims": {"S": [0, 1, 7, 8, 9, 2047, 2048, 2049]}}),
        KernelProperty(compaction_tiles.count_tiles, lambda x, counts, tiles: _count(x, counts, 4096 * tiles), {
            "elements": {"tiles": [1, 2], "total": "W", "LOAD": [vec4.load_element], "IN": [vk.f32], "x": [0.0, 1.5]},
            "dims": {"W": [1, 17, 4100], "S": [1, 2]}, **_F32}),
        KernelProperty(compaction._unravel, _coordinates, {
            "elements": {"flat": (0, 2**32 - 1), "strides": [1, 3, 70, 2**31 + 5], "extents": [1, 2, 7, 2**16], "C": [vk.u32]},
            "dims": {"M": (0, 40), "R": (1, 4)}}),
        KernelProperty(compaction._unravel, _coordinates, {
            "elements": {"flat": (0, 2**62), "strides": [1, 3, 2**33], "extents": [1, 7, 2**34], "C": [vk.u64]},
            "dims": {"M": (0, 40), "R": (1, 4)}}, "_coordinates, many"),
    )  # fmt: skip


# -- histograms of integers


def _ends_of_parts(x: Any, parts: Any, length: Any) -> Any:
    return np.array([[p.min(), p.max()] for p in _parts(x, len(parts), length)])


def _occurrences(x: Any, bins: int) -> Any:
    inside = x[(x >= 0) & (x < bins)].astype(np.int64)
    return np.bincount(inside, minlength=bins)


def _count_parts(x: Any, parts: Any, length: Any) -> Any:
    return np.array([_occurrences(p, parts.shape[1]) for p in _parts(x, len(parts), length)]).reshape(parts.shape)


def _ends(name: str, T: Any, R: Any) -> KernelProperty:
    """Test a kernel on parts, where the last part may lack up to three elements."""
    return KernelProperty(bincount.min_max_of_parts, _ends_of_parts, {
        "elements": {"length": "L", "SIZE": [32]}, "dtypes": {"T": [T], "R": [R]},
        "dims": {"x": "P*L-Q", "parts": "P two", "two": [2], "P": (1, 4), "L": (4, 90), "Q": (0, 3)}}, name)  # fmt: skip


def _counted() -> tuple[KernelProperty, ...]:
    around = {"x": (-2, "B")}  # includes values below the first and above the last bin
    return (
        _ends("min_max_of_parts", vk.i32, vk.i32),
        _ends("ends_of_parts, unsigned", vk.u32, vk.i64),
        _ends("ends_of_parts, long", vk.u64, vk.u64),
        KernelProperty(bincount.min_max_of_all, lambda parts: np.array([parts[:, 0].min(), parts[:, 1].max()]), {
            "elements": {"SIZE": [32]}, "dtypes": [vk.i32], "dims": {"P": (1, 100), "two": [2]}}),
        KernelProperty(bincount.count_parts, _count_parts, {
            "elements": {**around, "length": (1, 90)}, "dtypes": {"T": [vk.i32, vk.i64]},
            "dims": {"N": (0, 200), "P": (1, 4), "B": (1, 12)}}),
        KernelProperty(bincount.count_shared, lambda x, y: y + _occurrences(x, len(y)), {
            "elements": {**around, "length": (100, 400), "y": (0, 9)}, "dtypes": {"T": [vk.i32, vk.i64]},
            "dims": {"N": [1, 255, 257, 700], "B": [1, 7, 256, 257, 600]}}),
    )  # fmt: skip


# -- radix digits


def _digits(x: Any, shift: int, bins: int, DESCENDING: bool) -> Any:
    """Return the digits of unsigned numbers, or of their complements."""
    key = ~x if DESCENDING else x
    return (key.astype(np.uint64) >> np.uint64(shift)) % np.uint64(bins)


def _count_digits(x: Any, counts: Any, length: Any, shift: Any, DESCENDING: Any) -> Any:
    digits = _digits(x, shift, 256, DESCENDING)
    return np.array([[_occurrences(p, 256) for p in _parts(d, counts.shape[1], length)] for d in digits])


def _count_digits_together(x: Any, counts: Any, shift: Any, DESCENDING: Any) -> Any:
    digits = _digits(x, shift, 16, DESCENDING)
    found = [[_occurrences(p, 16) for p in _parts(d, counts.shape[2], 4096)] for d in digits]
    return np.swapaxes(np.array(found), 1, 2)


def _begin_digits(counts: Any) -> Any:
    by_digit = np.swapaxes(counts, 1, 2)
    lines = by_digit.reshape(len(counts), -1)
    return np.swapaxes((np.cumsum(lines, axis=1) - lines).reshape(by_digit.shape), 1, 2)


def _begin_digits_together(counts: Any) -> Any:
    return {"counts": np.cumsum(counts, axis=2) - counts, "totals": counts.sum(axis=2)}


def _of_digits() -> tuple[KernelProperty, ...]:
    keys = {"KEY": [merge_sort.key_unsigned], "BITS": [vk.u32], "DESCENDING": [False, True]}
    types = {"dtypes": [vk.u32]}
    few = {"counts": (0, 9)}
    return (
        KernelProperty(radix_sort.count_digits, _count_digits, {
            "elements": {**keys, "shift": [0, 8, 24], "length": (1, 40)},
            "dims": {"N": (0, 90), "L": (1, 2), "S": (1, 3), "B": [256]}, **types}),
        KernelProperty(radix_sort.scan_digits, _begin_digits, {
            "elements": few, "dims": {"L": (1, 3), "S": (1, 4), "B": [256]}}),
        KernelProperty(radix_sort.count_digits_workgroup, _count_digits_together, {
            "elements": {**keys, "shift": [0, 4, 28]},
            "dims": {"N": [1, 255, 257, 4095, 4097, 5000], "L": (1, 2), "S": [2], "B": [16]}, **types}),
        KernelProperty(radix_sort.scan_digits_workgroup, _begin_digits_together, {
            "elements": few, "dims": {"L": (1, 2), "B": (1, 4), "S": [1, 5, 255, 256, 257, 600]}}),
        KernelProperty(radix_sort_ballot.scan_tiles, _begin_digits_together, {
            "elements": {**few, "LANES": [32], "SUBGROUPS": [1, 2]}, "schedules": False,
            "dims": {"L": (1, 2), "B": (1, 4), "S": [1, 5, 255, 256, 257, 600]}}),
    )  # fmt: skip


# -- top-k along rows


def in_order(x: Any, axis: int, DESCENDING: bool) -> Any:
    """Return the indices of a stable sort; NaN sorts as the greatest."""
    if not DESCENDING:
        return np.argsort(x, axis=axis, kind="stable")
    transposed = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - transposed, axis)


def _first(x: Any, x_indices: Any, y: Any, begin: Any, FIRST: Any, DESCENDING: Any) -> Any:
    at = in_order(x, 2, DESCENDING)[:, :, : y.shape[2]]
    parts = np.arange(x.shape[1])[None, :, None] * x.shape[2]
    return {
        "y": np.take_along_axis(x, at, axis=2),
        "y_indices": begin + parts + at if FIRST else np.take_along_axis(x_indices, at, axis=2),
    }


def _first_of_lines() -> tuple[KernelProperty, ...]:
    choices = [False, True]
    either = {"begin": (0, 100), "FIRST": choices, "DESCENDING": choices}
    dims = {"x": "L S M+Q", "x_indices": "L S M+Q", "L": (1, 2), "S": (1, 3)}
    alone = {"dims": {**dims, "M": (1, 8), "Q": (0, 40)}}
    whole = {"KEY": [merge_sort.key_signed], "BITS": [vk.u32], "x": (-9, 9)}  # includes equal values
    floats = {"KEY": [merge_sort.key_f32], "BITS": [vk.u32]}
    return (
        KernelProperty(merge_sort.top_k_per_invocation, _first, {
            "elements": {**either, **whole, "MAX_ITEMS": [8]}, **alone, "dtypes": {"T": [vk.i32]}}),
        KernelProperty(merge_sort.top_k_per_invocation, _first, {
            "elements": {**either, **floats, "MAX_ITEMS": [8]}, **alone, "dtypes": {"T": [vk.f32]}}, "first_alone, floats"),
        KernelProperty(merge_sort.top_k_per_workgroup, _first, {
            "elements": {**either, "KEY": [merge_sort.key_signed], "LOCAL": [32], "MAX_ITEMS": [4]}, "schedules": False,
            "dims": {**dims, "M": (1, 8), "Q": (0, 120)}, "dtypes": {"T": [vk.i32]}}),
    )  # fmt: skip


# -- scatter


def _write(combine: Any) -> Any:
    """Combine y[a, where[a, n, b], b] with values[a, n, b], in order of n; out-of-range indices are skipped."""

    def reference(where: Any, values: Any, y: Any, FROM_END: bool, start: Any = 0, stop: Any = None) -> Any:
        made, extent = y.copy(), y.shape[1]
        lowest = -extent if FROM_END else 0
        for a, n, b in np.ndindex(*where.shape):
            if start <= n < (where.shape[1] if stop is None else stop) and lowest <= where[a, n, b] < extent:
                made[a, where[a, n, b], b] = combine(made[a, where[a, n, b], b], values[a, n, b])
        return made

    return reference


def _write_line(where: Any, values: Any, y: Any, FROM_END: bool) -> Any:
    arrays = (array[None, :, None] for array in (where, values, y))
    return _write(np.multiply)(*arrays, FROM_END)[0, :, 0]


def _winners(where: Any, last: Any, FROM_END: bool) -> Any:
    numbers = np.broadcast_to(np.arange(where.shape[1])[None, :, None], where.shape)
    return _write(np.maximum)(where, numbers, last, FROM_END)


def _last(last: Any, values: Any, y: Any) -> Any:
    named = np.take_along_axis(values, np.maximum(last, 0).astype(np.int64), axis=1)
    return np.where(last >= 0, named, y)


def _written() -> tuple[KernelProperty, ...]:
    indices = {"where": ("0-E", "E-1"), "FROM_END": [True]}
    around = {"where": ("0-E-2", "E+1"), "FROM_END": [False, True]}
    axes = {"dims": {"A": (1, 3), "E": (1, 9), "B": (1, 4), "N": (1, 12)}}
    every = {"T": [vk.i32], "U": [vk.i32], "I": [vk.i64, vk.i32]}
    types, atomic, winners, written = (
        {"dtypes": {name: every[name] for name in names}} for names in ("TUI", "TI", "I", "T")
    )
    range_of = {"start": (0, "N-1"), "stop": (1, "N")}
    return (
        KernelProperty(gather_scatter.gather_last, lambda x, where: np.take_along_axis(x, where.astype(np.int64), axis=1), {
            "elements": indices, "dims": {"A": (1, 3), "E": (1, 20), "N": (1, 40)},
            "dtypes": {"T": [vk.f32], "I": [vk.i32, vk.i64]}}),
        KernelProperty(gather_scatter.scatter_combine_serial, _write(np.subtract), {  # not commutative, so the order shows
            "elements": {**around, **range_of, "COMBINE": [_away], "C": [vk.i32]}, **axes, **types}),
        KernelProperty(gather_scatter.scatter_combine_vector, _write_line, {
            "elements": {**around, "COMBINE": [gather_scatter.multiply], "C": [vk.i32]},
            "dims": {"E": (1, 9), "N": (0, 40)}, **types}),
        KernelProperty(gather_scatter.scatter_atomic, _write(np.add), {"elements": around, **axes, **atomic}),
        KernelProperty(gather_scatter.scatter_last_writer, _winners, {"elements": {**around, "last": [-1]}, **axes, **winners}),
        KernelProperty(gather_scatter.assign_last_writer, _last, {"elements": {"last": (-1, "N-1")}, **axes, **written}),
    )  # fmt: skip


@vk.func
def _away(x, y):
    """x - y."""
    return x - y


SELECTION: tuple[KernelProperty, ...] = (
    *_selected(), *_counted(), *_of_digits(), *_first_of_lines(), *_written(),
)  # fmt: skip
