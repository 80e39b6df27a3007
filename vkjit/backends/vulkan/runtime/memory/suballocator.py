"""Device memory: blocks from the driver, divided among buffers by a caching sub-allocator.

`Memory` has one `Pool` per kind of memory, and pools return `Chunk`s: parts of blocks with an address, an offset in the
block's VkBuffer and, if mapped, host-visible bytes. Allocating from an existing block costs no driver call. Chunks
start at multiples of 256 bytes. Blocks stay reserved until `trim()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import DeviceError, OutOfMemoryError
from vkjit.settings import boolean_setting

from ..gpu_clock import NVIDIA
from ..loader import Functions, Vulkan
from ..physical_device import Physical
from .block import OPAQUE_FD, USAGE, HostBlock, MemoryBlock, MemoryKind, host_memory_types
from .budget import Budget
from .free_list import RangeAllocator

__all__ = ["Chunk", "Memory", "MemoryBlock", "Pool"]

Bytes = npt.NDArray[np.uint8]

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 0x1, 0x2, 0x4, 0x8
_BUFFER_INFO, _BUFFER_PROPERTIES = 1000071002, 1000071003
_DEDICATED_ONLY, _EXPORTABLE = 0x1, 0x2
_MIB = 1 << 20
_FIRST_BLOCK, _LARGEST_SHARED_BLOCK = 4 * _MIB, 256 * _MIB
_PINNED_BLOCK = 64 << 10
_MAX_SPARE, _MAX_SPARE_BYTES = 64, 64 << 10
"""Limits of released chunks that are kept by size: the number per size, and the largest size in bytes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a block: `nbytes` bytes from `offset` on."""

    pool: Pool
    block: MemoryBlock
    offset: int
    nbytes: int
    address: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", self.block.address + self.offset)

    @property
    def bytes(self) -> Bytes:
        """The mapped bytes. Raises DeviceError if the memory isn't mapped."""
        if self.block.bytes is None:
            raise DeviceError("this memory isn't visible to the host")
        return self.block.bytes[self.offset : self.offset + self.nbytes]

    def release(self) -> None:
        """Return the chunk to its pool. Call it once, and only when the device is done with it."""
        self.pool.release(self)


class Pool:
    """All blocks of one kind of memory."""

    def __init__(
        self,
        kind: MemoryKind,
        make_block: Callable[[MemoryKind, int, int], MemoryBlock],
        left: Callable[[int], int],
        unit: int = 256,
    ) -> None:
        """`unit`: block sizes are multiples of this many bytes."""
        self.kind = kind
        self._unit = unit
        self._make_block = make_block
        self._left = left
        self._ranges = RangeAllocator()
        self._blocks: dict[int, MemoryBlock] = {}
        self._numbers = 0
        self.allocated = self.peak = self.count = 0
        self._spare: dict[int, list[Chunk]] = {}
        """Released chunks, by size, kept for the next allocations of that size. They count as free."""
        self.recent: dict[tuple[Any, int], dict[int, Any]] = {}
        """Dropped chunks that are still in use, by queue and rounded size; see `buffer`."""

    def rounded(self, nbytes: int) -> int:
        """Return the number of bytes that a chunk of this size occupies."""
        return self._ranges.rounded(nbytes)

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver."""
        return sum(block.size for block in self._blocks.values())

    def free_sizes(self) -> list[int]:
        """Return the sizes of the free ranges in the pool's blocks."""
        self._merge()
        return [size for _, _, size in self._ranges.free_ranges()]

    def around(self, address: int, nbytes: int) -> tuple[MemoryBlock, int] | None:
        """Return the mapped block that contains this range of host addresses, and the offset in it; None if none does."""
        for block in list(self._blocks.values()):
            if block.bytes is not None:
                offset = address - block.bytes.ctypes.data
                if offset >= 0 and offset + nbytes <= block.size:
                    return block, offset
        return None

    def find(self, nbytes: int) -> Chunk | None:
        """Allocate a chunk in the existing blocks; None if none has room."""
        spare, taken = self._spare.get(nbytes), self._ranges.rounded(nbytes)
        if spare:
            chunk = spare[-1]  # no calls from here to the end of the function, in which Ctrl-C could arrive
            del spare[-1]
        else:
            place = self._ranges.allocate(nbytes)
            if place is None and self._spare:
                self._merge()
                place = self._ranges.allocate(nbytes)
            if place is None:
                return None
            try:
                chunk = Chunk(self, self._blocks[place[0]], place[1], nbytes)
            except BaseException:
                self._ranges.release(*place, nbytes)
                raise
        self.count += 1
        self.allocated += taken
        if self.allocated > self.peak:
            self.peak = self.allocated
        return chunk

    def grow(self, nbytes: int) -> None:
        """Take a block with room for `nbytes` from the driver. Raises OutOfMemoryError."""
        need = self._ranges.rounded(nbytes)
        shared = min(max(_FIRST_BLOCK, self.reserved), _LARGEST_SHARED_BLOCK)
        try:
            self._add_block(max(shared, need))
        except OutOfMemoryError:
            if shared <= need:
                raise
            self._add_block(need)

    def release(self, chunk: Chunk) -> None:
        """Take a chunk back."""
        nbytes = chunk.nbytes
        taken = self._ranges.rounded(nbytes)
        spare = self._spare.setdefault(nbytes, []) if nbytes <= _MAX_SPARE_BYTES else None
        kept = spare is not None and len(spare) < _MAX_SPARE
        self.allocated -= taken
        self.count -= 1
        if spare is not None and kept:
            spare.append(chunk)
        else:
            self._ranges.release(chunk.block.number, chunk.offset, nbytes)

    def _merge(self) -> None:
        """Return the spare chunks to the free ranges."""
        for row in self._spare.values():
            while row:
                chunk = row[-1]
                del row[-1]
                self._ranges.release(chunk.block.number, chunk.offset, chunk.nbytes)
        self._spare.clear()

    def trim(self) -> None:
        """Return blocks without chunks to the driver."""
        self._merge()
        for number in [n for n in self._blocks if self._ranges.is_empty(n)]:
            self._ranges.remove_arena(number)
            self._blocks.pop(number).close()

    def close(self) -> None:
        """Return all blocks to the driver, even those with chunks in use."""
        for block in self._blocks.values():
            block.close()
        self._blocks.clear()

    def _add_block(self, size: int) -> None:
        left = self._left(self.kind.heap)
        if size > left:
            raise OutOfMemoryError(f"{size} bytes are past what this process may take, {max(left, 0)} more")
        size = -(-size // self._unit) * self._unit
        self._numbers += 1
        self._blocks[self._numbers] = self._make_block(self.kind, size, self._numbers)
        self._ranges.add_arena(self._numbers, size)


class Memory:
    """The memory pools of a device.

    `main` holds buffers. `upload` is written by the host and read by the device, `download` the reverse. `arguments` is
    host-visible memory that kernels read directly. On unified memory with a mappable `main`, these are one pool, except
    that `download` may be a separate, cached memory type. `pinned` is host memory of this process that copies reach at
    the full speed of the bus; it is None before `open_pinned`, and if the device can't import host memory.
    """

    def __init__(self, physical: Physical, functions: Functions, device: Any, families: tuple[int, ...] = ()) -> None:
        vulkan = physical.instance.vulkan
        types = [row.propertyFlags for row in physical.memory.memoryTypes[0 : physical.memory.memoryTypeCount]]
        heaps = [row.heapIndex for row in physical.memory.memoryTypes[0 : physical.memory.memoryTypeCount]]
        sizes = [heap.size for heap in physical.memory.memoryHeaps[0 : physical.memory.memoryHeapCount]]
        unified = physical.info.caps is not None and physical.info.caps.unified_memory
        exported = _can_export(physical)
        chosen = _choose(types, [sizes[heap] for heap in heaps], unified, exported)
        kinds = [replace(kind, heap=heaps[kind.type_index]) for kind in chosen]
        kinds[0] = replace(kinds[0], exported=exported)
        pools: dict[tuple[int, bool], Pool] = {}

        def make_block(kind: MemoryKind, size: int, number: int) -> MemoryBlock:
            return MemoryBlock(vulkan, functions, device, kind, size, number, families)

        self.budget = Budget(physical)
        for kind in kinds:
            pools.setdefault((kind.type_index, kind.mapped), Pool(kind, make_block, self._left))
        chosen_pools = (pools[kind.type_index, kind.mapped] for kind in kinds)
        self.main, self.upload, self.download, self.arguments = chosen_pools
        self.pools = tuple(pools.values())
        self.pinned: Pool | None = None
        self._make_pinned: Callable[[], Pool | None] | None = None
        if not unified and "external_memory_host" in physical.features:
            self._make_pinned = lambda: self._pinned(vulkan, functions, device, families, types, heaps)

    def open_pinned(self) -> Pool | None:
        """Return `pinned`, created on the first call. Call it under the lock. Raises DeviceError if the driver fails."""
        make, self._make_pinned = self._make_pinned, None
        if make is not None:
            self.pinned = make()
            if self.pinned is not None:
                self.pools = (*self.pools, self.pinned)
        return self.pinned

    def _pinned(
        self, vulkan: Vulkan, functions: Functions, device: Any, families: tuple[int, ...], types: list[int],
        heaps: list[int],
    ) -> Pool | None:  # fmt: skip
        """Create the pool of imported host memory; None if no memory type supports it."""
        bits = host_memory_types(vulkan, functions, device)
        usable = [i for i, flags in enumerate(types) if bits >> i & 1 and flags & HOST_COHERENT]
        if not usable:
            return None
        index = max(usable, key=lambda i: (types[i] & HOST_CACHED, -(types[i] & DEVICE_LOCAL), -i))
        kind = MemoryKind("pinned", index, heaps[index], True, True, imported=True)

        def make_block(kind: MemoryKind, size: int, number: int) -> MemoryBlock:
            return HostBlock(vulkan, functions, device, kind, size, number, families)

        return Pool(kind, make_block, self._left, _PINNED_BLOCK)

    def _left(self, heap: int) -> int:
        return self.budget.left(heap, sum(pool.reserved for pool in self.pools if pool.kind.heap == heap))

    def reset_peak(self) -> None:
        """Reset `peak` to what is allocated now."""
        for pool in self.pools:
            pool.peak = pool.allocated

    def stats(self) -> dict[str, int]:
        """Return statistics over all pools, in bytes except for `count`.

        `allocated`, `reserved` and `peak` are totals, and `count` is the number of chunks in use. `limit` is that of
        the heap of `main`. `free` is the unused part of the reserved bytes, and `largest_free` is the largest free
        range.
        """
        ranges = [size for pool in self.pools for size in pool.free_sizes()]
        return {
            "limit": self.budget.limit(self.main.kind.heap),
            "free": sum(ranges),
            "largest_free": max(ranges, default=0),
            "allocated": sum(pool.allocated for pool in self.pools),
            "reserved": sum(pool.reserved for pool in self.pools),
            "peak": sum(pool.peak for pool in self.pools),
            "count": sum(pool.count for pool in self.pools),
        }

    def trim(self) -> None:
        for pool in self.pools:
            pool.trim()

    def close(self) -> None:
        for pool in self.pools:
            pool.close()


def _can_export(physical: Physical) -> bool:
    """True if buffers are to be exportable to CUDA: on NVIDIA devices, if export needs no dedicated allocation.

    The host can't see such memory, which makes small transfers slower. So it is used only if VKJIT_SHARE_MEMORY is 1
    or, if that is not set, if PyTorch has been imported.
    """
    wanted = boolean_setting("VKJIT_SHARE_MEMORY")
    if not ("torch" in sys.modules if wanted is None else wanted) or physical.info.vendor != NVIDIA:
        return False
    if "VK_KHR_external_memory_fd" not in physical.extensions:
        return False
    vulkan, functions = physical.instance.vulkan, physical.instance.functions
    info = vulkan.struct("VkPhysicalDeviceExternalBufferInfo", sType=_BUFFER_INFO, usage=USAGE, handleType=OPAQUE_FD)
    out = vulkan.struct("VkExternalBufferProperties", sType=_BUFFER_PROPERTIES)
    functions.vkGetPhysicalDeviceExternalBufferProperties(physical.handle, info, out)
    found = out.externalMemoryProperties.externalMemoryFeatures
    return bool(found & _EXPORTABLE) and not found & _DEDICATED_ONLY


def _choose(
    types: list[int], sizes: list[int], unified: bool, exported: bool = False
) -> tuple[MemoryKind, MemoryKind, MemoryKind, MemoryKind]:
    """Choose the memory types for (main, upload, download, arguments). `sizes` are those of their heaps, by memory
    type.

    `exported`: `main` must be exportable to other libraries, which drivers allow only for memory that the host can't
    see.
    """
    visible = HOST_VISIBLE | HOST_COHERENT
    local = [i for i, flags in enumerate(types) if flags & DEVICE_LOCAL] or list(range(len(types)))
    largest = max(sizes[i] for i in local)

    def pick(candidates: list[int], wanted: int, unwanted: int = 0) -> int | None:
        fitting = [i for i in candidates if types[i] & wanted == wanted]
        fitting.sort(key=lambda i: ((types[i] & unwanted).bit_count(), -sizes[i], i))
        return fitting[0] if fitting else None

    everything = list(range(len(types)))
    host = pick(everything, visible, DEVICE_LOCAL)
    if host is None:
        raise DeviceError("the device has no host-visible, coherent memory: expected by every Vulkan driver")
    roomy = [i for i in local if 2 * sizes[i] >= largest]
    window = pick(roomy, visible | HOST_CACHED) if unified else None
    window = pick(roomy, visible) if window is None else window
    plain = pick(roomy, DEVICE_LOCAL, HOST_VISIBLE)
    main = next(i for i in ((plain,) if exported else (window, plain)) + (local[0],) if i is not None)
    cached = pick(everything, visible | HOST_CACHED, DEVICE_LOCAL)
    if unified and types[main] & visible == visible:
        download = main if types[main] & HOST_CACHED or cached is None else cached
        chosen = (main, main, download, main)
    else:
        near = pick(local, visible)
        chosen = (main, host, host if cached is None else cached, host if near is None else near)

    def kind(name: str, index: int) -> MemoryKind:
        flags = types[index]
        return MemoryKind(name, index, 0, flags & visible == visible, bool(flags & HOST_CACHED))

    names = ("device", "upload", "download", "argument")
    first, second, third, fourth = (kind(name, index) for name, index in zip(names, chosen, strict=True))
    return first, second, third, fourth
