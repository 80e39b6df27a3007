"""Compositions of 16-bit floats in one rounding: computed in f32, rounded at the end, as a kernel of its own would.

Enters: a function of tensors composed of operations. Leaves: the function, with f16 and bf16 operands widened first and
its f32 results brought back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .. import dtypes
from ..dtypes import DType
from .tensor import Tensor

__all__ = ["is_half", "widened"]

F = TypeVar("F", bound=Callable[..., Any])


def is_half(dtype: DType) -> bool:
    """Whether it is a float of 16 bits."""
    return dtype.is_float and dtype.bits == 16


def _floats(value: Any) -> list[DType]:
    if isinstance(value, Tensor):
        return [value.dtype] if value.dtype.is_float else []
    if isinstance(value, (list, tuple)):
        return [d for v in value for d in _floats(v)]
    return []


def _as(value: Any, source: DType, target: DType) -> Any:
    if isinstance(value, Tensor):
        return value.to(target) if value.dtype is source else value
    if isinstance(value, (list, tuple)):
        items = [_as(v, source, target) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if isinstance(value, list) else tuple(items)
    return value


def widened(function: F) -> F:
    """Runs the function in f32 where all its float tensors are of one 16-bit type; its results are of that type."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = {d.name: d for d in _floats([*args, *kwargs.values()])}
        if len(found) == 2 and all(map(is_half, found.values())):  # of both, whose common type is f32
            for half in found.values():
                args = tuple(_as(a, half, dtypes.f32) for a in args)
                kwargs = {k: _as(v, half, dtypes.f32) for k, v in kwargs.items()}
        if len(found) != 1 or not is_half(half := next(iter(found.values()))):
            return function(*args, **kwargs)
        wide = [_as(a, half, dtypes.f32) for a in args]
        named = {k: _as(v, half, dtypes.f32) for k, v in kwargs.items()}
        return _as(function(*wide, **named), dtypes.f32, half)

    return run  # type: ignore[return-value]  # wraps keeps the signature
