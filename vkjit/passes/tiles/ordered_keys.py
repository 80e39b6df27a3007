"""Ordered integer keys: minima and maxima of f32 by integer comparisons.

Reductions (`layout_conversion.reduce`) map floats to i32 keys with the same order, on which "min" and "max" are one
instruction each, and map the result back. On floats, "min" and "max" take a dozen instructions: NaN has to propagate
regardless of its sign, -0 is less than +0, and devices may flush subnormals to zero.

1. Read as integers, the bits of positive floats are in the order of the floats, those of negative floats in reverse
   order. Inverting all bits but the sign of negative floats gives all floats the right order, with NaNs at both ends:
   those with a sign bit below -infinity, the others above +infinity.
2. For "min" all NaNs must be at the lower end, for "max" all at the upper end. Adding or subtracting the number of NaNs
   of one sign, with wraparound, moves the NaNs at the wrong end to the other one.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkjit import dtypes
from vkjit.ir.core import Value
from vkjit.ir.types import Scalar

from .tile_state import LoweringContext

__all__ = ["floats_of", "keys_of", "uses_keys"]

_KEY = Scalar(dtypes.i32)
_MAGNITUDE = 0x7FFFFFFF
"""All bits but the sign."""
_NAN_COUNT = 0x007FFFFF
"""The number of NaNs of each sign."""


def uses_keys(context: LoweringContext, op: str, element: Scalar) -> bool:
    """True if a reduction with the operation `op` is computed on keys: minima and maxima of f32, on GPUs."""
    return context.options.ordered_keys and op in ("min", "max") and element.dtype is dtypes.f32


def keys_of(context: LoweringContext, op: str, values: Sequence[Value]) -> list[Value]:
    """Return the i32 keys of f32 values, for a reduction with `op` ("min" or "max")."""
    b = context.builder
    offset = b.const(-_NAN_COUNT if op == "max" else _NAN_COUNT, _KEY)
    keys = []
    for value in values:
        ordered = _flip_negative(context, b.emit("bitcast", value, type=_KEY))
        keys.append(b.emit("add", ordered, offset))
    return keys


def floats_of(context: LoweringContext, op: str, keys: Sequence[Value]) -> list[Value]:
    """Return the f32 values of keys that `keys_of` made for the same `op`."""
    b = context.builder
    offset = b.const(-_NAN_COUNT if op == "max" else _NAN_COUNT, _KEY)
    values = [_flip_negative(context, b.emit("sub", key, offset)) for key in keys]
    return [b.emit("bitcast", value, type=Scalar(dtypes.f32)) for value in values]


def _flip_negative(context: LoweringContext, bits: Value) -> Value:
    """Invert all bits but the sign of negative numbers (rule 1 of the module). The function is its own inverse."""
    b = context.builder
    sign = b.emit("shr_raw", bits, b.const(31, _KEY))  # an arithmetic shift: all ones for negative numbers, else 0
    return b.emit("xor", bits, b.emit("and", sign, b.const(_MAGNITUDE, _KEY)))
