"""Ordered integer keys: minima and maxima of f32 by integer comparisons.

`keys_of` maps floats to i32 keys with the same order, on which "min" and "max" are one instruction each. On floats they
take a dozen: NaN has to propagate regardless of its sign, -0 is less than +0, and devices may flush subnormals to zero.

1. The bits of positive floats are ordered as integers; those of negative floats are in reverse order, so all bits but
   the sign are inverted. NaNs are then at both ends, by their sign.
2. NaNs at the end that would lose are moved to the other end by adding or subtracting the number of NaNs of one sign;
   the addition wraps.
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
_NAN_COUNT = 0x007FFFFF
"""The number of NaNs of each sign."""


def uses_keys(context: LoweringContext, op: str, element: Scalar) -> bool:
    """True if a reduction is computed on keys."""
    return context.options.keys and op in ("min", "max") and element.dtype is dtypes.f32


def keys_of(context: LoweringContext, op: str, values: Sequence[Value]) -> list[Value]:
    """Return the keys of floats."""
    b = context.builder
    offset = b.const(-_NAN_COUNT if op == "max" else _NAN_COUNT, _KEY)
    keys = []
    for value in values:
        ordered = _flip_negative(context, b.emit("bitcast", value, type=_KEY))
        keys.append(b.emit("add", ordered, offset))
    return keys


def floats_of(context: LoweringContext, op: str, keys: Sequence[Value]) -> list[Value]:
    """Return the floats of keys."""
    b = context.builder
    offset = b.const(-_NAN_COUNT if op == "max" else _NAN_COUNT, _KEY)
    values = [_flip_negative(context, b.emit("sub", key, offset)) for key in keys]
    return [b.emit("bitcast", value, type=Scalar(dtypes.f32)) for value in values]


def _flip_negative(context: LoweringContext, bits: Value) -> Value:
    """Invert all bits but the sign of negative numbers (rule 1). The function is its own inverse."""
    b = context.builder
    sign = b.emit("shr_raw", bits, b.const(31, _KEY))
    return b.emit("xor", bits, b.emit("and", sign, b.const(_MAGNITUDE, _KEY)))
