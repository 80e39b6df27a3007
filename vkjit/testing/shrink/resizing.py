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
    """Resizes cases of a test. `drawing` describes the test's dimensions and value ranges.

    Arrays that shrink keep their first elements along each axis or, with `from_end`, their last ones.
    """

    def __init__(self, drawing: Drawing, from_end: bool = False) -> None:
        self.drawing = drawing
        self.from_end = from_end

    def resized(self, case: Case, env: dict[str, Any]) -> Case | None:
        """Return the case with the sizes in `env`, which maps dimension names to sizes; None if it can't be resized.

        Arrays that grow repeat their values. A case can't be resized if the sizes contradict each other, arrays have
        unnamed dimensions, an array becomes too large, or no value is allowed for an argument.
        """
        if self.drawing.dimensions.loose_counts():  # unnamed dimensions
            return None
        shapes = self.drawing.dimensions.shapes(env, {})
        if shapes is None:
            return None
        arguments = {**case.arguments, **{name: env[name] for name in self.drawing.size_constants}}
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
        """Return the case `resized` with values clipped to their ranges, which may depend on sizes, as for indices.

        Returns None if no value is allowed for an argument. `case` is the case before resizing.
        """
        for param in self.drawing.spec.params:
            domain, value = self.drawing.domains[param.name], resized.arguments[param.name]
            if domain.free or domain.strategy is not None or param.kind == "const":
                continue
            if not isinstance(value, ArrayInput):
                old = np.asarray(value)
            elif value.values is None:  # an Out
                continue
            else:
                old = value.distinct
            if domain.allows(old, resized.dims):
                continue
            low, high = domain.bounds(resized.dims)
            if domain.choices is not None:
                # a value is replaced only by a single choice, such as "N" for an argument that must equal a size
                if isinstance(value, ArrayInput) or len(domain.choices) != 1:
                    return None
                number, _ = Domain(low=domain.choices[0]).bounds(resized.dims)  # evaluates the choice
                resized = resized.with_argument(param.name, scalar_of(number, dtype_of_param(param, case.dtypes)))
                continue
            if low is not None and high is not None and low > high:
                return None
            clipped = np.clip(old, low, high).astype(old.dtype)
            if isinstance(value, ArrayInput):
                resized = resized.with_argument(param.name, replace(value, values=_spread(clipped, value.shape)))
            else:
                resized = resized.with_argument(param.name, clipped.item())
        return resized


def _spread(distinct: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast `distinct`, which has a single element along each axis of stride 0, to the array's shape."""
    return distinct if distinct.shape == shape else np.broadcast_to(distinct, shape)


def smaller_sizes(drawing: Drawing, name: str, size: Any) -> Iterator[Any]:
    """Yield smaller sizes to try for a dimension: the smallest ones first, then larger ones that approach `size`.

    The size of a dimension that stands for several axes (`*N`) is a tuple.
    """
    bounds = drawing.dimensions.sizes[name]
    if name in drawing.dimensions.strategies:
        return
    if isinstance(size, tuple):
        if bounds.choices is None and size:
            yield size[:-1]  # one axis fewer
            yield tuple(max(n - 1, 0) for n in size)
        return
    if bounds.choices is not None:
        yield from (c for c in bounds.choices if c < size)
        return
    yield from (n for n in range(bounds.low, min(size, bounds.low + 4)))
    step = size // 2
    while step > 0:
        if size - step > bounds.low + 3:  # the others have been tried above
            yield size - step
        step //= 2


def _resized(given: ArrayInput, shape: tuple[int, ...], from_end: bool) -> Any:
    """Return an array's values cropped or repeated to another shape, with the same axes of stride 0.

    Returns None if the array would be too large.
    """
    has_repeated_axes = given.distinct_shape != given.shape
    if has_repeated_axes and _fits(given, shape):
        new_distinct_shape = ArrayInput(given.dtype, shape, None, given.layout).distinct_shape
        return np.broadcast_to(_cut(given.distinct, new_distinct_shape, from_end), shape)
    if math.prod(shape) > max(MAX_ELEMENTS, math.prod(given.shape)):
        return None
    return _cut(given.values, shape, from_end)


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
