"""What a launch has to move and to compute, as kernels state it for profiles (`@kernel.cost`).

Enters: the arguments of a launch. Leaves: what a cost function sees of them, and its answer, a `Cost`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from . import dtypes
from .dtypes import DType
from .runtime.interface import DeviceArray

__all__ = ["Cost", "Seen", "seen"]


class Cost(NamedTuple):
    """What a launch has to move and to compute at least: bytes of global memory, floating-point operations."""

    nbytes: float = 0.0
    flops: float = 0.0


class Seen(NamedTuple):
    """An array as a cost function sees it: shape, elements, type, bytes."""

    shape: tuple[int, ...]
    size: int
    dtype: DType
    nbytes: int


def seen(value: Any) -> Any:
    """An argument as a cost function sees it: arrays as `Seen`, all else as it is."""
    array = getattr(value, "__vkjit_array__", value)
    if not isinstance(array, (np.ndarray, DeviceArray)):
        return value
    dtype = array.dtype if isinstance(array, DeviceArray) else dtypes.from_numpy(array.dtype)
    size = math.prod(array.shape)
    return Seen(tuple(array.shape), size, dtype, size * dtype.itemsize)
