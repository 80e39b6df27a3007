"""Comparison of two outcomes of a generated program.

Arrays are compared bitwise, except that all NaNs are equal. Arrays that `Program.tolerances` lists hold results of
inexact operations, which are compared within error bounds. Such an array has a row for each invocation and a column for
each inexact computation of the program: a single operation, or a formula of sums and products. The error bound of a
column is a number of ULP, relative to a scale for each result. The scale of a single operation is the magnitude of its
result. The scale of a formula is the same formula on the magnitudes of its operands, which the program stores in a
second array of the same shape; if the scale overflows or nearly does, every result is accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.ir.types import Array

from .execute import Outcome
from .program import Layout, Program

__all__ = ["difference"]


def difference(program: Program, found: Outcome, expected: Outcome) -> str:
    """Describe the first difference between an outcome and the expected one; "" if there is none.

    Buffers aren't compared after a BoundsError: the invalid access ends a run of the interpreter, but not of devices.
    """
    if found.error != expected.error:
        return f"raised {found.error or 'nothing'}, expected {expected.error or 'nothing'}"
    if found.lines != expected.lines:
        return f"printed {found.lines[:4]}, expected {expected.lines[:4]}"
    if expected.error == "BoundsError":
        return ""
    # parameters that hold scales of inexact results; they aren't compared
    scales = {entry[1] for entry in program.tolerances.values()}
    for number, param in enumerate(program.module.kernel.params):
        if number not in expected.buffers or number in scales:
            continue
        assert isinstance(param.type, Array)
        found_buffer = found.buffers[number]
        expected_buffer = expected.buffers[number]
        differs = ~_same(found_buffer, expected_buffer, param.type)
        if differs.any() and number in program.tolerances:
            differs &= ~_within(program, number, found, expected)
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            count = int(differs.sum())
            return (
                f"%{param.name}, place {at} of its buffer: found {found_buffer[at]!r}, "
                f"expected {expected_buffer[at]!r} ({count} places differ)"
            )
    return ""


def _same(a: npt.NDArray[Any], b: npt.NDArray[Any], type: Array) -> npt.NDArray[np.bool_]:
    """Return the mask of elements that are bitwise equal, or both NaN. `type` is the type of the array."""
    if type.dtype is dtypes.bf16:
        # NaN: all bits of the exponent and at least one of the mantissa are set
        nan = ((a & 0x7FFF) > 0x7F80) & ((b & 0x7FFF) > 0x7F80)
        return np.asarray((a == b) | nan)
    if a.dtype.kind == "f":
        bits = np.dtype(f"u{a.itemsize}")
        return np.asarray((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b)))
    return np.asarray(a.view(np.uint8) == b.view(np.uint8)) if a.dtype.kind == "b" else np.asarray(a == b)


def _within(program: Program, number: int, found: Outcome, expected: Outcome) -> npt.NDArray[np.bool_]:
    """Return a mask over the buffer of parameter `number`: True for inexact results that are within their bounds.

    Results in columns without a bound, and elements of the buffer outside the array, are False.
    """
    bounds, scale_number = program.tolerances[number]
    layout = program.layouts[number]
    assert layout is not None
    found_rows, expected_rows = (_rows(outcome.buffers[number], layout) for outcome in (found, expected))
    scale_layout = program.layouts[scale_number]
    assert scale_layout is not None
    scale = _rows(expected.buffers[scale_number], scale_layout)
    info = np.finfo(expected_rows.dtype)
    width = expected_rows.shape[1]
    ulps = np.array([*bounds, *[0.0] * width][:width])  # the bound of each column, 0 for columns that aren't in use
    near_maximum = float(info.max) * (1 - 16 * float(info.eps))
    with np.errstate(all="ignore"):
        magnitude = np.maximum(np.abs(expected_rows), scale).astype(np.float64)
        expected_values, found_values = expected_rows.astype(np.float64), found_rows.astype(np.float64)
        # `tiny` is the smallest normal number: smaller results may be flushed to zero
        slack = ulps * float(info.eps) * magnitude + 2 * float(info.tiny)
        within = np.abs(found_values - expected_values) <= slack
        within |= (expected_values == found_values) | (np.isnan(expected_values) & np.isnan(found_values))
        is_formula = scale != 0  # single operations store no scale
        # intermediate results of a formula may have overflowed on one executor only, since executors may fuse
        # operations; near the maximum (and if the magnitude is NaN, hence `~` instead of `>=`) any result is accepted
        within |= is_formula & ~(magnitude < float(info.max) / 4)
        # a single operation may overflow to infinity or round to the largest finite number
        within |= (
            ~is_formula
            & (np.abs(expected_values) > near_maximum)
            & (np.abs(found_values) > near_maximum)
            & (np.sign(found_values) == np.sign(expected_values))
        )
    mask = np.zeros(len(found.buffers[number]), np.bool_)
    _rows(mask, layout)[...] = within & (ulps > 0)
    return mask


def _rows(buffer: npt.NDArray[Any], layout: Layout) -> npt.NDArray[Any]:
    """Return the 2D view of a contiguous array."""
    rows, columns = layout.shape
    return buffer[layout.first : layout.first + rows * columns].reshape(rows, columns)
