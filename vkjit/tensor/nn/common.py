"""Helpers shared by the neural-network operations: operand checks, and dense arrays for kernels."""

from __future__ import annotations

import math
from typing import Any

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.array import fresh_layout
from vkjit.runtime.device import DeviceArray

from ..autograd.mode import modes
from ..memory import allocate
from ..ops.copies import contiguous
from ..tensor import Tensor

__all__ = ["allocate_like", "apply_reduction", "check_float", "check_parameter", "dense", "dense_view", "int_per_axis"]


def check_float(x: Any, name: str, what: str = "the input") -> Tensor:
    """Return x after checking that it is a float tensor.

    `name` (the function) and `what` (the operand) are for error messages.
    """
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"{name}(): {what} is a {type(x).__name__}, expected a tensor: make one with vk.tensor(...)"
        )
    if not x.dtype.is_float:
        raise DTypeError(f"{name}(): {what} holds {x.dtype!r}, expected floats: convert it with .to(vk.f32)")
    return x


def check_parameter(x: Any, like: Tensor, shape: tuple[int, ...], name: str, what: str) -> Tensor | None:
    """Return the optional parameter x after checking that it has the dtype of `like` and the given shape.

    `name` (the function) and `what` (the operand) are for error messages.
    """
    if x is None:
        return None
    check_float(x, name, what)
    if x.dtype is not like.dtype and modes.get().autocast is None:  # autocast unifies the dtypes
        raise DTypeError(
            f"{name}(): {what} holds {x.dtype!r}, the input {like.dtype!r}: convert one of them with .to(...)"
        )
    if x.shape != shape:
        raise ShapeError(f"{name}(): {what} has shape {x.shape}, expected {shape}")
    return x  # type: ignore[no-any-return]


def int_per_axis(value: Any, count: int, name: str, what: str, minimum: int = 0) -> tuple[int, ...]:
    """Return `value`, an int or one int per axis, as a tuple of `count` ints. A single int is repeated for all axes.

    Raises ArgumentError if an int is below `minimum`; the message names the function `name` and the option `what`.
    """
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(items) == 1:
        items = items * count
    if len(items) != count or any(isinstance(i, bool) or not isinstance(i, int) or i < minimum for i in items):
        raise ArgumentError(
            f"{name}(): {what}={value!r}, expected an int of at least {minimum}, or {count} of them, one for each axis"
        )
    return items


def dense(x: Tensor) -> DeviceArray:
    """Return the elements of x as a contiguous array in C order: x's own memory if it is contiguous, else a copy."""
    array = x._array
    return array if array.spec_class.contiguous else contiguous(x)._array


def dense_view(array: DeviceArray, *shape: int) -> DeviceArray:
    """Return a view of a contiguous array with another shape, which must have the same number of elements."""
    # fresh_layout returns (bytes, strides)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, fresh_layout(shape, array.dtype)[1])


def allocate_like(shape: tuple[int, ...], dtype: DType, like: Tensor) -> Tensor:
    """Allocate an uninitialized tensor of the given shape and dtype on the device of `like`."""
    return Tensor(allocate(shape, dtype, like.device))


def apply_reduction(losses: Any, reduction: str, name: str) -> Tensor:
    """Return the mean or the sum of the losses as a 0-d tensor, or the losses unchanged if `reduction` is "none".

    `name` (the function) is for error messages.
    """
    if reduction == "none":
        return losses  # type: ignore[no-any-return]
    if reduction == "sum":
        return losses.sum()  # type: ignore[no-any-return]
    if reduction == "mean":
        return losses.mean()  # type: ignore[no-any-return]
    raise ArgumentError(f'{name}(reduction=...) is "mean", "sum" or "none", found {reduction!r}')


def outer_inner(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return a shape merged into three axes: (product of the sizes before `axis`, its size, product of those after)."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
