"""Compute functions composed of several operations in f32 if their operands are f16 or bf16.

So results are rounded to 16 bits once, rather than after each operation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .. import dtypes
from ..dtypes import DType
from .tensor import Tensor

__all__ = ["computed_in_f32", "is_half"]

F = TypeVar("F", bound=Callable[..., Any])


def is_half(dtype: DType) -> bool:
    """True for 16-bit floats (f16 and bf16)."""
    return dtype.is_float and dtype.bits == 16


def _floats(value: Any) -> list[DType]:
    """Return the types of the float tensors in a value or (nested) sequence."""
    if isinstance(value, Tensor):
        return [value.dtype] if value.dtype.is_float else []
    if isinstance(value, (list, tuple)):
        return [d for v in value for d in _floats(v)]
    return []


def _as(value: Any, source: DType, target: DType) -> Any:
    """Convert the tensors of type `source` in a value or (nested) sequence to `target`."""
    if isinstance(value, Tensor):
        return value.to(target) if value.dtype is source else value
    if isinstance(value, (list, tuple)):
        items = [_as(v, source, target) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if isinstance(value, list) else tuple(items)
    return value


def computed_in_f32(function: F) -> F:
    """Decorate a function to run in f32 if all its float tensors are of one 16-bit type, and convert its results back.

    If its float tensors are of f16 and bf16, they are converted to f32 and the results stay f32. Other calls are not
    changed.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        float_types = {d.name: d for d in _floats([*args, *kwargs.values()])}
        if len(float_types) == 2 and all(map(is_half, float_types.values())):  # f16 with bf16 promotes to f32
            for half in float_types.values():
                args = tuple(_as(a, half, dtypes.f32) for a in args)
                kwargs = {k: _as(v, half, dtypes.f32) for k, v in kwargs.items()}
        if len(float_types) != 1 or not is_half(half := next(iter(float_types.values()))):
            return function(*args, **kwargs)
        converted = [_as(a, half, dtypes.f32) for a in args]
        named = {k: _as(v, half, dtypes.f32) for k, v in kwargs.items()}
        return _as(function(*converted, **named), dtypes.f32, half)

    return run  # type: ignore[return-value]  # wraps keeps the signature
