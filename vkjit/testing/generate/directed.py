"""Directed cases: a fixed list of inputs that expose most bugs. A search tries them before random inputs.

They cover small and long sizes, sizes past a fixed grid or a block, values of both signs, each special value as the
first and the last element of each array, empty dimensions, other layouts, aliased arrays, and shapes with more than
2^31 elements in arrays of stride 0. Cases that the user's `where`, `elements` or `dims` forbid are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from vkjit.dtypes import DType
from vkjit.frontend import ParamSpec

from ..cases.aliasing import with_aliased
from ..cases.case import ArrayInput, Case, decode, encode
from ..cases.layouts import Layout
from .block_sizes import MAX_CASES, MAX_SIZE, sizes_past
from .dimensions import interesting_sizes, tiles_of
from .elements import special_values
from .strategies import MAX_ELEMENTS, Drawing, dtype_of_param, number_of, scalar_of
from .work_estimate import is_short

__all__ = ["directed_cases"]

PAIRS = (50_021, 28_001)
"""Sizes for cases in which all dimensions that can be huge get the same size.

With the first size, a square array has between 2^31 and 2^32 elements. With the second, it has between 2^31 and 2^32
bytes if elements have 4 bytes. These numbers wrap in an i32.
"""

HUGE = 2_147_483_659
"""A single size past 2^31; only arrays of stride 0 can have it."""

Fill = Callable[[int, DType, Any, Any], Any]
"""A function fill(count, dtype, low, high) that returns `count` values within the bounds (None: no bound)."""


def directed_cases(drawing: Drawing) -> Iterator[Case]:
    """Yield the directed cases, the most likely to fail first."""
    builder = _Builder(drawing)
    makers = (
        builder.plain, builder.past, builder.special, builder.aliased, builder.huge, builder.empty, builder.laid_out, builder.long,
    )  # fmt: skip
    for make in makers:
        for case in make():
            if case is not None:
                allowed = case if drawing.allowed(case) else _with_lengths(drawing, case)
                if allowed is not None:
                    yield allowed


def _with_lengths(drawing: Drawing, case: Case) -> Case | None:
    """Return the case with all scalar integer arguments set to one of the case's sizes, so that `where` accepts it.

    Such arguments are often lengths, which `where` compares with sizes. Only arguments without constraints in
    `elements` are changed. Returns None if `where` rejects the case with each of its sizes.
    """
    names = [
        p.name for p in drawing.spec.params
        if p.kind == "scalar" and type(case.arguments[p.name]) is int and drawing.domains[p.name].free
    ]  # fmt: skip
    for size in dict.fromkeys(n for n in case.dims.values() if isinstance(n, int)) if names else ():
        candidate = case
        for name in names:
            candidate = candidate.with_argument(name, size)
        if drawing.allowed(candidate):
            return candidate
    return None


class _Builder:
    """Builds the directed cases of one kernel, from sizes and functions that fill arrays.

    `plain_names` are the dimension names without variadic ones. `types` maps each type variable to the first type to
    try. `tile` is the kernel's most likely block size. The methods that yield cases yield None for those that can't be
    built.
    """

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.dimensions = drawing.dimensions
        self.plain_names = [n for n in self.dimensions.names if n not in self.dimensions.variadic]
        self.types = {name: kinds[0] for name, kinds in drawing.types.items()}
        self.tile = next((t for t in tiles_of(drawing.kernel) if t > 1), 64)

    # -- kinds of cases

    def plain(self) -> Iterator[Case | None]:
        """Yield cases with small sizes, and for each dimension a case in which its size is just past two blocks.

        The values of the small cases are in turn small, negative, large, very negative, fractional, and close to the
        limits of the type (only if an input has integers of 32 bits or more).
        """
        yield self.case(self.sizes(3), counting)
        yield self.case(self.sizes(1), counting)
        for name in self.plain_names or [""]:
            long = self.sizes(3) | ({name: self.size(name, 2 * self.tile + 1)} if name else {})
            yield self.case(long, alternating)
        yield self.case(self.sizes(3), negative)
        yield self.case(self.sizes(3), large)
        yield self.case(self.sizes(3), very_negative)
        yield self.case(self.sizes(3), small_fractions)
        if self._has_wide_integers():
            yield self.case(self.sizes(3), near_maximum)
            yield self.case(self.sizes(3), near_minimum)

    def _has_wide_integers(self) -> bool:
        """True if an input array has integers of 32 bits or more, whose limits the other cases are far from."""
        element_types = [
            dtype_of_param(p, self.types) for p in self.drawing.spec.params if p.kind == "array" and p.mode != "out"
        ]
        return any(element_type.is_integer and element_type.itemsize >= 4 for element_type in element_types)

    def past(self) -> Iterator[Case | None]:
        """Yield cases in which one dimension is just past what a fixed grid or a block covers (see `block_sizes`).

        Cases whose launch would take long are left out.
        """
        count = 0
        for name in self.plain_names:
            for size in sizes_past(self.drawing, lambda n, name=name: self._long(name, n)):  # type: ignore[misc]
                case = self._long(name, size)
                if count == MAX_CASES or case is None:
                    continue
                if is_short(self.drawing.kernel, case, self.drawing.groups):
                    count += 1
                    yield case

    def _long(self, name: str, size: int) -> Case | None:
        """Return a case in which the dimension `name` has exactly this size; None if it can't have it."""
        if self.size(name, size) != size:
            return None
        return self.case({**self.sizes(2), name: size}, alternating, max_elements=2 * MAX_SIZE)

    def special(self) -> Iterator[Case | None]:
        """Yield cases in which the last or the first element of an input array is a special value.

        Special values are those of `special_values`, of the kinds that the user selected.
        """
        for kind in self.drawing.special:
            for param in self.drawing.spec.params:
                if param.kind != "array" or param.mode == "out":
                    continue
                for value in special_values(dtype_of_param(param, self.types), (kind,)):
                    yield from self._with_special(param, value)

    def _with_special(self, param: ParamSpec, value: Any) -> Iterator[Case | None]:
        """Yield the cases for one array and one special value."""
        base = self.case(self.sizes(3), alternating)
        if base is None:
            return
        given: ArrayInput = base.arguments[param.name]
        domain = self.drawing.domains[param.name]
        if given.values is None or given.values.size == 0:
            return
        if not domain.free and not domain.allows(np.asarray([value]), base.dims):
            return
        for index in (-1, 0) if given.values.size > 1 else (0,):
            values = given.values.copy()
            values.reshape(-1)[index] = value
            yield base.with_argument(param.name, ArrayInput(given.dtype, given.shape, values, given.layout))

    def empty(self) -> Iterator[Case | None]:
        """Yield cases with each dimension in turn of size 0."""
        for name in self.plain_names:
            if self.size(name, 0) == 0:
                yield self.case({**self.sizes(3), name: 0}, counting)

    def laid_out(self) -> Iterator[Case | None]:
        """Yield cases with each array in turn in another layout: transposed, or strided if it has one axis."""
        for param in self.drawing.spec.params:
            if param.kind != "array" or param.name in self.drawing.plain_layouts:
                continue
            base = self.case(self.sizes(3), alternating)
            if base is None:
                return
            given: ArrayInput = base.arguments[param.name]
            rank = len(given.shape)
            layout = Layout(order=tuple(reversed(range(rank))), offset=1) if rank > 1 else Layout(step=2)
            if rank:
                yield base.with_argument(param.name, ArrayInput(given.dtype, given.shape, given.values, layout))

    def long(self) -> Iterator[Case | None]:
        """Yield cases with each dimension in turn much longer than a workgroup."""
        for name in self.plain_names:
            largest = max(interesting_sizes(self.drawing.kernel))
            yield self.case({**self.sizes(2), name: self.size(name, min(largest, 700))}, alternating)

    def aliased(self) -> Iterator[Case | None]:
        """Yield cases in which both parameters of a pair of the user's `aliases=` get the same array."""
        for pair in self.drawing.aliases:
            for size in (3, 2 * self.tile + 1):
                base = self.case(self.sizes(size), counting)
                yield None if base is None else with_aliased(base, pair)

    def huge(self) -> Iterator[Case | None]:
        """Yield cases with arrays of stride 0 in which a size, or a product of sizes, is 2^31 or more.

        Cases whose launch would take long are left out.
        """
        names = self._huge_names()
        if not names:
            return
        base = self.sizes(3)
        choices: list[dict[str, int]] = [dict.fromkeys(names, size) for size in PAIRS] if len(names) > 1 else []
        choices += [{n: PAIRS[0]} for n in names]
        choices += [{n: HUGE} for n in names]
        for chosen in choices:
            if any(self.size(n, v) != v for n, v in chosen.items()):
                continue
            case = self.case({**base, **chosen}, ends, huge=frozenset(chosen))
            if case is not None and self.drawing.is_light(case):
                yield case

    def _huge_names(self) -> list[str]:
        """Return the names of the dimensions that can be huge.

        These are the dimensions whose axes can all have stride 0. So each array that has the dimension must be an In,
        and the dimension mustn't be part of an expression such as `2*N`.
        """
        names = []
        for name in self.plain_names:
            arrays = [p for p in self.drawing.spec.params if p.kind == "array" and self._has(p.name, name)]
            only_plain = all(self._axes(p.name, name) is not None for p in arrays)
            if arrays and only_plain and all(p.mode == "in" for p in arrays):
                names.append(name)
        return names

    def _has(self, array: str, name: str) -> bool:
        """True if the dimension name occurs in the array's dimensions."""
        return name in self.dimensions.of_array[array].names

    def _axes(self, array: str, name: str) -> list[int] | None:
        """Return the axes of an array whose size is the dimension `name`.

        Returns None if `name` also occurs in an expression, or if the array has batch dimensions, since their number
        varies, and with it the numbers of the axes after them.
        """
        dims = self.dimensions.of_array[array].dims
        if any(d.variadic for d in dims) or any(name in d.text and d.text != name for d in dims):
            return None
        return [axis for axis, d in enumerate(dims) if d.text == name]

    # -- building

    def size(self, name: str, wanted: int) -> int:
        """Return the allowed size of the dimension that is closest to `wanted`.

        If the user gave a list of choices, return the smallest choice that isn't less than `wanted`. If all are less,
        return the largest.
        """
        bounds = self.dimensions.sizes[name]
        if bounds.choices is not None:
            fitting = [c for c in bounds.choices if c >= wanted]
            return int(min(fitting) if fitting else max(bounds.choices))
        high = wanted if bounds.high is None else bounds.high
        return max(bounds.low, min(wanted, high))

    def sizes(self, wanted: int) -> dict[str, Any]:
        """Return a size for each dimension name, as close to `wanted` as is allowed (see `size`).

        A variadic name gets the first of the user's choices, or one axis of size 2 without choices. Returns {} if the
        user gave a strategy for a name, since directed cases can't draw from strategies.
        """
        if self.dimensions.strategies:
            return {}
        env: dict[str, Any] = {}
        for name in self.dimensions.names:
            if name in self.dimensions.variadic:
                choices = self.dimensions.sizes[name].choices
                env[name] = choices[0] if choices is not None else (2,)
            else:
                env[name] = self.size(name, wanted)
        return env

    def case(
        self, env: Mapping[str, Any], fill: Fill, huge: frozenset[str] = frozenset(), max_elements: int = MAX_ELEMENTS
    ) -> Case | None:
        """Build a case with the sizes `env`. `fill` gives the values of arrays and scalars. None if it isn't possible.

        `huge` are the dimensions that become axes of stride 0. `max_elements` limits the number of stored elements of
        each array; axes of stride 0 don't count.
        """
        if any(n not in env for n in self.dimensions.names):
            return None
        loose = {name: (2,) * count for name, count in self.dimensions.loose_counts().items()}
        shapes = self.dimensions.shapes(env, loose)
        if shapes is None:
            return None
        arguments: dict[str, Any] = {}
        for param in self.drawing.spec.params:
            if param.kind == "array":
                repeated = [a for n in huge for a in self._axes(param.name, n) or [] if self._has(param.name, n)]
                value = self._array(param, shapes[param.name], env, fill, tuple(sorted(repeated)), max_elements)
            elif param.kind == "scalar":
                value = self._scalar(param, env, fill)
            else:
                is_size = param.name in self.drawing.size_constants
                value = env[param.name] if is_size else self.drawing.choices_of_const(param)[0]
            if value is None:
                return None
            arguments[param.name] = value
        return Case(dict(env), dict(self.types), arguments)

    def _array(
        self,
        param: ParamSpec,
        shape: tuple[int, ...],
        env: Mapping[str, Any],
        fill: Fill,
        repeated: tuple[int, ...],
        max_elements: int,
    ) -> ArrayInput | None:
        """Build an array argument; None if it can't be filled or is too large.

        `shape` is the shape of the array, and `repeated` are its axes of stride 0. The other parameters are those of
        `case`.
        """
        dtype, domain = dtype_of_param(param, self.types), self.drawing.domains[param.name]
        layout = Layout(repeated=repeated) if repeated else self.drawing.layout(param)
        distinct = tuple(1 if axis in repeated else n for axis, n in enumerate(shape))
        if math.prod(distinct) > max_elements:
            return None
        if param.mode == "out":
            return ArrayInput(dtype, shape, None, layout)
        if domain.strategy is not None:
            return None
        count = math.prod(distinct)
        if domain.choices is not None:
            choices = np.array([number_of(c, env) for c in domain.choices])
            flat = choices[np.arange(count) % len(choices)]
        else:
            low, high = domain.bounds(env)
            if low is not None and high is not None and low > high:  # no value is allowed, so only an empty array is
                return None if count else ArrayInput(dtype, shape, np.zeros(shape, dtype.numpy), layout)
            flat = fill(count, dtype, low, high)
        values = np.asarray(flat).astype(dtype.numpy).reshape(distinct)
        rounded = decode(encode(values, dtype), dtype)  # NumPy has no bf16: round to the type
        return ArrayInput(dtype, shape, np.broadcast_to(rounded, shape) if repeated else rounded, layout)

    def _scalar(self, param: ParamSpec, env: Mapping[str, Any], fill: Fill) -> Any:
        """Return a scalar argument: the user's first choice, else the second value of `fill`.

        None if the user gave a strategy, or an empty range.
        """
        dtype, domain = dtype_of_param(param, self.types), self.drawing.domains[param.name]
        if domain.strategy is not None:
            return None
        if domain.choices is not None:
            return scalar_of(number_of(domain.choices[0], env), dtype)
        low, high = domain.bounds(env)
        if low is not None and high is not None and low > high:
            return None
        return scalar_of(np.asarray(fill(2, dtype, low, high)).astype(dtype.numpy)[1].item(), dtype)


# -- fill functions: (count, type, low, high) -> values within the bounds


def _clipped(values: Any, dtype: DType, low: Any, high: Any) -> Any:
    """Bring values into [low, high] and the range of the type.

    If both ends are known, integers are wrapped into the range instead of clipped, so that they don't become equal.
    """
    limits = (0, 1) if dtype.name == "bool" else (None, None)
    if dtype.is_integer and dtype.name != "bool":
        info = np.iinfo(dtype.numpy)
        limits = (int(info.min), int(info.max))
    # intersect [low, high] with the limits of the type; None stands for no bound
    if limits[0] is not None:
        low = limits[0] if low is None else max(low, limits[0])
    if limits[1] is not None:
        high = limits[1] if high is None else min(high, limits[1])
    array = np.asarray(values)
    if low is not None and high is not None and (array < low).any() | (array > high).any():
        span = high - low
        if dtype.is_integer and span < 2**62:  # larger ranges might overflow i64
            return low + np.abs(array.astype(np.int64)) % (span + 1)
    return array if low is None and high is None else np.clip(array, low, high)


def counting(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return 1, 2, 3, ..., repeated with period 61."""
    return _clipped(1 + np.arange(count) % 61, dtype, low, high)


def alternating(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return small numbers of both signs in irregular order; adjacent elements differ."""
    values = (np.arange(count) * 7 + 3) % 19 - 9
    return _clipped(values, dtype, low, high)


def negative(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return small negative numbers."""
    return _clipped(-1 - (np.arange(count) * 5) % 7, dtype, low, high)


def large(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return numbers in the thousands."""
    return _clipped(5000 + (np.arange(count) * 37) % 1009, dtype, low, high)


def very_negative(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return numbers in the negative thousands, where functions such as exp underflow to 0."""
    return _clipped(-5000 - (np.arange(count) * 37) % 1009, dtype, low, high)


def near_maximum(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return integers at and just below the type's maximum; for floats and bools those of `large`."""
    if not dtype.is_integer or dtype.name == "bool":
        return large(count, dtype, low, high)
    greatest = int(np.iinfo(dtype.numpy).max)
    end = greatest if high is None else min(high, greatest)
    # (7 * k) % 11 runs through 0 to 10 in irregular order
    return np.array([max(end - 7 * k % 11, _lowest(dtype, low)) for k in range(count)], dtype.numpy)


def near_minimum(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return integers at and just above the type's minimum; for floats and bools those of `very_negative`."""
    if not dtype.is_integer or dtype.name == "bool":
        return very_negative(count, dtype, low, high)
    greatest = int(np.iinfo(dtype.numpy).max)
    end = greatest if high is None else min(high, greatest)
    return np.array([min(_lowest(dtype, low) + 7 * k % 11, end) for k in range(count)], dtype.numpy)


def _lowest(dtype: DType, low: Any) -> int:
    """Return the smallest integer of the type that isn't below `low`."""
    least = int(np.iinfo(dtype.numpy).min)
    return least if low is None else max(math.ceil(low), least)


def small_fractions(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return fractions from 0 to below 1/2; for integers zeros and ones."""
    values = ((np.arange(count) * 13 + 5) % 32) / 64.0
    return _clipped(np.rint(values * 2) if dtype.is_integer else values, dtype, low, high)


def ends(count: int, dtype: DType, low: Any, high: Any) -> Any:
    """Return `high` and `low`, alternating; if either bound is missing, return the values of `counting`.

    `_Builder.huge` uses it, since array elements that are indices into a huge dimension should be as large as allowed.
    """
    if high is None or low is None:
        return counting(count, dtype, low, high)
    top = int(np.iinfo(dtype.numpy).max) if dtype.is_integer and dtype.name != "bool" else high
    high = min(high, top)
    return np.where(np.arange(count) % 2 == 0, high, low)
