"""Loops that Python has no word for, and promises to the compiler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ._stub import kernel_only

__all__ = ["Tune", "assume_uniform", "grid_stride", "tune", "unroll"]


@kernel_only
def unroll(start: int | Iterable[Any], stop: int | None = None, step: int = 1) -> Any:
    """A loop that is written out: `for t in vk.unroll(n)`; bounds are known at compile time, as is `t` in the body.

    Takes the arguments of `range`, or a tuple.
    """


@kernel_only
def grid_stride(stop: Any, dim: int = 0) -> Any:
    """A loop from `global_id(dim)` to `stop` (exclusive) in steps of the grid's size: each index is visited once."""


@kernel_only
def assume_uniform(value: Any) -> Any:
    """The value, promised to be the same in the whole workgroup (subgroup); checked with `debug=True`."""


@kernel_only
def assume(condition: Any) -> None:
    """Promises that a condition holds wherever the program comes by, so that the compiler may rely on it.

    Used are comparisons of integers (ranges, which of two is the smaller), and `n % 16 == 0` with a constant power of two (wide
    accesses). The interpreter and `debug=True` report a promise that doesn't hold, as a `vk.AssumptionError`; elsewhere the
    results are undefined then.
    """


@dataclass(frozen=True, slots=True)
class Tune:
    """Values among which the library chooses by measuring."""

    choices: tuple[Any, ...]


def tune(*choices: Any) -> Any:
    """Lets the library choose a Const parameter or a local size among `choices`, by measuring; the first is the
    default.

    Raises ArgumentError without choices.
    """
    if not choices:
        raise ArgumentError("vk.tune() needs at least one choice, as in vk.tune(64, 128)")
    return Tune(choices)
