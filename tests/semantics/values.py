"""Operands for the cases of the table of semantics, and the comparison of results."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.strict.operands import array_type, pairs
from vkjit import dtypes
from vkjit.dtypes import DType

__all__ = ["agree", "array_type", "bits", "counterpart", "few", "in_f32", "quietly", "several", "two"]


def two(dtype: DType) -> tuple[Any, Any]:
    """Return 64 pairs, including special values and random bits."""
    return pairs(dtype, 64, 5)


def several(dtype: DType) -> tuple[Any]:
    """Return 64 values, including special ones."""
    return (two(dtype)[0],)


def few(dtype: DType, *numbers: float) -> Any:
    """Return the numbers as an array of the type."""
    return np.array(numbers, np.float64).astype(array_type(dtype))


def bits(values: Any) -> Any:
    return np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def agree(found: Any, expected: Any, ulp: float) -> bool:
    """True if equal bit by bit, with all NaNs equal, or within `ulp` units in the last place."""
    expected = np.asarray(expected)
    if expected.dtype.name == "bfloat16":
        found = found.view(expected.dtype)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    with np.errstate(all="ignore"):
        same = bits(found) == bits(expected)
        if found.dtype.kind in "iub":
            return bool(same.all())
        same |= (found != found) & (expected != expected)
        if ulp:
            wide = expected.astype(np.float64)
            unit = np.exp2(np.frexp(wide)[1] - _digits(found.dtype))
            same |= np.abs(found.astype(np.float64) - wide) <= ulp * unit
    return bool(same.all())


def _digits(dtype: np.dtype[Any]) -> int:
    return {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}[dtype.name]


def quietly(function: Any) -> Any:
    """Return the function with NumPy's warnings turned off."""

    def compute(*operands: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*operands)

    return compute


def in_f32(function: Any) -> Any:
    """Return a version of NumPy's function that computes bf16 in f32 and rounds the result."""

    def compute(*operands: Any) -> Any:
        kind = operands[0].dtype
        with np.errstate(all="ignore"):
            if kind.name != "bfloat16":
                return function(*operands)
            return np.asarray(function(*(v.astype(np.float32) for v in operands))).astype(kind)

    return compute


def counterpart(dtype: DType) -> DType:
    """Return the integer type of the same width and the other signedness."""
    return dtypes.by_name[("u" if dtype.kind == "int" else "i") + str(dtype.bits)]
