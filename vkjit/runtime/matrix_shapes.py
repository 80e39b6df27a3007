"""Selection of the cooperative matrix shapes of a device.

Filters the shapes listed in `caps.matrices` down to those that kernels can use, and selects the best one for given
element types.
"""

from __future__ import annotations

from collections.abc import Iterable

from .device import MatrixShape

__all__ = ["native_shape", "usable_shapes"]


def usable_shapes(shapes: Iterable[MatrixShape]) -> list[MatrixShape]:
    """Return the fixed shapes of subgroup scope whose integers wrap on overflow and whose result has the type of C."""
    return [s for s in shapes if s.scope == "subgroup" and not s.flexible and not s.saturating and s.result == s.c]


def native_shape(shapes: Iterable[MatrixShape], a: str, b: str, accumulator: str) -> MatrixShape | None:
    """Return the best shape for these element types: the largest m * n * k, then the largest k.

    None if there is none.
    """
    found = [s for s in usable_shapes(shapes) if (s.a, s.b, s.c) == (a, b, accumulator)]
    return max(found, key=lambda s: (s.m * s.n * s.k, s.k), default=None)
