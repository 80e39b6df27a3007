"""Sizes for the dimension names of a kernel's signature.

Enters: a kernel, what the user says of its dimensions. Leaves: `Dimensions`: which names there are, which sizes each
may take, and the shapes that follow. Expressions such as `2*N` follow from the names in them; names that arrays share
agree.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..frontend import Dims, KernelSpec, parse_dims, tune_choice
from ..jit import Kernel
from .composites import leaf_shapes, parts_of_arrays

__all__ = ["Dimensions", "Sizes", "interesting_sizes", "size_table", "tiles_of"]

_LONG, _SHORT = (700, 320, 200, 120), (0, 40, 16, 8)
"""Largest size of the one long dimension of a case, and of the others, by the number of names (1, 2, 3, 4 and more)."""

_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 53, 61, 97, 101, 127, 251, 257, 509)
_LARGEST_TILE = 1024
_LARGEST_SIZE = 1 << 14
"""Size that is drawn at most; arrays of stride 0 get larger ones, see `directed`."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one name may be: bounds (inclusive), or `choices` where they are given."""

    low: int = 0
    high: int | None = None
    choices: tuple[Any, ...] | None = None


def size_table(low: int, high: int, special: Iterable[int]) -> list[int]:
    """All sizes from `low` to `high` in order, those worth trying repeated: drawing a position draws a size, and a
    smaller
    position is a smaller size."""
    weights: dict[int, int] = dict.fromkeys(range(low, high + 1), 1)
    usual = max(high - low + 1, 8)
    for value, share in [(0, 0.06), (1, 0.08), (2, 0.04), (3, 0.03), (5, 0.03), (8, 0.03)]:
        if value in weights:
            weights[value] += int(usual * share)
    wanted = [v for v in special if v in weights]
    for value in wanted:
        weights[value] += max(1, int(usual / len(wanted)))
    return [value for value, count in weights.items() for _ in range(count)]


def interesting_sizes(kernel: Kernel) -> list[int]:
    """Sizes at which kernels like this one tend to fail: around the workgroup's size, its tiles, powers of two,
    primes."""
    tiles = {4, 8, 16, 32, 64, 128, 256, 512, *tiles_of(kernel)}
    near = {t + d for t in tiles if 1 < t <= _LARGEST_TILE for d in (-1, 0, 1)}
    near |= {2 * t + d for t in tiles - {512} if 1 < t <= _LARGEST_TILE // 2 for d in (0, 1)}
    return sorted({n for n in (*near, *_PRIMES) if n > 0})


def tiles_of(kernel: Kernel) -> list[int]:
    """Lengths in which the kernel may cut its work: the workgroup's size, Const parameters, captured numbers."""
    found = [n for n in kernel.declared_local() or (128,) if n > 1]
    constants = [tune_choice(p.default) for p in kernel.spec.params if p.kind == "const"]
    found += [value for value in constants if isinstance(value, int)]
    return list(dict.fromkeys([*found, *sorted(_numbers_of(kernel.spec.fn))]))


def _numbers_of(function: types.FunctionType) -> set[int]:
    """Whole numbers that the function takes from its module or closure: tile sizes, mostly."""
    found = {function.__globals__.get(name) for name in function.__code__.co_names}
    for cell in function.__closure__ or ():
        try:
            found.add(cell.cell_contents)
        except (ValueError, TypeError):  # empty, or nothing that a set can hold
            continue
    return {value for value in found if type(value) is int and 1 < value <= _LARGEST_TILE}


class Dimensions:
    """The dimension names of a kernel, with what the user says of them.

    `given` maps a name to a size, a (low, high) pair, a list of choices (of tuples for a `*name`), a hypothesis
    strategy; or the name of an array parameter without dimensions to their text ("M N").
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
        """The sizes of a name in order, with repetitions; see `size_table`."""
        bounds = self.sizes[name]
        if bounds.choices is not None:
            return list(bounds.choices)
        plain = [n for n in self.names if n not in self.variadic]
        rank = min(len(plain) + len(self.variadic), len(_LONG)) - 1
        if rank == 0:
            long = True
        usual = (_LONG if long else _SHORT)[rank]
        high = bounds.high if bounds.high is not None else max(usual, bounds.low + usual)
        high = min(high, max(_LARGEST_SIZE, bounds.low))
        return size_table(bounds.low, high, self.special)

    def shapes(self, env: Mapping[str, Any], loose: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]] | None:
        """The shape of each array; None where these sizes make a negative one. `loose` gives sizes to dimensions
        without
        a name, by array, in order."""
        made = {}
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
            made[name] = tuple(shape)
        return made

    def loose_counts(self) -> dict[str, int]:
        """For each array, how many dimensions have no name."""
        counts = {n: sum(_has_no_name(d) for d in dims.dims) for n, dims in self.of_array.items()}
        return {n: c for n, c in counts.items() if c}


def _has_no_name(dim: Any) -> bool:
    return dim.text in ("_", "*_", "...")


def _is_batch(dims: Dims, name: str) -> bool:
    return any(d.variadic and d.text.lstrip("*") == name for d in dims.dims)


def _dims_of_arrays(spec: KernelSpec, given: Mapping[str, Any]) -> dict[str, Dims]:
    """The dimensions of each array; arrays without any have one, the same for all of them."""
    found = {}
    owners = {part: name for name, parts in parts_of_arrays(spec).items() for part in parts}
    inner = leaf_shapes(spec)
    for param in spec.params:
        if param.kind != "array":
            continue
        text = given.get(param.name, given.get(owners.get(param.name, "")))
        if isinstance(text, str) or param.dims is None:
            axes = (text if isinstance(text, str) else "size", *map(str, inner.get(param.name, ())))
            found[param.name] = parse_dims(" ".join(axes))
        else:
            found[param.name] = param.dims
    return found


def _sizes(name: str, given: Any) -> Sizes:
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
