"""A decorator that runs functions composed of several operations in f32 if their operands are f16 or bf16.

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


def _converted(value: Any, source: DType, target: DType) -> Any:
    """Convert the tensors of type `source` in a value or (nested) sequence to `target`."""
    if isinstance(value, Tensor):
        return value.to(target) if value.dtype is source else value
    if isinstance(value, (list, tuple)):
        items = [_converted(v, source, target) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if isinstance(value, list) else tuple(items)
    return value


def computed_in_f32(function: F) -> F:
    """Decorate a function to convert 16-bit float tensors among its arguments to f32.

    If all float tensors among the arguments are of one 16-bit type, the results are converted back to that type. If
    some are f16 and the others bf16, the results stay f32. If there are other float types, nothing is converted.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        float_types = {d.name: d for d in _floats([*args, *kwargs.values()])}
        if len(float_types) == 2 and all(map(is_half, float_types.values())):  # f16 with bf16 promotes to f32
            for half in float_types.values():
                args = tuple(_converted(a, half, dtypes.f32) for a in args)
                kwargs = {k: _converted(v, half, dtypes.f32) for k, v in kwargs.items()}
        if len(float_types) != 1:
            return function(*args, **kwargs)
        [only_type] = float_types.values()
        if not is_half(only_type):
            return function(*args, **kwargs)
        converted = [_converted(a, only_type, dtypes.f32) for a in args]
        named = {k: _converted(v, only_type, dtypes.f32) for k, v in kwargs.items()}
        return _converted(function(*converted, **named), dtypes.f32, only_type)

    return run  # type: ignore[return-value]  # wraps keeps the signature
