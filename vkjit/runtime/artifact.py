"""The frozen border between compiler and runtime: a compiled kernel and how its arguments are laid out.

Enters: what a back end produced. Leaves: everything a device needs to run it. The runtime knows no IR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..dtypes import DType
from ..errors import ReportSite

__all__ = ["PRINT_BYTES", "PRINT_CAPACITY", "PRINT_HEAD", "REPORT_WORDS", "ArgField", "KernelArtifact", "ReportSite"]


@dataclass(frozen=True, slots=True)
class ArgField:
    """One value in the argument block.

    `role` is "address" (u64, bytes), "extent", "stride" (elements; signed), "scalar", "report" (u64 address of the
    report buffer), "print" (u64 address of the print buffer), "base" (of a grid cut into several dispatches: the first
    workgroup along `axis`) or "groups" (the number of workgroups of the whole grid along `axis`). `arg` numbers the kernel's
    parameter (-1 where there is none), `axis` the dimension. `dtype` is the type in the block, `offset` and `size` are in bytes.
    """

    role: str
    arg: int
    axis: int
    dtype: DType
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class KernelArtifact:
    """A compiled kernel for one kind of device.

    `code` is SPIR-V in little-endian words (bytes), or an object that the back end's own device understands.
    `block_size` is the size in bytes of the argument block; `indirect` says that the kernel gets, as its only push
    constant, the u64 address of a buffer that holds the block (used past the device's push-constant limit).
    `reads` and `writes` number the parameters whose memory is read and written. `subgroup_size` is required when set.
    """

    name: str
    code: Any
    entry: str
    local_size: tuple[int, int, int]
    fields: tuple[ArgField, ...]
    block_size: int
    indirect: bool
    reads: frozenset[int]
    writes: frozenset[int]
    features: frozenset[str] = frozenset()
    shared_bytes: int = 0
    subgroup_size: int | None = None
    sites: tuple[ReportSite, ...] = ()
    info: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)


REPORT_WORDS = 64
"""Words (u32) of a report buffer: word 0 is 0 or the site's number plus one, claimed by compare-and-swap; words 1..3
the invocation's global id; words 4.. the values stored with the report, two words (i64) each. A Vulkan device gives
each launch a buffer of its own, whose address it writes into the field of role "report"; callers leave zeros there."""

PRINT_BYTES = 1 << 20
"""Size of the buffer for what one launch prints: a head of `PRINT_HEAD` words of 64 bits (u32 words: the words asked for so
far; the place of the first record that had no room, `PRINT_CAPACITY` while there is none; the number of those records; 0),
then records. A Vulkan device gives each launch a buffer of its own, whose address it writes into the field of role "print".
"""

PRINT_HEAD = 2
PRINT_CAPACITY = PRINT_BYTES // 8 - PRINT_HEAD
