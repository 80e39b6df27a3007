"""Memory of tensors: allocate device arrays, convert host values to a type's storage format, and fill with a scalar."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..ir import semantics
from ..runtime.array import fresh_layout
from ..runtime.device import Device, DeviceArray

__all__ = ["allocate", "as_int", "check_fits", "fitted", "to_storage", "write_value"]

_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": math.inf}
"""The largest finite numbers of the float types; no Python float exceeds f64."""


def as_int(value: Any, what: str, low: int | None = None) -> int:
    """Return an argument as an int. Raises ArgumentError, naming it `what`, if it isn't an int of at least `low`."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and (low is None or value >= low):
        return int(value)
    at_least = "" if low is None else f" of at least {low}"
    raise ArgumentError(f"{what} is {value!r}: expected an int{at_least}")


def check_fits(value: Any, dtype: DType) -> None:
    """Raise DTypeError for a number that `dtype` can't hold: beyond its range, or not finite for an integer type.

    As in PyTorch, fractions are dropped and precision is lost silently, and unsigned types take negative numbers, which
    wrap, down to the negative of their largest number.
    """
    if dtype.kind == "bool":
        return
    if dtype.is_integer:
        limits = np.iinfo(dtype.storage)
        low: Any = limits.min or -limits.max
        high: Any = limits.max
        fits = math.isfinite(value) if isinstance(value, (float, np.floating)) else True
        fits = fits and low <= int(value) <= high
    else:
        largest = _LARGEST[dtype.name]
        try:
            fits = not largest < abs(float(value)) < math.inf
        except OverflowError:  # an int beyond f64
            fits = False
        low, high = -largest, largest
    if not fits:
        number = value if not isinstance(value, int) or value.bit_length() <= 128 else f"of {value.bit_length()} bits"
        raise DTypeError(
            f"the number {number} is out of range for {dtype!r} ({low} to {high}): give one in that range, or another dtype"
        )


def allocate(shape: tuple[int, ...], dtype: DType, device: Device) -> DeviceArray:
    """Return a new uninitialized contiguous array.

    The size of its buffer is a multiple of 4 bytes, so that `write_value` can fill it in 32-bit words.
    """
    nbytes, strides = fresh_layout(shape, dtype)
    return DeviceArray(device.allocate(nbytes), 0, dtype, shape, strides)


def fitted(value: Any, dtype: DType) -> Any:
    """Return a number to be stored as `dtype`: for bool its truth, for unsigned types not negative.

    Raises DTypeError for numbers that don't fit, as `check_fits` does.
    """
    if dtype.kind == "bool":
        return bool(value)
    check_fits(value, dtype)
    wraps = dtype.is_integer and value < 0 and np.iinfo(dtype.storage).min == 0
    return int(value) % 2 ** (8 * dtype.itemsize) if wraps else value


def to_storage(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Convert values to the NumPy type that stores `dtype` in memory (uint16 for bf16); the result is contiguous.

    Conversion to bf16 rounds to nearest, ties to even. Floats converted to integers saturate, NaN gives 0.
    """
    if dtype.is_integer and values.dtype.kind == "f":
        # as in kernels: saturates, NaN gives 0
        return np.ascontiguousarray(semantics.cast(values, dtypes.f64, dtype))
    if dtype is not dtypes.bf16:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(values, dtype=dtype.storage).reshape(values.shape)
    with np.errstate(over="ignore"):
        rounded = semantics.to_bf16(np.ascontiguousarray(values).reshape(values.shape))
    stored: npt.NDArray[Any] = (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return stored


def write_value(array: DeviceArray, value: Any) -> None:
    """Fill a contiguous array with a scalar.

    The array must start at a multiple of 4 bytes. It is filled in 32-bit words, so up to 3 bytes after its end are
    overwritten.
    """
    count = math.prod(array.shape)
    if count == 0:
        return
    value_type: Any = type(value)
    # as keys of the cache, 0.0 and -0.0 are equal, so they bypass it
    cached = value_type is int or value_type is bool or (value_type is float and value != 0)
    bits, word = (_pattern if cached else _pattern.__wrapped__)(value_type, value, array.dtype)
    if word is not None:
        array.device.fill(array.buffer, array.offset, (count * array.dtype.itemsize + 3) & ~3, word)
        return
    from ..stdlib.elementwise import maps

    flat = DeviceArray(array.buffer, array.offset, dtypes.u64, (count,), (1,))
    maps.fill(dtypes.i64)(bits, flat)  # a bitwise fill, independent of the type


@functools.lru_cache(maxsize=1024)
def _pattern(value_type: Any, value: Any, dtype: DType) -> tuple[int, int | None]:  # noqa: ARG001  # 1 and True are equal keys
    """Return (bits, word), the two forms in which `write_value` fills memory with a scalar of type `dtype`.

    `word` is the 32-bit word that, repeated, fills memory with the scalar, or None for a 64-bit value whose halves
    differ. `bits` are the bits of a 64-bit value as an i64, 0 for narrower types. `value_type`, the value's type, is
    only part of the cache's key, since 1 and True are equal. Raises DTypeError if the type can't hold the scalar.
    """
    check_fits(value, dtype)
    if dtype.is_float and isinstance(value, int):
        value = float(value)  # NumPy has no type for large ints
    stored = to_storage(np.asarray(value if dtype.kind != "bool" else bool(value)), dtype).reshape(1)
    words = np.tile(stored, max(1, 4 // dtype.itemsize)).view(np.uint32)
    bits = int(stored.view(np.int64)[0]) if len(words) > 1 else 0
    return bits, int(words[0]) if len(words) == 1 or words[0] == words[1] else None
