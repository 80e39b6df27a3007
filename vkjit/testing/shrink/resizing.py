"""Resize a case: change its dimension sizes, crop or repeat its arrays to fit, and clip values to their ranges.

A `Drawing` describes the cases that a test allows: types, sizes, ranges of values and conditions.
"""

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
    """Resizes cases of a test, whose dimensions and value ranges `drawing` knows.

    Arrays that shrink keep their first elements along each axis, or with `from_end`, their last.
    """

    def __init__(self, drawing: Drawing, from_end: bool = False) -> None:
        self.drawing = drawing
        self.from_end = from_end

    def resized(self, case: Case, env: dict[str, Any]) -> Case | None:
        """Return the case with the dimension sizes `env`, by name; None if that isn't possible.

        Arrays that grow repeat their values. It isn't possible if the sizes contradict each other, arrays have unnamed
        dimensions, an array becomes too large, or no value is allowed for an argument.
        """
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
        resized_case = Case(env, case.dtypes, arguments, case.aliases)
        return self._refitted(resized_case, case)

    def _refitted(self, resized: Case, case: Case) -> Case | None:
        """Clip the values of the resized case `made` whose range depends on sizes, such as counts and indices.

        Returns None if no value is allowed for an argument. `case` is the original.
        """
        for param in self.drawing.spec.params:
            domain, value = self.drawing.domains[param.name], resized.arguments[param.name]
            if domain.free or domain.strategy is not None or param.kind == "const":
                continue
            is_out = isinstance(value, ArrayInput) and value.values is None
            old = None if is_out else value.distinct if isinstance(value, ArrayInput) else np.asarray(value)
            if old is None or domain.allows(old, resized.dims):
                continue
            low, high = domain.bounds(resized.dims)
            if domain.choices is not None:
                if isinstance(value, ArrayInput) or len(domain.choices) != 1:
                    return None
                number = Domain(low=domain.choices[0]).bounds(resized.dims)[0]
                resized = resized.with_argument(param.name, scalar_of(number, dtype_of_param(param, case.dtypes)))
                continue
            if low is not None and high is not None and low > high:
                return None
            clipped = np.clip(old, low, high).astype(old.dtype)
            fitted = (
                replace(value, values=_spread(clipped, value.shape))
                if isinstance(value, ArrayInput)
                else clipped.item()
            )
            resized = resized.with_argument(param.name, fitted)
        return resized


def _spread(distinct: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast the values in memory to the array's shape, along axes of stride 0."""
    return distinct if distinct.shape == shape else np.broadcast_to(distinct, shape)


def smaller_sizes(drawing: Drawing, name: str, size: Any) -> Iterator[Any]:
    """Yield smaller sizes to try for a dimension: the smallest ones first, then larger ones that approach `size`.

    The size of a dimension that stands for several axes (`*N`) is a tuple.
    """
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
    """Return an array's values cropped or repeated to another shape, with the same axes of stride 0.

    Returns None if the array would be too large.
    """
    if given.distinct_shape == given.shape or not _fits(given, shape):
        return (
            None
            if math.prod(shape) > max(MAX_ELEMENTS, math.prod(given.shape))
            else _cut(given.values, shape, from_end)
        )
    distinct = ArrayInput(given.dtype, shape, None, given.layout).distinct_shape
    return np.broadcast_to(_cut(given.distinct, distinct, from_end), shape)


def _cut(values: Any, shape: tuple[int, ...], from_end: bool) -> Any:
    """Return `values` with another shape: their first elements along each axis, or with `from_end` the last.

    Along an axis that grows, the elements are repeated.
    """
    if values.ndim != len(shape):
        return np.resize(values, shape)
    for axis, extent in enumerate(shape):
        if extent != values.shape[axis]:
            start = max(values.shape[axis] - extent, 0) if from_end else 0
            values = values.take((start + np.arange(extent)) % max(values.shape[axis], 1), axis=axis)
    return np.array(values)


def _fits(given: ArrayInput, shape: tuple[int, ...]) -> bool:
    """True if the array's layout applies to the shape, that is, if the rank is the same."""
    return len(shape) == len(given.shape)
