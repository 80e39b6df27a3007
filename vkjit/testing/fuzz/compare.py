"""Comparison of two outcomes of a generated program.

Arrays are compared bitwise, except that all NaNs are equal. Arrays that `Program.tolerances` lists hold results of
inexact operations, which are compared within error bounds. The bound of a column is a number of ULP of a scale. The
scale of a single operation is the magnitude of its result. The scale of a formula of sums and products is the same
formula on the magnitudes of its operands; if it overflows or nearly does, every result is accepted.
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
    """Describe the first difference; "" if there is none."""
    if found.error != expected.error:
        return f"raised {found.error or 'nothing'}, expected {expected.error or 'nothing'}"
    if found.lines != expected.lines:
        return f"printed {found.lines[:4]}, expected {expected.lines[:4]}"
    scales = {entry[1] for entry in program.tolerances.values()}
    for number, param in enumerate(program.module.kernel.params):
        if number not in expected.buffers or number in scales:
            continue
        assert isinstance(param.type, Array)
        a, b = found.buffers[number], expected.buffers[number]
        bad = ~_same(a, b, param.type)
        if bad.any() and number in program.tolerances:
            bad &= ~_within(program, number, found, expected)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            count = int(bad.sum())
            return (
                f"%{param.name}, place {at} of its buffer: found {a[at]!r}, expected {b[at]!r} ({count} places differ)"
            )
    return ""


def _same(a: npt.NDArray[Any], b: npt.NDArray[Any], type: Array) -> npt.NDArray[np.bool_]:
    if type.dtype is dtypes.bf16:
        nan = ((a & 0x7FFF) > 0x7F80) & ((b & 0x7FFF) > 0x7F80)
        return np.asarray((a == b) | nan)
    if a.dtype.kind == "f":
        bits = np.dtype(f"u{a.itemsize}")
        return np.asarray((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b)))
    return np.asarray(a.view(np.uint8) == b.view(np.uint8)) if a.dtype.kind == "b" else np.asarray(a == b)


def _within(program: Program, number: int, found: Outcome, expected: Outcome) -> npt.NDArray[np.bool_]:
    """Return a mask over the buffer of parameter `number`: True for inexact results that are within their bounds."""
    bounds, scale_number = program.tolerances[number]
    layout = program.layouts[number]
    assert layout is not None
    a, b = (_rows(outcome.buffers[number], layout) for outcome in (found, expected))
    scale_layout = program.layouts[scale_number]
    assert scale_layout is not None
    scale = _rows(expected.buffers[scale_number], scale_layout)
    info = np.finfo(b.dtype)
    width = b.shape[1]
    ulps = np.array([*bounds, *[0.0] * width][:width])
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(b), scale).astype(np.float64)
        exact, near = b.astype(np.float64), a.astype(np.float64)
        slack = ulps * float(info.eps) * size + 2 * float(info.tiny)
        good = np.abs(near - exact) <= slack
        good |= (exact == near) | (np.isnan(exact) & np.isnan(near))
        summed = scale != 0  # single operations store no scale
        # intermediate results may have overflowed on one executor only, in any order of operations
        good |= summed & ~(size < float(info.max) / 4)
        # a single operation may overflow to infinity or round to the largest finite number
        good |= (
            ~summed
            & (np.abs(exact) > float(info.max) * (1 - 16 * float(info.eps)))
            & (np.abs(near) > float(info.max) * (1 - 16 * float(info.eps)))
            & (np.sign(near) == np.sign(exact))
        )
    spread = np.zeros(len(found.buffers[number]), np.bool_)
    _rows(spread, layout)[...] = good & (ulps > 0)
    return spread


def _rows(buffer: npt.NDArray[Any], layout: Layout) -> npt.NDArray[Any]:
    """Return the 2D view of a contiguous array."""
    rows, columns = layout.shape
    return buffer[layout.first : layout.first + rows * columns].reshape(rows, columns)
