"""The dimension names of a kernel's signature, such as "M" and "N" of `vk.In[vk.f32, "M N"]`, and sizes for them.

`Dimensions` holds the names and the sizes that each may take, and computes the shapes of the arrays from chosen sizes.
A name has the same size in all arrays, and an expression such as `2*N` is evaluated from the names in it. A variadic
name such as `*B` stands for any number of batch dimensions; its size is a tuple. Dimensions without a name (`_`, `*_`,
`...`) are called loose.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vkjit.errors import ArgumentError
from vkjit.frontend import Dims, KernelSpec, parse_dims, tune_choice
from vkjit.launch.kernel import Kernel

from ..cases.composites import leaf_shapes, parts_of_arrays

__all__ = ["Dimensions", "Sizes", "interesting_sizes", "size_table", "tiles_of"]

_LONG, _SHORT = (700, 320, 200, 120), (0, 40, 16, 8)
"""Default maximum sizes of dimensions, for kernels with 1, 2, 3, and 4 or more dimension names.

One dimension of each case is long: `_LONG` limits its size, `_SHORT` the sizes of the others.
"""

_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 53, 61, 97, 101, 127, 251, 257, 509)
_MAX_TILE = 1024
"""Largest number that may be a block size (a tile)."""
_MAX_SIZE = 1 << 14
"""Largest size drawn; arrays of stride 0 get larger ones, see `directed`."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that one name may take: from `low` to `high`, both inclusive (None: no limit), or one of `choices`."""

    low: int = 0
    high: int | None = None
    choices: tuple[Any, ...] | None = None


def size_table(low: int, high: int, special: Iterable[int]) -> list[int]:
    """Return a table of sizes, from which callers pick one with equal probability; likely sizes are repeated.

    The table contains all sizes from `low` to `high` in ascending order. So a smaller index means a smaller size, and
    hypothesis, which shrinks the index, shrinks the size. Small sizes and those in `special` occur several times;
    special sizes make up about half of the table.
    """
    weights: dict[int, int] = dict.fromkeys(range(low, high + 1), 1)  # how often a size occurs
    total = max(
        high - low + 1, 8
    )  # the number of sizes; at least 8, so that special sizes are repeated in short tables
    # additional occurrences of small sizes, as a share of the number of sizes
    for value, share in [(0, 0.06), (1, 0.08), (2, 0.04), (3, 0.03), (5, 0.03), (8, 0.03)]:
        if value in weights:
            weights[value] += int(total * share)
    interesting = [v for v in special if v in weights]
    for value in interesting:
        weights[value] += max(1, int(total / len(interesting)))
    return [value for value, count in weights.items() for _ in range(count)]


def interesting_sizes(kernel: Kernel) -> list[int]:
    """Return sizes at which kernels tend to fail: primes, and sizes around powers of two and possible block sizes."""
    tiles = {4, 8, 16, 32, 64, 128, 256, 512, *tiles_of(kernel)}
    around_tiles = {t + d for t in tiles if 1 < t <= _MAX_TILE for d in (-1, 0, 1)}
    # two blocks; twice 512 would exceed all default maximum sizes
    around_tiles |= {2 * t + d for t in tiles - {512} if 1 < t <= _MAX_TILE // 2 for d in (0, 1)}
    return sorted({n for n in (*around_tiles, *_PRIMES) if n > 0})


def tiles_of(kernel: Kernel) -> list[int]:
    """Return possible block sizes of the kernel: its workgroup size, values of Const parameters, captured integers.

    128 stands for a workgroup size that isn't declared.
    """
    tiles = [n for n in kernel.declared_local() or (128,) if n > 1]
    constants = [tune_choice(p.default) for p in kernel.spec.params if p.kind == "const"]
    tiles += [value for value in constants if isinstance(value, int)]
    return list(dict.fromkeys([*tiles, *sorted(_numbers_of(kernel.spec.fn))]))


def _numbers_of(function: types.FunctionType) -> set[int]:
    """Return the integers from 2 to `_MAX_TILE` among the module globals and closure variables that a function uses.

    In kernels, most of them are block sizes.
    """
    values = {function.__globals__.get(name) for name in function.__code__.co_names}
    for cell in function.__closure__ or ():
        try:
            values.add(cell.cell_contents)
        except (ValueError, TypeError):  # empty cell, or unhashable
            continue
    return {value for value in values if type(value) is int and 1 < value <= _MAX_TILE}


class Dimensions:
    """The dimension names of a kernel, with the user's constraints.

    `given` is the user's `dims=`. It maps a dimension name to a size, a (low, high) pair, a list of choices (of tuples
    for a `*name`) or a hypothesis strategy. For an array parameter that is annotated without dimensions, it maps the
    name of the parameter to the text of its dimensions, such as "M N".

    - `of_array` maps each array parameter to its dimensions.
    - `names` are all dimension names; `variadic` are those that stand for batch dimensions.
    - `special` are sizes at which kernels tend to fail (see `interesting_sizes`).
    - `sizes` and `strategies` hold the user's constraints by dimension name.
    """

    def __init__(self, kernel: Kernel, given: Mapping[str, Any]) -> None:
        self.spec = kernel.expanded_spec
        self.special = interesting_sizes(kernel)
        self.of_array = _dims_of_arrays(self.spec, given)
        self.names = list(dict.fromkeys(n for d in self.of_array.values() for n in d.names))
        self.variadic = [n for n in self.names if any(_is_batch(d, n) for d in self.of_array.values())]
        unknown = [
            n for n in given if n not in self.names and n not in self.of_array and n not in parts_of_arrays(self.spec)
        ]
        if unknown:
            raise ArgumentError(
                f"dims: {self.spec.name} has no dimension {unknown[0]!r}; it has {', '.join(self.names) or 'none'}"
            )
        self.sizes = {n: _sizes(n, given.get(n)) for n in self.names}
        self.strategies = {n: v for n, v in given.items() if n in self.names and hasattr(v, "example")}

    def table(self, name: str, long: bool) -> list[int]:
        """Return a table of sizes for a name: the user's choices, or a `size_table`.

        `long` is True if the name is the long dimension of the case (see `_LONG`).
        """
        bounds = self.sizes[name]
        if bounds.choices is not None:
            return list(bounds.choices)
        entry = min(len(self.names), len(_LONG)) - 1
        if entry == 0:  # a single dimension is always long
            long = True
        default_high = (_LONG if long else _SHORT)[entry]
        # without an upper bound from the user, at least `default_high` sizes above the lower bound
        high = bounds.high if bounds.high is not None else max(default_high, bounds.low + default_high)
        high = min(high, max(_MAX_SIZE, bounds.low))
        return size_table(bounds.low, high, self.special)

    def shapes(self, env: Mapping[str, Any], loose: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]] | None:
        """Return the shape of each array; None if a size is negative or an expression divides by zero.

        `env` maps names to sizes. `loose` maps an array to the sizes of its loose dimensions, in order; the size is 1
        for those that it lacks. A loose variadic dimension (`*_`, `...`) becomes a single axis.
        """
        by_array = {}
        for name, dims in self.of_array.items():
            sizes = iter(loose.get(name, ()))
            shape: list[int] = []
            for dim in dims.dims:
                if dim.variadic:
                    batch = env.get(dim.text.lstrip("*"))
                    shape += [next(sizes, 1)] if batch is None else batch
                elif dim.value is None:
                    shape.append(next(sizes, 1))
                else:
                    try:
                        shape.append(dim.value(env))
                    except ZeroDivisionError:
                        return None
            if any(n < 0 for n in shape):
                return None
            by_array[name] = tuple(shape)
        return by_array

    def loose_counts(self) -> dict[str, int]:
        """Return the number of loose dimensions of each array that has any."""
        counts = {n: sum(_has_no_name(d) for d in dims.dims) for n, dims in self.of_array.items()}
        return {n: c for n, c in counts.items() if c}


def _has_no_name(dim: Any) -> bool:
    """True for a loose dimension."""
    return dim.text in ("_", "*_", "...")


def _is_batch(dims: Dims, name: str) -> bool:
    """True if the name is variadic in these dimensions."""
    return any(d.variadic and d.text.lstrip("*") == name for d in dims.dims)


def _dims_of_arrays(spec: KernelSpec, given: Mapping[str, Any]) -> dict[str, Dims]:
    """Return the dimensions of each array: those that the user gave in `dims=`, else those of its annotation.

    Arrays without either have one dimension, which has the name `size` in all of them, so that their lengths are equal.
    """
    by_array = {}
    # an array of structs is expanded to one array per field: the user names the whole, `owners` maps fields to it
    owners = {part: name for name, parts in parts_of_arrays(spec).items() for part in parts}
    inner = leaf_shapes(spec)  # additional axes of fields that are vectors or matrices
    for param in spec.params:
        if param.kind != "array":
            continue
        text = given.get(param.name, given.get(owners.get(param.name, "")))
        if isinstance(text, str) or param.dims is None:
            axes = (text if isinstance(text, str) else "size", *map(str, inner.get(param.name, ())))
            by_array[param.name] = parse_dims(" ".join(axes))
        else:
            by_array[param.name] = param.dims
    return by_array


def _sizes(name: str, given: Any) -> Sizes:
    """Convert an entry of the user's `dims=`; hypothesis strategies, kept elsewhere, give no constraint.

    Raises ArgumentError for unsupported values.
    """
    if given is None or hasattr(given, "example"):
        return Sizes()
    if isinstance(given, bool):
        raise ArgumentError(f"dims: {name} is {given!r}: expected a size, a (low, high) pair or a list of sizes")
    if isinstance(given, int):
        return Sizes(choices=(given,))
    if isinstance(given, range):
        given = list(given)
    if isinstance(given, (list, set, frozenset)):
        if not given:
            raise ArgumentError(f"dims: {name} has no choices")
        return Sizes(choices=tuple(sorted(given)))
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], int):
        low, high = given
        if high is None or (isinstance(high, int) and low <= high):
            return Sizes(low, high)
    raise ArgumentError(f"dims: {name} is {given!r}: expected a size, a (low, high) pair or a list of sizes")
