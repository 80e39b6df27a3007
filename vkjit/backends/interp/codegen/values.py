"""How a value of the IR looks while many invocations run in lockstep, and the masks that say which of them take part.

A batch has G workgroups of L invocations. A scalar value is an array of shape (g, l), where g is G or 1 and l is L or
1: what is equal in all workgroups, or in all invocations, is held once and broadcast by NumPy. A vector value has its
components first: (size, g, l). The NumPy type is the `numpy` attribute of the value's dtype, always.

A mask is None when every invocation of the batch takes part, `DEAD` when none does, else a boolean array (g, l).
Invocations outside the mask hold garbage: nothing but loads, stores and results that leave the program needs the mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir import semantics
from vkjit.ir.types import Matrix, Scalar, Tile, Type, Vector

__all__ = ["DEAD", "Accumulator", "Lanes", "Mask", "literal", "merge", "narrow", "poison", "union"]

Lanes = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_] | None

DEAD: npt.NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)
"""The mask without invocations; compared by identity."""

POISON_BYTE = 0xAA
"""Fresh memory holds NaN in floats and this byte everywhere else; so does the value of the operation `poison`."""


def element_type(type: Type) -> DType:
    """The dtype of a scalar, vector or matrix type."""
    if isinstance(type, (Scalar, Vector, Matrix, Tile)):
        return type.dtype
    raise InternalError(f"expected the type of a scalar or a vector, found {type}")


def poison_number(dtype: DType) -> Any:
    """The element (as carried in NumPy) that fresh memory holds."""
    if dtype.is_float:
        return dtype.numpy.type(np.nan)
    if dtype is dtypes.boolean:
        return np.True_
    return np.frombuffer(bytes([POISON_BYTE]) * dtype.itemsize, dtype=dtype.numpy)[0]


def number(value: Any, dtype: DType) -> Any:
    """A Python number as a NumPy scalar of a dtype: integers wrap, bf16 is rounded."""
    if dtype.is_integer:
        bits = dtype.bits
        wrapped = int(value) & ((1 << bits) - 1)
        return dtype.numpy.type(wrapped - (1 << bits) if dtype.is_signed and wrapped >> (bits - 1) else wrapped)
    if dtype is dtypes.boolean:
        return np.bool_(bool(value))
    return semantics.to_bf16(np.asarray(value))[()] if dtype is dtypes.bf16 else dtype.numpy.type(value)


def literal(value: Any, type: Type) -> Lanes:
    """A value equal in all invocations: a number (splat over vectors), or a sequence with one number per component."""
    dtype = element_type(type)
    with semantics.silence_warnings():
        if not isinstance(type, Vector):
            return np.full((1, 1), number(value, dtype), dtype=dtype.numpy)
        parts = [value] * type.size if np.ndim(value) == 0 else list(value)
        if len(parts) != type.size:
            raise InternalError(f"expected {type.size} components for {type}, found {len(parts)}")
        return np.array([number(part, dtype) for part in parts], dtype=dtype.numpy).reshape(type.size, 1, 1)


def poison(type: Type) -> Lanes:
    """The value of the operation `poison`."""
    dtype = element_type(type)
    shape = (type.size, 1, 1) if isinstance(type, (Vector, Tile)) else (1, 1, 1) if isinstance(type, Matrix) else (1, 1)
    return np.full(shape, poison_number(dtype), dtype=dtype.numpy)


def narrow(mask: Mask, condition: npt.NDArray[np.bool_]) -> Mask:
    """The invocations of `mask` where `condition` holds: None for all of the batch, DEAD for none."""
    both = condition if mask is None else mask & condition
    count = np.count_nonzero(both)
    if count == 0:
        return DEAD
    return None if count == both.size else both


def union(first: Mask, second: Mask) -> Mask:
    """The invocations in either mask."""
    if first is DEAD:
        return second
    if second is DEAD:
        return first
    if first is None or second is None:
        return None
    both = first | second
    return None if both.all() else both


def merge(condition: npt.NDArray[np.bool_], first: Any, second: Any) -> Any:
    """`first` where the condition holds, else `second`."""
    if first is second:
        return first
    if not isinstance(first, np.ndarray):
        raise InternalError("arrays can't be chosen by control flow")
    return np.where(condition, first, second)


class Accumulator:
    """Invocations that have arrived at a place by several ways, and the values that they brought."""

    __slots__ = ("mask", "values")

    def __init__(self) -> None:
        self.mask: Mask = DEAD
        self.values: list[Any] = []

    def add(self, mask: Mask, values: Sequence[Any]) -> None:
        """Takes in the invocations of `mask`, which weren't here before."""
        if mask is DEAD:
            return
        if self.mask is DEAD or mask is None:
            self.mask, self.values = mask, list(values)
            return
        if values:
            self.values = [merge(mask, new, old) for new, old in zip(values, self.values, strict=True)]
        self.mask = union(self.mask, mask)
