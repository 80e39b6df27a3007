"""Properties of kernels that consume other kernels' output: elements are moved to offsets counted before.

Each stage is launched as in the library, with parts of a few elements, so that small inputs have several parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.stdlib_properties.operations import Operation
from vkjit.stdlib.index import compaction
from vkjit.stdlib.partial_sums import scratch
from vkjit.stdlib.scan_sort import merge_sort as sort, radix_sort, radix_sort_ballot

__all__ = ["PASSES"]

SPARE = 3
"""Elements after the results that must stay unchanged."""
UNTOUCHED = -7

# -- compaction of nonzero elements


def _compacted(length: int | None) -> Any:
    """Return the indices of nonzero elements, and the values there.

    `length`: elements per segment, one segment per invocation; None: as the device class does.
    """

    def call(_: Any, xp: Any, x: Any, values: Any) -> Any:
        if xp is not vk:
            places = x.nonzero()[:, 0]
            rest = xp.full((SPARE,), UNTOUCHED)
            return xp.cat([places, rest]), xp.cat([values[places], rest.to(values.dtype)])
        x, values = x._array, values._array
        starts = compaction.segment_offsets(x) if length is None else _starts(x, length)
        total = int(vk.Tensor(starts).numpy()[-1])
        made = [vk.full((total + SPARE,), UNTOUCHED, dtype=t) for t in (vk.i64, vk.f32)]
        places, found = (m._array for m in made)
        if length is None:
            compaction.write_indices(x, starts, places)
            compaction.write_values(x, values, starts, found)
        else:
            compaction._write_indices(x, starts, places, length, vk.f32)
            compaction._gather_values(x, values, starts, found, length, vk.f32)
        return tuple(made)

    return call


def _starts(x: Any, length: int) -> Any:
    segments = -(-x.shape[0] // length)
    counts, starts = vk.zeros((segments,), dtype=vk.i32), vk.zeros((segments + 1,), dtype=vk.i64)
    compaction._count_segments(x, counts._array, length, vk.f32, 32)
    compaction._scan_counts(counts._array, starts._array)
    return starts._array


def _flags(share: float) -> Any:
    """Return an array with a given share of nonzero elements; the first and the last are nonzero unless it is 0."""

    def make(rng: Any, shape: tuple[int, ...]) -> Any:
        made = np.where(rng.random(shape) < share, rng.choice([-2.0, 0.5, 3.0], shape), 0).astype(np.float32)
        if share:
            made[0] = made[-1] = -0.25
        return made

    return make


def _lengths(*lengths: int) -> list[list[tuple[int]]]:
    return [[(n,), (n,)] for n in lengths]


def _selecting() -> list[Operation]:
    made = []
    for share, words in ((0.4, "some"), (1.0, "all"), (0.0, "none")):
        given: dict[str, Any] = {"fixed": {0: _flags(share)}, "gradients": False, "exact": True}
        made += [
            Operation(f"compaction, {words}", _compacted(9), _lengths(1, 8, 9, 10, 40), **given),
            Operation(
                f"compaction in tiles, {words}", _compacted(None), _lengths(1, 31, 4096, 4097, 9000), ("gpu",), **given
            ),
            Operation(f"compaction in many tiles, {words}", _compacted(None), _lengths(40_000), ("gpu",),
                      limits={"index.compaction.MAX_SEGMENTS": 2}, **given),
        ]  # fmt: skip
    return made


# -- radix sort


def _by_digits(key: Any, bits: int, descending: bool, length: int = 0) -> Any:
    """Sort rows stably and return values and indices; `length`: elements per tile, one tile per invocation."""

    def call(_: Any, xp: Any, x: Any) -> Any:
        if xp is not vk:
            made = xp.sort(x, dim=1, descending=descending, stable=True)
            return made[0], made[1]
        array = x._array
        if not length:
            found = radix_sort.radix_sort(array, key, bits, descending)
        else:
            found = _on_processors(array, key, bits, descending, length)
        return tuple(vk.Tensor(a) for a in found)

    return call


def _by_ranks(together: bool, descending: bool, groups: int) -> Any:
    """Like `_by_digits`, with ranks computed by subgroups; `together`: a workgroup sorts a row."""

    def call(_: Any, xp: Any, x: Any) -> Any:
        if xp is not vk:
            made = xp.sort(x, dim=1, descending=descending, stable=True)
            return made[0], made[1]
        sort = radix_sort_ballot.sort_short_rows if together else radix_sort_ballot.radix_sort
        return tuple(vk.Tensor(a) for a in sort(x._array, vk.i64, descending, groups))

    return call


def _on_processors(lines: Any, key: Any, bits: int, descending: bool, length: int) -> Any:
    """Run the CPU passes on any device, with short tiles."""
    rows, n = lines.shape
    counts = scratch((rows, -(-n // length), radix_sort.CPU_BINS), vk.i32, lines.device)
    target, other = radix_sort._pairs(lines)
    source = (lines, other[1])
    for shift in range(0, bits, 8):
        options = (key, vk.u64 if bits == 64 else vk.u32, descending)
        radix_sort.count_digits(source[0], counts, length, shift, *options)
        radix_sort.scan_digits(counts)
        radix_sort.scatter_digits(*source, *target, counts, length, shift, shift == 0, *options)
        source, target, other = target, other, target
    return source


def _whole(low: int, high: int, dtype: str) -> Any:
    return lambda rng, shape: rng.integers(low, high, shape, endpoint=True).astype(dtype)


def _floats(rng: Any, shape: tuple[int, ...]) -> Any:
    """Return values of both signs and many magnitudes, with duplicates, signed zeros and infinities."""
    made = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(np.float32)
    made[:, ::3] = rng.choice([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf], made[:, ::3].shape)
    return made


def _sorting() -> list[Operation]:
    given: dict[str, Any] = {"gradients": False, "exact": True}
    bytes_, few = {"fixed": {0: _whole(0, 255, "uint8")}, **given}, {"fixed": {0: _whole(-300, 300, "int32")}, **given}
    long: dict[str, Any] = {"fixed": {0: _whole(-(2**62), 2**62, "int64")}, **given}
    floats: dict[str, Any] = {"fixed": {0: _floats}, **given}
    unsigned, signed = sort.key_unsigned, sort.key_signed
    return [
        Operation("sort by digits", _by_digits(unsigned, 8, False, 20), [[(2, 50)], [(1, 1)], [(3, 20)]], **bytes_),
        Operation("sort by digits, descending", _by_digits(signed, 32, True, 20), [[(2, 50)]], **few),
        Operation("sort by digits, floats", _by_digits(sort.key_f32, 32, False, 30), [[(1, 64)]], **floats),
        Operation("sort by digits, large tiles", _by_digits(unsigned, 8, False), [[(2, 50)], [(1, 1)], [(2, 4200)]], ("gpu",),
                  **bytes_),
        Operation("sort by digits, descending in large tiles", _by_digits(signed, 32, True), [[(2, 600)], [(1, 8300)]], ("gpu",),
                  **few),
        Operation("sort by digits, floats in large tiles", _by_digits(sort.key_f32, 32, False), [[(1, 700)]], ("gpu",), **floats),
        Operation("sort by ranks", _by_ranks(False, False, 4), [[(2, 50)], [(1, 1)], [(2, 600)]], ("gpu",), **bytes_),
        Operation("sort by ranks, descending", _by_ranks(False, True, 4), [[(1, 600)]], ("gpu",), **few),
        Operation("sort by ranks, floats", _by_ranks(False, False, 2), [[(1, 300)]], ("gpu",), **floats),
        Operation("sort by ranks, many tiles", _by_ranks(False, False, 1), [[(1, 2200)]], ("gpu",),
                  limits={"scan_sort.radix_sort_ballot.MAX_TILES_WITHOUT_SCAN": 2}, **floats),
        Operation("sort by ranks, rows", _by_ranks(True, False, 0), [[(2, 50)], [(1, 1)], [(2, 300)]], ("gpu",), **floats),
        Operation("sort by ranks, rows descending", _by_ranks(True, True, 4), [[(2, 130)]], ("gpu",), **few),
        Operation("sort by digits, long", _by_digits(sort.key_i64, 64, False), [[(2, 300)]], ("gpu", "llvm"), **long),
    ]  # fmt: skip


PASSES: tuple[Operation, ...] = (*_selecting(), *_sorting())
