"""Dimension strings: "M K", "*batch 2*N", "_ N+1"; parsed, bound to shapes, and evaluated.

Enters: the text of an annotation and the shapes of arguments. Leaves: an environment from names to sizes (a `*name`
to a tuple), or words that say what disagrees. Simple texts (names, integers, `_`, `*name`) are read without lark.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import ArgumentError

__all__ = ["Dim", "Dims", "Env", "parse_dims"]

Env = dict[str, "int | tuple[int, ...]"]


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension: `text` as written; `names` that its value depends on; `value` computes it. `_` depends on nothing
    and has no value; `variadic` stands for any number of dimensions.
    """

    text: str
    names: tuple[str, ...] = ()
    value: Callable[[Mapping[str, int]], int] | None = None
    variadic: bool = False

    @property
    def simple(self) -> bool:
        """A name alone."""
        return self.names == (self.text,) and not self.variadic


@dataclass(frozen=True, slots=True)
class Dims:
    """The dimensions of one array argument."""

    text: str
    dims: tuple[Dim, ...]

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None with a `*name`."""
        return None if any(d.variadic for d in self.dims) else len(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that occur, each once."""
        found = [n for d in self.dims for n in ((d.text.lstrip("*"),) if d.variadic else d.names)]
        return tuple(n for n in dict.fromkeys(found) if n not in ("...", "_"))

    def __str__(self) -> str:
        return self.text

    def match(self, shape: tuple[int, ...], env: Env) -> str | None:
        """Compares with a shape and binds names in `env`; says what disagrees, or None.

        Names that stand alone are bound first, then expressions are solved for their only unknown name, where they are
        linear in it. What has more unknown names is left for a later call.
        """
        star = next((i for i, d in enumerate(self.dims) if d.variadic), None)
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
        """The dimensions before and after a `*name`, with their sizes."""
        tail = len(self.dims) - star - 1
        before = zip(self.dims[:star], shape[:star], strict=True)
        return [*before, *zip(self.dims[star + 1 :], shape[len(shape) - tail :], strict=True)]

    def evaluate(self, env: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...] | None:
        """The shape that the names in `env` give; None where one isn't known."""
        shape: list[int] = []
        for dim in self.dims:
            if dim.variadic:
                sizes = env.get(dim.text.lstrip("*"))
                if not isinstance(sizes, tuple):
                    return None
                shape += sizes
                continue
            known = _sizes(dim, env)
            if dim.value is None or known is None:
                return None
            shape.append(dim.value(known))
        return tuple(shape)


def _bind_batch(dim: Dim, sizes: tuple[int, ...], env: Env) -> str | None:
    name = dim.text.lstrip("*")
    if name in ("_", "..."):
        return None
    known = env.setdefault(name, sizes)
    return None if known == sizes else f"*{name} is {known}, found {sizes}"


def _sizes(dim: Dim, env: Mapping[str, int | tuple[int, ...]]) -> dict[str, int] | None:
    """The sizes of a dimension's names; None where one isn't known, or names several dimensions."""
    found = {name: env.get(name) for name in dim.names}
    return (
        {n: s for n, s in found.items() if isinstance(s, int)}
        if all(isinstance(s, int) for s in found.values())
        else None
    )


def _settle(dim: Dim, size: int, env: Env) -> str | None:
    """Compares a dimension with its size, or solves it for its only unknown name."""
    if dim.value is None:
        return None
    several = next((n for n in dim.names if isinstance(env.get(n), tuple)), None)
    if several is not None:
        return f"{several} names several dimensions, {env[several]}"
    unknown = [n for n in dim.names if n not in env]
    if unknown:
        return _solve(dim, unknown[0], size, env) if len(unknown) == 1 else None
    try:
        expected = dim.value(_sizes(dim, env) or {})
    except ZeroDivisionError:
        return f"{dim.text} divides by zero"
    if expected == size:
        return None
    known = ", ".join(f"{n} = {env[n]}" for n in dim.names if n != dim.text)
    return f"{dim.text} is {expected}{f' where {known}' if known else ''}, found {size}"


def _solve(dim: Dim, name: str, size: int, env: Env) -> str | None:
    """Solves a dimension that is linear in `name`; leaves others alone."""
    value = dim.value
    known = {n: s for n, s in env.items() if isinstance(s, int)}
    if value is None:
        return None
    try:
        at = [value({**known, name: n}) for n in (0, 1, 2)]
        slope = at[1] - at[0]
        if slope == 0 or at[2] - at[1] != slope:
            return None
        quotient = (size - at[0]) // slope
        if quotient < 0 or value({**known, name: quotient}) != size:
            return f"no {name} makes {dim.text} equal to {size}"
    except ZeroDivisionError:
        return None
    env[name] = quotient
    return None


_SIMPLE = re.compile(r"^(?:\*?[A-Za-z_]\w*|\d+|\.\.\.|\*_)$")


@functools.lru_cache(maxsize=1024)
def parse_dims(text: str) -> Dims:
    """The dimensions of a text; ArgumentError, with the position, where it can't be read."""
    words = text.split()
    if all(_SIMPLE.match(w) for w in words):
        dims = tuple(_simple_dim(w) for w in words)
    else:
        from .dims_grammar import parse_expressions

        dims = parse_expressions(text)
    if sum(d.variadic for d in dims) > 1:
        raise ArgumentError(f'"{text}": at most one dimension may be a *name')
    return Dims(text, dims)


def _simple_dim(word: str) -> Dim:
    if word in ("...", "*_") or word.startswith("*"):
        return Dim(word, (), None, True)
    if word == "_":
        return Dim(word)
    if word.isdigit():
        return constant(int(word))
    return name(word)


def constant(size: int) -> Dim:
    """A dimension of known size."""
    return Dim(str(size), (), lambda _env: size)


def name(word: str) -> Dim:
    """A dimension that a name stands for."""
    return Dim(word, (word,), lambda env: env[word])
