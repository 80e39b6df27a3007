"""Keys of calls: two calls with equal keys do the same host work.

A key is a flat tuple: the function's label, then what each argument adds. A tensor adds its layout (an interned object
that stands for type, shape, strides and alignment) and a mark if it requires a gradient. Any other value adds its type and the
value, so that 1, 1.0 and True, and 0.0 and -0.0, differ; containers add their items. Keywords are preceded by their name.
Layouts, types and names can't be mistaken for each other, so the key determines the arguments.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from math import copysign
from typing import Any, TypeVar

from vkjit.dtypes import DType

from ..autograd.mode import modes, recording
from ..tensor import Tensor

__all__ = ["cacheable", "call_key", "short_key"]

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


_Call = tuple[tuple[Any, ...], list[Tensor], Sequence[Any]]
"""The key of a call, its tensors in order, and their arrays."""


def call_key(label: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> _Call | None:
    """Return the key of a call, its tensors in order, and their arrays; None if the call can't be cached."""
    key: list[Any] = [label]
    tensors: list[Tensor] = []
    arrays: list[Any] = []
    requires_grad = is_sharing = False
    first: Any = operands[0] if operands else None
    if first.__class__ is list or first.__class__ is tuple:  # the same key as by `_add`, sooner
        key += (first.__class__, len(first))
        operands = (*first, *operands[1:])
    for operand in operands:
        kind: Any = operand.__class__
        if kind is Tensor:  # as `_add`, for the most frequent cases
            array = operand._array
            if array.layout is None or operand._history != operand._version.recorded:
                return None
            key.append(array.layout)
            if operand.meta.requires_grad:
                key.append(REQUIRES_GRAD)
                requires_grad = True
            for other in arrays:
                if other.buffer is array.buffer:
                    is_sharing = True
            tensors.append(operand)
            arrays.append(array)
        elif kind is int or kind is bool:
            key += (kind, operand)
        elif not _add(operand, key, tensors):
            return None
    if params and not _add_keywords(params, key, tensors):
        return None
    if len(arrays) < len(tensors):  # tensors in keywords or containers
        arrays = [tensor._array for tensor in tensors]
        requires_grad, is_sharing = REQUIRES_GRAD in key, len({array.buffer for array in arrays}) < len(arrays)
    elif not tensors:
        return None
    if is_sharing:
        _add_sharing(tensors, key)
    if requires_grad and recording.get():
        key.append(RECORDING)
    autocast = modes.get().autocast
    if autocast is not None:
        key.append(autocast)
    return tuple(key), tensors, arrays


def short_key(label: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> _Call | None:
    """Return what `call_key` returns outside of autocast, faster; None for all but the most frequent calls.

    There are one or two operands: a tensor, and a number or a tensor in another buffer.
    """
    x, y = operands[0], operands[-1]
    if x.__class__ is not Tensor or x._history != x._version.recorded or x._array.layout is None:
        return None
    a, needs = x._array, x.meta.requires_grad
    key: Any = (label, a.layout, REQUIRES_GRAD) if needs else (label, a.layout)
    tensors: list[Tensor] = [x]
    arrays: tuple[Any, ...] = (a,)
    if len(operands) == 2:
        if y.__class__ is Tensor:
            b = y._array
            if b.buffer is a.buffer or b.layout is None or y._history != y._version.recorded:
                return None
            key += (b.layout, REQUIRES_GRAD) if y.meta.requires_grad else (b.layout,)
            needs = needs or y.meta.requires_grad
            tensors, arrays = [x, y], (a, b)
        elif y.__class__ is int:
            key += (int, y)
        elif y.__class__ is float and y == y:  # NaN never matches as a dictionary key
            key += (float, y, copysign(1.0, y))
        else:
            return None
    for word, value in params.items():
        if value.__class__ in _PLAIN:
            key += (word, value.__class__, value)
        elif value.__class__ is float and value == value:
            key += (word, float, value, copysign(1.0, value))
        else:
            return None
    return (key + (RECORDING,) if needs and recording.get() else key), tensors, arrays


def _add_keywords(params: dict[str, Any], key: list[Any], tensors: list[Tensor]) -> bool:
    """Add keyword arguments to the key; return False if one can't be part of it."""
    for word, value in params.items():
        key.append(word)
        if value.__class__ in _PLAIN:
            key += (value.__class__, value)
        elif not _add(value, key, tensors):
            return False
    return True


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
        for item in value:
            if item.__class__ is int:
                key += (int, item)
            elif not _add(item, key, tensors):
                return False
        return True
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
