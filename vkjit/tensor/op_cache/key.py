"""Keys of calls: two calls with equal keys do the same host work.

A key is a flat tuple: the function's label, then what each argument adds. A tensor adds its layout (an interned object
that stands for type, shape, strides and alignment) and a mark if it requires a gradient. Any other value adds its type and the
value, so that 1, 1.0 and True, and 0.0 and -0.0, differ; containers add their items. Keywords are preceded by their name.
Layouts, types and names can't be mistaken for each other, so the key determines the arguments.
"""

from __future__ import annotations

import weakref
from dataclasses import fields, is_dataclass
from math import copysign
from typing import Any, TypeVar

from vkjit.dtypes import DType

from ..autograd.mode import state
from ..tensor import Tensor

__all__ = ["cacheable", "call_key", "simple_key"]

K = TypeVar("K", bound=type)

REQUIRES_GRAD = object()
"""Follows the layout of a tensor that requires a gradient."""
RECORDING = object()
"""Ends the key of a call that autograd may record."""

_PLAIN: set[type] = {int, bool, str, type(None), DType}
_TENSORS: set[type] = {Tensor}
_FIELDS: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""The fields of frozen dataclasses, which become part of the key; () for other classes."""


def cacheable(kind: K) -> K:
    """Decorate a class whose instances may be arguments of cached calls.

    Tensor subclasses must behave as plain tensors; other classes must be values that are equal only if they request the
    same work.
    """
    (_TENSORS if issubclass(kind, Tensor) else _PLAIN).add(kind)
    return kind


def call_key(
    label: Any, operands: tuple[Any, ...], params: dict[str, Any]
) -> tuple[tuple[Any, ...], list[Tensor]] | None:
    """Return the key of a call and its tensors in order, or None if the call can't be cached."""
    key: list[Any] = [label]
    tensors: list[Tensor] = []
    for operand in operands:
        kind: Any = operand.__class__
        if kind is Tensor:  # as `_add`, for the most frequent cases
            layout = operand._array.layout
            if layout is None or operand._history != operand._version.recorded:
                return None
            key.append(layout)
            if operand.meta.requires_grad:
                key.append(REQUIRES_GRAD)
            tensors.append(operand)
        elif kind in _PLAIN:
            key += (kind, operand)
        elif not _add(operand, key, tensors):
            return None
    if params:
        for word, value in params.items():
            key.append(word)
            if value.__class__ in _PLAIN:
                key += (value.__class__, value)
            elif not _add(value, key, tensors):
                return None
    if not tensors:
        return None
    if len(tensors) > 2 or tensors[0]._array.buffer is tensors[-1]._array.buffer:
        _add_sharing(tensors, key)  # adds nothing for a single tensor
    if state.enabled and REQUIRES_GRAD in key:
        key.append(RECORDING)
    if state.autocast_dtype is not None:
        key.append(state.autocast_dtype)
    return tuple(key), tensors


def simple_key(label: Any, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the key of a call and the arrays of its tensors, faster than `call_key`, whose keys it gives.

    For calls on tensors in different buffers, of which none requires a gradient, and numbers; None for other calls.
    """
    x = operands[0]
    if x.__class__ is not Tensor or x.meta.requires_grad or x._history != x._version.recorded:
        return None
    a: Any = x._array
    count = len(operands)
    if count == 1:
        return (label, a.layout), (a,)
    if count == 2:
        y: Any = operands[1]
        if y.__class__ is Tensor:
            b = y._array
            if b.buffer is a.buffer or y.meta.requires_grad or y._history != y._version.recorded:
                return None
            return (label, a.layout, b.layout), (a, b)
        if y.__class__ is int:
            return (label, a.layout, int, y), (a,)
    key: tuple[Any, ...] = (label, a.layout)
    arrays: tuple[Any, ...] = (a,)
    for y in operands[1:]:
        if y.__class__ is Tensor:
            array = y._array
            if y.meta.requires_grad or y._history != y._version.recorded:
                return None
            for other in arrays:
                if other.buffer is array.buffer:
                    return None
            arrays += (array,)
            key += (array.layout,)
        elif y.__class__ is float:
            key += (float, y, copysign(1.0, y))
        elif y.__class__ is int:
            key += (int, y)
        else:
            return None
    return key, arrays


def _add(value: Any, key: list[Any], tensors: list[Tensor]) -> bool:
    """Add an argument to the key; return False if it can't be part of one."""
    kind: Any = value.__class__
    if kind in _TENSORS:
        layout = value._array.layout
        key.append(layout)
        if value.meta.requires_grad:
            key.append(REQUIRES_GRAD)
        tensors.append(value)
        return layout is not None and value._history == value._version.recorded
    if kind is float:
        key += (kind, value, copysign(1.0, value))
        return bool(value == value)  # NaN never matches as a dictionary key
    if kind in _PLAIN:
        key += (kind, value)
        return True
    if kind is tuple or kind is list:
        key += (kind, len(value))
        return all(_add(item, key, tensors) for item in value)
    if kind is slice:
        key.append(kind)
        return all(_add(item, key, tensors) for item in (value.start, value.stop, value.step))
    if value is Ellipsis:
        key.append(kind)
        return True
    names = _FIELDS.get(kind)
    if names is None:
        frozen = is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009  # unknown to its stubs
        names = _FIELDS[kind] = tuple([f.name for f in fields(kind)]) if frozen else ()
    key.append(kind)
    return bool(names) and all(_add(getattr(value, name), key, tensors) for name in names)


def _add_sharing(tensors: list[Tensor], key: list[Any]) -> None:
    """Add which tensors share a buffer: how far apart they are, and the first with the same autograd data and version."""
    for i, tensor in enumerate(tensors):
        for j in range(i):
            if tensors[j]._array.buffer is tensor._array.buffer:
                same_meta = next(k for k in range(j, i + 1) if tensors[k].meta is tensor.meta)
                same_version = next(k for k in range(j, i + 1) if tensors[k]._version is tensor._version)
                distance = tensor._array.descriptor[0] - tensors[j]._array.descriptor[0]
                key += ("shared", i, j, distance, same_meta, same_version)
                break
