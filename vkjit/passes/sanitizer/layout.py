"""The interface between a sanitized kernel and the host: hidden parameters, records and shadow words.

The pass fills in a `SanitizerPlan`, which is kept in the kernel's attribute `sanitizer_plan` and in the artifact's
`info`. Hidden parameters follow the user's and are numbered on from them; `hidden` lists their roles in order.

A record has `RECORD_WORDS` words (u32). Word 0 is 0, or the number of the workgroup that claimed it, from 1; word 1 is
the number of the invocation in that workgroup; from word 2 on, there are the values that the host doesn't know, two
words each (low, high).

A shadow word (u64) tells which invocation accessed a cell last::

    workgroup's number: 22 bits | invocation in it: 10 | epoch: 12 | site: 9 | hash of the value: 11

Epochs count barriers from 1; 0 means that the cell hasn't been accessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit.errors import Loc

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
MAX_VALUES = (RECORD_WORDS - FIRST_VALUE) // 2

GROUP_BITS, LOCAL_BITS = 22, 10
EPOCH_BITS, SITE_BITS, HASH_BITS = 12, 9, 11
LAST_EPOCH = (1 << EPOCH_BITS) - 1
"""From this epoch on, accesses of one workgroup are no longer compared."""


@dataclass(frozen=True, slots=True)
class AccessSite:
    """A source location that accesses tracked memory. `how`: "read", "write", "atomic read" or "atomic write"."""

    loc: Loc
    how: str
    array: str


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value of a report that the host knows: the extent of array `arg` along `axis` or, if `arg` is -1, `number`."""

    arg: int = -1
    axis: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Hidden:
    """One hidden parameter.

    `role` is one of: "records"; "values" (the same memory as u64); "written" (u32 per cell: 1 if it has been written);
    "shadow" (`planes` u64 per cell); "votes" (u64 per workgroup and checked `assume_uniform`); "votes_per_group";
    "cells" (the number of cells); "shared" (the first cell of shared arrays); "per_group" (the cells of a workgroup's
    shared arrays); "zero" (0, unknown to the compiler); "base" (the first cell of array `arg`); "scale" (cells per
    element of array `arg`).
    """

    role: str
    arg: int = -1


@dataclass(slots=True)
class SanitizerPlan:
    """What a launch has to pass to a sanitized kernel, and how to read its records.

    `first` is the number of the first hidden parameter. `sites` are the access sites that shadow words refer to.
    `value_kinds` has, by report site, the kinds of its values: "int", "uint", "f32", "f64", or a `HostValue`. `tracked`
    are the numbers of the global arrays with shadow cells, `shared_cells` the cells of a workgroup's shared arrays,
    `planes` the u64 shadow words per cell, and `votes` the votes per workgroup. `stores` has, for each array that is
    written, its name and a location that writes it.
    """

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
