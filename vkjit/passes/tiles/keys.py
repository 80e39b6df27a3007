"""Extremes of floats by whole numbers that are ordered as these are.

Enters: the values of a reduction by "min" or "max". Leaves: as many i32, of which one instruction tells the extreme, while floats
take a dozen: a NaN has to pass on whichever its sign, -0 is less than +0, and devices may take subnormal numbers for zeros.

1. Bits of positive floats are ordered as they are; those of negative ones the other way round, so all but the sign are turned.
   Then NaNs stand at both ends, by their sign.
2. NaNs beyond the end where they would lose are moved around to the other end, by adding what moves the last infinity to the
   end itself; sums wrap.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import dtypes
from ...ir.core import Value
from ...ir.types import Scalar
from .held import Workshop

__all__ = ["keyed", "keys_of", "numbers_of"]

_KEY = Scalar(dtypes.i32)
_MAGNITUDE = 0x7FFFFFFF
_NANS = 0x007FFFFF
"""How many NaNs there are of each sign."""


def keyed(shop: Workshop, op: str, element: Scalar) -> bool:
    """Whether a reduction goes by keys."""
    return shop.options.keys and op in ("min", "max") and element.dtype is dtypes.f32


def keys_of(shop: Workshop, op: str, values: Sequence[Value]) -> list[Value]:
    """The keys of floats."""
    b = shop.builder
    moved = b.const(-_NANS if op == "max" else _NANS, _KEY)
    found = []
    for value in values:
        turned = _turned(shop, b.emit("bitcast", value, type=_KEY))
        found.append(b.emit("add", turned, moved))
    return found


def numbers_of(shop: Workshop, op: str, keys: Sequence[Value]) -> list[Value]:
    """The floats of keys."""
    b = shop.builder
    moved = b.const(-_NANS if op == "max" else _NANS, _KEY)
    bits = [_turned(shop, b.emit("sub", key, moved)) for key in keys]
    return [b.emit("bitcast", value, type=Scalar(dtypes.f32)) for value in bits]


def _turned(shop: Workshop, bits: Value) -> Value:
    """Negative numbers with all bits but the sign turned (rule 1), which is its own reverse."""
    b = shop.builder
    sign = b.emit("shr_raw", bits, b.const(31, _KEY))
    return b.emit("xor", bits, b.emit("and", sign, b.const(_MAGNITUDE, _KEY)))
