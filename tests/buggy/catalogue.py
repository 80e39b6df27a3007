"""All pairs of a buggy kernel and a correct twin, by class of mistake: what a search for mistakes has to find.

Enters: the modules beside this one, whose kernels mark the mistaken line with `# bug`. Leaves: `ALL`, the pairs by class.
A pair says what inputs its kernel has, as a user of it would; none changes how the search works.
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
    """(class, pair) for all of them."""
    return [(name, one) for name, pairs in ALL.items() for one in pairs]
