"""All pairs of a buggy kernel and its correct twin, by class of bug: the benchmark for property-based testing.

The kernels are in the other modules of this package and mark the faulty line with `# bug`. A pair constrains its inputs
as a user would; it never changes how the search works. `ALL` holds the pairs by class.
"""

from __future__ import annotations

from tests.buggy import (
    aliasing,
    arithmetic,
    atomics,
    barrier,
    composed,
    identity,
    index_overflow,
    nan,
    out_of_bounds,
    race_global,
    race_shared,
    stride,
    tail,
    uninitialised,
)
from tests.buggy.pair import Pair

__all__ = ["ALL", "every"]

_MODULES = (
    out_of_bounds, race_shared, race_global, barrier, uninitialised, tail, index_overflow, identity, nan, stride,
    aliasing, atomics, arithmetic, composed,
)  # fmt: skip

ALL: dict[str, tuple[Pair, ...]] = {module.__name__.rpartition(".")[2]: module.PAIRS for module in _MODULES}


def every() -> list[tuple[str, Pair]]:
    """Return (class, pair) for every pair."""
    return [(name, one) for name, pairs in ALL.items() for one in pairs]
