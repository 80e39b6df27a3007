"""Cost model of launches for profiles: the bytes and operations that kernels state with `@kernel.cost`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..runtime.device import DeviceArray

__all__ = ["ArrayInfo", "Cost", "describe_argument"]


class Cost(NamedTuple):
    """The minimal bytes of global memory and floating-point operations of a launch."""

    nbytes: float = 0.0
    flops: float = 0.0


class ArrayInfo(NamedTuple):
    """An array argument as passed to a cost function; `size` in elements, `nbytes` in bytes."""

    shape: tuple[int, ...]
    size: int
    dtype: DType
    nbytes: int


def describe_argument(value: Any) -> Any:
    """Convert an argument for a cost function: arrays become `ArrayInfo`, other values are passed through."""
    array = getattr(value, "__vkjit_array__", value)
    if not isinstance(array, (np.ndarray, DeviceArray)):
        return value
    dtype = array.dtype if isinstance(array, DeviceArray) else dtypes.from_numpy(array.dtype)
    size = math.prod(array.shape)
    return ArrayInfo(tuple(array.shape), size, dtype, size * dtype.itemsize)
