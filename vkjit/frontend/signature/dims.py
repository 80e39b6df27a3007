"""Dimensions in the annotations of arrays, such as "M K" or "*batch 2*N": match them with shapes, evaluate them.

Matching an argument's shape binds names to sizes in an environment (a `*name` to a tuple), or describes the mismatch.
Evaluation computes a shape from an environment, such as that of an allocated output. `dims_parser` parses the strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Dim", "Dims", "Env", "constant", "name"]

Env = dict[str, "int | tuple[int, ...]"]
"""The sizes bound to names: one for a name, a tuple for a `*name`."""


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


@dataclass(frozen=True, slots=True)
class Dims:
    """The dimensions of one array argument."""

    text: str
    dims: tuple[Dim, ...]

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None if one is variadic."""
        return None if any(d.variadic for d in self.dims) else len(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that occur in the dimensions, each once; `_` and `...` aren't names."""
        all_names = [n for d in self.dims for n in ((d.text.lstrip("*"),) if d.variadic else d.names)]
        return tuple(n for n in dict.fromkeys(all_names) if n not in ("...", "_"))

    def __str__(self) -> str:
        return self.text

    def match(self, shape: tuple[int, ...], env: Env) -> str | None:
        """Match with a shape and bind names in `env`. Returns a description of the mismatch, or None.

        Single names are bound first. Then an expression with one unbound name is solved for that name if it is linear
        in it. An expression with several unbound names is skipped; a later call can check it when other arguments have
        bound them.
        """
        star = next((i for i, d in enumerate(self.dims) if d.variadic), None)  # at most one dimension is variadic
        fixed = len(self.dims) - (star is not None)
        if len(shape) < fixed or (star is None and len(shape) != fixed):
            plural = "s" if fixed != 1 else ""
            return f"{'at least ' if star is not None else ''}{fixed} dimension{plural} expected, found {len(shape)}"
        pairs = list(zip(self.dims, shape, strict=False)) if star is None else self._around(star, shape)
        if star is not None:
            problem = _bind_batch(self.dims[star], shape[star : len(shape) - (len(self.dims) - star - 1)], env)
            if problem is not None:
                return problem
        for dim, size in pairs:
            if dim.simple:
                env.setdefault(dim.text, size)
        problems = (_settle(dim, size, env) for dim, size in pairs)
        return next((p for p in problems if p is not None), None)

    def _around(self, star: int, shape: tuple[int, ...]) -> list[tuple[Dim, int]]:
        """Pair the dimensions before and after the variadic one, number `star`, with their sizes."""
        tail = len(self.dims) - star - 1
        before = zip(self.dims[:star], shape[:star], strict=True)
        return [*before, *zip(self.dims[star + 1 :], shape[len(shape) - tail :], strict=True)]

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


def _bind_batch(dim: Dim, sizes: tuple[int, ...], env: Env) -> str | None:
    """Bind the name of a variadic dimension. Returns a description of the mismatch if it is bound to other sizes."""
    name = dim.text.lstrip("*")
    if name in ("_", "..."):
        return None
    bound = env.setdefault(name, sizes)
    return None if bound == sizes else f"*{name} is {bound}, found {sizes}"


def _sizes(dim: Dim, env: Mapping[str, int | tuple[int, ...]]) -> dict[str, int] | None:
    """Return the sizes of a dimension's names, or None if one is unbound or bound to several dimensions."""
    sizes = {name: env.get(name) for name in dim.names}
    return (
        {n: s for n, s in sizes.items() if isinstance(s, int)}
        if all(isinstance(s, int) for s in sizes.values())
        else None
    )


def _settle(dim: Dim, size: int, env: Env) -> str | None:
    """Compare a dimension with its size, or solve it for its only unbound name. Returns a description of a mismatch."""
    if dim.value is None:
        return None
    batch = next((n for n in dim.names if isinstance(env.get(n), tuple)), None)
    if batch is not None:
        return f"{batch} names several dimensions, {env[batch]}"
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
    """Solve a dimension for `name` and bind it if the dimension is linear in it; skip other dimensions.

    Returns a description of the mismatch if no nonnegative integer solves it. Linearity is judged by the values at 0, 1
    and 2.
    """
    value = dim.value
    bound = {n: s for n, s in env.items() if isinstance(s, int)}
    if value is None:
        return None
    try:
        at = [value({**bound, name: n}) for n in (0, 1, 2)]
        slope = at[1] - at[0]
        if slope == 0 or at[2] - at[1] != slope:
            return None
        quotient = (size - at[0]) // slope
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
