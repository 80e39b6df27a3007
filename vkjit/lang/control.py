"""Loops, promises to the compiler, and parameters to tune."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ._stub import kernel_only

__all__ = ["Tune", "assume_uniform", "grid_stride", "tune", "unroll"]


@kernel_only
def unroll(start: int | Iterable[Any], stop: int | None = None, step: int = 1) -> Any:
    """Unroll a loop: `for t in vk.unroll(n)`. The bounds are compile-time constants, and so is `t` in the body.

    Takes the arguments of `range`, or a tuple.
    """


@kernel_only
def grid_stride(stop: Any, dim: int = 0) -> Any:
    """Loop from `global_id(dim)` to `stop` (exclusive) in steps of the grid's size, so that the grid visits each index
    once.

    Example::

        for i in vk.grid_stride(len(x)):
            y[i] = 2 * x[i]
    """


@kernel_only
def assume_uniform(value: Any) -> Any:
    """Return the value, promised to be the same in the whole workgroup (or subgroup). `debug=True` checks the promise."""


@kernel_only
def assume(condition: Any) -> None:
    """Promise that a condition holds whenever control reaches this statement, so that the compiler can rely on it.

    The compiler uses comparisons of integers (their ranges, and which of two is smaller) and `n % 16 == 0` with a
    constant power of two (vectorized accesses). The interpreter and `debug=True` report a broken promise as a
    `vk.AssumptionError`; elsewhere results are undefined then.
    """


@dataclass(frozen=True, slots=True)
class Tune:
    """Values to choose from by measurement."""

    choices: tuple[Any, ...]


def tune(*choices: Any) -> Any:
    """Declare choices for a Const parameter or a local size, of which the library selects the fastest by measurement.

    The first choice is the default. Raises ArgumentError without choices. Example: `BLOCK: vk.Const[int] = vk.tune(64,
    128)`.
    """
    if not choices:
        raise ArgumentError("vk.tune() needs at least one choice, as in vk.tune(64, 128)")
    return Tune(choices)
