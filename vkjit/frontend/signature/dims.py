"""Dimensions in the annotations of arrays, such as "M K" or "*batch 2*N": match them with shapes, evaluate them.

Matching them with an argument's shape binds names to sizes in an environment (a `*name` to a tuple), or describes the
mismatch. Evaluation computes a shape from an environment: an allocated output gets the shape that the sizes of the
inputs determine. `dims_parser` parses the strings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Dim", "Dims", "Env", "constant", "name"]

Env = dict[str, "int | tuple[int, ...]"]
"""The sizes bound to names: one size for a name, a tuple of sizes for a `*name`."""


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension: a name, an integer, an expression, `_` (any size), or a variadic one.

    `text` is its source text, `names` are the names that its size depends on, and `value` computes the size from the
    sizes of the names. `_` has neither names nor a value. A `variadic` dimension (`*name`, `...`, `*_`) stands for any
    number of dimensions.
    """

    text: str
    names: tuple[str, ...] = ()
    value: Callable[[Mapping[str, int]], int] | None = None
    variadic: bool = False

    @property
    def simple(self) -> bool:
        """True if the dimension is a single name."""
        return self.names == (self.text,) and not self.variadic


@dataclass(frozen=True)
class Dims:
    """The dimensions of one array argument."""

    text: str
    dims: tuple[Dim, ...]

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None if one is variadic."""
        return None if any(d.variadic for d in self.dims) else len(self.dims)

    @functools.cached_property
    def simple_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions, in order, if each is a single name; else None."""
        return tuple(d.text for d in self.dims) if all(d.simple for d in self.dims) else None

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names that occur in the dimensions, each once; `_` and `...` aren't names."""
        all_names = [n for d in self.dims for n in ((d.text.lstrip("*"),) if d.variadic else d.names)]
        return tuple(n for n in dict.fromkeys(all_names) if n not in ("...", "_"))

    def __str__(self) -> str:
        return self.text

    def match(self, shape: tuple[int, ...], env: Env) -> str | None:
        """Match the dimensions with a shape, and bind names in `env`. Returns a description of the mismatch, or None.

        Dimensions that are single names are bound first. Then an expression with one unbound name is solved for that
        name, if the expression is linear in it. An expression with several unbound names is skipped; a later call can
        check it, after other arguments have bound the names.
        """
        # At most one dimension is variadic.
        variadic_at = next((i for i, d in enumerate(self.dims) if d.variadic), None)
        fixed_count = len(self.dims) - (variadic_at is not None)  # the dimensions other than the variadic one
        if len(shape) < fixed_count or (variadic_at is None and len(shape) != fixed_count):
            at_least = "at least " if variadic_at is not None else ""
            plural = "s" if fixed_count != 1 else ""
            return f"{at_least}{fixed_count} dimension{plural} expected, found {len(shape)}"
        if variadic_at is None:
            pairs = list(zip(self.dims, shape, strict=True))
        else:
            pairs = self._pairs_around(variadic_at, shape)
            count_after = len(self.dims) - variadic_at - 1
            sizes = shape[variadic_at : len(shape) - count_after]
            problem = _bind_variadic(self.dims[variadic_at], sizes, env)
            if problem is not None:
                return problem
        for dim, size in pairs:
            if dim.simple:
                env.setdefault(dim.text, size)
        problems = (_check_or_solve(dim, size, env) for dim, size in pairs)
        return next((p for p in problems if p is not None), None)

    def _pairs_around(self, variadic_at: int, shape: tuple[int, ...]) -> list[tuple[Dim, int]]:
        """Pair the dimensions before and after the variadic one, which has index `variadic_at`, with their sizes."""
        count_after = len(self.dims) - variadic_at - 1
        before = zip(self.dims[:variadic_at], shape[:variadic_at], strict=True)
        return [*before, *zip(self.dims[variadic_at + 1 :], shape[len(shape) - count_after :], strict=True)]

    def evaluate(self, env: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...] | None:
        """Return the shape for the names in `env`, or None if a name isn't bound."""
        shape: list[int] = []
        for dim in self.dims:
            if dim.variadic:
                sizes = env.get(dim.text.lstrip("*"))
                if not isinstance(sizes, tuple):
                    return None
                shape += sizes
                continue
            name_sizes = _sizes(dim, env)
            if dim.value is None or name_sizes is None:
                return None
            shape.append(dim.value(name_sizes))
        return tuple(shape)


def _bind_variadic(dim: Dim, sizes: tuple[int, ...], env: Env) -> str | None:
    """Bind the name of a variadic dimension to the sizes that the dimension stands for.

    Returns a description of the mismatch if the name is bound to other sizes, else None.
    """
    name = dim.text.lstrip("*")
    if name in ("_", "..."):
        return None
    bound = env.setdefault(name, sizes)
    return None if bound == sizes else f"*{name} is {bound}, found {sizes}"


def _sizes(dim: Dim, env: Mapping[str, int | tuple[int, ...]]) -> dict[str, int] | None:
    """Return the sizes of a dimension's names, or None if one is unbound or bound to several dimensions."""
    sizes = {name: env.get(name) for name in dim.names}
    if not all(isinstance(s, int) for s in sizes.values()):
        return None
    return {n: s for n, s in sizes.items() if isinstance(s, int)}  # all are; the test is for the type checker


def _check_or_solve(dim: Dim, size: int, env: Env) -> str | None:
    """Compare a dimension with the size in a shape, or solve it for its only unbound name.

    Returns a description of the mismatch, or None.
    """
    if dim.value is None:
        return None
    variadic_name = next((n for n in dim.names if isinstance(env.get(n), tuple)), None)
    if variadic_name is not None:
        return f"{variadic_name} names several dimensions, {env[variadic_name]}"
    unknown = [n for n in dim.names if n not in env]
    if unknown:
        return _solve(dim, unknown[0], size, env) if len(unknown) == 1 else None
    try:
        expected = dim.value(_sizes(dim, env) or {})
    except ZeroDivisionError:
        return f"{dim.text} divides by zero"
    if expected == size:
        return None
    bindings = ", ".join(f"{n} = {env[n]}" for n in dim.names if n != dim.text)
    return f"{dim.text} is {expected}{f' where {bindings}' if bindings else ''}, found {size}"


def _solve(dim: Dim, name: str, size: int, env: Env) -> str | None:
    """Find the value of `name` for which a dimension has the given size, and bind it.

    Does nothing if the dimension isn't linear in `name`, judged by its values at 0, 1 and 2. Returns a description of
    the mismatch if no nonnegative integer is a solution, else None.
    """
    value = dim.value
    bound = {n: s for n, s in env.items() if isinstance(s, int)}
    if value is None:
        return None
    try:
        values = [value({**bound, name: n}) for n in (0, 1, 2)]
        slope = values[1] - values[0]
        if slope == 0 or values[2] - values[1] != slope:
            return None
        quotient = (size - values[0]) // slope
        if quotient < 0 or value({**bound, name: quotient}) != size:
            return f"no {name} makes {dim.text} equal to {size}"
    except ZeroDivisionError:
        return None
    env[name] = quotient
    return None


def constant(size: int) -> Dim:
    """Return a dimension of constant size."""
    return Dim(str(size), (), lambda _env: size)


def name(word: str) -> Dim:
    """Return a dimension that is a single name."""
    return Dim(word, (word,), lambda env: env[word])
