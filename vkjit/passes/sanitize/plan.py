"""What a sanitized kernel expects of its launch, and how the host reads what it found.

Enters: what the pass built in. Leaves: `SanitizerPlan`, kept among the kernel's attributes (`sanitizer_plan`) and in the
artifact's `info`. Hidden parameters follow the user's, numbered on from them: their roles are listed in order.

A record has `RECORD_WORDS` words (u32): word 0 is 0, or the number of the workgroup that claimed it, from 1; word 1 is the
invocation's number in it; words 2 on are the values that the host doesn't know, two words each (low, high). A shadow word
(u64) says who touched a cell last::

    workgroup's number: 22 bits | invocation in it: 10 | epoch: 12 | site: 9 | hash of the value: 11

Epochs count barriers from 1; 0 means that nobody touched the cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import Loc

__all__ = [
    "EPOCH_BITS",
    "GROUP_BITS",
    "HASH_BITS",
    "LAST_EPOCH",
    "LOCAL_BITS",
    "RECORD_WORDS",
    "SITE_BITS",
    "AccessSite",
    "Hidden",
    "HostValue",
    "SanitizerPlan",
]

RECORD_WORDS = 32
FIRST_VALUE = 2
MOST_VALUES = (RECORD_WORDS - FIRST_VALUE) // 2

GROUP_BITS, LOCAL_BITS = 22, 10
EPOCH_BITS, SITE_BITS, HASH_BITS = 12, 9, 11
LAST_EPOCH = (1 << EPOCH_BITS) - 1
"""From this epoch on, accesses of one workgroup are no longer compared."""


@dataclass(frozen=True, slots=True)
class AccessSite:
    """One place that accesses tracked memory. `how`: "read", "write", "atomic read" or "atomic write"."""

    loc: Loc
    how: str
    array: str


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value of a report that the host knows: the extent of array `arg` along `axis`, or, without an array, a number."""

    arg: int = -1
    axis: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Hidden:
    """One hidden parameter.

    `role`: "records", "values" (the same memory as u64), "written" (u32 per cell: 1 once it was written), "shadow"
    (`planes` u64 per cell), "votes" (u64 per workgroup and promise), "votes_per_group", "cells" (the number of cells),
    "shared" (the first cell of shared arrays), "per_group" (their cells in one workgroup), "zero" (0, which compilers
    don't know), "base" (the first cell of array `arg`) or "scale" (cells per element of array `arg`).
    """

    role: str
    arg: int = -1


@dataclass(slots=True)
class SanitizerPlan:
    """`first` is the number of the first hidden parameter, `sites` the places of accesses that shadow words name,
    `value_kinds` by report site the kinds of its values ("int", "uint", "f32", "f64", or a `HostValue`). `tracked` are the
    numbers of global arrays with cells, `shared_cells` those of one workgroup; `planes` u64 shadows per cell; `votes` per
    workgroup. `stores` has the name of each array that is written, and a place that writes it."""

    checks: tuple[str, ...]
    first: int
    hidden: list[Hidden]
    sites: list[AccessSite]
    value_kinds: dict[int, tuple[str | HostValue, ...]]
    tracked: list[int]
    shared_cells: int = 0
    planes: int = 0
    votes: int = 0
    stores: dict[int, tuple[str, Loc]] = field(default_factory=dict)
    local_size: tuple[int, int, int] = (1, 1, 1)
