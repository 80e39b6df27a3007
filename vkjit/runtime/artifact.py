"""The interface between compiler and runtime: compiled kernels and the layout of their arguments.

A `KernelArtifact` holds everything that a device needs to run a kernel, so that the runtime doesn't depend on the IR.
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
    report buffer), "print" (u64 address of the print buffer), "base" (the first workgroup along `axis`, for a grid
    split into several dispatches) or "groups" (the number of workgroups of the whole grid along `axis`). `arg` is the
    index of the kernel's parameter (-1 if there is none), `axis` the dimension. `dtype` is the type in the block.
    `offset` and `size` are in bytes.
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

    `code` is SPIR-V in little-endian words (bytes), or an object specific to the backend.
    `block_size` is the size of the argument block in bytes. If `indirect`, the block exceeds the device's push-constant
    limit, and the only push constant is the u64 address of a buffer that holds it.
    `reads` and `writes` are the indices of the parameters whose memory is read and written. `subgroup_size`, if set, is
    the required size.
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
"""Size of a report buffer in words (u32). Word 0 is 0 or the site's number plus one, claimed by compare-and-swap; words
1 to 3 are the invocation's global id; the others are the values of the report, two words (i64) each. A Vulkan device
allocates a buffer for each launch and writes its address into the field of role "report"; callers pass zeros there."""

PRINT_BYTES = 1 << 20
"""Size in bytes of the print buffer of a launch: a header of `PRINT_HEAD` 64-bit words, then records. The header holds
four u32: the number of words requested so far, the position of the first record that didn't fit (`PRINT_CAPACITY` if
all did), the number of records that didn't fit, and 0. A Vulkan device allocates a buffer for each launch and writes
its address into the field of role "print".
"""

PRINT_HEAD = 2
PRINT_CAPACITY = PRINT_BYTES // 8 - PRINT_HEAD
