"""Loops, assumptions that the compiler relies on, and parameters for autotuning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ._stub import kernel_only

__all__ = ["Tune", "assume", "assume_uniform", "grid_stride", "tune", "unroll"]


@kernel_only
def unroll(start: int | Iterable[Any], stop: int | None = None, step: int = 1) -> Any:
    """Unroll a loop at compile time: `for t in vk.unroll(n)`. The bounds must be constants, as is `t` in the body.

    Takes the arguments of `range`, or a tuple of values.
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
    """Return the value, and assume that it is the same in the whole workgroup. Kernels with `debug=True` check this."""


@kernel_only
def assume(condition: Any) -> None:
    """Assume that a condition holds whenever control reaches this statement, so that the compiler can rely on it.

    Two kinds of conditions are useful. Comparisons of integers tell the compiler their ranges or their order.
    Conditions such as `n % 16 == 0`, with a constant power of two, allow vectorized accesses. If the condition is
    false, the interpreter and kernels with `debug=True` raise `vk.AssumptionError`; otherwise results are undefined.
    """


@dataclass(frozen=True, slots=True)
class Tune:
    """The choices of a `vk.tune`."""

    choices: tuple[Any, ...]


def tune(*choices: Any) -> Any:
    """Declare choices for a Const parameter or a local size; the autotuner measures them and selects the fastest.

    The first choice is the default. Raises ArgumentError without choices. Example: `BLOCK: vk.Const[int] = vk.tune(64,
    128)`.
    """
    if not choices:
        raise ArgumentError("vk.tune() needs at least one choice, as in vk.tune(64, 128)")
    return Tune(choices)
