"""What the operations of neural networks share: checks of operands, and dense arrays to hand to kernels."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.mode import state
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..runtime.array import fresh_layout
from ..runtime.interface import DeviceArray
from . import creation
from .copies import contiguous
from .tensor import Tensor

__all__ = ["dense", "float_tensor", "floats", "numbers", "reduced", "result", "shaped"]


def floats(x: Any, name: str, what: str = "the input") -> Tensor:
    """x, which must be a tensor of floats."""
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"{name}(): {what} is a {type(x).__name__}, expected a tensor: make one with vk.tensor(...)"
        )
    if not x.dtype.is_float:
        raise DTypeError(f"{name}(): {what} holds {x.dtype!r}, expected floats: convert it with .to(vk.f32)")
    return x


def float_tensor(x: Any, like: Tensor, shape: tuple[int, ...], name: str, what: str) -> Tensor | None:
    """A parameter that may be None, else has like's type and that shape."""
    if x is None:
        return None
    floats(x, name, what)
    if x.dtype is not like.dtype and state.autocast is None:  # which makes one of them
        raise DTypeError(
            f"{name}(): {what} holds {x.dtype!r}, the input {like.dtype!r}: convert one of them with .to(...)"
        )
    if x.shape != shape:
        raise ShapeError(f"{name}(): {what} has shape {x.shape}, expected {shape}")
    return x  # type: ignore[no-any-return]


def numbers(value: Any, count: int, name: str, what: str, least: int = 0) -> tuple[int, ...]:
    """One int for each of `count` axes: a single one stands for all."""
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(items) == 1:
        items = items * count
    if len(items) != count or any(isinstance(i, bool) or not isinstance(i, int) or i < least for i in items):
        raise ArgumentError(
            f"{name}(): {what}={value!r}, expected an int of at least {least}, or {count} of them, one for each axis"
        )
    return items


def dense(x: Tensor) -> DeviceArray:
    """The elements in C order: x's own memory, or a copy."""
    return contiguous(x)._array


def shaped(array: DeviceArray, *shape: int) -> DeviceArray:
    """A dense array seen in another shape of as many elements."""
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, fresh_layout(shape, array.dtype)[1])


def result(shape: tuple[int, ...], dtype: DType, like: Tensor) -> Tensor:
    """An undefined tensor on the same device."""
    return Tensor(creation.allocate(shape, dtype, like.device))


def reduced(losses: Any, reduction: str, name: str) -> Tensor:
    """The mean or the sum of losses, or the losses themselves."""
    if reduction == "none":
        return losses  # type: ignore[no-any-return]
    if reduction == "sum":
        return losses.sum()  # type: ignore[no-any-return]
    if reduction == "mean":
        return losses.mean()  # type: ignore[no-any-return]
    raise ArgumentError(f'{name}(reduction=...) is "mean", "sum" or "none", found {reduction!r}')


def outer_inner(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The shape as (before the axis, along it, after it)."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
