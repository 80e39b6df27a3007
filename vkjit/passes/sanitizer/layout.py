"""The interface between a sanitized kernel and the host: hidden parameters, records and shadow words.

The sanitizer pass fills in a `SanitizerPlan`, which is stored in the kernel's attribute `sanitizer_plan` and in the
artifact's `info`. The host (`vkjit.sanitizer.launch`) allocates the memory that the plan describes. Hidden parameters
come after the user's parameters. Their argument numbers continue those of the user's parameters.

Records: each report site of the kernel (a `ReportSite`: a source location and a message) has one record of
`RECORD_WORDS` u32 words. Word 0 is 0 while nothing has been reported, else 1 plus the linear id of the reporting
workgroup. Word 1 is the linear local id of the reporting invocation. From word `FIRST_VALUE` on, the record has the
values to insert into the message, in two words each (low, high). Values that the host knows are omitted.

Shadow words: each element of a tracked array has a shadow cell, which consists of several u64 words. Memory has the
first words of all cells, then the second words of all cells, and so on. All words with the same number form a plane. A
shadow word describes one earlier access to the element::

    workgroup's linear id: 22 bits | linear local id: 10 | epoch: 12 | access site: 9 | hash of the written value: 11

The epoch of an access is 1 plus the number of barriers that the invocation has passed. Epoch 0 means that the word is
unused. An access site is an index into `SanitizerPlan.sites`.
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
"""The word of a record at which its values begin."""
MAX_VALUES = (RECORD_WORDS - FIRST_VALUE) // 2
"""The maximum number of values in a record."""

GROUP_BITS, LOCAL_BITS = 22, 10
EPOCH_BITS, SITE_BITS, HASH_BITS = 12, 9, 11
LAST_EPOCH = (1 << EPOCH_BITS) - 1
"""The value at which the epoch counter saturates. Accesses of one workgroup in this epoch aren't compared."""


@dataclass(frozen=True, slots=True)
class AccessSite:
    """A source location that accesses a tracked array.

    `kind` is "read", "write", "atomic read" or "atomic write"; `array` is the array's name, "" if it has none.
    """

    loc: Loc
    kind: str
    array: str


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value in a report's message that the host knows, so that the record omits it.

    It is the extent of the array argument number `arg` along `axis` or, if `arg` is -1, the constant `number`.
    """

    arg: int = -1
    axis: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Hidden:
    """One hidden parameter. `arg` is the number of the array argument that it describes, or -1.

    `role` is one of the following. Memory:

    - "records": the records, as u32 words; "values": the records again (the same memory), as u64 words;
    - "written": one u32 per shadow cell, 1 if the element has been written;
    - "shadow": the shadow words, plane by plane (one u64 per cell in each of `SanitizerPlan.planes` planes);
    - "votes": for each workgroup, one u64 per checked `assume_uniform` (see `uniform_assumptions`).

    Scalars (i64):

    - "votes_per_group": the number of checked `assume_uniform`s;
    - "cells": the number of shadow cells;
    - "shared": the number of the first cell of shared arrays; "per_group": the cells of one workgroup's shared arrays;
    - "zero": 0, a value that the driver's compiler can't know;
    - "base": the number of the cell of the first element of array `arg`; "scale": cells per element of array `arg`.
    """

    role: str
    arg: int = -1


@dataclass(slots=True)
class SanitizerPlan:
    """The hidden arguments that a launch has to pass to a sanitized kernel, and the format of its records.

    `checks` are the names of the requested checks. `first_hidden` is the number of the first hidden parameter, and `hidden`
    lists the hidden parameters in order. `sites` are the access sites that shadow words refer to. `value_kinds` maps
    the number of each report site to the kinds of its values: "int", "uint", "f32", "f64", or a `HostValue` for a value
    that isn't in the record. `tracked` are the argument numbers of the global arrays with shadow cells. `shared_cells`
    is the number of cells of one workgroup's shared arrays, `planes` the number of shadow words per cell, and `votes`
    the number of checked `assume_uniform`s. `stores` maps the argument number of each written array to its name and a
    source location that writes it. `local_size` is the workgroup size that the kernel was written for.
    """

    checks: tuple[str, ...]
    first_hidden: int
    hidden: list[Hidden]
    sites: list[AccessSite]
    value_kinds: dict[int, tuple[str | HostValue, ...]]
    tracked: list[int]
    shared_cells: int = 0
    planes: int = 0
    votes: int = 0
    stores: dict[int, tuple[str, Loc]] = field(default_factory=dict)
    local_size: tuple[int, int, int] = (1, 1, 1)
