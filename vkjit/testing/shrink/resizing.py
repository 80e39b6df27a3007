"""Resize a case: crop or repeat its arrays to fit, and clip values to their ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..cases.case import ArrayInput, Case
from ..cases.layouts import C_ORDER
from ..generate.elements import Domain
from ..generate.strategies import MAX_ELEMENTS, Drawing, dtype_of_param, scalar_of

__all__ = ["Resize", "smaller_sizes"]


class Resize:
    """A resizing step for cases, which crops arrays at their end, or at their beginning with `from_end`."""

    def __init__(self, drawing: Drawing, from_end: bool = False) -> None:
        self.drawing = drawing
        self.from_end = from_end

    def resized(self, case: Case, env: dict[str, Any]) -> Case | None:
        """Return the case with other sizes; arrays that grow repeat their values. None if that isn't possible."""
        if self.drawing.dimensions.loose_counts():
            return None
        shapes = self.drawing.dimensions.shapes(env, {})
        if shapes is None:
            return None
        arguments = dict(case.arguments)
        for name, given in case.arrays().items():
            shape = shapes[name]
            values = given.values
            if values is not None:
                if values.size == 0 and 0 not in shape:
                    return None
                values = _resized(given, shape, self.from_end)
                if values is None:
                    return None
            arguments[name] = ArrayInput(given.dtype, shape, values, given.layout if _fits(given, shape) else C_ORDER)
        made = Case(env, case.dtypes, arguments, case.aliases)
        return self._refitted(made, case)

    def _refitted(self, made: Case, case: Case) -> Case | None:
        """Clip values whose range depends on sizes, such as counts and indices; None if the range is empty."""
        for param in self.drawing.spec.params:
            domain, value = self.drawing.domains[param.name], made.arguments[param.name]
            if domain.free or domain.strategy is not None or param.kind == "const":
                continue
            outs = isinstance(value, ArrayInput) and value.values is None
            old = None if outs else value.distinct if isinstance(value, ArrayInput) else np.asarray(value)
            if old is None or domain.allows(old, made.dims):
                continue
            low, high = domain.bounds(made.dims)
            if domain.choices is not None:
                if isinstance(value, ArrayInput) or len(domain.choices) != 1:
                    return None
                number = Domain(low=domain.choices[0]).bounds(made.dims)[0]
                made = made.with_argument(param.name, scalar_of(number, dtype_of_param(param, case.dtypes)))
                continue
            if low is not None and high is not None and low > high:
                return None
            clipped = np.clip(old, low, high).astype(old.dtype)
            fitted = (
                replace(value, values=_spread(clipped, value.shape))
                if isinstance(value, ArrayInput)
                else clipped.item()
            )
            made = made.with_argument(param.name, fitted)
        return made


def _spread(distinct: Any, shape: tuple[int, ...]) -> Any:
    return distinct if distinct.shape == shape else np.broadcast_to(distinct, shape)


def smaller_sizes(drawing: Drawing, name: str, size: Any) -> Iterator[Any]:
    """Yield smaller sizes of a dimension, the smallest first, then approaching the current one."""
    bounds = drawing.dimensions.sizes[name]
    if name in drawing.dimensions.strategies:
        return
    if isinstance(size, tuple):
        if bounds.choices is None:
            yield from (size[:-1], *(tuple(max(n - 1, 0) for n in size),)) if size else ()
        return
    if bounds.choices is not None:
        yield from (c for c in bounds.choices if c < size)
        return
    yield from (n for n in range(bounds.low, min(size, bounds.low + 4)))
    step = size // 2
    while step > 0:
        if size - step > bounds.low + 3:
            yield size - step
        step //= 2


def _resized(given: ArrayInput, shape: tuple[int, ...], from_end: bool) -> Any:
    """Return the values for another shape, keeping axes of stride 0; None if the array would be too large."""
    if given.distinct_shape == given.shape or not _fits(given, shape):
        return (
            None
            if math.prod(shape) > max(MAX_ELEMENTS, math.prod(given.shape))
            else _cut(given.values, shape, from_end)
        )
    distinct = ArrayInput(given.dtype, shape, None, given.layout).distinct_shape
    return np.broadcast_to(_cut(given.distinct, distinct, from_end), shape)


def _cut(values: Any, shape: tuple[int, ...], from_end: bool) -> Any:
    """Return the leading part of the values (the last with `from_end`), repeated where it is too short."""
    if values.ndim != len(shape):
        return np.resize(values, shape)
    for axis, size in enumerate(shape):
        if size != values.shape[axis]:
            start = max(values.shape[axis] - size, 0) if from_end else 0
            values = values.take((start + np.arange(size)) % max(values.shape[axis], 1), axis=axis)
    return np.array(values)


def _fits(given: ArrayInput, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(given.shape)
